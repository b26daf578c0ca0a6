//! Planted divergence: lanes that miss what their warp does together are found, and those that left, or that come back
//! another way, are not asked for.

use crate::common::all_options;
use crate::zoo::{Bug, check, kernel, launch, one};
use warpsim::{Kind, Options};

/// The last warp has 18 lanes; from thread 50 on nobody is needed.
fn ragged(bad: &'static str, mend: (&'static str, &'static str)) {
    check(Bug { name: "ragged", threads: 64, blocks: 1, bad, mend, kind: Kind::DivergentBarrier });
}

const PAST: &str = "setp.ge.u32 %p1, %r1, 50;\n";

#[test]
fn lanes_that_returned_are_not_waited_for() {
    ragged(
        "setp.ge.u32 %p1, %r1, 50; @%p1 bra END; bar.sync 0; END: st.global.u32 [%rd2], 1;",
        ("END: st.global.u32 [%rd2], 1;", "END:"),
    );
    for body in [
        "@%p1 bra END; bar.sync 0; END: ret;",
        "@%p1 bra END; bar.sync 1, 64; END: ret;",
        "@%p1 ret; bar.sync 0;",
        "@!%p1 bra WORK; ret; WORK: bar.sync 0;",
        "@%p1 bra END; shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1; bar.warp.sync -1; bar.sync 0; END: ret;",
        "@%p1 bra END; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; END: ret;",
        "mov.u32 %r6, 0; L: add.u32 %r6, %r6, 1; setp.gt.u32 %p4, %r6, 3; @%p4 bra END; @%p1 bra END; bar.sync 0; bra L; END: ret;",
    ] {
        for o in all_options().into_iter().chain([Options::default()]) {
            assert_eq!(one(&format!("{PAST}{body}"), 64, &o), [], "{body}");
        }
    }
}

#[test]
fn an_arm_that_leaves_does_not_keep_the_others_apart() {
    let cases = [
        "@%p2 bra A; mov.u32 %r5, 1; bra J; A: mov.u32 %r5, 2; @!%p3 bra J; ret; J: @%p2 bar.sync 0;",
        "@%p2 bra A; mov.u32 %r5, 1; bra J; A: mov.u32 %r5, 2; @!%p3 bra J; trap; J: @%p2 bar.sync 0;",
        "@%p2 bra A; mov.u32 %r5, 1; bra J; A: mov.u32 %r5, 2; @%p3 bra END; J: @%p2 bar.sync 0; END:",
        "@%p2 bra A; mov.u32 %r5, 1; bra J; A: mov.u32 %r5, 2; @!%p3 bra J; st.global.u32 [%rd2], 1; ret; J: @%p2 bar.sync 0;",
    ];
    for body in cases {
        let whole: &'static str =
            Box::leak(format!("setp.lt.u32 %p2, %r1, 16; setp.gt.u32 %p3, %r1, 5000;\n{body}").into_boxed_str());
        let mend = ("@%p2 bar", "bar");
        check(Bug { name: "arm", threads: 32, blocks: 1, bad: whole, mend, kind: Kind::DivergentBarrier });
    }
    // Both arms may go the same way out, where there is more to do.
    let both = "setp.lt.u32 %p2, %r1, 16; setp.gt.u32 %p3, %r1, 5000; @%p2 bra A; mov.u32 %r5, 1; @%p3 bra LOG; bra J;\n\
                A: mov.u32 %r5, 2; @%p3 bra LOG; J: bar.sync 0; ret; LOG: st.global.u32 [%rd2], 1;";
    for o in all_options() {
        assert_eq!(one(both, 32, &o), []);
    }
}

/// One arm of the branch may leave the loop, so that its post-dominator lies behind the loop.
fn broken_loop(together: &str, leaves: &str) -> String {
    format!(
        "setp.lt.u32 %p2, %r1, 16; setp.gt.u32 %p3, %r1, {leaves}; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.f32 %f1, 0f00000000; \
         mov.u32 %r8, tile;\n\
         L: @%p2 bra A; mov.u32 %r5, 1; bra J; A: mov.u32 %r5, 2; @!%p3 bra J; bra OUT;\n\
         J: {together}\nadd.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 3; @%p4 bra L;\nOUT: st.global.u32 [%rd2], 1;"
    )
}

#[test]
fn lanes_that_come_another_way_are_awaited() {
    for together in [
        "bar.sync 0;",
        "bar.red.popc.u32 %r9, 0, %p2;",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f1,%f1,%f1}, {%r7,%r7}, {%r7}, {%f1,%f1,%f1,%f1};",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r7;",
        "bar.warp.sync -1;",
    ] {
        for o in all_options() {
            assert_eq!(one(&broken_loop(together, "5000"), 32, &o), [], "{together}");
            let found = one(&broken_loop(together, "7"), 32, &o);
            let says = if together.starts_with("bar.warp") { Kind::Deadlock } else { Kind::DivergentBarrier };
            assert!(found.contains(&says), "{together}: {found:?}");
        }
    }
}

