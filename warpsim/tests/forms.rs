//! Forms of instructions that are accepted, and some that are refused: each alone in a module, lowered but not run.

use warpsim::Module;

/// Every line is one form.
const FORMS: [&str; 2] = [include_str!("forms.ptx"), include_str!("forms_common.ptx")];

fn lower(form: &str) -> Result<(), String> {
    lower_for("sm_90a", form)
}

fn lower_for(target: &str, form: &str) -> Result<(), String> {
    let text = format!(
        ".version 8.6\n.target {target}\n.address_size 64\n.extern .shared .align 16 .b8 dyn[];\n.const .b32 konst[4];\n\
         .visible .entry k(.param .u64 p, .param .align 64 .b8 map[128])\n{{\n\
         .reg .pred %p<6>; .reg .b16 %h<8>; .reg .b32 %r<20>; .reg .f32 %f<8>; .reg .f64 %d<6>; .reg .b64 %x<12>; .reg .b128 %q<4>;\n\
         .shared .align 16 .b8 tile[64]; .shared .align 8 .b64 bar; .local .align 8 .b8 depot[16];\n{form}\nret;\n}}"
    );
    Module::parse(&text).and_then(|m| m.kernel("k").map(drop)).map_err(|e| e.to_string())
}

#[test]
fn every_form_is_accepted() {
    let forms = FORMS.iter().flat_map(|f| f.lines()).map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//"));
    let bad: Vec<String> = forms.filter_map(|f| lower(f).err().map(|e| format!("{f}\n    {e}"))).collect();
    assert!(bad.is_empty(), "{} forms fail:\n{}", bad.len(), bad.join("\n"));
}

