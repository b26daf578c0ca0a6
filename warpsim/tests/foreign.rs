//! Instructions that PTX of other compilers uses: packed `set`, immediate predicates, tensor maps made by the kernel.

use crate::common::*;
use warpsim::{DataType, Gpu, Kind, Launch, Module, Report, Swizzle, TensorMap};

fn text(version: &str, params: &str, body: &str) -> String {
    format!(
        ".version {version}\n.target sm_90a\n.address_size 64\n.visible .entry k({params})\n{{\n\
         .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n{body}\nret;\n}}"
    )
}

fn launch(g: &mut Gpu, text: &str, threads: u32, args: &[&[u8]]) -> Result<Report, warpsim::Fault> {
    let k = Module::parse(text).unwrap_or_else(|e| panic!("{e}")).kernel("k").unwrap_or_else(|e| panic!("{e}"));
    g.launch(&k, &Launch { block: [threads, 1, 1], args, ..Launch::default() }, &all_options()[3])
}

#[test]
fn packed_set() {
    // Halves of `a` and `b`: (1, NaN) and (1, 2).
    let body = "ld.param.u64 %rd1, [q]; mov.b32 %r1, 0x7e003c00; mov.b32 %r2, 0x40003c00; setp.eq.u32 %p1, %r1, %r1;\n\
        set.nan.f16x2.f16x2 %r3, %r1, %r1; set.eq.f16x2.f16x2 %r4, %r1, %r2; set.neu.u32.f16x2 %r5, %r1, %r2;\n\
        set.lt.xor.f16x2.f16x2 %r6, %r1, %r2, %p1; mov.b32 %r8, 0x40003f80; mov.b32 %r9, 0x3f803f80; set.gt.bf16x2.bf16x2 %r7, %r8, %r9;\n\
        st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r6}; st.global.u32 [%rd1+16], %r7;";
    let mut g = Gpu::new();
    let q = g.alloc(20, "q");
    assert!(launch(&mut g, &text("8.0", ".param .u64 q", body), 1, &[&q.to_le_bytes()]).unwrap().clean());
    assert_eq!(read::<u32>(&g, q, 5), [0x3c00_0000, 0x3c00, 0xffff_0000, 0x3c00_3c00, 0x3f80_0000]);
}

#[test]
fn immediate_predicates_hold_for_every_lane() {
    let body = "ld.param.u64 %rd1, [q]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n\
        mov.pred %p1, -1; mov.pred %p2, 0; mov.pred %p3, 1; mov.b32 %r2, 1; mov.b32 %r3, 10;\n\
        @%p1 add.u32 %r2, %r2, 2; @%p2 add.u32 %r2, %r2, 4; @%p3 add.u32 %r2, %r2, 8; selp.u32 %r4, %r3, %r2, 0;\n\
        setp.lt.and.u32 %p4, %r1, 4, 1; @%p4 add.u32 %r4, %r4, 100; st.global.u32 [%rd1], %r4;";
    let mut g = Gpu::new();
    let q = g.alloc(128, "q");
    assert!(launch(&mut g, &text("8.0", ".param .u64 q", body), 32, &[&q.to_le_bytes()]).unwrap().clean());
    let want: Vec<u32> = (0..32).map(|i| if i < 4 { 111 } else { 11 }).collect();
    assert_eq!(read::<u32>(&g, q, 32), want);
}