#[test]
fn each_arm_has_its_own_barrier() {
    let bad = "setp.lt.u32 %p2, %r1, 16;\n@%p2 bra A; bar.sync 0; bra J; A: bar.sync 0; J: mov.u32 %r5, 2;";
    let mend = ("@%p2 bra A; bar.sync 0; bra J;", "@%p2 bra A;");
    check(Bug { name: "arms", threads: 32, blocks: 1, bad, mend, kind: Kind::DivergentBarrier });
}

/// Lanes that left cannot help with a matrix.
#[test]
fn matrices_need_every_lane() {
    let text = |exits: &str| {
        kernel(
            16,
            &format!(
                "setp.ge.u32 %p1, %r1, {exits}; mov.u32 %r7, 0; @%p1 ret; movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r7;"
            ),
        )
    };
    let b = Bug { name: "exits", threads: 32, blocks: 1, bad: "", mend: ("", ""), kind: Kind::DivergentBarrier };
    for o in all_options() {
        let fault = launch(&text("30"), &b, &o).unwrap_err();
        assert_eq!(fault.finding.kind, Kind::DivergentBarrier);
        assert!(fault.finding.message.contains("instead of letting them exit"), "{fault}");
        assert_eq!(launch(&text("32"), &b, &o), Ok(vec![]));
    }
}

/// The cluster's barrier waits for warps, not for as many arrivals as there are warps left.
#[test]
fn a_warp_that_arrived_and_left_counts_once() {
    let body = |arrive: &str| {
        format!(
            ".reg .b32 %c<4>; mov.u32 %c1, %cluster_ctarank; mov.u32 %r3, tile; setp.lt.u32 %p1, %r1, 32;\n\
             @!%p1 bra LATE; barrier.cluster.arrive.release; ret;\nLATE: nanosleep.u32 9; nanosleep.u32 9; nanosleep.u32 9; st.shared.u32 [%r3], 7;\n\
             {arrive} barrier.cluster.wait.acquire;\nxor.b32 %c2, %c1, 1; mapa.shared::cluster.u32 %c3, %r3, %c2; ld.shared::cluster.u32 %r4, [%c3];\n\
             barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
        )
    };
    let text = |arrive| kernel(16, &body(arrive)).replacen(")\n{", ")\n.reqnctapercluster 2, 1, 1\n{", 1);
    let b = Bug { name: "cluster", threads: 64, blocks: 2, bad: "", mend: ("", ""), kind: Kind::SharedRace };
    for o in all_options() {
        assert_eq!(launch(&text("barrier.cluster.arrive.release;"), &b, &o), Ok(vec![]));
        let found = launch(&text("barrier.cluster.arrive.relaxed;"), &b, &o).unwrap();
        assert!(found.iter().any(|f| f.kind == Kind::SharedRace), "{found:?}");
    }
}

/// Lanes 0 to 7 come to the barrier another way than the rest of their mask, and those of other masks are none of its business.
#[test]
fn a_warp_barrier_orders_lanes_that_came_different_ways() {
    let arms = |masks: &str, after: &str| {
        format!(
            "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; xor.b32 %r5, %r4, 32; setp.lt.u32 %p1, %r1, 8; setp.lt.u32 %p2, %r1, 16;\n\
             {masks}\n@%p1 bra A; st.shared.u32 [%r4], %r1; bar.warp.sync %r6; ld.shared.u32 %r7, [%r5]; bra J;\n\
             A: add.u32 %r8, %r1, 1; st.shared.u32 [%r4], %r8; bar.warp.sync %r6; ld.shared.u32 %r7, [%r5];\nJ: {after}"
        )
    };
    for masks in ["mov.b32 %r6, -1;", "selp.b32 %r6, 0xffff, 0xffff0000, %p2;"] {
        for after in ["mov.u32 %r9, 1;", "shfl.sync.bfly.b32 %r9, %r1, 8, 31, %r6;"] {
            for o in all_options() {
                assert_eq!(one(&arms(masks, after), 32, &o), [], "{masks} {after}");
            }
        }
    }
    // Without the barrier of one side's readers the other has nobody to wait for.
    let found = one(&arms("selp.b32 %r6, 0xff, 0xffffff00, %p1;", "mov.u32 %r9, 1;"), 32, &all_options()[0]);
    assert!(found.contains(&Kind::SharedRace), "{found:?}");
}