/// What is not supported, or is no PTX.
const REFUSED: &[&str] = &[
    "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%x1, {%f1, %f2}];",
    "suld.b.1d.b32.trap %r1, [%x1, {%r2}];",
    "tcgen05.fence::before_thread_sync;",
    "multimem.ld_reduce.relaxed.sys.global.add.f32 %f1, [%x1];",
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%f1, %f2, %f3, %f4}, %r5, 2;",
    "mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1}, {%r1}, {%f1, %f2, %f3, %f4}, %r5, 0;",
    "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32 {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r3, %r4}, {%f1, %f2, %f3, %f4, %f1, %f2, %f3, %f4};",
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f32 {%r1, %r2}, {%r3, %r4}, {%r5}, {%f1, %f2, %f3, %f4};",
    "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc {%r1, %r2, %r3, %r4}, %x1, %x2, 1;",
    "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17, %r18, %r19, %r1}, %x1, %x2, 1;",
    "wmma.load.a.sync.aligned.row.m8n32k16.global.s4 {%r1}, [%x1], 8;",
    "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r1}, [%x1], 32;",
    "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2};",
    "st.bulk.weak.shared::cta [%r1], 64, 0;",
    "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%x1, {%r2, %r3}], [%r5], {%h1};",
    "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%x1, {%r2, %r3, %r4, %r6}], [%r5], {%h1};",
    "cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%x1, {%r2, %r3, %r4}], [%r5], {%h1};",
    "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%x1, {%r2, %r3, %r4, %r5, %r6}], [%r7];",
    "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col::w::128 [%x1, {%r2, %r3, %r4}], {%h1, %h2};",
    "tensormap.replace.tile.global_address.global.b1024.b32 [%x1], %r2;",
    "atom.global.add.b128 %q1, [%x1], %q2;",
    "vmad.s32.u32.u32 %r1, -%r2, %r3, -%r4;",
    "vmad2.s32.u32.u32 %r1, %r2, %r3, %r4;",
    "vshl.u32.u32.u32 %r1, %r2, %r3;",
    "vshr.u32.u32.s32.wrap %r1, %r2, %r3;",
    "st.async.shared::cluster.b32 [%r1], %r2, [%r3];",
    "griddepcontrol;",
    "griddepcontrol.wait %r1;",
    "membar.gl %r1;",
    "nanosleep.u32 100, 7;",
    "prefetchu.L1 [%x1], 4;",
    "add.u64 %x1, %x2, tile;",
    "cvta.to.shared.u64 %x1, tile;",
    "st.global.u64 [%x1], konst;",
    "isspacep.shared %p1, tile;",
    "cvta.const.u64 %x1, tile;",
    "cvta.shared.u64 %x1, konst;",
    "cvta.shared.u64 %x1, konst+4;",
    "cvta.global.s64 %x1, %x2;",
    "prmt.u32 %r1, %r2, %r3, %r4;",
    "ld.global.u32 _, [%x1];",
    "shfl.sync.idx.b32 _|%p1, %r2, 0, 31, -1;",
    "mbarrier.try_wait.b64 _, [%x1], %x2;",
    "mbarrier.arrive.shared::cta.b64 [%r1];",
    "mbarrier.init.shared::cta.u64 [%r1], 4;",
    "mapa.shared::cluster.b32 %r1, %r2, 0;",
    "ldmatrix.sync.aligned.m8n8.shared.b16 {%r1}, [%r5];",
    "dp4a.u32.u32 %f1, %r2, %r3, %r4;",
    "ld.global.u32 %r1, [%r2];",
    "red.add.u32 [%r1], 1;",
    "mov.u64 %x1, %tid.x;",
    "cvt.u32.u64 %r1, %ctaid.y;",
    "ld.global.L2::cache_hint.b32 %r1, [%x1];",
    "red.global.add.L2::cache_hint.u32 [%x1], 1;",
    "cp.async.cg.shared.global.L2::cache_hint [%r1], [%x1], 16;",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%x1], 16, [%r3];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%x1], 16, [%r3], %x2;",
    "cp.async.bulk.shared::cluster.global.bulk_group [%r1], [%x1], 16, [%r3];",
    "cp.async.bulk.tensor.2d.global.shared::cta [%x1, {%r1, %r2}], [%r3];",
    "cp.async.bulk.prefetch.L2.global [%x1];",
    "barrier.cluster.aligned;",
    "membar.proxy.async;",
    "fence.proxy.tensormap::generic.acquire.sys;",
    "fence.proxy.tensormap::generic.acquire.sys [%x1], 64;",
    "discard.global.L2 [%x1], 64;",
    "cp.async.cg.shared.global [%r1], [%x1], 8;",
    "set.gt.u16.f16x2 %r1, %r2, %r3;",
    "sub.u16x2 %r1, %r2, %r3;",
    "max.relu.u16x2 %r1, %r2, %r3;",
    "min.relu.s64 %x1, %x2, %x3;",
    "mad.lo.sat.s32 %r1, %r2, %r3, %r4;",
    "mad24.hi.sat.u32 %r1, %r2, %r3, %r4;",
    "mul24.lo.u64 %x1, %x2, %x3;",
    "cvt.pack.sat.u16.s32.b32 %r1, %r2, %r3, %r4;",
    "cvt.pack.sat.u8.s32 %r1, %r2, %r3;",
    "cvt.pack.u8.s32.b32 %r1, %r2, %r3, %r4;",
    "lop3.xor.b32 %r1|%p1, %r2, %r3, %r4, 0x80, %p2;",
    "alloca.u64 %x1, 64, 3;",
    "alloca.u64 %x1, %x2, %x3;",
    "stacksave.b64 %x1;",
    "and.u32 %r1, %r2, %r3;",
    "add.b32 %r1, %r2, %r3;",
    "shl.u32 %r1, %r2, %r3;",
    "popc.u32 %r1, %r2;",
    "neg.u32 %r1, %r2;",
    "mul.s32 %r1, %r2, %r3;",
    "mul.cc.lo.u16 %h1, %h2, %h3;",
    "add.relu.f16 %h1, %h2, %h3;",
    "add.ftz.bf16 %h1, %h2, %h3;",
    "fma.f32 %f1, %f2, %f3, %f4;",
    "fma.rn.relu.sat.f16 %h1, %h2, %h3, %h4;",
    "div.f32 %f1, %f2, %f3;",
    "div.rn.approx.f32 %f1, %f2, %f3;",
    "sqrt.f32 %f1, %f2;",
    "sqrt.rn.ftz.f64 %d1, %d2;",
    "sin.f32 %f1, %f2;",
    "ex2.approx.bf16 %h1, %h2;",
    "max.rn.f16 %h1, %h2, %h3;",
    "selp.f16 %h1, %h2, %h3, %p1;",
    "setp.lo.s32 %p1, %r2, %r3;",
    "setp.lt.b32 %p1, %r2, %r3;",
    "setp.lt.ftz.f64 %p1, %d2, %d3;",
    "set.eq.u64.f32 %x1, %f2, %f3;",
    "shf.l.b32 %r1, %r2, %r3, %r4;",
    "shfl.sync.idx.u32 %r1, %r2, 0, 31, -1;",
    "match.any.sync.u32 %r1, %r2, -1;",
    "redux.sync.and.u32 %r1, %r2, -1;",
    "redux.sync.max.b32 %r1, %r2, -1;",
    "elect %r1|%p1, -1;",
    "fence.acq_rel;",
    "membar;",
    "wgmma.fence;",
    "ld.global.f16 %h1, [%x1];",
    "ld.global.v4.f64 {%d1, %d2, %d3, %d4}, [%x1];",
    "ld.nc.u32 %r1, [%x1];",
    "ld.relaxed.global.u32 %r1, [%x1];",
    "ld.gpu.global.u32 %r1, [%x1];",
    "ld.release.gpu.global.u32 %r1, [%x1];",
    "ld.acquire.gpu.local.u32 %r1, [%r2];",
    "st.acquire.gpu.global.u32 [%x1], %r1;",
    "st.param.u64 [p], %x1;",
    "red.acquire.gpu.global.add.u32 [%x1], %r1;",
    "mbarrier.arrive.release.shared.b64 _, [%r1];",
    "mov.f32 %f1, 5;",
    "setp.eq.f32 %p1, %f1, 0;",
    "st.global.v2.f64 [%x1], {1, 2};",
    "add.f16 %h1, %h2, 0x3c00;",
    "add.u32 %r1, %r2, 0f3F800000;",
    "mov.b64 %x1, 0f3F800000;",
    "add.u32 %r1, %tid.x, 1;",
    "st.global.u32 [%x1], %laneid;",
    "mov.u32 %r1, %tid;",
    "mov.u32 %r1, %laneid.x;",
    "bar.red.and.u32 %r1, 1, %p1;",
    "bar.red.pred %p1, 1, %p2;",
    "bar.sync 16;",
    "barrier.cta.arrive 17, 64;",
    "bar.red.popc.u32 %r1, -1, %p1;",
    "bar.sync 0, 33;",
    "bar.arrive 1, 0;",
    "bar.warp -1;",
    "setmaxnreg.sync.aligned.u32 240;",
    "mul.u16.wide %r1, %h2, %h3;",
    "mad.cc.lo.u64 %x1, %x2, %x3, %x4;",
    "fma.rn.relu.f16x2.sat %r1, %r2, %r3, %r4;",
    "mbarrier.shared.arrive.b64 %x1, [bar], 2;",
    "mbarrier.test_wait.b64 %p1, [%r1], %x2;",
    "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 2;",
    "wgmma.sync.commit_group.aligned;",
    "wgmma.wait_group.sync.aligned -1;",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.s32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, %x2, 1, 1, 1;",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.e5m2.e5m2 {%r1, %r2, %r3, %r4}, %x1, %x2, 1, 1, 1;",
    "cp.bulk.async.commit_group;",
    "cp.async.shared.global [%r1], [%x1], 4;",
    "fence.async.proxy;",
    "ld.shared.u32 %r1, [0];",
    "atom.global.or.b64 %x1, [16], %x3;",
    "ld.param.u64 %x1, [8];",
    "exit %r1;",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {0d0000000000000000, %f2, %f3, %f4};",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%d1, %d2, %d3, %d4};",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f1, %f2}, {%d3}, {%d4}, {%d1, %d2};",
    "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64 {%d1, %d2}, {%f3}, {%d4}, {%d1, %d2};",
    "wmma.load.c.sync.aligned.row.m8n8k4.global.f64 {%f1, %f2}, [%x1], 8;",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%x1, %x2}, [%r1];",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%x1, %x2};",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d1, %d2, %d3, %d4}, %x1, %x2, 1, 1, 1, 0, 0;",
    "cvt.f32.s32 %f1, %r1;",
    "cvt.rn.s32.f32 %r1, %f1;",
    "cvt.rni.f32.s32 %f1, %r1;",
    "cvt.rz.s32.s64 %r1, %x1;",
    "cvt.ftz.f64.f16 %d1, %h1;",
    "cvt.sat.s64.s32 %x1, %r1;",
    "cvt.rn.sat.bf16.f32 %h1, %f1;",
    "cvt.rn.bf16.s8 %h1, %h2;",
    "cvt.rni.s16.bf16 %r1, %h2;",
    "cvt.rna.f16.f32 %h1, %f1;",
    "cvt.rp.tf32.f32 %r1, %f1;",
    "cvt.rp.satfinite.f16.f32 %h1, %f1;",
    "cvt.relu.f32.f16 %f1, %h1;",
    "cvt.f16x2.f32 %r1, %f1, %f2;",
    "cvt.rz.e4m3x2.f32 %h1, %f1, %f2;",
    "cvt.rn.e4m3x2.f32 %h1, %f1, %f2;",
    "cvt.rn.satfinite.e5m2x2.bf16x2 %h1, %r1;",
    "cvt.rn.satfinite.f16x2.e4m3x2 %r1, %h1;",
];

