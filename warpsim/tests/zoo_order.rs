//! Planted mistakes of order: single lanes, clusters, asynchronous copies, other blocks. Each is found, in every order of
//! warps and at both ends of asynchronous work, and the kernel without it is quiet.

use crate::common::all_options;
use warpsim::{Gpu, Kind, Launch, Module, Options};

/// A kernel with pointers to two buffers of 4096 bytes in %rd1 (written) and %rd2 (zeroed), the thread index in %r1, four
/// times it in %r2, `tile` in %r3, `bar` in %r4, the rank in the cluster in %r5; %p1 holds in thread 0.
pub(crate) fn kernel(cluster: u32, body: &str) -> String {
    let cluster = if cluster > 1 { format!(".reqnctapercluster {cluster}, 1, 1\n") } else { String::new() };
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{cluster}{{\n\
         .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<9>; .reg .b16 %h<2>;\n\
         .shared .align 1024 .b8 tile[4096];\n.shared .align 8 .b64 bar;\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; mov.u32 %r4, bar;\n\
         mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0;\n{body}\nret;\n}}\n"
    )
}

pub(crate) fn found(text: &str, blocks: u32, threads: u32, o: &Options) -> Vec<warpsim::Finding> {
    let k = Module::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}")).kernel("k").unwrap();
    let mut g = Gpu::new();
    let (p, q) = (g.alloc_with(&[1; 4096], "input"), g.alloc_with(&[0; 4096], "output"));
    let (p, q) = (p.to_le_bytes(), q.to_le_bytes());
    let l = Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], args: &[&p, &q], ..Launch::default() };
    // A block may poll for as long as the thread that runs the other is not scheduled.
    match g.launch(&k, &l, &Options { instruction_limit: 50_000_000, ..o.clone() }) {
        Ok(r) => r.findings,
        Err(f) => std::iter::once(*f.finding).chain(f.also).collect(),
    }
}

/// `body` with `/*here*/` in place of each mended part.
pub(crate) fn check(shape: (u32, u32, u32), kinds: &[Kind], body: &str, mends: &[&str]) {
    let (cluster, blocks, threads) = shape;
    let with = |skip: usize| {
        let mut text = body.to_owned();
        for (k, mend) in mends.iter().enumerate() {
            text = text.replacen("/*here*/", if k == skip { "" } else { mend }, 1);
        }
        kernel(cluster, &text)
    };
    for o in all_options() {
        let clean = found(&with(mends.len()), blocks, threads, &o);
        assert!(clean.is_empty(), "the clean twin: {}", clean[0]);
        for (k, mend) in mends.iter().enumerate() {
            let bad = found(&with(k), blocks, threads, &o);
            let hit = bad.iter().find(|f| kinds.contains(&f.kind));
            let hit = hit.unwrap_or_else(|| panic!("without `{mend}`: {bad:?}"));
            assert!(hit.place.ptx_line > 0 && !hit.place.instruction.is_empty(), "{hit}");
        }
    }
}

const INIT: &str = "@%p1 mbarrier.init.shared.b64 [%r4], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;\n";
const WAIT: &str = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;\n@!%p2 bra W;\n";
/// Both blocks of a cluster are there.
const CLUSTER: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";

#[test]
fn an_elected_lane_arrives_for_its_warp() {
    // Warp 0 writes; its first lane arrives; warp 1 waits and reads.
    let body = format!(
        "{INIT}setp.lt.u32 %p3, %r1, 32;\n@!%p3 bra READ;\nadd.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1;\n/*here*/\n\
         @%p1 mbarrier.arrive.shared.b64 _, [%r4];\nbra DONE;\nREAD:\n{WAIT}\
         sub.u32 %r6, %r2, 128; add.u32 %r6, %r3, %r6; ld.shared.u32 %r7, [%r6];\nDONE:"
    );
    check((1, 1, 64), &[Kind::SharedRace], &body, &["bar.warp.sync -1;"]);
}

#[test]
fn an_elected_lane_waits_for_its_warp() {
    let body = format!(
        "{INIT}@!%p1 bra SKIP;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 128, [%r4];\n{WAIT}SKIP:\n/*here*/\n\
         add.u32 %r6, %r3, %r2; ld.shared.u32 %r7, [%r6];"
    );
    check((1, 1, 32), &[Kind::AsyncRace, Kind::UninitialisedShared], &body, &["bar.warp.sync -1;"]);
}

