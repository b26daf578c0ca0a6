//! Which registers an instruction takes: what ptxas takes, and no others.

use warpsim::Module;

const REGISTERS: &str = ".reg .pred %p<3>; .reg .b16 %h<3>; .reg .f16 %hf<3>; .reg .b32 %b<9>; .reg .u32 %u<3>; .reg .s32 %s<3>; .reg .f32 %f<3>;\n\
    .reg .f16x2 %hh<3>; .reg .b64 %x<3>; .reg .u64 %y<3>; .reg .f64 %d<3>;";

fn lower(form: &str) -> Result<(), String> {
    let text = format!(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n{REGISTERS}\n{form}\nret;\n}}\n"
    );
    let module = Module::parse(&text).map_err(|e| e.to_string())?;
    module.kernel("k").map(drop).map_err(|e| e.to_string())
}

#[test]
fn a_register_of_another_type_is_an_error_that_names_it() {
    let e = lower("add.s32 %s1, %f1, %s2;").unwrap_err();
    assert!(e.contains("line 8"), "{e}");
    assert!(e.contains("arguments mismatch: `%f1` is declared .f32, and the operand is .s32 (in `add.s32`)"), "{e}");
}

/// ptxas of CUDA 13.0 says "Arguments mismatch" of each that is refused, and compiles the others.
#[test]
fn types_are_checked_as_ptxas_does() {
    for form in [
        "add.s32 %u1, %b1, %s2;",
        "add.f32 %f1, %b1, %f2;",
        "add.u32 %hh1, %hh2, 1;",
        "add.f16x2 %hh1, %b1, %hh2;",
        "and.b32 %f1, %f1, %s2;",
        "mov.b32 %f1, %u1;",
        "shfl.sync.bfly.b32 %f1, %f2, 1, 31, -1;",
        "selp.b32 %f1, %f2, %s1, %p1;",
        "st.global.u8 [%x1], %y1;",
        "st.global.f32 [%x1], %x2;",
        "ld.global.s16 %y1, [%x1];",
        "ld.global.v2.f32 {%u1, %u2}, [%x1];",
        "cvt.f32.f16 %f1, %b1;",
        "cvt.u8.u32 %s1, %y1;",
        "mov.b64 {%f1, %f2}, %d1;",
        "atom.global.exch.b32 %f1, [%y1], %f2;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %b1, %f2, %b2}, %x1, %x2, 1, 1, 1;",
    ] {
        lower(form).unwrap_or_else(|e| panic!("{e}"));
    }
    for (form, names) in [
        ("add.s32 %f1, %s1, %s2;", "%f1"),
        ("add.f32 %f1, %s1, %f2;", "%s1"),
        ("add.f32 %f1, %hh1, %f2;", "%hh1"),
        ("add.rn.bf16x2 %b1, %hh1, %b2;", "%hh1"),
        ("add.s32 %s1, %h1, %s2;", "%h1"),
        ("add.s32 %s1, %y1, %s2;", "%y1"),
        ("add.u64 %y1, %u1, %y2;", "%u1"),
        ("mov.u32 %f1, %u1;", "%f1"),
        ("mov.f32 %f1, %u1;", "%u1"),
        ("mov.u32 %f1, %tid.x;", "%f1"),
        ("setp.lt.s32 %p1, %f1, 0;", "%f1"),
        ("mul.wide.u32 %d1, %u1, 4;", "%d1"),
        ("mad.lo.s32 %s1, %s1, %s2, %f1;", "%f1"),
        ("fma.rn.f16 %h1, %h1, %hf1, %hh1;", "%hh1"),
        ("st.global.u32 [%x1], %f1;", "%f1"),
        ("st.global.f32 [%x1], %u1;", "%u1"),
        ("st.global.v2.u32 [%x1], {%u1, %f1};", "%f1"),
        ("ld.global.f32 %u1, [%x1];", "%u1"),
        ("ld.global.u64 %u1, [%x1];", "%u1"),
        ("ld.global.u32 %u1, [%d1];", "%d1"),
        ("cvt.rn.f32.s32 %f1, %f2;", "%f2"),
        ("cvt.rzi.s32.f32 %f1, %f2;", "%f1"),
        ("cvt.rn.f16x2.f32 %u1, %f1, %f2;", "%u1"),
        ("mov.b32 %b1, {%h1, %b2};", "%b2"),
        ("atom.global.add.f32 %u1, [%x1], %f1;", "%u1"),
        ("red.global.add.u32 [%x1], %f1;", "%f1"),
        ("redux.sync.add.s32 %s1, %f1, -1;", "%f1"),
        ("bar.sync 0, %f1;", "%f1"),
        ("mbarrier.init.shared.b64 [%b1], %f1;", "%f1"),
        (
            "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%b1], [%x1, {%f1}], [%b2];",
            "%f1",
        ),
    ] {
        let e = lower(form).expect_err(form);
        assert!(e.contains(&format!("`{names}`")), "{form}: {e}");
    }
}

/// So many forms of these ptxas knows, and no others.
#[test]
fn atomics_are_of_the_types_that_ptxas_knows() {
    let one = [
        "add.u32 %u",
        "add.s32 %s",
        "add.u64 %y",
        "add.f32 %f",
        "add.f64 %d",
        "add.noftz.f16 %h",
        "add.noftz.bf16x2 %b",
        "min.s64 %y",
        "max.u32 %u",
        "inc.u32 %u",
        "dec.u32 %u",
        "and.b32 %b",
        "or.b64 %x",
        "xor.b32 %b",
    ];
    for (op, r) in one.map(|f| f.split_once(' ').unwrap()) {
        lower(&format!("atom.global.{op} {r}1, [%x1], {r}2;\nred.shared.{op} [%b1], {r}2;"))
            .unwrap_or_else(|e| panic!("{e}"));
    }
    lower("red.global.add.v4.f32 [%x1], {%f1, %f1, %f1, %f1};").unwrap();
    lower("atom.global.v2.bf16x2.max.noftz {%b1, %b2}, [%x1], {%b3, %b4};").unwrap();
    for form in [
        "red.global.add.s64 [%x1], %y1;",
        "red.global.min.f32 [%x1], %f1;",
        "red.global.inc.s32 [%x1], %s1;",
        "red.global.and.u32 [%x1], %u1;",
        "red.global.exch.b32 [%x1], %b1;",
        "atom.global.exch.u32 %u1, [%x1], %u2;",
        "atom.global.cas.u32 %u1, [%x1], %u2, %u2;",
        "red.global.add.f16x2 [%x1], %b1;",
        "red.global.min.noftz.f16x2 [%x1], %b1;",
        "red.global.add.v2.u32 [%x1], {%u1, %u2};",
        "red.shared.add.v2.f32 [%b1], {%f1, %f2};",
        "red.global.min.v2.f32 [%x1], {%f1, %f2};",
    ] {
        assert!(lower(form).is_err(), "{form}");
    }
}
