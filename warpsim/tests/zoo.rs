//! Planted bugs: each is found, and the same kernel without the bug is quiet.

use crate::common::all_options;
use warpsim::{Gpu, Kind, Launch, Module, Options};

/// A kernel `k(p, q)` with pointers in %rd1, %rd2 and the thread index in %r1 (times four in %r2).
pub(crate) fn kernel(shared: u32, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{{\n\
         .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<200>;\n\
         .shared .align 1024 .b8 tile[{shared}];\n.shared .align 8 .b64 bar;\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];\nmov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2;\n{body}\nret;\n}}\n"
    )
}

pub(crate) struct Bug<'a> {
    pub name: &'a str,
    pub threads: u32,
    pub blocks: u32,
    pub bad: &'a str,
    /// What is replaced in `bad` to mend it, and by what.
    pub mend: (&'a str, &'a str),
    pub kind: Kind,
}

pub(crate) fn launch(text: &str, b: &Bug<'_>, o: &Options) -> Result<Vec<warpsim::Finding>, warpsim::Fault> {
    let k = Module::parse(text)
        .unwrap_or_else(|e| panic!("{}: {e}", b.name))
        .kernel("k")
        .unwrap_or_else(|e| panic!("{}: {e}", b.name));
    let mut g = Gpu::new();
    let p = g.alloc_with(&[1; 4096], "input");
    let q = g.alloc(4096, "output");
    let (p, q) = (p.to_le_bytes(), q.to_le_bytes());
    let l = Launch { grid: [b.blocks, 1, 1], block: [b.threads, 1, 1], args: &[&p, &q], ..Launch::default() };
    let o = Options { instruction_limit: 100_000, ..o.clone() };
    g.launch(&k, &l, &o).map(|r| r.findings)
}

pub(crate) fn check(b: Bug<'_>) {
    for o in all_options() {
        let found = match launch(&kernel(8192, b.bad), &b, &o) {
            Ok(f) => f,
            Err(f) => std::iter::once(*f.finding).chain(f.also).collect(),
        };
        let hit = found.iter().find(|f| f.kind == b.kind);
        let Some(hit) = hit else { panic!("{}: not found; {found:?}", b.name) };
        assert!(hit.place.ptx_line > 0 && !hit.place.instruction.is_empty(), "{}: no place", b.name);
        let good = b.bad.replace(b.mend.0, b.mend.1);
        assert_ne!(good, b.bad, "{}: nothing mended", b.name);
        match launch(&kernel(8192, &good), &b, &o) {
            Ok(f) => assert!(f.is_empty(), "{}: the clean twin: {}", b.name, f[0]),
            Err(f) => panic!("{}: the clean twin: {f}", b.name),
        }
    }
}

macro_rules! zoo {
    ($($name:ident: $kind:ident, $blocks:literal x $threads:literal, $bad:expr, $from:expr => $to:expr;)*) => {$(
        #[test]
        fn $name() {
            check(Bug { name: stringify!($name), threads: $threads, blocks: $blocks, bad: $bad, mend: ($from, $to), kind: Kind::$kind });
        }
    )*};
}

const MBAR: &str = "mov.u32 %r20, bar; mov.u32 %r21, tile; setp.eq.u32 %p1, %r1, 0;\n";

