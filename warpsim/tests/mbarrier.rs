//! mbarrier instructions: counts, tokens, peers.

use crate::common::*;
use warpsim::{Gpu, Kind, Module, Options, Report};

fn text(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n.reqnctapercluster 2, 1, 1\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %x<20>; .shared .align 8 .b64 bar;\n\
         ld.param.u64 %x1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; xor.b32 %r3, %r2, 1; mov.u32 %r4, bar; setp.eq.u32 %p1, %r1, 0;\n\
         mad.lo.u32 %r5, %r2, 4, 0; cvt.u64.u32 %x2, %r5; add.u64 %x1, %x1, %x2; mapa.shared::cluster.u32 %r6, %r4, %r3; mov.u32 %r19, 0;\n{body}\n\
         @%p1 st.global.u32 [%x1], %r19;\nret;\n}}"
    )
}

/// Runs two blocks of a warp and returns the word that each leaves in `%r19`.
fn words(body: &str, o: &Options) -> (Vec<u32>, Report) {
    let mut g = Gpu::new();
    let q = g.alloc(8, "out");
    let r = try_run(&mut g, &text(body), "k", [2, 1, 1], [32, 1, 1], 0, &[&q.to_le_bytes()], o);
    (read(&g, q, 2), r.unwrap_or_else(|f| panic!("{f}")))
}

const SYNC: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";

#[test]
fn tokens_count_what_is_pending() {
    // The count in a token is the one before the arrival.
    let body = "@!%p1 bra D; mbarrier.init.shared::cta.b64 [%r4], 10;\n\
        mbarrier.arrive.shared.b64 %x3, [%r4], 2; mbarrier.pending_count.b64 %r7, %x3;\n\
        mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %x4, [%r4], 3; mbarrier.pending_count.b64 %r8, %x4;\n\
        mbarrier.arrive_drop.noComplete.shared.b64 %x5, [%r4], 1; mbarrier.pending_count.b64 %r9, %x5;\n\
        mbarrier.test_wait.shared.b64 %p2, [%r4], %x5; mbarrier.arrive.release.cluster.shared::cta.b64 %x6, [%r4], 4;\n\
        mbarrier.test_wait.acquire.cluster.shared::cta.b64 %p3, [%r4], %x6; mbarrier.test_wait.parity.relaxed.cta.shared::cta.b64 %p4, [%r4], 1;\n\
        mbarrier.try_wait.shared::cta.b64 %p5, [%r4], %x3, 100; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p6, [%r4], 0, %r9;\n\
        mbarrier.arrive.shared.b64 %x7, [%r4]; mbarrier.pending_count.b64 %r10, %x7;\n\
        mad.lo.u32 %r19, %r7, 100, %r8; mad.lo.u32 %r19, %r19, 100, %r9; mad.lo.u32 %r19, %r19, 100, %r10;\n\
        @%p2 add.u32 %r19, %r19, 100000000; @!%p3 add.u32 %r19, %r19, 200000000; @%p4 add.u32 %r19, %r19, 400000000;\n\
        @!%p5 add.u32 %r19, %r19, 800000000; @!%p6 add.u32 %r19, %r19, 1600000000;\nD:";
    for o in all_options() {
        let (w, r) = words(body, &o);
        assert!(r.clean(), "{}", r.findings[0]);
        // After the drop nine arrivals make a phase.
        assert_eq!(w, [10_08_05_09; 2]);
    }
}

#[test]
fn bytes_are_counted_as_far_as_they_go() {
    let fault = |then: &str, o: &Options| {
        let body = format!("@!%p1 bra D; mbarrier.init.shared::cta.b64 [%r4], 10; mov.u32 %r7, 1048575;\n{then}\nD:");
        let mut g = Gpu::new();
        let q = g.alloc(8, "out");
        let f = try_run(&mut g, &text(&body), "k", [2, 1, 1], [32, 1, 1], 0, &[&q.to_le_bytes()], o).unwrap_err();
        assert_eq!(f.finding.kind, Kind::BarrierMisuse);
        f.finding.message
    };
    let expect = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r4], %r7;";
    let arrive = "mov.u32 %r7, 0x7fffffff; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], %r7;";
    let complete = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r4], %r7; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r4], 1;";
    for o in all_options() {
        for (then, bytes) in [
            (format!("{expect}{expect}"), 2_097_150),
            (format!("{expect}{arrive}"), 2_148_532_222i64),
            (complete.into(), -1_048_576),
        ] {
            let says = format!("{bytes} bytes are to come to an mbarrier that counts 1048575 at most");
            assert_eq!(fault(&then, &o), says, "{then}");
        }
    }
}