/// Thread 0 of a warp makes a map of a 12 × 20 tensor in shared memory, all copy it out, and a tile is loaded with it.
fn made_map(version: &str, stride: u64, step: u32, fence: &str) -> String {
    let replace = "tensormap.replace.tile";
    let at = "shared::cta.b1024";
    let body = format!(
        ".shared .align 128 .b8 map[128]; .shared .align 128 .b8 tile[256]; .shared .align 8 .b64 bar;\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; ld.param.u64 %rd3, [m]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2;\n\
         mov.u32 %r3, map; mov.u32 %r4, tile; mov.u32 %r5, bar; add.u32 %r6, %r3, %r2; mov.b32 %r7, 0; st.shared.u32 [%r6], %r7;\n\
         {fence}\nsetp.ne.u32 %p1, %r1, 0; cvt.u64.u32 %rd4, %r3; @%p1 bra C;\n\
         {replace}.global_address.{at}.b64 [%rd4], %rd1; {replace}.rank.{at}.b32 [%rd4], 1;\n\
         mov.b32 %r8, 8; mov.b32 %r9, 20; mov.b32 %r10, 12; mov.b32 %r11, {step}; mov.b64 %rd5, {stride};\n\
         {replace}.box_dim.{at}.b32 [%rd4], 0, %r8; {replace}.box_dim.{at}.b32 [%rd4], 1, %r8;\n\
         {replace}.global_dim.{at}.b32 [%rd4], 0, %r9; {replace}.global_dim.{at}.b32 [%rd4], 1, %r10;\n\
         {replace}.global_stride.{at}.b64 [%rd4], 0, %rd5;\n\
         {replace}.element_stride.{at}.b32 [%rd4], 0, 1; {replace}.element_stride.{at}.b32 [%rd4], 1, %r11;\n\
         {replace}.elemtype.{at}.b32 [%rd4], 7; {replace}.interleave_layout.{at}.b32 [%rd4], 0;\n\
         {replace}.swizzle_mode.{at}.b32 [%rd4], 0; {replace}.fill_mode.{at}.b32 [%rd4], 1;\n\
         mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster;\n\
         C: bar.warp.sync -1;\n\
         tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd3], [%rd4], 128;\n\
         fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;\n\
         mov.b32 %r12, 16; mov.b32 %r13, 4; @%p1 bra W;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 256;\n\
         cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd3, {{%r12, %r13}}], [%r5];\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra W;\n\
         add.u32 %r14, %r4, %r2; ld.shared.u32 %r15, [%r14]; ld.shared.u32 %r16, [%r14+128];\n\
         cvt.u64.u32 %rd6, %r2; add.u64 %rd6, %rd6, %rd2; st.global.u32 [%rd6], %r15; st.global.u32 [%rd6+128], %r16;"
    );
    text(version, ".param .u64 p, .param .u64 q, .param .u64 m", &body)
}

#[test]
fn tensor_maps_made_by_a_kernel() {
    let src: Vec<f32> = (0..240).map(|v| v as f32).collect();
    let run = |text: &str| {
        let mut g = Gpu::new();
        let (p, q, m) = (g.alloc_with(&bytes(&src), "p"), g.alloc(256, "q"), g.alloc(128, "map"));
        let r = launch(&mut g, text, 32, &[&p.to_le_bytes(), &q.to_le_bytes(), &m.to_le_bytes()]);
        r.map(|r| (r, read::<f32>(&g, q, 64)))
    };
    // Before CUDA 12.5 strides came in units of 16 bytes.
    for (version, stride) in [("8.4", 5), ("8.5", 80), ("9.0", 80)] {
        let (report, out) = run(&made_map(version, stride, 1, "bar.warp.sync -1;")).unwrap_or_else(|f| panic!("{f}"));
        assert!(report.clean(), "{}", report.findings[0]);
        for (i, v) in out.iter().enumerate() {
            let (x, y) = (16 + i % 8, 4 + i / 8);
            let inside = x < 20 && y < 12;
            assert!(if inside { *v == src[y * 20 + x] } else { v.is_nan() }, "({x},{y}): {v}");
        }
    }
    let acquire = "fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;";
    let (report, _) = run(&made_map("9.0", 80, 1, "bar.warp.sync -1;").replace(acquire, "")).unwrap();
    assert_eq!(report.findings[0].kind, Kind::MissingProxyFence);
    let fault = run(&made_map("9.0", 72, 1, "bar.warp.sync -1;")).unwrap_err();
    assert!(fault.to_string().contains("a stride of 72 bytes"), "{fault}");
    let fault = run(&made_map("9.0", 80, 2, "bar.warp.sync -1;")).unwrap_err();
    assert!(fault.to_string().contains("element strides"), "{fault}");
    let (report, _) = run(&made_map("9.0", 80, 1, "")).unwrap();
    assert_eq!(report.findings[0].kind, Kind::SharedRace);
}