#[test]
fn an_mbarrier_is_fenced_before_copies_of_another_block_complete_on_it() {
    // Rank 0 sends 128 bytes to both blocks.
    let body = format!(
        "@%p1 mbarrier.init.shared.b64 [%r4], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;\n/*here*/\n{CLUSTER}\n\
         setp.eq.and.u32 %p3, %r5, 0, %p1; mov.u32 %r6, 3; cvt.u16.u32 %h1, %r6;\n\
         @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%rd1], 128, [%r4], %h1;\n{WAIT}{CLUSTER}"
    );
    let kinds = [Kind::MissingProxyFence];
    check((2, 2, 32), &kinds, &body, &["@%p1 fence.mbarrier_init.release.cluster;"]);
    check((2, 2, 32), &kinds, &body, &["fence.proxy.async.shared::cta;"]);
}

#[test]
fn an_mbarrier_is_fenced_before_the_cluster_uses_it() {
    // The cluster barrier's arrival is relaxed: the fence alone makes the initialisation visible.
    let body = format!(
        "@%p1 mbarrier.init.shared.b64 [%r4], 1;\n/*here*/\nbarrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;\n\
         xor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r4, %r6;\n@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r7];\n{WAIT}{CLUSTER}"
    );
    check((2, 2, 32), &[Kind::SharedRace], &body, &["@%p1 fence.mbarrier_init.release.cluster;"]);
    // And to the other warp of its own block.
    check((2, 2, 64), &[Kind::SharedRace], &body, &["@%p1 fence.mbarrier_init.release.cluster;"]);
}

#[test]
fn a_block_waits_for_those_that_use_its_shared_memory() {
    let body = format!(
        "add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1; {CLUSTER}\nxor.b32 %r7, %r5, 1; mapa.shared::cluster.u32 %r8, %r6, %r7; \
         ld.shared::cluster.u32 %r9, [%r8];\n/*here*/"
    );
    check((2, 2, 64), &[Kind::EarlyExit], &body, &[CLUSTER]);
    // An arrival alone does not hold the block back.
    let body = body.replace("/*here*/", "barrier.cluster.arrive.release.aligned;\n/*here*/");
    check((2, 2, 64), &[Kind::EarlyExit], &body, &["barrier.cluster.wait.acquire.aligned;"]);
}

#[test]
fn a_block_has_started_before_others_use_its_shared_memory() {
    let body = format!(
        "/*here*/ xor.b32 %r7, %r5, 1; add.u32 %r6, %r3, %r2; mapa.shared::cluster.u32 %r8, %r6, %r7; \
         st.shared::cluster.u32 [%r8], %r1; {CLUSTER}"
    );
    // Nothing has to be passed on: a relaxed arrival is enough.
    for start in [CLUSTER, "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"] {
        check((2, 2, 64), &[Kind::BarrierMisuse], &body, &[start]);
    }
}

/// All threads go one way.
const UNIFORM: &str = "setp.ne.u32 %p1, %r1, %r1;";

#[test]
fn a_warp_comes_to_the_cluster_barrier_together() {
    let (arrive, wait) = ("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;");
    let apart = |op: &str| format!("/*here*/ @%p1 bra A; {op} bra E; A: {op} E:");
    check((2, 2, 64), &[Kind::DivergentBarrier], &format!("{} {wait}", apart(arrive)), &[UNIFORM]);
    check((2, 2, 64), &[Kind::DivergentBarrier], &format!("{arrive} {}", apart(wait)), &[UNIFORM]);
    let loose = format!("{} barrier.cluster.wait;", apart("barrier.cluster.arrive;"));
    check((2, 2, 64), &[], &loose, &[]);
}

#[test]
fn who_reduces_at_a_barrier_meets_others_that_do() {
    let body = "shr.u32 %r6, %r1, 5; setp.eq.u32 %p1, %r6, 0; /*here*/ @%p1 bra A; bar.red.popc.u32 %r7, 1, 64, %p1; bra E; A: bar.sync 1, 64; E:";
    check((1, 1, 64), &[Kind::BarrierMisuse], body, &[UNIFORM]);
    // In phases of their own.
    check((1, 1, 64), &[], "bar.sync 1, 64; bar.red.popc.u32 %r7, 1, 64, %p1; bar.sync 1;", &[]);
}

