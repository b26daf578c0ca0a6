#!/bin/sh
# Checks, tests and times every operator on this machine's GPU. Needs the NVIDIA driver and nothing else.
#
# usage: gpu-check [--out DIR] [verify] [tests] [bench] [benches]
#
# With names only those steps are done, for machines that are lent for minutes. Writes doctor.json, verify.json, bench.json, benches.log,
# tests.json, tests.log and summary.json to DIR (default: gpu-check-results), those of the steps that are done. Exits 0 if all is well, 1 if
# anything failed, 3 if the kernels cannot run here.
set -u

here=$(cd "$(dirname "$0")" && pwd)
out=gpu-check-results
wanted=
while [ $# -gt 0 ]; do
    case $1 in
        --out) [ $# -ge 2 ] || { echo "gpu-check: --out needs a folder" >&2; exit 2; }; out=$2; shift 2 ;;
        --out=*) out=${1#--out=}; shift ;;
        verify | tests | bench | benches) wanted="$wanted $1"; shift ;;
        *) echo "usage: gpu-check [--out DIR] [verify] [tests] [bench] [benches]" >&2; exit 2 ;;
    esac
done
wanted="${wanted:-verify tests bench benches} "
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)

WARPSMITH_COMMIT=$(cat "$here/COMMIT" 2>/dev/null)
CRITERION_HOME=$(mktemp -d)
export WARPSMITH_COMMIT CRITERION_HOME WARPSMITH_REQUIRE_DEVICE=1
trap 'rm -rf "$CRITERION_HOME"' EXIT

failed=0
steps=
begun=$(date +%s)

# wants NAME: whether that step is to be done.
wants() {
    case " $wanted" in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

# step NAME SECONDS COMMAND…: runs it, gives it up after that time, a few times what it takes, and notes how it ended.
step() {
    name=$1 limit=$2
    shift 2
    start=$(date +%s)
    timeout "$limit" "$@"
    code=$?
    seconds=$(($(date +%s) - start))
    [ $code -eq 0 ] || failed=1
    word=ok
    [ $code -eq 0 ] || word="FAILED ($code)"
    printf '%-28s %4d s  %s\n' "$name" "$seconds" "$word"
    steps="$steps${steps:+,}
  {\"name\": \"$name\", \"code\": $code, \"seconds\": $seconds}"
}

warpsmith=$here/warpsmith
"$warpsmith" doctor --json >"$out/doctor.json"
"$warpsmith" doctor || { echo "gpu-check: the kernels cannot run here" >&2; exit 3; }
echo

if wants verify; then
    # Most of a case is the CPU's work: random input, the driver's compiler, the reference.
    at_once=$(($(nproc) * 7 / 8))
    [ $at_once -le 14 ] || at_once=14
    [ $at_once -ge 1 ] || at_once=1
    step verify 3600 sh -c '
        "$1" verify --backend cuda --at-once "$3" --json >"$2"
    ' sh "$warpsmith" "$out/verify.json" $at_once
fi

if wants tests; then
    : >"$out/tests.log"
    tests_from=$(printf %s "$steps" | wc -c)
    for test in "$here"/tests/*; do
        step "tests/$(basename "$test")" 600 sh -c '
            echo "== $1" >>"$2"; exec "$1" >>"$2" 2>&1
        ' sh "$test" "$out/tests.log"
    done
    of_tests=$(printf %s "$steps" | tail -c +$((tests_from + 1)))
    printf '{"tests": [%s\n]}\n' "${of_tests#,}" >"$out/tests.json"
fi

if wants bench; then
    step bench 1800 sh -c '"$1" bench --backend cuda --json --out "$2" >/dev/null' sh "$warpsmith" "$out/bench.json"
fi

if wants benches; then
    : >"$out/benches.log"
    for bench in "$here"/benches/*; do
        step "benches/$(basename "$bench")" 900 sh -c '
            exec "$1" --bench --noplot --warm-up-time 0.1 --measurement-time 0.2 --sample-size 10 >>"$2" 2>&1
        ' sh "$bench" "$out/benches.log"
    done
fi

total=$(($(date +%s) - begun))
passed=true
[ $failed -eq 0 ] || passed=false
printf '{"passed": %s, "seconds": %d, "commit": "%s", "steps": [%s\n]}\n' "$passed" "$total" "$WARPSMITH_COMMIT" "$steps" \
    >"$out/summary.json"
echo
if [ $failed -eq 0 ]; then
    echo "All is well, in $total s. Results: $out"
else
    echo "Something failed, in $total s. Results: $out" >&2
fi
exit $failed