zoo! {
    missing_barrier: SharedRace, 1 x 64,
        "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1;\n//sync\nxor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5];\n\
         cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r6;", "//sync" => "bar.sync 0;";
    missing_syncwarp: SharedRace, 1 x 32,
        "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1;\n//sync\nxor.b32 %r5, %r2, 4; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5];", "//sync" => "bar.warp.sync 0xffffffff;";
    missing_second_barrier: SharedRace, 1 x 64,
        "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1; bar.sync 0;\nxor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5];\n//sync\nst.shared.u32 [%r4], %r6;",
        "//sync" => "bar.sync 0;";
    off_by_one: OutOfBounds, 1 x 32,
        "cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd2, %rd3; st.global.u32 [%rd4+3972], %r1;", "+3972" => "+3968";
    shared_overflow: OutOfBounds, 1 x 32, "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4+8192], %r1;", "+8192" => "+8000";
    local_overflow: OutOfBounds, 1 x 32, ".local .align 4 .b8 depot[8];\nst.local.u32 [depot+8], %r1;", "depot+8" => "depot+4";
    local_index: OutOfBounds, 1 x 32,
        ".local .align 4 .b8 depot[40]; mov.u32 %r3, depot; min.u32 %r4, %r1, 10; shl.b32 %r4, %r4, 2; add.u32 %r4, %r3, %r4;\nst.local.u32 [%r4], %r1;",
        "%r1, 10;" => "%r1, 9;";
    local_beyond_alloca: OutOfBounds, 1 x 32,
        "alloca.u64 %rd3, 24; add.u64 %rd4, %rd3, 24;\nst.local.u32 [%rd4], %r1;", "%rd3, 24;\n" => "%rd3, 20;\n";
    uninitialised_local: UninitialisedLocal, 1 x 32,
        ".local .align 4 .b8 depot[8];\n//init\nld.local.u32 %r3, [depot+4];\nadd.u32 %r4, %r3, 1;\nst.global.u32 [%rd2], %r4;", "//init" => "st.local.u32 [depot+4], 5;";
    uninitialised_local_by_generic_address: UninitialisedLocal, 1 x 32,
        ".local .align 4 .b8 depot[8]; mov.u64 %rd3, depot; cvta.local.u64 %rd3, %rd3; st.u32 [%rd3], %r1;\nld.u32 %r3, [%rd3+4];\nsetp.eq.u32 %p1, %r3, 777; @%p1 bar.sync 0;",
        "[%rd3+4]" => "[%rd3]";
    uninitialised_local_copied: UninitialisedLocal, 1 x 32,
        ".local .align 4 .b8 depot[16];\n//init\nld.local.u32 %r3, [depot]; st.local.u32 [depot+8], %r3;\nld.local.u32 %r4, [depot+8]; cvt.u64.u32 %rd3, %r4; add.u64 %rd3, %rd1, %rd3;\nld.global.u32 %r5, [%rd3];",
        "//init" => "st.local.u32 [depot], 8;";
    uninitialised_alloca: UninitialisedLocal, 1 x 32,
        "alloca.u64 %rd3, 16; st.local.u32 [%rd3], 1;\nld.local.u32 %r3, [%rd3+8];\nst.global.u32 [%rd2], %r3;", "[%rd3+8]" => "[%rd3]";
    misaligned_vector: Misaligned, 1 x 1, "ld.global.v4.u32 {%r3,%r4,%r5,%r6}, [%rd1+8];", "+8" => "+16";
    null_pointer: OutOfBounds, 1 x 1, "mov.u64 %rd5, 0;\nld.global.u32 %r3, [%rd5];", "[%rd5]" => "[%rd1]";
    uninitialised_shared: UninitialisedShared, 1 x 32,
        "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;\n//init\nld.shared.u32 %r6, [%r4];\nst.global.u32 [%rd2], %r6;", "//init" => "st.shared.u32 [%r4], 0;";
    uninitialised_global: UninitialisedGlobal, 1 x 32, "ld.global.u32 %r6, [%rd2];", "[%rd2]" => "[%rd1]";
    uninitialised_register: UninitialisedRegister, 1 x 32,
        "setp.gt.u32 %p1, %r1, 3;\n//else\n@%p1 mov.u32 %r9, 7;\nadd.u32 %r10, %r9, 1;\nsetp.eq.u32 %p2, %r10, 3; @%p2 st.global.u32 [%rd2], 5;", "//else" => "mov.u32 %r9, 1;";
    global_race: GlobalRace, 2 x 1, "mov.u32 %r3, %ctaid.x;\nst.global.u32 [%rd1], %r3;", "st.global.u32" => "red.global.add.u32";
    global_race_in_block: GlobalRace, 1 x 64,
        "cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r1;\n//sync\nxor.b32 %r5, %r2, 128; cvt.u64.u32 %rd3, %r5; add.u64 %rd4, %rd2, %rd3; ld.global.u32 %r6, [%rd4];", "//sync" => "bar.sync 0;";
    divergent_barrier: DivergentBarrier, 1 x 32, "setp.lt.u32 %p1, %r1, 16;\n@%p1 bar.sync 0;", "@%p1 bar" => "bar";
    barrier_counts: BarrierCount, 1 x 64, "setp.lt.u32 %p1, %r1, 32;\nmov.u32 %r3, 64; @%p1 mov.u32 %r3, 96;\nbar.sync 1, %r3;", "%r3, 96" => "%r3, 64";
    barrier_deadlock: Deadlock, 1 x 64, "setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 1, 64;", "1, 64" => "1, 32";
    absent_lanes: Deadlock, 1 x 32, "setp.lt.u32 %p1, %r1, 16;\n@!%p1 bra SKIP;\nshfl.sync.bfly.b32 %r5, %r1, 1, 31, 0xffffffff;\nSKIP: bar.sync 0;", "0xffffffff" => "0xffff";
    counting_loop: InstructionLimit, 1 x 32, "mov.u32 %r3, 1;\nLOOP: add.u32 %r3, %r3, 2;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra LOOP;", "%r3, 2" => "%r3, %r3";
    endless_loop: Deadlock, 1 x 32, "LOOP: add.u32 %r3, %r1, 1;\nsetp.lt.u32 %p1, %r3, 1;\n@!%p1 bra LOOP;", "@!%p1" => "@%p1";
    missing_cp_async_wait: AsyncRace, 1 x 32,
        "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd1, %rd3;\ncp.async.ca.shared.global [%r4], [%rd4], 4; cp.async.commit_group;\n//wait\nld.shared.u32 %r6, [%r4];",
        "//wait" => "cp.async.wait_group 0;";
    cp_async_wait_one_too_few: AsyncRace, 1 x 32,
        "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd1, %rd3;\ncp.async.ca.shared.global [%r4], [%rd4], 4; cp.async.commit_group;\n\
         cp.async.ca.shared.global [%r4+128], [%rd4], 4; cp.async.commit_group;\ncp.async.wait_group 1;\nld.shared.u32 %r6, [%r4+128];", "[%r4+128];" => "[%r4];";
    trap: Trap, 1 x 32, "setp.gt.u32 %p1, %r1, 30;\n@%p1 trap;", "30" => "31";
    mbarrier_not_initialised: BarrierMisuse, 1 x 1, "mov.u32 %r20, bar;\n//init\nmbarrier.arrive.shared.b64 _, [%r20];", "//init" => "mbarrier.init.shared.b64 [%r20], 1;";
    mbarrier_too_many_arrivals: BarrierMisuse, 1 x 32, "mov.u32 %r20, bar; setp.eq.u32 %p1, %r1, 0;\n@%p1 mbarrier.init.shared.b64 [%r20], 16; bar.sync 0;\nmbarrier.arrive.shared.b64 _, [%r20], 3;", "16; bar" => "96; bar";
    mbarrier_no_sync_after_init: SharedRace, 1 x 64, "mov.u32 %r20, bar; setp.eq.u32 %p1, %r1, 0;\n@%p1 mbarrier.init.shared.b64 [%r20], 64; bar.warp.sync -1;\n//sync\nsetp.lt.u32 %p2, %r1, 32;\n@%p2 nanosleep.u32 20;\nmbarrier.arrive.shared.b64 _, [%r20];",
        "//sync" => "bar.sync 0;";
}

