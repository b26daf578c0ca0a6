//! What kernels of CUTLASS and of NVIDIA's samples do that is correct and only looks like a mistake, and the mistakes that come
//! closest to it.

use crate::common::{all_options, read, try_run};
use crate::zoo_order::{check, found, kernel};
use warpsim::{Checks, Gpu, Kind, Options};

#[test]
fn halves_are_joined_behind_a_wgmma_fence_and_not_made() {
    let make = "cvt.rn.f16.f32 %h1, %f7; cvt.rn.f16.f32 %h0, %f7;";
    let join = "mov.b32 %r10, {%h0, %h1}; mov.b32 %r11, {%h1, %h0}; mov.b32 %r12, %r10; mov.b32 %r13, %r11;";
    let body = |early: &str, late: &str| {
        format!(
            "mov.u32 %r6, %r2;\nL: add.u32 %r7, %r3, %r6; st.shared.u32 [%r7], 0; add.u32 %r6, %r6, 512; setp.lt.u32 %p2, %r6, 4096; @%p2 bra L;\n\
             fence.proxy.async.shared::cta; bar.sync 0;\nmov.u64 %rd5, 0x4000001000080080; cvt.rn.f32.u32 %f7, %r1;\n\
             mov.f32 %f1, %f7; mov.f32 %f2, %f7; mov.f32 %f3, %f7; mov.f32 %f4, %f7;\n{early}\nwgmma.fence.sync.aligned;\n{late}\n\
             wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1,%f2,%f3,%f4}}, {{%r10,%r11,%r12,%r13}}, %rd5, 1, 1, 1, 0;\n\
             wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n@%p1 st.global.f32 [%rd2], %f1;"
        )
    };
    for o in all_options() {
        let clean = found(&kernel(1, &body(make, join)), 1, 128, &o);
        assert!(clean.is_empty(), "{}", clean[0]);
        for (early, late) in
            [("", format!("{make}{join}")), (make, join.replace("mov.b32 %r13, %r11;", "add.u32 %r13, %r11, 1;"))]
        {
            let caught = found(&kernel(1, &body(early, &late)), 1, 128, &o);
            assert!(caught.iter().any(|f| f.kind == Kind::AsyncRace), "{late}");
        }
    }
}

fn poll(label: &str, at: &str) -> String {
    format!("{label}: ld.acquire.cta.shared.u32 %r6, [{at}]; setp.eq.u32 %p4, %r6, 0; @%p4 bra {label};")
}

/// Lane 0 polls for a flag that the other warp sets once the lanes beside it have gone ahead, so that they stay apart; then all
/// add up by shuffles.
#[test]
fn split_lanes_shuffle_together_whenever_their_turn_ends() {
    let mut sums = String::new();
    for k in 0..40 {
        sums += &format!("shfl.sync.bfly.b32 %r8, %r7, {}, 31, -1; add.u32 %r7, %r7, %r8;\n", 1 << (k % 5));
    }
    let (first, second) = (poll("L", "bar"), poll("M", "bar+4"));
    let body = format!(
        "@%p1 st.shared.v2.u32 [bar], {{0, 0}}; bar.sync 0; setp.lt.u32 %p2, %r1, 32; mov.u32 %r7, %r1; @%p2 bra WAIT;\n\
         setp.ne.u32 %p3, %r1, 32; @%p3 bra END;\n{second}\nst.release.cta.shared.u32 [bar], 1; bra END;\n\
         WAIT: @!%p1 bra MEET;\n{first}\nMEET: setp.eq.u32 %p5, %r1, 1; @%p5 st.release.cta.shared.u32 [bar+4], 1;\n{sums}\n\
         cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], %r7;\nEND:"
    );
    let text = kernel(1, &body);
    for seed in 0..100 {
        let mut g = Gpu::new();
        let (p, q) = (g.alloc(4, "input"), g.alloc(128, "output"));
        let args: [&[u8]; 2] = [&p.to_le_bytes(), &q.to_le_bytes()];
        let o = Options { checks: Checks::ALL, seed, threads: 1, ..Options::default() };
        let r = try_run(&mut g, &text, "k", [1; 3], [64, 1, 1], 0, &args, &o)
            .unwrap_or_else(|f| panic!("seed {seed}: {f}"));
        assert!(r.clean(), "seed {seed}: {}", r.findings[0]);
        // Five of the 40 steps sum up all lanes, and each later five multiply the sum by 32.
        let sum = (0..32u32).sum::<u32>().wrapping_mul(32u32.wrapping_pow(7));
        assert_eq!(read::<u32>(&g, q, 32), [sum; 32], "seed {seed}");
    }
}

