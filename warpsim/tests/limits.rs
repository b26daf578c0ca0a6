//! Grids and loops that would never end.

use warpsim::{Checks, Device, Fault, Gpu, Kind, L4, Launch, Module, Options};

/// Every grid dimension at its limit: 2⁶³ blocks.
const LARGEST: [u32; 3] = [(1 << 31) - 1, 65535, 65535];

fn run(body: &str, grid: [u32; 3], options: &Options) -> Result<u64, Fault> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<2>;\n{body}\n}}\n"
    );
    let kernel = Module::parse(&text).unwrap().kernel("k").unwrap();
    let launch = Launch { grid, block: [64, 1, 1], ..Launch::default() };
    Gpu::new().launch(&kernel, &launch, options).map(|report| report.instructions)
}

#[test]
fn a_grid_that_cannot_end_does_not_start() {
    let options = Options { checks: Checks::ALL, metrics: true, ..Options::default() };
    for (grid, says) in [
        (LARGEST, "a grid of 2147483647x65535x65535 blocks has "),
        ([65535, 65535, 256], "2198956147200 warps: the limit is 68719476736 warp instructions a launch"),
    ] {
        let fault = run("ret;", grid, &options).unwrap_err();
        assert_eq!(fault.finding.kind, Kind::InstructionLimit);
        assert!(fault.finding.message.contains(says), "{fault}");
    }
}

#[test]
fn a_launch_has_a_limit_over_all_its_blocks() {
    let body = "mov.u32 %r1, 1;\nadd.u32 %r1, %r1, 1;\nret;";
    for threads in [1, 2] {
        let limited = |launch_limit| run(body, [1000, 1, 1], &Options { launch_limit, threads, ..Options::default() });
        assert_eq!(limited(6000), Ok(6000));
        let fault = limited(3000).unwrap_err();
        assert_eq!(fault.finding.kind, Kind::InstructionLimit);
        let says = "the limit of 3000 warp instructions a launch is reached before cluster ";
        assert!(fault.finding.message.starts_with(says), "{fault}");
        assert!(fault.finding.message.ends_with(" of 1000 has ended"), "{fault}");
    }
}

/// Also one that is smaller than what a warp executes in a turn.
#[test]
fn a_small_limit_holds() {
    let body = "mov.u32 %r1, 1;\nadd.u32 %r1, %r1, 1;\nadd.u32 %r1, %r1, 1;\nret;";
    let limited = |launch_limit| run(body, [1; 3], &Options { launch_limit, ..Options::default() });
    assert_eq!(limited(8), Ok(8));
    for limit in 1..8 {
        assert_eq!(limited(limit).unwrap_err().finding.kind, Kind::InstructionLimit, "{limit}");
    }
}

/// The first block is not kept waiting by others that have no end either.
#[test]
fn a_loop_without_an_end_is_known_for_one_soon() {
    let body =
        ".shared .align 4 .b32 one;\nmov.u32 %r1, 0;\nLOOP: st.shared.u32 [one], %r1;\nadd.u32 %r1, %r1, 1;\nbra LOOP;";
    let instruction_limit = 12_000_000;
    let options = Options { checks: Checks::NONE, threads: 1, instruction_limit, ..Options::default() };
    let fault = run(body, [10, 1, 1], &Options { launch_limit: 70_000_000, ..options }).unwrap_err();
    assert!(fault.finding.message.starts_with("the limit of 12000000 warp instructions a block"), "{fault}");
}

/// As a latch does that waits with a growing pause: the clock shows another time whenever it is looked at.
#[test]
fn who_waits_by_the_clock_for_what_does_not_come_is_said_to() {
    let body = |written: &str| {
        format!(
            ".reg .b64 %t;\n.reg .b32 %v<2>;\n.reg .pred %p;\n.shared .align 4 .b32 flags[2];\nmov.u32 %r1, %tid.x;\nmov.u32 %v1, 0;\n\
             st.shared.u32 [flags], 0;\nst.shared.u32 [flags+4], 0;\nbar.sync 0;\nLOOP: mov.u64 %t, %clock64;\n{written}\n\
             ld.volatile.shared.u32 %v0, [flags];\nsetp.eq.u32 %p, %v0, 0;\n@%p bra LOOP;\nret;"
        )
    };
    let options = Options { checks: Checks::NONE, instruction_limit: 100_000, ..Options::default() };
    let said = |written| run(&body(written), [1, 1, 1], &options).unwrap_err();
    let fault = said("");
    assert_eq!(fault.finding.kind, Kind::InstructionLimit);
    assert!(fault.finding.message.contains("wait in a loop wait for what does not come"), "{fault}");
    // Something comes, only not what they wait for: nobody can tell.
    let fault = said("st.volatile.shared.u32 [flags+4], %r1;");
    assert_eq!(fault.finding.kind, Kind::InstructionLimit);
    assert!(!fault.finding.message.contains("does not come"), "{fault}");
}