/// A bulk load of 512 bytes, then a wait; `PARITY` and the rest are filled in.
fn bulk_load(parity: u32, expect: u32, wait: bool) -> String {
    let wait = if wait {
        format!("W: mbarrier.try_wait.parity.shared.b64 %p2, [%r20], {parity};\n@!%p2 bra W;\n")
    } else {
        String::new()
    };
    format!(
        "{MBAR}@%p1 mbarrier.init.shared.b64 [%r20], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;\n\
         @!%p1 bra WAIT;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r20], {expect};\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r21], [%rd1], 512, [%r20];\nWAIT:\n\
         {wait}add.u32 %r4, %r21, %r2; ld.shared.u32 %r6, [%r4];"
    )
}

pub(crate) fn one(body: &str, threads: u32, o: &Options) -> Vec<Kind> {
    let b = Bug { name: "one", threads, blocks: 1, bad: "", mend: ("", ""), kind: Kind::Internal };
    match launch(&kernel(8192, body), &b, o) {
        Ok(f) => f.into_iter().map(|f| f.kind).collect(),
        Err(f) => std::iter::once(f.finding.kind).chain(f.also.iter().map(|f| f.kind)).collect(),
    }
}

#[test]
fn bulk_loads() {
    for o in all_options() {
        assert_eq!(one(&bulk_load(0, 512, true), 64, &o), []);
        let found = one(&bulk_load(1, 512, true), 64, &o);
        // When the copy is already over, the phase waited for never ends.
        assert!(found.contains(&Kind::AsyncRace) || found == [Kind::Deadlock], "the wrong phase: {found:?}");
        assert!(one(&bulk_load(0, 512, false), 64, &o).contains(&Kind::AsyncRace), "no wait");
        assert_eq!(one(&bulk_load(0, 1024, true), 64, &o), [Kind::Deadlock], "too many bytes expected");
    }
}