/// The half of a block that comes late to a barrier may come early: nothing but the order of the warps tells.
#[test]
fn a_barrier_is_used_again_behind_those_who_used_it() {
    let front = "setp.lt.u32 %p1, %r1, 64; setp.ge.u32 %p2, %r1, 64;\n";
    let (counts, misuse) = (&[Kind::BarrierCount][..], &[Kind::BarrierMisuse][..]);
    check(
        (1, 1, 128),
        counts,
        &format!("{front}@%p2 bra A;\nbar.sync 0, 64;\nA: /*here*/ bar.sync 0;"),
        &["bar.sync 1;"],
    );
    check(
        (1, 1, 128),
        misuse,
        &format!("{front}@%p2 bra A;\nbar.sync 1, 64;\nA: /*here*/ @!%p2 bra E;\nbar.sync 1, 64;\nE:"),
        &["bar.sync 0;"],
    );
    // One that only arrives does not know when that is over.
    let arrives = format!(
        "{front}@%p2 bra A;\nbar.sync 1, 128; bar.sync 2, 128; bar.sync 1, 128; bra E;\n\
         A: bar.arrive 1, 128; bar.sync 2, 128; bar.arrive 1, 128;\nE:"
    );
    for o in all_options() {
        assert_eq!(found(&kernel(1, &arrives), 1, 128, &o), []);
        let bad = found(&kernel(1, &arrives.replace("bar.sync 2, 128;", "")), 1, 128, &o);
        assert!(bad.iter().any(|f| f.kind == Kind::BarrierMisuse), "{bad:?}");
    }
    check((1, 1, 128), &[], "bar.sync 1, 128; bar.arrive 1, 128; bar.sync 2; bar.sync 1, 128;", &[]);
}

#[test]
fn a_block_waits_for_the_copies_into_its_shared_memory() {
    let body = format!(
        "{INIT}@!%p1 bra SKIP;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 128, [%r4];\nSKIP:\n/*here*/"
    );
    check((1, 1, 64), &[Kind::EarlyExit], &body, &[WAIT]);
}

#[test]
fn a_thread_waits_for_its_bulk_stores_before_it_exits() {
    let body = "add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1; fence.proxy.async.shared::cta; bar.sync 0;\n@!%p1 bra DONE;\n\
                cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128; cp.async.bulk.commit_group;\n/*here*/\nDONE:";
    check((1, 1, 32), &[Kind::EarlyExit], body, &["cp.async.bulk.wait_group.read 0;"]);
}

#[test]
fn bulk_stores_are_waited_for_before_global_memory_is_read() {
    let body = "add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1; fence.proxy.async.shared::cta; bar.sync 0;\n@!%p1 bra DONE;\n\
                cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;\n\
                /*here*/\nDONE:\n/*here*/\ncvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd3, %rd2; ld.global.u32 %r7, [%rd3];";
    check((1, 1, 64), &[Kind::AsyncRace, Kind::GlobalRace], body, &["cp.async.bulk.wait_group 0;", "bar.sync 0;"]);
}

#[test]
fn bulk_loads_see_global_writes_through_a_fence() {
    let body = format!(
        "{INIT}cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], %r1;\n/*here*/\n/*here*/\n@!%p1 bra SKIP;\n\
         mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 256;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], 256, [%r4];\nSKIP:\n{WAIT}"
    );
    let kinds = [Kind::MissingProxyFence, Kind::GlobalRace];
    check((1, 1, 64), &kinds, &body, &["fence.proxy.async;", "bar.sync 0;"]);
    check((1, 1, 64), &kinds, &body, &["fence.proxy.async.global;", "bar.sync 0;"]);
    // A fence of shared memory alone is not enough.
    let wrong = kernel(
        1,
        &body.replacen("/*here*/", "fence.proxy.async.shared::cta;", 1).replacen("/*here*/", "bar.sync 0;", 1),
    );
    for o in all_options() {
        assert!(found(&wrong, 1, 64, &o).iter().any(|f| f.kind == Kind::MissingProxyFence));
    }
}

#[test]
fn bulk_loads_overwrite_what_was_fenced() {
    let body = format!(
        "{INIT}add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1;\n/*here*/\n/*here*/\n@!%p1 bra SKIP;\n\
         mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 256;\n\
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 256, [%r4];\nSKIP:\n{WAIT}"
    );
    let kinds = [Kind::MissingProxyFence, Kind::SharedRace];
    check((1, 1, 64), &kinds, &body, &["fence.proxy.async.shared::cta;", "bar.sync 0;"]);
}