#[test]
fn nothing_is_allocated_for_blocks_that_have_not_started() {
    // The first block ends the launch.
    let options = Options { checks: Checks::ALL, metrics: true, launch_limit: u64::MAX, ..Options::default() };
    assert_eq!(run("trap;", LARGEST, &options).unwrap_err().finding.kind, Kind::Trap);
}

/// Kernels with as many branches as no one else's, of which each returns early, is jumped over, or goes to one end; in a loop, and not. Each was to be
/// looked at from every other.
#[test]
fn kernels_with_many_branches_are_lowered_at_once() {
    for (branch, end) in [
        ("@%p1 bra L#;\nst.global.u32 [%x1], #;\nret;\nL#:", ""),
        ("@%p1 bra L#;\nadd.u32 %r1, %r1, #;\nL#:", ""),
        ("@%p1 bra END;\nadd.u32 %r1, %r1, #;", "END: st.global.u32 [%x1], 7;\nret;"),
    ] {
        let body: String =
            (0..30_000).map(|k| format!("setp.eq.u32 %p1, %r1, #;\n{branch}\n").replace('#', &k.to_string())).collect();
        for again in ["", "@%p1 bra AGAIN;"] {
            let text = format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<2>; .reg .pred %p<2>; .reg .b64 %x<2>;\n\
                 ld.param.u64 %x1, [p]; mov.u32 %r1, %tid.x;\nAGAIN:\n{body}\n{again}\nret;\n{end}\n}}\n"
            );
            let start = std::time::Instant::now();
            Module::parse(&text).unwrap().kernel("k").unwrap();
            // Less than a second; a walk over the rest of the kernel for each takes minutes, a look at all that lead to one end a quarter of one.
            assert!(start.elapsed().as_secs() < 10, "{branch} {again}: {:?}", start.elapsed());
        }
    }
}

/// More than any machine has, or a launch may.
#[test]
fn memory_that_is_not_there_is_refused() {
    let mut gpu = Gpu::new();
    assert_eq!(gpu.try_alloc(1 << 60, "x").map_err(|error| error.bytes), Err(1 << 60));
    gpu.try_alloc(16, "x").unwrap();

    let module = |parameter: &str, body: &str| {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({parameter})\n{{\n{body}\nret;\n}}\n"
        );
        Module::parse(&text).unwrap()
    };
    let many = module(".param .b8 p[40000]", "").kernel("k").err();
    assert!(many.is_some_and(|error| error.message.contains("more than 32764 bytes of parameters")));
    let large = module("", ".shared .b8 s[4294967296];\n.reg .b32 r;\nmov.u32 r, s;").kernel("k").unwrap();
    let fault = gpu.launch(&large, &Launch::default(), &Options::default()).unwrap_err();
    assert!(fault.to_string().contains("4294967295 bytes of shared memory"), "{fault}");
}

/// Five billion bytes of which a kernel touches few: their check takes what it touches.
#[test]
fn a_large_buffer_is_checked_as_far_as_it_is_used() {
    let text = |at: &str| {
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<9>; .reg .b64 %x<9>;\n\
             ld.param.u64 %x1, [p]; mov.u32 %r1, %ctaid.x; add.u32 %r2, %r1, 600000000;\n{at}\nadd.u64 %x2, %x2, %x1; st.global.u8 [%x2], 1;\nret;\n}}\n"
        )
    };
    let found = |at: &str| {
        let kernel = Module::parse(&text(at)).unwrap().kernel("k").unwrap();
        let mut gpu = Gpu::new();
        let x = gpu.alloc(5_000_000_000, "x");
        let launch = Launch { grid: [2, 1, 1], args: &[&x.to_le_bytes()], ..Launch::default() };
        let options = Options { checks: Checks::ALL, ..Options::default() };
        let findings = gpu.launch(&kernel, &launch, &options).unwrap_or_else(|f| panic!("{f}")).findings;
        findings.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(found("mul.wide.u32 %x2, %r2, 8;"), []);
    assert_eq!(found("mul.lo.u32 %r3, %r2, 8; cvt.u64.u32 %x2, %r3;"), [Kind::IndexOverflow]);
    assert_eq!(found("mov.u64 %x2, 4800000000;"), []);
}

/// Kernels of two warps a block with a zeroed word at %x1, the number of the block in %r2, and `flag` in shared memory.
fn polls(body: &str, blocks: u32, options: &Options) -> Result<u64, Fault> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<9>; .reg .pred %p<9>; .reg .b64 %x<9>;\n\
         .shared .align 8 .b64 bar; .shared .b32 flag; ld.param.u64 %x1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r1, 0;\n\
         @%p1 st.shared.u32 [flag], 0; bar.sync 0;\n{body}\nret;\n}}\n"
    );
    let kernel = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).kernel("k").unwrap();
    let mut gpu = Gpu::new();
    let p = gpu.alloc_with(&[0; 64], "p").to_le_bytes();
    let launch = Launch { grid: [blocks, 1, 1], block: [64, 1, 1], args: &[&p], ..Launch::default() };
    gpu.launch(&kernel, &launch, options).map(|report| report.instructions)
}

