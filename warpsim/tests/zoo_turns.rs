//! Planted mistakes that careless changes to published kernels make, and what those kernels do that only looks like one: flags that are taken down, values
//! of flags that are passed on by shuffles, blocks that come upon what others have half done.

use crate::common::all_options;
use crate::zoo_order::{check, found, kernel};
use warpsim::{Checks, Gpu, Kind, Launch, Module, Options};

const CLUSTER: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";

/// Warp 1 stores 32 words and sets a flag; a lane of warp 0 waits for it, and all of its lanes read the words.
fn told(flag: &str, passed_on: &str) -> String {
    let body = format!(
        "add.u32 %r6, %r3, %r2; @%p1 st.shared.u32 [bar], 0; bar.sync 0; setp.lt.u32 %p2, %r1, 32; @%p2 bra WAIT;\n\
         st.shared.u32 [%r6], %r1; bar.warp.sync -1; setp.eq.u32 %p3, %r1, 32; @%p3 {flag} bra END;\n\
         WAIT: @!%p1 bra MEET;\nL: ld.acquire.cta.shared.u32 %r7, [bar]; setp.eq.u32 %p4, %r7, 0; @%p4 bra L;\n\
         MEET: {passed_on}\nld.shared.u32 %r8, [%r6+128];\nEND:"
    );
    kernel(1, &body)
}

#[test]
fn a_shuffle_passes_on_what_a_flag_told() {
    let release = "st.release.cta.shared.u32 [bar], 1;";
    for o in all_options() {
        for exchange in
            ["shfl.sync.idx.b32 %r7, %r7, 0, 31, -1;", "vote.sync.any.pred %p5, %p1, -1;", "bar.warp.sync -1;"]
        {
            assert_eq!(found(&told(release, exchange), 1, 64, &o), [], "{exchange}");
            let relaxed = found(&told("st.relaxed.cta.shared.u32 [bar], 1;", exchange), 1, 64, &o);
            assert!(relaxed.iter().any(|f| f.kind == Kind::SharedRace), "{exchange}: {relaxed:?}");
        }
        let apart = found(&told(release, ""), 1, 64, &o);
        assert!(apart.iter().any(|f| f.kind == Kind::SharedRace), "{apart:?}");
    }
    // Of what the lanes have done themselves it tells nothing.
    let own = "add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1; shfl.sync.idx.b32 %r7, %r1, 0, 31, -1;\n/*here*/\nxor.b32 %r8, %r6, 4; ld.shared.u32 %r9, [%r8];";
    check((1, 1, 32), &[Kind::SharedRace], own, &["bar.warp.sync -1;"]);
}

#[test]
fn whoever_has_waited_for_a_flag_may_take_it_down() {
    for (space, at, scope) in [("global", "%rd2", "gpu"), ("shared", "%r3", "cta")] {
        // Thread 0 waits for the last one's flag, and takes it down by a plain store.
        let body = |waits: &str| {
            let clear = if space == "shared" { "@%p1 st.shared.u32 [%r3], 0; bar.sync 0;" } else { "" };
            format!(
                "{clear} setp.eq.u32 %p2, %r1, 63; @%p2 st.release.{scope}.{space}.u32 [{at}], 1;\nsetp.eq.u32 %p3, %r1, {waits}; @!%p3 bra END;\n\
                 L: ld.acquire.{scope}.{space}.u32 %r7, [{at}]; setp.eq.u32 %p4, %r7, 0; @%p4 bra L;\nEND: @%p1 st.{space}.u32 [{at}], 0;"
            )
        };
        for o in all_options() {
            assert_eq!(found(&kernel(1, &body("0")), 1, 64, &o), [], "{space}");
            // Thread 1 waits instead, perhaps for ever.
            let bad = found(&kernel(1, &body("1")), 1, 64, &o);
            let races = [Kind::SharedRace, Kind::GlobalRace, Kind::Deadlock];
            assert!(bad.iter().any(|f| races.contains(&f.kind)), "{space}: {bad:?}");
        }
    }
}

/// A lock whose holder's block has to try again where another holds it. What it found is told to the block's other threads by shared memory,
/// which they still read when the first tries again.
#[test]
fn a_lock_that_another_block_holds() {
    let body = |sync: &str| {
        format!(
            "L: {sync}\n@%p1 atom.acq_rel.gpu.global.cas.b32 %r6, [%rd2], 0, 1; @%p1 st.shared.u32 [%r3], %r6; bar.sync 0;\n\
             ld.shared.u32 %r7, [%r3]; setp.ne.u32 %p2, %r7, 0; @%p2 bra L;\nbar.sync 0; bar.sync 0; bar.sync 0;\n\
             @%p1 atom.acq_rel.gpu.global.exch.b32 %r6, [%rd2], 0;"
        )
    };
    let mut races = 0;
    for o in all_options() {
        for seed in 1..6 {
            let o = Options { seed, threads: 1, ..o.clone() };
            assert_eq!(found(&kernel(1, &body("bar.sync 0;")), 8, 64, &o), []);
            let bad = found(&kernel(1, &body("")), 8, 64, &o);
            races += usize::from(bad.iter().any(|f| f.kind == Kind::SharedRace));
        }
    }
    assert!(races >= 10, "{races} of 20 orders show it");
}

