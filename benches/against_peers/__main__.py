"""What users would pick instead, timed on the cases that `warpsmith bench` has timed, so that `warpsmith report` can put both side by side.

usage: python3 benches/against_peers ROWS.json … [--out PEERS.json] [--only OP,…] [--no-compile] [--autotune] [--budget SECONDS] [--list]

ROWS.json is what `warpsmith bench OPS --variant auto --out ROWS.json` writes, on the same machine, best right before. Needs PyTorch with CUDA; Liger-Kernel,
QuACK and FlashAttention's CuTe kernels are timed where they can be imported. PEERS.json has the operators and cases of ROWS.json by the same names. Progress,
failures and cases that have no peer go to stderr.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.metadata
import json
import os
import shlex
import sys
from typing import Any

import attention, elements, few_bits, layout, losses, optim, products, quant, rows  # noqa: E401, F401
from cases import NoPeer, UnknownCase
from lazy import load, torch
from peers import COMPILED, Peer, peers_of
from timing import DeviceLost, time_in_turns

WHEELS = ("liger-kernel", "quack-kernels", "flash-attn-4", "nvidia-cutlass-dsl", "triton")
Pairs = list[tuple[str, str]]


def say(line: str) -> None:
    """To whoever waits."""
    print(line, file=sys.stderr, flush=True)


def cases_in(document: Any) -> Pairs:
    """The operators and cases of a file of `bench`, each once."""
    found = document.get("rows", []) if isinstance(document, dict) else []
    timed = [row for row in found if isinstance(row, dict) and "variant" in row and "ms" in row and "status" not in row]
    return list(dict.fromkeys((row["op"], row["case"]) for row in timed))


def chosen(pairs: Pairs, only: str) -> Pairs:
    """Those whose operators are named, or begin so."""
    beginnings = tuple(word for word in only.split(",") if word)
    return [pair for pair in pairs if not beginnings or pair[0].startswith(beginnings)]


def plan(pairs: Pairs) -> tuple[list[tuple[str, str, list[Peer]]], list[str]]:
    """Each case with its peers, and a line for each that has none."""
    planned, others = [], []
    for op, case in pairs:
        try:
            planned.append((op, case, peers_of(op, case)))
        except NoPeer as why:
            others.append(f"no peer: {op} | {case}: {why}")
        except UnknownCase as why:
            others.append(f"unknown: {op} | {case}: {why}")
    return planned, others


def importable(modules: set[str]) -> set[str]:
    """Those that can be imported; says why the others cannot."""
    found = set()
    for module in sorted(modules):
        try:
            importlib.import_module(module)
            found.add(module)
        # Wheels for other systems raise what they like.
        except Exception as error:  # noqa: BLE001
            say(f"left out: {module}: {described(error)}")
    return found


def described(error: Exception) -> str:
    """The kind of an error and the first line that it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def versions() -> dict[str, str]:
    """What is installed of the others."""
    found = {}
    for wheel in WHEELS:
        try:
            found[wheel] = importlib.metadata.version(wheel)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def write(path: str, document: Any) -> None:
    """All at once: who is ended in between leaves a whole file."""
    if path:
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
        os.replace(f"{path}.part", path)


def prepare() -> None:
    """What holds for all cases."""
    torch.manual_seed(0)
    config = importlib.import_module("torch._functorch.config")
    # A backward that runs again and again may not give away what its forward has kept.
    if hasattr(config, "donated_buffer"):
        setattr(config, "donated_buffer", False)


def time_case(peers: list[Peer], budget: float) -> tuple[list[tuple[str, float, float]], list[str]]:
    """Names, medians and least milliseconds of the peers of a case, and what those said that failed."""
    failures: list[str] = []
    # Compiled functions are compiled anew for each case: none is general, and none falls back because there were too many.
    torch.compiler.reset()
    torch.set_float32_matmul_precision("highest")
    try:
        timed = time_in_turns(peers, budget, lambda peer, error: failures.append(f"{peer.name}: {described(error)}"))
        return [(peer.name, ms, least) for peer, ms, least in timed], failures
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def arguments() -> argparse.Namespace:
    """The command line."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("rows", nargs="+", metavar="ROWS.json")
    args.add_argument("--out", default="", metavar="PEERS.json", help="written after each case; without it the timings are printed")
    args.add_argument("--only", default="", metavar="OP,…", help="operators as the rows name them, or how their names begin")
    args.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    args.add_argument("--autotune", action="store_true", help="also what tries many kernels first, for minutes a shape: QuACK's products")
    args.add_argument("--budget", type=float, default=0.15, metavar="SECONDS", help="for the launches of a peer of a case")
    args.add_argument("--list", action="store_true", help="print what would be timed, and time nothing")
    return args.parse_args()


def read(paths: list[str], only: str) -> Pairs:
    """The chosen cases of all files."""
    pairs: Pairs = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found = cases_in(json.load(file))
        if not found:
            sys.exit(f"{path} has no rows of `warpsmith bench`")
        pairs += found
    if not (wanted := chosen(list(dict.fromkeys(pairs)), only)):
        sys.exit(f"no operator of the rows begins with {only}")
    return wanted


def main() -> int:
    args = arguments()
    planned, others = plan(read(args.rows, args.only))
    keep = lambda peer: (args.autotune or not peer.tunes) and not (args.no_compile and peer.name == COMPILED)  # noqa: E731
    planned = [(op, case, list(filter(keep, peers))) for op, case, peers in planned]
    if args.list:
        for op, case, peers in planned:
            print(f"{op} | {case}: {', '.join(peer.name for peer in peers)}")
    for line in others:
        say(line)
    if args.list:
        return 0
    load()
    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU")
    present = importable({peer.needs for _, _, peers in planned for peer in peers if peer.needs})
    prepare()
    document: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}
    document |= {"command": f"python3 benches/against_peers {shlex.join(sys.argv[1:])}", "versions": versions(), "rows": []}
    failed = 0
    for number, (op, case, peers) in enumerate(planned, 1):
        wanted = [peer for peer in peers if not peer.needs or peer.needs in present]
        try:
            timed, failures = time_case(wanted, args.budget)
        except DeviceLost as error:
            say(f"{op} | {case}: the device is lost: {described(error)}")
            return 1
        failed += len(failures)
        document["rows"] += [{"op": op, "case": case, "peer": name, "ms": ms, "min_ms": least} for name, ms, least in timed]
        write(args.out, document)
        shown = ", ".join(f"{name} {ms:.4f} ms" for name, ms, _ in timed) or "nothing"
        say(f"[{number}/{len(planned)}] {op} | {case}: {shown}")
        for line in failures:
            say(f"    failed: {line}")
    if not args.out:
        json.dump(document, sys.stdout, indent=1)
    say(f"{len(document['rows'])} timings of {len(planned)} cases, {failed} failed, {len(others)} cases without a peer")
    return 0 if document["rows"] else 1


if __name__ == "__main__":
    sys.exit(main())