#[test]
fn the_last_block_sees_what_the_others_fenced() {
    // Each block leaves a number; the one with the last ticket adds them up.
    let body = "mov.u32 %r6, %ctaid.x; shl.b32 %r7, %r6, 2; cvt.u64.u32 %rd3, %r7; add.u64 %rd3, %rd3, %rd2;\n@%p1 st.global.u32 [%rd3+64], %r6;\n/*here*/\n\
                @%p1 atom.global.inc.u32 %r8, [%rd2], 7; @!%p1 mov.u32 %r8, 0; setp.eq.u32 %p3, %r8, 7;\n@!%p3 bra DONE;\n\
                ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd2+64]; ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd2+80];\nDONE:";
    check((1, 8, 32), &[Kind::GlobalRace], body, &["fence.acq_rel.gpu;"]);
    // The atomic may release by itself.
    let body = body.replace("/*here*/", "").replace("atom.global", "atom/*here*/.gpu.global");
    check((1, 8, 32), &[Kind::GlobalRace], &body, &[".release"]);
}

#[test]
fn a_fence_says_nothing_of_later_writes() {
    let body = "mov.u32 %r6, %ctaid.x; shl.b32 %r7, %r6, 2; cvt.u64.u32 %rd3, %r7; add.u64 %rd3, %rd3, %rd2;\n@%p1 fence.acq_rel.gpu;\n\
                @%p1 st.global.u32 [%rd3+64], %r6;\n/*here*/\n@%p1 atom.global.inc.u32 %r8, [%rd2], 1; @!%p1 mov.u32 %r8, 0; setp.eq.u32 %p3, %r8, 1;\n\
                @!%p3 bra DONE;\nld.global.v2.u32 {%r10,%r11}, [%rd2+64];\nDONE:";
    check((1, 2, 32), &[Kind::GlobalRace], body, &["@%p1 fence.acq_rel.gpu;"]);
}

#[test]
fn atomics_are_over_before_plain_reads() {
    let body =
        "@%p1 st.shared.u32 [%r3], 0; bar.sync 0;\nred.shared.add.u32 [%r3], 1;\n/*here*/\nld.shared.u32 %r6, [%r3];";
    check((1, 1, 64), &[Kind::SharedRace], body, &["bar.sync 0;"]);
    let body = "red.global.add.u32 [%rd2], 1;\n/*here*/\nld.global.u32 %r6, [%rd2];";
    check((1, 1, 64), &[Kind::GlobalRace], body, &["bar.sync 0;"]);
}

#[test]
fn an_atomic_does_not_hide_its_thread_s_plain_write() {
    let body = "mov.u32 %r6, %ctaid.x; setp.eq.u32 %p3, %r6, 0; and.pred %p3, %p3, %p1;\n@%p3 st/*here*/.global.u32 [%rd2], 7;\n\
                @%p1 red.global.add.u32 [%rd2], 1;";
    check((1, 2, 32), &[Kind::GlobalRace], body, &[".relaxed.gpu"]);
    let body = "and.b32 %r6, %r1, 31; setp.eq.u32 %p2, %r6, 0;\n@%p1 st.shared.u32 [%r3], 7;\n/*here*/\n@%p2 red.shared.add.u32 [%r3], 1;";
    check((1, 1, 64), &[Kind::SharedRace], body, &["bar.sync 0;"]);
}

#[test]
fn registers_are_renamed_behind_a_wgmma_fence_and_not_written() {
    let body = |late: &str| {
        format!(
            "mov.u32 %r6, %r2;\nL: add.u32 %r7, %r3, %r6; st.shared.u32 [%r7], 0; add.u32 %r6, %r6, 512; setp.lt.u32 %p2, %r6, 4096; @%p2 bra L;\n\
             fence.proxy.async.shared::cta; bar.sync 0;\nmov.u64 %rd4, 0x4000001000080000; mov.u64 %rd5, 0x4000001000080080;\n\
             cvt.rn.f32.u32 %f7, %r1; mov.f32 %f2, %f7; mov.f32 %f3, %f7; mov.f32 %f4, %f7;\nwgmma.fence.sync.aligned;\n{late}\n\
             wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {{%f1,%f2,%f3,%f4}}, %rd4, %rd5, 1, 1, 1;\n\
             wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n@%p1 st.global.f32 [%rd2], %f1;"
        )
    };
    for o in all_options() {
        // nvcc writes the zeros that sums start from behind the fence too, and ptxas takes them before it.
        // Before the zero, its place in the simulator is that of a register which is read behind the fence.
        let passed_on =
            "add.u32 %r8, %r2, 1; @%p1 st.global.u32 [%rd2+4], %r8; mov.f32 %f8, 0f00000000; mov.f32 %f1, %f8;";
        for renamed in ["mov.f32 %f1, %f7;", "mov.f32 %f1, 0f00000000;", passed_on] {
            let clean = found(&kernel(1, &body(renamed)), 1, 128, &o);
            assert!(clean.is_empty(), "{}", clean[0]);
        }
        for late in ["add.f32 %f7, %f7, %f7; mov.f32 %f1, %f7;", "add.f32 %f1, %f7, %f7;"] {
            let caught = found(&kernel(1, &body(late)), 1, 128, &o);
            assert!(caught.iter().any(|f| f.kind == Kind::AsyncRace), "{late}");
        }
    }
}