/// One thread signals for the four warps that read a stage, once the multiplication that follows their reads is complete.
#[test]
fn the_end_of_a_wgmma_tells_that_its_warps_have_read() {
    let body = |before: &str, after: &str, wait: &str| {
        format!(
            "mov.u32 %r6, %r2;\nL: add.u32 %r7, %r3, %r6; st.shared.u32 [%r7], 0; add.u32 %r6, %r6, 512; setp.lt.u32 %p2, %r6, 4096; @%p2 bra L;\n\
             @%p1 mbarrier.init.shared.b64 [%r4], 1; fence.proxy.async.shared::cta; bar.sync 0;\nsetp.ge.u32 %p5, %r1, 128; @%p5 bra WRITER;\n\
             mov.u64 %rd4, 0x4000001000080000; mov.u64 %rd5, 0x4000001000080080;\n\
             mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n{before}\nwgmma.fence.sync.aligned;\n\
             wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {{%f1,%f2,%f3,%f4}}, %rd4, %rd5, 1, 1, 1;\n\
             wgmma.commit_group.sync.aligned;\n{after}\n{wait}\n@%p1 mbarrier.arrive.shared.b64 _, [%r4];\nwgmma.wait_group.sync.aligned 0; bra END;\n\
             WRITER: mbarrier.try_wait.parity.shared.b64 %p4, [%r4], 0; @!%p4 bra WRITER; st.shared.u32 [%r3+3072], 5;\nEND:"
        )
    };
    let (read, written) = ("ld.shared.u32 %r14, [%r3+3072];", "st.shared.u32 [%r3+3072], 1;");
    let wait = "wgmma.wait_group.sync.aligned 0;";
    for o in all_options() {
        let clean = found(&kernel(1, &body(read, "", wait)), 1, 160, &o);
        assert!(clean.is_empty(), "{}", clean[0]);
        for (before, after, wait) in [("", read, wait), (read, "", ""), (written, "", wait)] {
            let caught = found(&kernel(1, &body(before, after, wait)), 1, 160, &o);
            assert!(caught.iter().any(|f| f.kind == Kind::SharedRace), "{before} {after} {wait}: {caught:?}");
        }
        let by_a_fellow =
            found(&kernel(1, &body(read, "", &format!("{wait} @%p1 st.shared.u32 [%r3+3072], 2;"))), 1, 160, &o);
        assert!(by_a_fellow.iter().any(|f| f.kind == Kind::SharedRace), "{by_a_fellow:?}");
    }
}

/// Lane 0 polls as above, and comes to the barrier after the lanes beside it: behind the barrier the warp is together again.
#[test]
fn split_lanes_go_on_together_behind_a_barrier() {
    let (first, second) = (poll("L", "bar"), poll("M", "bar+4"));
    // Which of the two parts has its turn first changes from barrier to barrier.
    for again in ["", "bar.sync 0;"] {
        let body = format!(
            "@%p1 st.shared.v2.u32 [bar], {{0, 0}}; bar.sync 0; setp.lt.u32 %p2, %r1, 32; @%p2 bra WAIT;\n\
         setp.ne.u32 %p3, %r1, 32; @%p3 bra ALL;\n{second}\nst.release.cta.shared.u32 [bar], 1; bra ALL;\n\
         WAIT: @!%p1 bra MEET;\n{first}\nMEET: setp.eq.u32 %p5, %r1, 1; @%p5 st.release.cta.shared.u32 [bar+4], 1;\n\
         ALL: bar.sync 0; add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1; bar.sync 0; {again}\n\
         ld.shared.u32 %r7, [%r6]; setp.ne.u32 %p6, %r1, 63; @%p6 ld.shared.u32 %r7, [%r6+4];\n/*here*/\nst.shared.u32 [%r6], %r7;"
        );
        check((1, 1, 64), &[Kind::SharedRace], &body, &["bar.sync 0;"]);
    }
}

#[test]
fn a_warp_initialises_an_mbarrier_together() {
    let body = |who: &str, count: &str| {
        let text = format!(
            "setp.lt.u32 %p2, %r1, 32; add.u32 %r6, %r1, 64; {who} mbarrier.init.shared.b64 [%r4], {count}; bar.sync 0;\n\
             mbarrier.arrive.shared.b64 _, [%r4];\nW: mbarrier.try_wait.parity.shared.b64 %p3, [%r4], 0; @!%p3 bra W;"
        );
        kernel(1, &text)
    };
    for o in all_options() {
        assert_eq!(found(&body("@%p2", "64"), 1, 64, &o), []);
        // Two warps, and lanes that do not agree.
        for (who, count) in [("", "64"), ("@%p2", "%r6")] {
            let bad = found(&body(who, count), 1, 64, &o);
            assert!(bad.iter().any(|f| f.kind == Kind::BarrierMisuse), "{who} {count}: {bad:?}");
        }
    }
}