#[test]
fn lanes_of_a_mask_name_the_same() {
    for bad in [
        "setp.lt.u32 %p1, %r1, 16; selp.b32 %r3, -1, 0xffff0000, %p1;\nvote.sync.ballot.b32 %r4, %p1, %r3;",
        "setp.lt.u32 %p1, %r1, 16; selp.b32 %r3, -1, 0xffff0000, %p1;\nshfl.sync.bfly.b32 %r4, %r1, 1, 31, %r3;",
        "setp.lt.u32 %p1, %r1, 16; selp.b32 %r3, -1, 0xffff0000, %p1;\nbar.warp.sync %r3;",
    ] {
        check(Bug {
            name: "masks",
            threads: 32,
            blocks: 1,
            bad,
            mend: (" -1, 0xffff0000", " 0xffff, 0xffff0000"),
            kind: Kind::BarrierMisuse,
        });
    }
}

/// Lanes of a tile read one word each, and all of them the first of the tile.
#[test]
fn a_tile_waits_for_its_own_readers() {
    let bad = "mov.u32 %r3, tile; add.u32 %r4, %r3, %r2; and.b32 %r5, %r2, 64; add.u32 %r5, %r3, %r5; shr.u32 %r6, %r1, 4; shl.b32 %r6, %r6, 4;\n\
               mov.b32 %r7, 0xffff; shl.b32 %r7, %r7, %r6; and.b32 %r8, %r1, 24; mov.b32 %r9, 0xff; shl.b32 %r9, %r9, %r8;\n\
               st.shared.u32 [%r4], %r1; bar.warp.sync %r7; ld.shared.u32 %r10, [%r5]; ld.shared.u32 %r11, [%r5+4];\n\
               cvt.u64.u32 %rd3, %r5; add.u64 %rd3, %rd1, %rd3; ld.global.u32 %r12, [%rd3];\n\
               bar.warp.sync %r9; st.shared.u32 [%r4], %r10; st.global.u32 [%rd3], %r11;";
    let mend = ("sync %r9;", "sync %r7;");
    let kind = Kind::SharedRace;
    check(Bug {
        name: "tile",
        threads: 32,
        blocks: 1,
        bad: &bad.replace(" st.global.u32 [%rd3], %r11;", ""),
        mend,
        kind,
    });
    let global = bad
        .replace(" st.shared.u32 [%r4], %r10;", "")
        .replace("st.global", "setp.eq.u32 %p1, %r4, %r5; @%p1 st.global");
    check(Bug { name: "tile", threads: 32, blocks: 1, bad: &global, mend, kind: Kind::GlobalRace });
}

/// A lock that is taken in a loop and given back behind it, where the lanes of the warp would meet.
#[test]
fn lanes_make_progress_one_by_one() {
    let take = "setp.gt.u32 %p3, %r1, 3; @%p3 bra J;\n\
                L: add.u32 %r6, %r6, 1; atom.acquire.gpu.global.cas.b32 %r3, [%rd2], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;\n\
                ld.global.u32 %r4, [%rd2+4]; add.u32 %r4, %r4, 1; st.global.u32 [%rd2+4], %r4;\n";
    let release = "st.release.gpu.global.u32 [%rd2], 0; J:";
    let start = "mov.b32 %r6, 0; setp.eq.u32 %p2, %r1, 0; @%p2 st.global.v2.u32 [%rd2], {%r6, %r6}; bar.sync 0;\n";
    for (behind, threads) in
        [("", 32), ("bar.sync 0;", 64), ("bar.warp.sync -1;", 40), ("shfl.sync.idx.b32 %r5, %r4, 0, 31, -1;", 32)]
    {
        for o in all_options() {
            assert_eq!(one(&format!("{start}{take}{release}{behind}"), threads, &o), [], "{behind}");
        }
    }
    // One that is not given back, with an attempt counted and not, in a register and on the stack.
    for spin in [
        "L: atom.global.cas.b32 %r3, [%rd2], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;",
        "L: atom.global.cas.b32 %r3, [%rd2], 0, 1; st.u32 [%rd5], %r3; ld.u32 %r4, [%rd5]; setp.ne.u32 %p1, %r4, 0; @%p1 bra L;",
    ] {
        let front = ".local .align 4 .b8 depot[8]; cvta.local.u64 %rd5, depot; mov.b32 %r6, 0; setp.eq.u32 %p2, %r1, 0; @%p2 st.global.u32 [%rd2], %r6;";
        for o in all_options() {
            assert_eq!(one(&format!("{front} bar.sync 0;\n{spin}"), 32, &o), [Kind::Deadlock], "{spin}");
        }
    }
    // The lanes that would meet are still asked for where the others do not poll.
    let missed = "setp.lt.u32 %p2, %r1, 16; @!%p2 bra J; shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1; J: mov.u32 %r6, 1;";
    assert_eq!(one(missed, 32, &all_options()[0]), [Kind::Deadlock]);
}