#[test]
fn wgmma_takes_registers_over_at_a_fence_and_gives_them_back_at_a_wait() {
    let body = "mov.u32 %r6, %r2;\nL: add.u32 %r7, %r3, %r6; st.shared.u32 [%r7], 0; add.u32 %r6, %r6, 512; setp.lt.u32 %p2, %r6, 4096; @%p2 bra L;\n\
                fence.proxy.async.shared::cta; bar.sync 0;\nmov.u64 %rd4, 0x4000001000080000; mov.u64 %rd5, 0x4000001000080080;\n\
                mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n/*here*/\n\
                wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1,%f2,%f3,%f4}, %rd4, %rd5, 1, 1, 1;\nwgmma.commit_group.sync.aligned;\n/*here*/\n\
                add.f32 %f5, %f1, %f2; wgmma.wait_group.sync.aligned 0;\n@%p1 st.global.f32 [%rd2], %f5;";
    let mends = ["wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"];
    check((1, 1, 128), &[Kind::AsyncRace], body, &mends);
    // ptxas waits behind each where a debugger may look, and where a function leaves that to its caller.
    let (front, rest) = body.split_once("/*here*/\n").unwrap();
    let clean = rest.replace("/*here*/\n", "");
    let debug = kernel(1, &format!("{front}{clean}")).replace("sm_90a", "sm_90a, debug");
    let function = ".func (.param .b32 s) f(.param .b64 a, .param .b64 b)\n{\n.reg .b64 %rd<9>; .reg .f32 %f<9>; ld.param.u64 %rd4, [a]; ld.param.u64 %rd5, [b];\n\
                    mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n\
                    wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1,%f2,%f3,%f4}, %rd4, %rd5, 1, 1, 1;\n\
                    add.f32 %f5, %f1, %f2; st.param.f32 [s], %f5; ret;\n}\n.visible .entry";
    let call = ".param .b32 s; .param .b64 a; .param .b64 b; st.param.b64 [a], %rd4; st.param.b64 [b], %rd5; wgmma.fence.sync.aligned;\n\
                call (s), f, (a, b);\nwgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; ld.param.b32 %f5, [s]; @%p1 st.global.f32 [%rd2], %f5;";
    let called = kernel(1, &format!("{front}{call}")).replace(".visible .entry", function);
    for o in all_options() {
        for text in [&debug, &called] {
            assert_eq!(found(text, 1, 128, &o), [], "{text}");
        }
    }
}

#[test]
fn a_wait_that_gives_up_can_look_at_another_barrier() {
    // Two barriers polled in turn; only the second one's phase ends before the first's, which this thread then ends.
    let body = |arrive: &str| {
        format!(
            "@%p1 mbarrier.init.shared.b64 [%r4], 1; add.u32 %r6, %r3, 8; @%p1 mbarrier.init.shared.b64 [%r6], 1; bar.sync 0;\n\
             setp.lt.u32 %p3, %r1, 32; @%p3 bra POLL;\n{arrive}\nbra DONE;\n\
             POLL: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @%p2 bra DONE;\n\
             mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra POLL;\n@%p1 mbarrier.arrive.shared.b64 _, [%r4];\nbra POLL;\nDONE:"
        )
    };
    for o in all_options() {
        let arrive = "setp.eq.u32 %p4, %r1, 32; @%p4 mbarrier.arrive.shared.b64 _, [%r6];";
        let clean = found(&kernel(1, &body(arrive)), 1, 64, &o);
        assert!(clean.is_empty(), "{}", clean[0]);
        let stuck = found(&kernel(1, &body("")), 1, 64, &o);
        assert!(stuck[0].kind == Kind::Deadlock && stuck[0].message.contains("mbarrier at shared"), "{}", stuck[0]);
    }
}