#[test]
fn others_are_errors_that_name_them() {
    for form in REFUSED {
        let e = lower(form).expect_err(form);
        let opcode = form.split(' ').next().unwrap_or(form).trim_end_matches(';');
        assert!(e.contains("line 10") && e.contains(opcode), "{e}");
    }
}

/// An instruction that the module's target does not have, with the one that it needs.
const LATER: &[(&str, &str)] = &[
    ("sm_90", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%x1], 16, [%r2];"),
    ("sm_90", "cp.async.bulk.commit_group;"),
    ("sm_90a", "wgmma.fence.sync.aligned;"),
    ("sm_90a", "setmaxnreg.inc.sync.aligned.u32 128;"),
    ("sm_90", "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;"),
    ("sm_90", "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;"),
    ("sm_90", "barrier.cluster.arrive;"),
    ("sm_90", "mapa.u64 %x1, %x2, %r1;"),
    ("sm_90", "fence.mbarrier_init.release.cluster;"),
    ("sm_90", "fence.proxy.async;"),
    ("sm_90", "fence.acq_rel.cluster;"),
    ("sm_90", "ld.shared::cluster.u32 %r1, [%r2];"),
    ("sm_90", "elect.sync %r1|%p1, -1;"),
    ("sm_90", "griddepcontrol.wait;"),
    ("sm_90", "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};"),
    ("sm_90", "mov.u32 %r1, %cluster_ctarank;"),
    ("sm_80", "cp.async.wait_all;"),
    ("sm_80", "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;"),
];