#[test]
fn threads_that_poll_for_ever_are_a_deadlock() {
    let global = "L: ld.volatile.global.u32 %r3, [%x1]; setp.eq.u32 %p2, %r3, 0;\n@%p2 bra L;";
    for (body, blocks) in [
        (global, 1),
        (global, 200),
        // Those that poll never come to the barrier where the others wait; a lock that nobody gives back; a pause in between.
        (
            "setp.lt.u32 %p3, %r1, 32; @!%p3 bra W;\nL: ld.volatile.shared.u32 %r3, [flag]; setp.eq.u32 %p2, %r3, 0; @%p2 bra L;\nW: bar.sync 0;",
            3,
        ),
        ("@!%p1 bra END;\nL: atom.global.cas.b32 %r3, [%x1], 0, 1; setp.ne.u32 %p2, %r3, 0;\n@%p2 bra L;\nEND:", 2),
        ("L: ld.acquire.gpu.global.u32 %r3, [%x1]; nanosleep.u32 20; setp.eq.u32 %p2, %r3, 0;\n@%p2 bra L;", 2),
        // Each warp for another's phase, and lanes apart.
        (
            "@%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; setp.lt.u32 %p3, %r1, 40; @%p3 bra L;\n\
          M: mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra M;\nL: ld.relaxed.gpu.global.u32 %r3, [%x1]; setp.eq.u32 %p2, %r3, 0; @%p2 bra L;",
            2,
        ),
    ] {
        for options in crate::common::all_options() {
            let fault = polls(body, blocks, &options).unwrap_err();
            let says = "no thread can go on: those that run go round for ever";
            assert!(fault.finding.kind == Kind::Deadlock && fault.finding.message.starts_with(says), "{body} {fault}");
        }
    }
}

/// A barrier of the grid by hand, on a GPU that holds 48 of its blocks.
#[test]
fn a_grid_waits_for_itself_as_far_as_the_gpu_holds_it() {
    let body = "mov.u32 %r4, %nctaid.x; @!%p1 bra W; red.release.gpu.global.add.u32 [%x1], 1;\n\
                L: ld.acquire.gpu.global.u32 %r3, [%x1]; setp.lt.u32 %p2, %r3, %r4; @%p2 bra L;\nW: bar.sync 0;";
    for threads in [1, 2] {
        let device = Some(Device { multiprocessors: 2, ..L4 });
        let options = Options { checks: Checks::ALL, threads, device, ..Options::default() };
        polls(body, 48, &options).unwrap_or_else(|f| panic!("{f}"));
        let fault = polls(body, 50, &options).unwrap_err();
        assert!(fault.finding.kind == Kind::Deadlock && fault.finding.message.contains("has no room for"), "{fault}");
    }
}

#[test]
fn threads_that_poll_for_a_while_end() {
    let wait = "L: ld.volatile.global.u32 %r3, [%x1]; setp.eq.u32 %p2, %r3, 0;\n@%p2 bra L;";
    for (body, blocks) in [
        // The last of many blocks sets the flag, a slow one, one after another.
        (format!("mov.u32 %r4, %nctaid.x; sub.u32 %r4, %r4, 1; setp.eq.u32 %p3, %r2, %r4; @%p3 st.volatile.global.u32 [%x1], 1;\n{wait}"), 200),
        (format!("setp.ne.u32 %p3, %r2, 1; @%p3 bra L;\nmov.u32 %r4, 0; S: add.u32 %r4, %r4, 1; setp.lt.u32 %p4, %r4, 300000;\n@%p4 bra S;\nst.volatile.global.u32 [%x1], 1;\n{wait}"), 3),
        (format!("@%p1 bra GO;\n bra END;\nGO: {} add.u32 %r3, %r3, 1; st.release.gpu.global.u32 [%x1], %r3;\nEND:", wait.replace("%r3, 0", "%r3, %r2").replace("setp.eq", "setp.ne")), 40),
        // Patience that ends, by count and by clock.
        ("mov.u32 %r4, 0; L: ld.volatile.global.u32 %r3, [%x1]; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 100000;\n@%p2 bra L;".into(), 2),
        ("mov.u64 %x3, %clock64; L: ld.volatile.global.u32 %r3, [%x1]; mov.u64 %x2, %clock64; sub.u64 %x2, %x2, %x3; setp.lt.u64 %p2, %x2, 1000000;\n\
          mov.u64 %x2, 0; @%p2 bra L;".into(), 2),
    ] {
        for options in crate::common::all_options() {
            if let Err(fault) = polls(&body, blocks, &Options { checks: Checks::NONE, ..options }) {
                panic!("{body} {fault}");
            }
        }
    }
}