#[test]
fn a_live_mbarrier_is_not_initialised_again() {
    let body = "@%p1 mbarrier.init.shared.b64 [%r4], 1;\n/*here*/\n@%p1 mbarrier.init.shared.b64 [%r4], 2;";
    check((1, 1, 32), &[Kind::BarrierMisuse], body, &["@%p1 mbarrier.inval.shared.b64 [%r4];"]);
}

#[test]
fn an_mbarrier_is_read_and_written_by_its_operations_alone() {
    for (access, shape) in [
        ("@%p1 st.shared.u32 [%r4+4], %r1;", (1, 1, 32)),
        ("@%p1 ld.shared.u64 %rd5, [%r4];", (1, 1, 32)),
        ("@%p1 atom.shared.or.b32 %r6, [%r4], 0;", (1, 1, 32)),
    ] {
        let body = format!("@%p1 mbarrier.init.shared.b64 [%r4], 1;\n/*here*/\n{access}");
        check(shape, &[Kind::BarrierMisuse], &body, &["@%p1 mbarrier.inval.shared.b64 [%r4];"]);
    }
    // What lies beside it is not it.
    let body = "mov.u32 %r6, tile; add.u32 %r6, %r6, 64; @%p1 mbarrier.init.shared.b64 [%r6], 1; @%p1 mbarrier.init.shared.b64 [%r6+64], 1;\n\
                @%p1 st.shared.u64 [%r6+8], %rd1; @%p1 st.shared.u64 [%r6-8], %rd1; @%p1 st.shared.u64 [%r6+72], %rd1;";
    assert_eq!(found(&kernel(1, body), 1, 32, &all_options()[0]), []);
}

#[test]
fn arrivals_and_waits_reach_as_far_as_their_scope() {
    // Thread 0 of each block writes into the other block and arrives there.
    let body = format!(
        "{INIT}{CLUSTER}\nxor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r4, %r6; mapa.shared::cluster.u32 %r6, %r3, %r6;\n\
         @%p1 st.shared::cluster.u32 [%r6], %r1; /*fence*/\n@%p1 mbarrier.arrive.RELEASE.shared::cluster.b64 _, [%r7];\n\
         W: mbarrier.try_wait.parity.ACQUIRE.shared::cta.b64 %p2, [%r4], 0;\n@!%p2 bra W;\n/*fence*/ ld.shared.u32 %r9, [%r3];\n{CLUSTER}"
    );
    let run = |release: &str, acquire: &str, fence: &str, o: &Options| {
        let text = body.replace("RELEASE", release).replace("ACQUIRE", acquire).replace("/*fence*/", fence);
        found(&kernel(2, &text.replace(".RELEASE", "")), 2, 32, o)
    };
    for o in all_options() {
        let fence = "fence.acq_rel.cluster;";
        for (release, acquire, fence) in
            [("release.cluster", "acquire.cluster", ""), ("relaxed.cluster", "relaxed.cluster", fence)]
        {
            assert_eq!(run(release, acquire, fence, &o), [], "{release} {acquire}");
        }
        for (release, acquire) in [
            ("release.cta", "acquire.cluster"),
            ("release.cluster", "acquire.cta"),
            ("relaxed.cluster", "acquire.cluster"),
            ("release.cluster", "relaxed.cluster"),
        ] {
            let bad = run(release, acquire, "", &o);
            assert!(bad.iter().any(|f| f.kind == Kind::SharedRace), "{release} {acquire}: {bad:?}");
        }
    }
    // Within a block the narrow ones do.
    let body = format!(
        "{INIT}setp.lt.u32 %p3, %r1, 32; @%p3 bra READ; setp.eq.u32 %p4, %r1, 32; @!%p4 bra DONE;\nst.shared.u32 [%r3], %r1;\n\
         mbarrier.arrive.release.cta.shared::cta.b64 _, [%r4];\nbra DONE;\n\
         READ: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r4], 0;\n@!%p2 bra READ;\nld.shared.u32 %r7, [%r3];\nDONE:"
    );
    for o in all_options() {
        assert_eq!(found(&kernel(1, &body), 1, 64, &o), []);
        let relaxed = body.replace("release.cta", "relaxed.cta");
        assert!(found(&kernel(1, &relaxed), 1, 64, &o).iter().any(|f| f.kind == Kind::SharedRace));
    }
}