#[test]
fn targets_have_what_they_have() {
    let old = [("sm_80", "sm_75"), ("sm_90", "sm_80"), ("sm_90a", "sm_90")];
    for (needs, form) in LATER {
        let before = old.iter().find(|(target, _)| target == needs).unwrap().1;
        let e = lower_for(before, form).expect_err(form);
        let says = format!("needs .target {needs}");
        assert!(e.contains("line 10") && e.contains(&says) && e.contains(&format!("the module's is {before}")), "{e}");
        for target in [needs, "sm_90a"] {
            assert_eq!(lower_for(target, form), Ok(()), "{form}");
        }
    }
    for form in [
        "ld.global.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f1}, [%x1];",
        "st.global.v4.b64 [%x1], {%x2, %x3, %x4, %x5};",
        "min.f32 %f1, %f2, %f3, %f4;",
    ] {
        assert!(lower_for("sm_90a", form).is_err_and(|e| e.contains("needs .target sm_100 or later")), "{form}");
        assert_eq!(lower_for("sm_100", form), Ok(()), "{form}");
    }
    for form in [
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;",
        "add.rn.f32x2 %x1, %x2, %x3;",
        "st.bulk.weak.shared::cta [%r1], 64, 0;",
        "redux.sync.min.f32 %f1, %f2, -1;",
        "cvt.rn.satfinite.tf32.f32 %r1, %f1;",
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%x1, {%r2, %r3, %r4}], [%r5], {%h1};",
    ] {
        let e = lower_for("sm_100a", form).expect_err(form);
        assert!(e.contains("an instruction of Blackwell (sm_100 and later), which is not supported"), "{e}");
    }
}

#[test]
fn what_a_form_lacks_is_said() {
    for (form, says) in [
        ("and.u32 %r1, %r2, %r3;", "`and.u32`: not defined for `.u32`, but for .b16 .b32 .b64 .pred"),
        ("add.relu.f16 %h1, %h2, %h3;", "unsupported modifier `.relu` for `.f16`"),
        ("sqrt.f32 %f1, %f2;", "needs one of `.rn`, `.rz`, `.rm`, `.rp`, `.approx`"),
        ("fma.rn.relu.sat.f16 %h1, %h2, %h3, %h4;", "these modifiers exclude each other"),
        ("fence.acq_rel;", "needs one of `.cta`, `.cluster`, `.gpu`, `.sys`, `.proxy`"),
        ("ld.relaxed.global.u32 %r1, [%x1];", "`.relaxed` needs a scope"),
        (
            "ld.gpu.global.u32 %r1, [%x1];",
            "`.gpu` is the scope of `.relaxed`, `.acquire` or `.release`, which is missing",
        ),
        ("add.f32 %f1, %f2, 1;", "an integer is no .f32: write 1.0 or 0f3F800000"),
        ("add.u32 %r1, %tid.x, 1;", "move `%tid.x` into a register"),
        ("mov.u32 %r1, %ctaid;", "`%ctaid` is a vector: name its .x, .y or .z"),
        (".reg .b32 %twice; .reg .f32 %twice;", "a second register `%twice`"),
        ("cvt.f32.s32 %f1, %r1;", "a rounding mode is missing"),
        ("cvt.sat.s64.s32 %x1, %r1;", "`.sat` has no effect"),
        ("cvt.rn.e4m3x2.f32 %h1, %f1, %f2;", "needs `.satfinite`"),
    ] {
        let e = lower(form).expect_err(form);
        assert!(e.contains("line 10") && e.contains(says), "{form}: {e}");
    }
}