#[test]
fn peers_arrive() {
    // Each block's barrier needs 32 arrivals of the other block by address and 2 × 3 generic ones; data goes ahead of them.
    let body = format!(
        ".shared .b32 word; @%p1 mbarrier.init.shared::cta.b64 [%r4], 38; mov.u32 %r7, word; mapa.shared::cluster.u32 %r8, %r7, %r3;\n\
         cvta.shared.u64 %x3, bar; mapa.u64 %x4, %x3, %r3; {SYNC}\n\
         add.u32 %r9, %r2, 70; @%p1 st.shared::cluster.u32 [%r8], %r9; bar.warp.sync -1; setp.lt.u32 %p2, %r1, 2;\n\
         mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6]; @%p2 mbarrier.arrive.release.cluster.b64 _, [%x4], 3;\n\
         W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r4], 0, 1000; @!%p3 bra W;\n ld.shared.u32 %r19, [%r7];\n{SYNC}"
    );
    for o in all_options() {
        let (w, r) = words(&body, &o);
        assert!(r.clean(), "{}", r.findings[0]);
        assert_eq!(w, [71, 70]);
    }
}

#[test]
fn misuse_is_found() {
    let body =
        "@!%p1 bra D; mbarrier.init.shared::cta.b64 [%r4], 2; mbarrier.arrive.noComplete.shared.b64 %x3, [%r4], 2;\nD:";
    let (_, r) = words(body, &Options::default());
    assert!(r.findings[0].kind == Kind::BarrierMisuse && r.findings[0].message.contains("completes the phase"));
    let wait = format!(
        "@%p1 mbarrier.init.shared::cta.b64 [%r4], 1; {SYNC} mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r6], 0;"
    );
    let mut g = Gpu::new();
    let q = g.alloc(8, "out");
    let f = try_run(&mut g, &text(&wait), "k", [2, 1, 1], [32, 1, 1], 0, &[&q.to_le_bytes()], &Options::default());
    let f = f.unwrap_err();
    assert!(f.finding.kind == Kind::BarrierMisuse && f.to_string().contains("of another block"), "{f}");
}

#[test]
fn forms_that_do_not_exist_are_errors() {
    for form in [
        "mbarrier.init.shared::cluster.b64 [%r4], 1;",
        "mbarrier.test_wait.parity.shared::cluster.b64 %p1, [%r4], 0;",
        "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r4], 0, 100;",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 %x1, [%r4];",
        "mbarrier.arrive.noComplete.shared::cta.b64 %x1, [%r4];",
        "mbarrier.arrive.expect_tx.shared::cta.b64 %x1, [%r4];",
        "mbarrier.arrive.acquire.cta.shared::cta.b64 %x1, [%r4];",
        "mbarrier.pending_count.b64 %x1, %x1;",
        "mbarrier.wait.b64 %p1, [%r4], 1;",
    ] {
        let e = Module::parse(&text(form)).unwrap().kernel("k").err().unwrap_or_else(|| panic!("{form} is accepted"));
        assert!(e.line == 10 && e.message.contains("mbarrier."), "{e}");
    }
}

#[test]
fn tokens_are_for_one_barrier_and_the_last_phase() {
    let start = ".shared .align 8 .b64 other; mov.u32 %r7, other; @!%p1 bra D;\n\
        mbarrier.init.shared::cta.b64 [%r4], 1; mbarrier.init.shared::cta.b64 [%r7], 1; mbarrier.arrive.shared.b64 %x3, [%r4];";
    let wait = "mbarrier.test_wait.shared.b64 %p2, [%r4], %x3; selp.u32 %r19, 1, 0, %p2;\nD:";
    for (then, says) in [
        ("", None),
        ("mbarrier.arrive.shared.b64 %x4, [%r4];", Some("a token that is 2 phases old for the mbarrier at")),
        ("mbarrier.arrive.shared.b64 %x3, [%r7];", Some("with a token of another mbarrier")),
        ("mbarrier.inval.shared.b64 [%r4]; mbarrier.init.shared.b64 [%r4], 1;", Some("before its initialisation")),
    ] {
        for o in all_options() {
            let (w, r) = words(&format!("{start}\n{then}\n{wait}"), &o);
            match says {
                None => assert!(r.clean() && w == [1, 1], "{w:?}, {:?}", r.findings),
                Some(says) => {
                    let hit = |f: &warpsim::Finding| f.kind == Kind::BarrierMisuse && f.message.contains(says);
                    assert!(r.findings.iter().any(hit), "{then}: {:?}", r.findings);
                }
            }
        }
    }
}