/// A word that its writer announces after a little work; whoever finds it not announced reads it all the same. Only an order in which the reader
/// comes while the writer works shows that.
#[test]
fn someone_comes_while_another_works() {
    for (who, at, word, scope, shape) in
        [("%ctaid.x", "%rd2", "global", "gpu", (2, 32)), ("%r9", "%r3", "shared", "cta", (1, 64))]
    {
        let body = |unless: &str| {
            let clear = if word == "shared" { "@%p1 st.shared.v2.u32 [%r3], {0, 0}; bar.sync 0;" } else { "" };
            format!(
                "{clear} shr.u32 %r9, %r1, 5; and.b32 %r10, %r1, 31; setp.ne.u32 %p2, %r10, 0; @%p2 bra END;\n\
                 mov.u32 %r6, {who}; setp.ne.u32 %p3, %r6, 0; @%p3 bra READS;\n\
                 L: add.u32 %r7, %r7, %r6; add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 32; @%p4 bra L;\n\
                 st.{word}.u32 [{at}+4], 1; st.release.{scope}.{word}.u32 [{at}], 1; bra END;\n\
                 READS: ld.acquire.{scope}.{word}.u32 %r8, [{at}]; setp.eq.u32 %p5, %r8, {unless}; @%p5 bra END;\n\
                 ld.{word}.u32 %r8, [{at}+4];\nEND:"
            )
        };
        let mut races = 0;
        for seed in 1..=40 {
            let o = Options { seed, threads: 1, ..all_options()[0].clone() };
            assert_eq!(found(&kernel(1, &body("0")), shape.0, shape.1, &o), [], "{word}");
            let bad = found(&kernel(1, &body("1")), shape.0, shape.1, &o);
            races += usize::from(bad.iter().any(|f| matches!(f.kind, Kind::SharedRace | Kind::GlobalRace)));
        }
        assert!(races >= 10, "{word}: {races} of 40 orders show it");
    }
}

#[test]
fn every_lane_that_waits_comes_behind_the_initialisation() {
    let wait = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @!%p2 bra W;";
    let body =
        format!("@%p1 mbarrier.init.shared.b64 [%r4], 1; @%p1 mbarrier.arrive.shared.b64 _, [%r4];\n/*here*/\n{wait}");
    check((1, 1, 32), &[Kind::SharedRace], &body, &["bar.warp.sync -1;"]);
    // A fence of the first lane is for itself.
    let fenced = body.replace("/*here*/", "@%p1 fence.mbarrier_init.release.cluster;\n/*here*/");
    check((1, 1, 32), &[Kind::SharedRace], &fenced, &["bar.warp.sync -1;"]);
}

#[test]
fn a_bulk_copy_comes_from_the_own_block() {
    let body = |source: &str| {
        format!(
            "add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1; @%p1 mbarrier.init.shared.b64 [%r4], 1; @%p1 fence.mbarrier_init.release.cluster;\n\
             @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128; fence.proxy.async.shared::cta; {CLUSTER}\n\
             xor.b32 %r7, %r5, 1; mapa.shared::cluster.u32 %r8, %r3, %r7; mapa.shared::cluster.u32 %r9, %r4, %r7; add.u32 %r10, %r8, 256;\n\
             @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [{source}], 128, [%r9];\n\
             W: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @!%p2 bra W;\n{CLUSTER}"
        )
    };
    for o in all_options() {
        assert_eq!(found(&kernel(2, &body("%r3")), 2, 32, &o), []);
        let bad = found(&kernel(2, &body("%r8")), 2, 32, &o);
        assert!(bad[0].kind == Kind::OutOfBounds && bad[0].message.contains("is in the block of rank"), "{}", bad[0]);
    }
}

#[test]
fn a_cluster_barrier_has_the_orders_that_it_has() {
    for (op, good) in [
        ("arrive.release", true),
        ("arrive.relaxed", true),
        ("arrive.acquire", false),
        ("wait.acquire", true),
        ("wait.relaxed", false),
        ("wait.release", false),
    ] {
        let module = Module::parse(&kernel(2, &format!("barrier.cluster.{op}.aligned;"))).unwrap();
        assert_eq!(module.kernel("k").is_ok(), good, "{op}");
    }
}

