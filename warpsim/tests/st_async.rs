//! `st.async` and `red.async` between the blocks of a cluster.

use crate::common::*;
use warpsim::{Completion, Fault, Gpu, Kind, Launch, Module, Options, Report};

/// Each of two blocks sends to the other: a vector and a double for each thread, and sums. `send` and `wait` can be replaced.
fn kernel(send: &str, wait: &str, bytes: u32) -> String {
    format!(
        ".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n.reqnctapercluster 2, 1, 1\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %x<9>; .reg .f64 %d<3>;\n\
         .shared .align 16 .b8 tile[1024]; .shared .align 8 .b8 wide[512]; .shared .align 8 .b64 bar; .shared .align 8 .b64 sums[2];\n\
         ld.param.u64 %x1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1; mov.u32 %r4, bar; setp.eq.u32 %p1, %r1, 0;\n\
         shl.b32 %r20, %r1, 4; mov.u32 %r21, tile; add.u32 %r21, %r21, %r20; st.shared.v4.u32 [%r21], {{9, 9, 9, 9}};\n\
         shl.b32 %r22, %r1, 3; mov.u32 %r23, wide; add.u32 %r23, %r23, %r22; st.shared.u64 [%r23], 0;\n\
         @%p1 st.shared.u64 [sums], 0; @%p1 st.shared.u64 [sums+8], 1000;\n\
         @%p1 mbarrier.init.shared::cta.b64 [%r4], 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {bytes};\n\
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n\
         mapa.shared::cluster.u32 %r5, %r4, %r3; mapa.shared::cluster.u32 %r6, %r21, %r3; mapa.shared::cluster.u32 %r7, %r23, %r3;\n\
         mov.u32 %r8, sums; mapa.shared::cluster.u32 %r9, %r8, %r3; cvt.u64.u32 %x2, %r9; cvt.u64.u32 %x3, %r5;\n\
         mad.lo.u32 %r10, %r2, 1000, %r1; add.u32 %r11, %r10, 1; add.u32 %r12, %r10, 2; cvt.rn.f64.u32 %d1, %r10;\n\
         {send}\n{wait}\n\
         ld.shared.v4.u32 {{%r13, %r14, %r15, %r16}}, [%r21]; ld.shared.f64 %d2, [%r23]; cvt.rzi.u32.f64 %r17, %d2;\n\
         add.u32 %r13, %r13, %r14; add.u32 %r13, %r13, %r15; add.u32 %r13, %r13, %r16; add.u32 %r13, %r13, %r17;\n\
         barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;\n\
         @%p1 ld.shared.v2.u32 {{%r18, %r19}}, [sums]; @%p1 ld.shared.u64 %x5, [sums+8]; @!%p1 mov.u64 %x5, 0; @!%p1 mov.b32 %r18, 0; @!%p1 mov.b32 %r19, 0;\n\
         mov.u32 %r24, %ctaid.x; mad.lo.u32 %r24, %r24, 64, %r1; mul.wide.u32 %x4, %r24, 24; add.u64 %x4, %x4, %x1;\n\
         st.global.u32 [%x4], %r13; st.global.u32 [%x4+4], %r18; st.global.u32 [%x4+8], %r19; st.global.u64 [%x4+16], %x5;\nret;\n}}"
    )
}

const SEND: &str = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%r6], {%r10, %r11, %r12, 5}, [%r5];\n\
    st.async.shared::cluster.mbarrier::complete_tx::bytes.f64 [%r7], %d1, [%x3];\n\
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%x2], %r1, [%r5];\n\
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.xor.b32 [%r9+4], %r11, [%r5];\n\
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s64 [%r9+8], -3, [%r5];";
const WAIT: &str = "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra W;";
/// For each thread 16, 8, 4, 4 and 8.
const BYTES: u32 = 64 * 40;