#[test]
fn bulk_stores() {
    let body = |fence: &str, wait: &str| {
        format!(
            "{MBAR}add.u32 %r4, %r21, %r2; st.shared.u32 [%r4], %r1;\n{fence}\nbar.sync 0;\n@!%p1 bra DONE;\n\
             cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r21], 256; cp.async.bulk.commit_group;\n{wait}\nDONE: bar.sync 0;\nst.shared.u32 [%r4], 9;\n\
             cp.async.bulk.wait_group 0;"
        )
    };
    let (fence, wait) = ("fence.proxy.async.shared::cta;", "cp.async.bulk.wait_group.read 0;");
    for o in all_options() {
        assert_eq!(one(&body(fence, wait), 64, &o), []);
        assert_eq!(one(&body("", wait), 64, &o), [Kind::MissingProxyFence]);
        // Whether the other warp writes before or after the late wait decides which of the two it is.
        let found = one(&body(fence, ""), 64, &o);
        assert!(
            !found.is_empty() && found.iter().all(|k| matches!(k, Kind::AsyncRace | Kind::SharedRace)),
            "{found:?}"
        );
    }
}

#[test]
fn matrix_multiplications() {
    // 64 × 8 × 16 from zeroed tiles; afterwards a generic write over A.
    let body = |fence: &str, wait: &str| {
        format!(
            "mov.u32 %r21, tile; mov.u32 %r3, %r2;\nL: add.u32 %r4, %r21, %r3; st.shared.u32 [%r4], 0; add.u32 %r3, %r3, 512; setp.lt.u32 %p1, %r3, 4096; @%p1 bra L;\n\
             {fence}\nbar.sync 0;\nmov.u64 %rd4, 0x4000001000080000; mov.u64 %rd5, 0x4000001000080080;\n\
             mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\nwgmma.fence.sync.aligned;\n\
             wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {{%f1,%f2,%f3,%f4}}, %rd4, %rd5, 1, 1, 1;\nwgmma.commit_group.sync.aligned;\n{wait}\nbar.sync 0;\n\
             add.u32 %r4, %r21, %r2; st.shared.u32 [%r4], %r1;\nwgmma.wait_group.sync.aligned 0;\nst.global.f32 [%rd1], %f1;"
        )
    };
    let (fence, wait) = ("fence.proxy.async.shared::cta;", "wgmma.wait_group.sync.aligned 0;");
    for o in all_options() {
        assert_eq!(one(&body(fence, wait), 128, &o), []);
        assert_eq!(one(&body("", wait), 128, &o), [Kind::MissingProxyFence]);
        assert_eq!(one(&body(fence, ""), 128, &o), [Kind::AsyncRace]);
        assert_eq!(one(&body(fence, wait), 96, &o), [Kind::IllegalInstruction], "three warps are no warpgroup");
    }
}

#[test]
fn use_after_free() {
    let text = kernel(16, "ld.global.u32 %r3, [%rd1];");
    let k = Module::parse(&text).unwrap().kernel("k").unwrap();
    let mut g = Gpu::new();
    let p = g.alloc_with(&[0; 64], "weights");
    let q = g.alloc(64, "other");
    let args: [&[u8]; 2] = [&p.to_le_bytes(), &q.to_le_bytes()];
    let l = Launch { args: &args, ..Launch::default() };
    g.launch(&k, &l, &Options::default()).unwrap();
    g.free(p).unwrap();
    let f = g.launch(&k, &l, &Options::default()).unwrap_err();
    assert_eq!(f.finding.kind, Kind::UseAfterFree);
    assert!(f.finding.message.contains("freed `weights`"), "{f}");
    assert!(g.free(p).is_err());
}