#[test]
fn the_last_block_sees_what_the_others_added() {
    // All blocks add to one sum, the one with the last ticket as well, which says nothing of the others' additions. It starts the tickets again.
    let last = |add: &str| {
        format!(
            "{add}\n/*here*/\n@%p1 atom.global.add.u32 %r8, [%rd2], 1; @!%p1 mov.u32 %r8, 0; setp.eq.u32 %p3, %r8, 3;\n@!%p3 bra DONE;\n\
             ld.global.u32 %r10, [%rd2+64]; st.global.u32 [%rd2], 0;\nDONE:"
        )
    };
    let bulk = "@%p1 st.shared.v4.u32 [%r3], {1, 1, 1, 1}; fence.proxy.async.shared::cta;\n\
                add.u64 %rd3, %rd2, 64; @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd3], [%r3], 16;\n\
                cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    for add in ["@%p1 red.global.add.u32 [%rd2+64], 1;", bulk] {
        check((1, 4, 32), &[Kind::GlobalRace], &last(add), &["fence.acq_rel.gpu;"]);
    }
    for o in all_options() {
        let tickets = last("").replace("ld.global.u32 %r10, [%rd2+64];", "");
        assert_eq!(found(&kernel(1, &tickets), 4, 32, &o), []);
    }
}

/// Blocks on several host threads store to the same words. A stamp is there before its value is.
#[test]
fn blocks_that_store_the_same_meet_at_any_moment() {
    let text = |value: &str| {
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
             .reg .pred %p1; .reg .b32 %r<6>; .reg .b64 %rd<3>;\nld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n\
             and.b32 %r3, %r2, 1; mul.lo.u32 %r3, %r3, 31; xor.b32 %r3, %r3, %r1; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd1, %rd1, %rd2;\n\
             mov.u32 %r4, 0; mov.u32 %r5, {value};\n\
             L: st.global.u32 [%rd1], %r5; add.u64 %rd1, %rd1, 128; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 2000; @%p1 bra L;\nret;\n}}\n"
        )
    };
    let go = |value: &str| {
        let kernel = Module::parse(&text(value)).unwrap().kernel("k").unwrap();
        let mut gpu = Gpu::new();
        let p = gpu.alloc_with(&vec![0; 128 * 2000], "p").to_le_bytes();
        let launch = Launch { grid: [4, 1, 1], block: [32, 1, 1], args: &[&p], ..Launch::default() };
        let options = Options { threads: 2, checks: Checks::ALL, ..Options::default() };
        gpu.launch(&kernel, &launch, &options).unwrap_or_else(|f| panic!("{f}")).findings
    };
    for _ in 0..25 {
        assert_eq!(go("1"), []);
    }
    assert!(go("%r2").iter().any(|f| f.kind == Kind::GlobalRace));
}

/// Stores of 32 bytes, the widest that there are, by one block after the other.
#[test]
fn wide_stores_are_compared_whole() {
    let text = |last: &str| {
        format!(
            ".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
             .reg .b32 %r<3>; .reg .b64 %rd<2>;\nld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, 7;\n\
             st.global.v8.b32 [%rd1], {{%r2, %r2, %r2, %r2, %r2, %r2, %r2, {last}}};\nret;\n}}\n"
        )
    };
    for (last, same) in [("%r2", true), ("%r1", false)] {
        for o in all_options() {
            let kernel = Module::parse(&text(last)).unwrap().kernel("k").unwrap();
            let mut gpu = Gpu::new();
            let p = gpu.alloc_with(&[0; 32], "p").to_le_bytes();
            let launch = Launch { grid: [4, 1, 1], block: [1, 1, 1], args: &[&p], ..Launch::default() };
            let findings = gpu.launch(&kernel, &launch, &o).unwrap_or_else(|f| panic!("{f}")).findings;
            assert_eq!(findings.iter().any(|f| f.kind == Kind::GlobalRace), !same, "{last}: {findings:?}");
        }
    }
}

/// A loop whose store of each turn goes where the next lane has stored one turn before, another value: lanes of one store are compared with each
/// other, and not with those of the turn before.
#[test]
fn a_store_is_not_taken_for_that_of_the_turn_before() {
    for (space, base, kind) in [("shared", "%r6", Kind::SharedRace), ("global", "%rd4", Kind::GlobalRace)] {
        let at = "add.u32 %r6, %r3, %r2; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd4, %rd1, %rd4;";
        let next =
            "add.u32 %r6, %r6, 4; add.u64 %rd4, %rd4, 4; add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 4; @%p2 bra L;";
        let body = format!("{at} mov.u32 %r7, 0;\nL: st.{space}.u32 [{base}], %r7;\n/*here*/\n{next}");
        check((1, 1, 32), &[kind], &body, &["bar.warp.sync -1;"]);
        let same = if space == "shared" { "%r3" } else { "%rd1" };
        let text = kernel(1, &format!("st.{space}.u32 [{same}], 6;"));
        for o in all_options() {
            assert_eq!(found(&text, 1, 32, &o), [], "{space}");
        }
    }
}