/// Libraries copy the half of a map that says something, and replace what differs: here address, sizes and stride of 12 rows of 20.
#[test]
fn half_a_tensor_map_is_copied() {
    let replace = "tensormap.replace.tile";
    let body = |release: &str, acquire: &str| {
        let head = "ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; ld.param.u64 %rd3, [m]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2;\n\
            .shared .align 128 .b8 tile[256]; .shared .align 8 .b64 bar; setp.ne.u32 %p1, %r1, 0; mov.b64 %rd4, half; @%p1 bra W;\n\
            ld.param.v2.b64 {%rd5, %rd6}, [%rd4]; st.global.v2.b64 [%rd3], {%rd5, %rd6}; ld.param.v2.b64 {%rd5, %rd6}, [%rd4+16];\n\
            st.global.v2.b64 [%rd3+16], {%rd5, %rd6}; ld.param.v2.b64 {%rd5, %rd6}, [%rd4+32]; st.global.v2.b64 [%rd3+32], {%rd5, %rd6};\n\
            ld.param.v2.b64 {%rd5, %rd6}, [%rd4+48]; st.global.v2.b64 [%rd3+48], {%rd5, %rd6}; mov.b32 %r3, 20; mov.b32 %r4, 12; mov.b64 %rd7, 80;";
        format!(
            "{head}\n{replace}.global_address.global.b1024.b64 [%rd3], %rd1; {replace}.global_dim.global.b1024.b32 [%rd3], 0, %r3;\n\
             {replace}.global_dim.global.b1024.b32 [%rd3], 1, %r4; {replace}.global_stride.global.b1024.b64 [%rd3], 0, %rd7;\n\
             {release} {acquire} mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;\n\
             cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [tile], [%rd3, {{4, 2}}], [bar];\n\
             W: bar.warp.sync -1;\nL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra L;\n\
             mov.u32 %r5, tile; add.u32 %r5, %r5, %r2; ld.shared.u32 %r6, [%r5]; ld.shared.u32 %r7, [%r5+128]; cvt.u64.u32 %rd8, %r2;\n\
             add.u64 %rd8, %rd8, %rd2; st.global.u32 [%rd8], %r6; st.global.u32 [%rd8+128], %r7;"
        )
    };
    let run = |release: &str, acquire: &str| {
        let params = ".param .u64 p, .param .u64 q, .param .u64 m, .param .align 64 .b8 half[128]";
        let mut g = Gpu::new();
        let src: Vec<f32> = (0..240).map(|v| v as f32).collect();
        let (p, q, m) = (g.alloc_with(&bytes(&src), "p"), g.alloc(256, "q"), g.alloc_with(&[0xab; 128], "map"));
        let map = TensorMap::tiled(DataType::F32, p, &[8, 8], &[32], &[8, 8], Swizzle::None).unwrap().encode();
        let args: [&[u8]; 4] = [&p.to_le_bytes(), &q.to_le_bytes(), &m.to_le_bytes(), &map];
        let r =
            launch(&mut g, &text("8.6", params, &body(release, acquire)), 32, &args).unwrap_or_else(|f| panic!("{f}"));
        (r, read::<f32>(&g, q, 64))
    };
    let (release, acquire) =
        ("fence.proxy.tensormap::generic.release.gpu;", "fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;");
    let (report, out) = run(release, acquire);
    assert!(report.clean(), "{}", report.findings[0]);
    assert!(out.iter().enumerate().all(|(i, v)| *v == ((2 + i / 8) * 20 + 4 + i % 8) as f32), "{out:?}");
    // A fence of another map is none of this one.
    for other in ["", "fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;"] {
        assert_eq!(run(release, other).0.findings[0].kind, Kind::MissingProxyFence);
    }
    // And what nobody released is not acquired.
    for other in ["", "fence.acq_rel.gpu;"] {
        let (report, _) = run(other, acquire);
        assert_eq!(report.findings[0].kind, Kind::MissingProxyFence);
        assert!(report.findings[0].message.contains("tensormap::generic.release after"), "{}", report.findings[0]);
    }
}