#[test]
fn bank_conflicts() {
    let run = |stride: u32| {
        let text = kernel(
            8192,
            &format!(
                "mov.u32 %r3, tile; mad.lo.u32 %r4, %r1, {stride}, %r3; st.shared.u32 [%r4], %r1; bar.warp.sync -1; ld.shared.u32 %r5, [%r4];"
            ),
        );
        let k = Module::parse(&text).unwrap().kernel("k").unwrap();
        let args: [&[u8]; 2] = [&[0; 8], &[0; 8]];
        let o = Options { metrics: true, ..Options::default() };
        let r = Gpu::new().launch(&k, &Launch { block: [32, 1, 1], args: &args, ..Launch::default() }, &o).unwrap();
        let m = r.metrics.unwrap();
        (m.shared_loads.units, m.shared_stores.units, m.shared_loads.ideal)
    };
    assert_eq!(run(4), (1, 1, 1));
    assert_eq!(run(128), (32, 32, 1));
    assert_eq!(run(132), (1, 1, 1));
    assert_eq!(run(8), (2, 2, 1));
}

#[test]
fn coalescing() {
    let run = |shift: u32| {
        let text = kernel(
            16,
            &format!(
                "shl.b32 %r3, %r1, {shift}; cvt.u64.u32 %rd3, %r3; add.u64 %rd4, %rd1, %rd3; ld.global.u32 %r5, [%rd4];"
            ),
        );
        let k = Module::parse(&text).unwrap().kernel("k").unwrap();
        let mut g = Gpu::new();
        let p = g.alloc_with(&[0; 4096], "x").to_le_bytes();
        let args: [&[u8]; 2] = [&p, &p];
        let o = Options { metrics: true, ..Options::default() };
        let r = g.launch(&k, &Launch { block: [32, 1, 1], args: &args, ..Launch::default() }, &o).unwrap();
        let m = r.metrics.unwrap();
        (m.global_loads.requests, m.global_loads.units, m.unique_bytes)
    };
    assert_eq!(run(2), (1, 4, 128));
    assert_eq!(run(5), (1, 32, 1024));
    assert_eq!(run(3), (1, 8, 256));
}

/// Patterns of addresses, in lanes' multiples of 16 bytes, and what ncu counts for them on an H200.
#[test]
fn copies_past_the_first_level_cache() {
    let run = |form: &str, lane: &str, taken: &str| {
        let text = kernel(
            1024,
            &format!(
                "{lane} shl.b32 %r3, %r3, 4; cvt.u64.u32 %rd3, %r3; add.u64 %rd4, %rd1, %rd3; mov.u32 %r4, tile; shl.b32 %r5, %r1, 4; \
                 add.u32 %r4, %r4, %r5; and.b32 %r6, %r1, 1; {taken} cp.async.{form}.shared.global [%r4], [%rd4], 16, %r6; cp.async.wait_all;"
            ),
        );
        let k = Module::parse(&text).unwrap().kernel("k").unwrap();
        let mut g = Gpu::new();
        let p = g.alloc_with(&[0; 16384], "x").to_le_bytes();
        let o = Options { metrics: true, ..Options::default() };
        let launch = Launch { block: [32, 1, 1], args: &[&p, &p], ..Launch::default() };
        let m = g.launch(&k, &launch, &o).unwrap().metrics.unwrap();
        (m.global_loads.requests, m.global_loads.units)
    };
    let (all, odd) = ("mov.u32 %r6, 16;", "shl.b32 %r6, %r6, 4;");
    let every = |n: u32| format!("mul.lo.u32 %r3, %r1, {n};");
    let shifted = "add.u32 %r3, %r1, 1;";
    let counts = [
        (every(1), all, 16, 16),
        (shifted.to_owned(), all, 20, 17),
        (every(2), all, 16, 32),
        (every(3), all, 20, 32),
        (every(4), all, 16, 32),
        (every(5), all, 24, 32),
        (every(8), all, 32, 32),
        (every(0), all, 16, 1),
        // Lanes that fill with zeros ask for nothing.
        (every(1), odd, 16, 16),
        (every(8), odd, 16, 16),
    ];
    for (lane, taken, cg, ca) in counts {
        assert_eq!((run("cg", &lane, taken), run("ca", &lane, taken)), ((1, cg), (1, ca)), "{lane} {taken}");
    }
}
