//! Locks that threads of one warp and of several contend for: whoever polls lets the owner go on, however it polls. What a lock protects is in
//! order, unless its fence is missing.

use crate::common::{all_options, read};
use warpsim::{Checks, Finding, Gpu, Kind, Launch, Module, Options, Report};

/// Ways to take the lock at %rd1. Each ends with what orders what it protects.
const LOCKS: &[(&str, &str)] = &[
    ("compare and swap", "L: atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\nmembar.gl;"),
    ("exchange", "L: atom.global.exch.b32 %r3, [%rd1], 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\nmembar.gl;"),
    (
        "an inner loop with a clock",
        "bra TRY; L: mov.u64 %rd5, %clock64; W: mov.u64 %rd6, %clock64; sub.s64 %rd6, %rd6, %rd5; setp.lt.s64 %p1, %rd6, 4000; @%p1 bra P;\n\
         nanosleep.u32 100; P: ld.volatile.global.u32 %r3, [%rd1]; setp.ne.u32 %p1, %r3, 0; @%p1 bra W;\n\
         TRY: atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\nmembar.gl;",
    ),
    (
        "a pause that grows by the clock",
        "mov.u64 %rd5, %globaltimer; L: mov.u64 %rd6, %globaltimer; sub.s64 %rd6, %rd6, %rd5; shr.u64 %rd6, %rd6, 2; cvt.u32.u64 %r4, %rd6;\n\
         nanosleep.u32 %r4; atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\nmembar.gl;",
    ),
    (
        "a fence between attempts",
        "bra T; L: membar.gl; T: atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\nmembar.gl;",
    ),
    (
        "attempts counted in memory",
        "L: red.global.add.u32 [%rd1+8], 1; atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\nmembar.gl;",
    ),
    (
        "attempts counted in a register",
        "mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; ld.relaxed.gpu.global.u32 %r3, [%rd1]; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\n\
         atom.global.cas.b32 %r3, [%rd1], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\nmembar.gl;",
    ),
];

/// Threads that each add one to a counter that the lock at `m` protects: what was found, and the counter.
fn count(take: &str, give: &str, blocks: u32, threads: u32, options: &Options) -> (Report, u32) {
    let text = format!(
        ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 m)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\nld.param.u64 %rd1, [m];\n{take}\n\
         ld.global.u32 %r4, [%rd1+4]; add.u32 %r4, %r4, 1; st.global.u32 [%rd1+4], %r4;\n\
         {give} atom.global.exch.b32 %r3, [%rd1], 0;\nret;\n}}\n"
    );
    let kernel = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).kernel("k").unwrap();
    let mut gpu = Gpu::new();
    let m = gpu.alloc_with(&[0; 16], "m");
    let args: &[&[u8]] = &[&m.to_le_bytes()];
    let launch = Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], args, ..Launch::default() };
    let report = gpu.launch(&kernel, &launch, options).unwrap_or_else(|f| panic!("{take}: {f}"));
    (report, read(&gpu, m + 4, 1)[0])
}

#[test]
fn a_lock_is_given_to_every_lane() {
    for (name, take) in LOCKS {
        let options = all_options().into_iter().chain([Options { checks: Checks::NONE, ..Options::default() }]);
        for options in options.map(|o| Options { instruction_limit: 5_000_000, ..o }) {
            let (report, counted) = count(take, "membar.gl;", 2, 8, &options);
            assert_eq!((report.findings, counted), (vec![], 16), "{name}");
        }
    }
}

#[test]
fn a_lock_without_its_fence_is_found() {
    for (name, take) in LOCKS {
        for options in all_options() {
            let (report, _) = count(take, "", 2, 8, &options);
            let race = |f: &Finding| f.kind == Kind::GlobalRace;
            assert!(report.findings.iter().any(race), "{name}");
        }
    }
}

/// Each thread waits for its number, with a fence at each look, and lets the next go on.
#[test]
fn tickets_are_handed_on_soon() {
    let take = |look: &str| {
        format!(
            "atom.global.add.u32 %r5, [%rd1+8], 1; bra T; L: membar.gl; T: {look}; setp.ne.u32 %p1, %r3, %r5; @%p1 bra L;\nmembar.gl;"
        )
    };
    let volatile =
        ("ld.volatile.global.u32 %r3, [%rd1+12]", "add.u32 %r5, %r5, 1; st.volatile.global.u32 [%rd1+12], %r5;");
    let atomic = ("atom.global.add.u32 %r3, [%rd1+12], 0", "red.global.add.u32 [%rd1+12], 1;");
    for (look, next) in [volatile, atomic] {
        for options in all_options() {
            let give = format!("membar.gl; {next}");
            let (report, counted) = count(&take(look), &give, 1, 64, &options);
            assert_eq!((report.findings, counted), (vec![], 64), "{look}");
            assert!(report.instructions < 500_000, "{look}: {}", report.instructions);
            let (report, _) = count(&take(look), next, 1, 64, &options);
            assert!(report.findings.iter().any(|f| f.kind == Kind::GlobalRace), "{look}");
        }
    }
    // Without a fence, volatile says nothing to the lanes of a warp.
    let one = "st.volatile.global.u32 [%rd1+12], 1; ld.volatile.global.u32 %r3, [%rd1+12];";
    let (report, _) = count(one, "", 1, 32, &all_options()[0]);
    assert!(report.findings.iter().any(|f| f.message.contains("volatile orders nothing")));
}

/// A loop of many turns in one arm of a branch, with an atomic in each: those that wait for it at the end of the branch keep waiting, and
/// the warp executes what lies behind once.
#[test]
fn lanes_wait_for_those_that_work() {
    let work = "mov.u32 %r4, 0; mov.u32 %r5, %laneid; setp.ne.u32 %p1, %r5, 3; @%p1 bra J;\n\
                M: red.global.add.u32 [%rd1+8], 1; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 20000; @%p2 bra M;\nJ: bar.warp.sync -1;";
    let instructions = |more: &str| count(&format!("{work}\n{more}"), "", 1, 32, &Options::default()).0.instructions;
    assert_eq!(instructions("mov.u32 %r6, 1; mov.u32 %r6, 2;"), instructions("") + 2);
}
