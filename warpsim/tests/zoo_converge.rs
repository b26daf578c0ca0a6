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