fn launch(text: &str, o: &Options) -> (Gpu, u64, Result<Report, Fault>) {
    let mut g = Gpu::new();
    let q = g.alloc(4 * 64 * 24, "out");
    let k = Module::parse(text).unwrap_or_else(|e| panic!("{e}")).kernel("k").unwrap_or_else(|e| panic!("{e}"));
    let args: [&[u8]; 1] = [&q.to_le_bytes()];
    let r = g.launch(&k, &Launch { grid: [4, 1, 1], block: [64, 1, 1], args: &args, ..Launch::default() }, o);
    (g, q, r)
}

#[test]
fn values_arrive_with_the_barrier() {
    for o in all_options() {
        let (g, q, r) = launch(&kernel(SEND, WAIT, BYTES), &o);
        let r = r.unwrap_or_else(|f| panic!("{f}"));
        assert!(r.clean(), "{}", r.findings[0]);
        for (i, out) in read::<u32>(&g, q, 4 * 64 * 6).chunks(6).enumerate() {
            let (t, peer) = (i as u32 % 64, (i as u32 / 64 % 2) ^ 1);
            let v = peer * 1000 + t;
            assert_eq!(out[0], v + (v + 1) + (v + 2) + 5 + v);
            let first = [(0..64).sum(), (0..64).fold(0, |x, t| x ^ (peer * 1000 + t + 1)), 0, 1000 - 3 * 64, 0];
            let want = if t == 0 { first } else { [0; 5] };
            assert_eq!([out[1], out[2], 0, out[4], out[5]], want, "{t}");
        }
    }
}

#[test]
fn nobody_may_look_before_the_wait() {
    let text = kernel(SEND, "", BYTES);
    let see = |async_completion| {
        let (g, q, r) = launch(&text, &Options { async_completion, ..Options::default() });
        r.unwrap_or_else(|f| panic!("{f}"));
        read::<u32>(&g, q, 1)[0]
    };
    assert_eq!(see(Completion::Latest), 36);
    let (_, _, r) = launch(&text, &all_options()[0]);
    assert!(
        r.unwrap()
            .findings
            .iter()
            .any(|f| f.kind == Kind::AsyncRace && f.place.instruction.starts_with("ld.shared.v4"))
    );
}

#[test]
fn too_few_bytes_never_complete() {
    let (_, _, r) = launch(&kernel(SEND, WAIT, BYTES + 8), &Options::default());
    let f = r.unwrap_err();
    assert_eq!(f.finding.kind, Kind::Deadlock);
    assert!(f.to_string().contains("8 bytes missing"), "{f}");
}

#[test]
fn data_and_barrier_are_in_one_block() {
    let one =
        |to: &str, bar: &str| format!("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [{to}], 1, [{bar}];");
    let (_, _, r) = launch(&kernel(&one("%r6", "%r4"), "", 4), &Options::default());
    let f = r.unwrap_err();
    assert!(f.finding.kind == Kind::BarrierMisuse && f.to_string().contains("the mbarrier is in rank 0"), "{f}");
    let text = "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r6+8], {1, 2, 3, 4}, [%r5];";
    let (_, _, r) = launch(&kernel(text, "", 4), &Options::default());
    assert_eq!(r.unwrap_err().finding.kind, Kind::Misaligned);
}

#[test]
fn other_forms_are_errors() {
    for (form, why) in [
        ("st.async.shared::cluster.b32 [%r6], 1, [%r5];", "mbarrier::complete_tx::bytes"),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b16 [%r6], 1, [%r5];", "not defined for this type"),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r6], {%x1, %x1, %x1, %x1}, [%r5];",
            "16 bytes",
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.f32 [%r6], %r1, [%r5];",
            "not defined",
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.and.u32 [%r6], %r1, [%r5];",
            "not defined",
        ),
    ] {
        let e = Module::parse(&kernel(form, "", 4)).unwrap().kernel("k").err().unwrap();
        assert!(e.message.contains(why), "{e}");
    }
}
