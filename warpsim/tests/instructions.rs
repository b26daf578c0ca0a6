//! Single instructions against values computed in Rust.
#![allow(clippy::precedence, clippy::double_comparisons)]

use crate::common::lanes::*;
use crate::common::*;

#[test]
fn integer() {
    int32("add.u32 %d, %a, %b;", |a, b, _| a.wrapping_add(b));
    int32("sub.s32 %d, %a, %b;", |a, b, _| a.wrapping_sub(b));
    int32("add.sat.s32 %d, %a, %b;", |a, b, _| (a as i32).saturating_add(b as i32) as u32);
    int32("mad.lo.u32 %d, %a, %b, %c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    int32("mul.hi.s32 %d, %a, %b;", |a, b, _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32);
    int32("mad.hi.u32 %d, %a, %b, %c;", |a, b, c| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c));
    int32("min.s32 %d, %a, %b;", |a, b, _| (a as i32).min(b as i32) as u32);
    int32("sad.u32 %d, %a, %b, %c;", |a, b, c| a.abs_diff(b).wrapping_add(c));
    int32("abs.s32 %d, %a;", |a, _, _| (a as i32).wrapping_abs() as u32);
    int32("popc.b32 %d, %a;", |a, _, _| a.count_ones());
    int32("brev.b32 %d, %a;", |a, _, _| a.reverse_bits());
    int32("bfind.u32 %d, %a;", |a, _, _| a.checked_ilog2().unwrap_or(!0));
    int32("bfind.shiftamt.s32 %d, %a;", |a, _, _| {
        let v = if (a as i32) < 0 { !a } else { a };
        v.checked_ilog2().map_or(!0, |n| 31 - n)
    });
    int32("lop3.b32 %d, %a, %b, %c, 0xe8;", |a, b, c| (a & b) | (b & c) | (a & c));
    int32("xor.b32 %d, %a, %b;", |a, b, _| a ^ b);
    int32("cnot.b32 %d, %a;", |a, _, _| u32::from(a == 0));
    int32("shl.b32 %d, %a, %c;", |a, _, c| a.checked_shl(c).unwrap_or(0));
    int32("shr.s32 %d, %a, %c;", |a, _, c| (a as i32 >> c.min(31)) as u32);
    int32("shr.u32 %d, %a, %c;", |a, _, c| a.checked_shr(c).unwrap_or(0));
    int32("shf.l.wrap.b32 %d, %a, %b, %c;", |a, b, c| (((u64::from(b) << 32 | u64::from(a)) << (c & 31)) >> 32) as u32);
    int32("shf.r.clamp.b32 %d, %a, %b, %c;", |a, b, c| ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32);
    int32("prmt.b32 %d, %a, %b, 0x6240;", |a, b, _| {
        a & 0xff | (b & 0xff) << 8 | a & 0xff_0000 | (b >> 16 & 0xff) << 24
    });
    int32("prmt.b32 %d, %a, %b, 0xba98;", |a, _, _| {
        (0..4).fold(0, |v, k| v | if a >> (8 * k + 7) & 1 == 1 { 0xff << (8 * k) } else { 0 })
    });
    int32("bfe.u32 %d, %a, %c, 7;", |a, _, c| if c > 31 { 0 } else { a >> c & 127 });
    int32("bfi.b32 %d, %a, %b, 4, 9;", |a, b, _| b & !(511 << 4) | (a & 511) << 4);
    int32("dp4a.s32.s32 %d, %a, %b, %c;", |a, b, c| {
        (0..4)
            .fold(c, |s, k| s.wrapping_add((i32::from((a >> (8 * k)) as i8) * i32::from((b >> (8 * k)) as i8)) as u32))
    });
    int32("setp.lt.s32 %p1, %a, %b; selp.b32 %d, %a, %c, %p1;", |a, b, c| if (a as i32) < b as i32 { a } else { c });
    int32(
        "setp.hi.u32 %p1, %a, %b; setp.ge.and.u32 %p2|%p3, %a, 32, %p1; selp.u32 %d, 1, 0, %p2; @%p3 add.u32 %d, %d, 2;",
        |a, b, _| u32::from(a >= 32 && a > b) + 2 * u32::from(a < 32 && a > b),
    );
    int32("set.le.u32.s32 %d, %a, %b;", |a, b, _| if a as i32 <= b as i32 { !0 } else { 0 });
    int32("add.cc.u32 %r2, %a, %b; addc.u32 %d, %c, 0;", |a, b, c| c + u32::from(a.checked_add(b).is_none()));
    int32("sub.cc.u32 %r2, %a, %b; subc.u32 %d, %c, 0;", |a, b, c| c.wrapping_sub(u32::from(a < b)));
    int32("mov.b32 {%h1, %h2}, %a; mov.b32 %d, {%h2, %h1};", |a, _, _| a.rotate_left(16));
    int32("cvt.s32.s8 %d, %a;", |a, _, _| a as i8 as u32);
    int32("cvt.u16.u32 %h1, %a; mul.wide.s16 %d, %h1, %h1;", |a, _, _| {
        (i32::from(a as i16) * i32::from(a as i16)) as u32
    });
    int32(
        "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; sub.s16 %h3, %h1, %h2; shr.s16 %h3, %h3, 3; cvt.s32.s16 %d, %h3;",
        |a, b, _| ((a as i16).wrapping_sub(b as i16) >> 3) as i32 as u32,
    );
    int32("cvt.sat.u8.s32 %r2, %a; mov.b32 %d, %r2;", |a, _, _| (a as i32).clamp(0, 255) as u32);
    int32("bmsk.clamp.b32 %d, %c, 5;", |_, _, c| if c > 31 { 0 } else { 31 << c });
    int32("szext.wrap.s32 %d, %a, 9;", |a, _, _| ((a << 23) as i32 >> 23) as u32);
}

fn floats() -> Vec<f32> {
    let mut v = vec![
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1,
        3.0e38,
        -3.0e38,
        1e-40,
        -1e-40,
        1.1754944e-38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        65504.0,
        65520.0,
        6e-8,
        448.0,
        470.0,
        0.3,
        1e10,
    ];
    v.extend(noise(44, 9).iter().map(|x| x * 1000.0));
    v
}

/// Checks an f32 instruction bit by bit; NaN must be the hardware's.
fn float(op: &str, want: impl Fn(f32, f32, f32) -> f32) {
    let v = floats();
    for k in 0..v.len() {
        let at = |l: usize| v[l % v.len()];
        for half in [0, 32] {
            let (a, b, c): (Vec<f32>, Vec<f32>, Vec<f32>) = (
                (0..32).map(|l| at(l + half)).collect(),
                (0..32).map(|l| at(l + half + k)).collect(),
                (0..32).map(|l| at(l + half + 2 * k + 1)).collect(),
            );
            let bits = |x: &[f32]| x.iter().map(|v| u64::from(v.to_bits())).collect::<Vec<_>>();
            let out = lanes(&format!("{op}\ncvt.u64.u32 %ld, %d;"), &bits(&a), &bits(&b), &bits(&c));
            for l in 0..32 {
                let w = want(a[l], b[l], c[l]);
                let w = w.to_bits();
                let w = if w & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { w };
                assert_eq!(
                    out[l] as u32,
                    w,
                    "{op} with {:?}, {:?}, {:?}: {} not {}",
                    a[l],
                    b[l],
                    c[l],
                    f32::from_bits(out[l] as u32),
                    f32::from_bits(w)
                );
            }
        }
    }
}

fn flush(v: f32) -> f32 {
    if v.is_subnormal() { 0f32.copysign(v) } else { v }
}

/// The neighbour of the nearest result in the wanted direction, found by comparing with the exact value.
fn directed(near: f32, exact: f64, up: bool) -> f32 {
    if !near.is_finite() && exact.is_finite() {
        let max = f32::MAX.copysign(near);
        return if (near > 0.0) == up { near } else { max };
    }
    match f64::from(near).partial_cmp(&exact) {
        Some(std::cmp::Ordering::Less) if up => near.next_up(),
        Some(std::cmp::Ordering::Greater) if !up => near.next_down(),
        _ => near,
    }
}

/// What an H200 makes of NaNs that are not the canonical one.
#[test]
fn nans() {
    let check = |op: &str, given: [u64; 6], want: [u64; 6]| {
        let out = lanes(op, &given, &given, &given);
        assert_eq!(
            out[..6].iter().map(|v| format!("{v:x}")).collect::<Vec<_>>(),
            want.map(|v| format!("{v:x}")),
            "{op}"
        );
    };
    let of_f32 = [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xff80_0001, 0x7fc1_2345, 0xffff_ffff];
    for op in ["neg.f32", "neg.ftz.f32", "abs.f32", "abs.ftz.f32", "cvt.rni.f32.f32", "cvt.ftz.f32.f32", "sqrt.rn.f32"]
    {
        check(&format!("{op} %d, %a; cvt.u64.u32 %ld, %d;"), of_f32, [0x7fff_ffff; 6]);
    }
    check("cvt.f32.f32 %d, %a; cvt.u64.u32 %ld, %d;", of_f32, of_f32);
    let cut = [0x7fc0_0000, 0xffc0_0000, 0x7f80_0000, 0xff80_0000, 0x7fc1_2000, 0xffff_e000];
    check("cvt.rna.tf32.f32 %d, %a; cvt.u64.u32 %ld, %d;", of_f32, cut);
    let wide = [
        0x7ff8_0000_0000_0000,
        0xfff8_0000_0000_0000,
        0x7ff8_0000_2000_0000,
        0xfff8_0000_2000_0000,
        0x7ff8_2468_a000_0000,
        0xffff_ffff_e000_0000,
    ];
    check("cvt.f64.f32 %ld, %a;", of_f32, wide);
    check("cvt.ftz.f64.f32 %ld, %a;", of_f32, [0x7fff_ffff_e000_0000; 6]);
    let of_f64 = [
        0x7ff8_0000_0000_0000,
        0xfff8_0000_0000_0000,
        0x7ff0_0000_0000_0001,
        0xfff0_0000_0000_0001,
        0x7ff8_1234_5678_9abc,
        0xffff_ffff_ffff_ffff,
    ];
    for op in ["neg.f64", "abs.f64", "cvt.rni.f64.f64", "sqrt.rn.f64", "rcp.rn.f64"] {
        check(&format!("{op} %ld, %la;"), of_f64, of_f64.map(|nan| nan | 1 << 51));
    }
    let narrow = [0x7fc0_0000, 0xffc0_0000, 0x7fc0_0000, 0xffc0_0000, 0x7fc0_91a2, 0xffff_ffff];
    check("cvt.rn.f32.f64 %d, %la; cvt.u64.u32 %ld, %d;", of_f64, narrow);
    check("cvt.rn.f16.f64 %h1, %la; cvt.u64.u16 %ld, %h1;", of_f64, [0x7e00, 0xfe00, 0x7e00, 0xfe00, 0x7e04, 0xffff]);
    // The lower words, which make these a NaN, do not count.
    let (nan, infinity) = (0x7fff_ffff << 32, [0, 1 << 63]);
    check("rcp.approx.ftz.f64 %ld, %la;", of_f64, [nan, nan, infinity[0], infinity[1], nan, nan]);
    check("rsqrt.approx.ftz.f64 %ld, %la;", of_f64, [nan, nan, infinity[0], nan, nan, nan]);
    let of_f16 = [0x7e00, 0xfe00, 0x7c01, 0xfc01, 0x7e55, 0xffff];
    for op in ["neg.f16", "neg.ftz.f16", "abs.f16"] {
        check(&format!("cvt.u16.u32 %h1, %a; {op} %h1, %h1; cvt.u64.u16 %ld, %h1;"), of_f16, [0x7fff; 6]);
    }
    let whole = [0x7ff8_0000, 0xfff8_0000, 0x7ff8_0400, 0xfff8_0400, 0x7ff9_5400, 0xffff_fc00].map(|upper| upper << 32);
    check("cvt.u16.u32 %h1, %a; cvt.f64.f16 %ld, %h1;", of_f16, whole);
    let of_bf16 = [0x7fc0, 0xffc0, 0x7f81, 0xff81, 0x7fd5, 0xffff];
    for op in ["neg.bf16", "abs.bf16"] {
        check(&format!("cvt.u16.u32 %h1, %a; {op} %h1, %h1; cvt.u64.u16 %ld, %h1;"), of_bf16, [0x7fff; 6]);
    }
}

#[test]
fn float32() {
    float("add.rn.f32 %d, %a, %b;", |a, b, _| a + b);
    float("sub.ftz.f32 %d, %a, %b;", |a, b, _| flush(flush(a) - flush(b)));
    float("mul.f32 %d, %a, %b;", |a, b, _| a * b);
    float("fma.rn.f32 %d, %a, %b, %c;", |a, b, c| a.mul_add(b, c));
    float("fma.rn.ftz.f32 %d, %a, %b, %c;", |a, b, c| flush(flush(a).mul_add(flush(b), flush(c))));
    float("add.sat.f32 %d, %a, %b;", |a, b, _| if a + b > 0.0 { (a + b).min(1.0) } else { 0.0 });
    float("mul.rz.f32 %d, %a, %b;", |a, b, _| {
        let e = f64::from(a) * f64::from(b);
        directed(a * b, e, e < 0.0)
    });
    float("mul.rp.f32 %d, %a, %b;", |a, b, _| directed(a * b, f64::from(a) * f64::from(b), true));
    float("div.rn.f32 %d, %a, %b;", |a, b, _| a / b);
    float("rcp.rn.f32 %d, %a;", |a, _, _| 1.0 / a);
    float("sqrt.rn.f32 %d, %a;", |a, _, _| a.sqrt());
    float("neg.ftz.f32 %d, %a;", |a, _, _| if a.is_nan() { f32::NAN } else { -flush(a) });
    float("cvt.rn.f16.f32 %h1, %a; cvt.f32.f16 %d, %h1;", |a, _, _| {
        warpsim::f16_value(warpsim::f16_bits(a.into())) as f32
    });
    float("cvt.rni.f32.f32 %d, %a;", |a, _, _| a.round_ties_even());
    float("cvt.rmi.ftz.f32.f32 %d, %a;", |a, _, _| flush(a).floor());
    float("cvt.sat.f32.f32 %d, %a;", |a, _, _| if a > 0.0 { a.min(1.0) } else { 0.0 });
    float("cvt.rzi.s32.f32 %r2, %a; cvt.rn.f32.s32 %d, %r2;", |a, _, _| a as i32 as f32);
    float("cvt.rpi.u32.f32 %r2, %a; cvt.rn.f32.u32 %d, %r2;", |a, _, _| a.ceil() as u32 as f32);
    float("cvt.f64.f32 %ld, %a; cvt.rn.f32.f64 %d, %ld; mul.f32 %d, %d, 1.0;", |a, _, _| a);
    float(
        "cvt.rn.bf16x2.f32 %r2, %a, %b; shl.b32 %d, %r2, 16; and.b32 %r2, %r2, 0xffff0000; add.f32 %d, %d, %r2;",
        |a, b, _| {
            let r = |v: f32| warpsim::bf16_value(warpsim::bf16_bits(v.into())) as f32;
            r(a) + r(b)
        },
    );
    float("setp.ltu.f32 %p1, %a, %b; selp.f32 %d, 1.0, 0.0, %p1;", |a, b, _| if a >= b { 0.0 } else { 1.0 });
    float("setp.ne.f32 %p1, %a, %b; selp.f32 %d, 1.0, 0.0, %p1;", |a, b, _| if a < b || a > b { 1.0 } else { 0.0 });
    float(
        "testp.subnormal.f32 %p1, %a; selp.f32 %d, 1.0, 0.0, %p1;",
        |a, _, _| if a.is_subnormal() { 1.0 } else { 0.0 },
    );
    float("max.NaN.f32 %d, %a, %b;", |a, b, _| {
        if a.is_nan() || b.is_nan() {
            f32::NAN
        } else if a == b {
            if a.is_sign_positive() { a } else { b }
        } else {
            a.max(b)
        }
    });
    float("min.f32 %d, %a, %b;", |a, b, _| if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) });
}

#[test]
fn approximations_are_close() {
    for (op, f) in [
        ("ex2.approx.f32", f64::exp2 as fn(f64) -> f64),
        ("lg2.approx.f32", f64::log2),
        ("sin.approx.f32", f64::sin),
        ("cos.approx.f32", f64::cos),
        ("tanh.approx.f32", f64::tanh),
        ("rsqrt.approx.f32", |v| 1.0 / v.sqrt()),
        ("rcp.approx.ftz.f32", |v| 1.0 / v),
    ] {
        let a: Vec<f32> = noise(32, 3).iter().map(|v| v.abs() * 3.0 + 0.01).collect();
        let bits: Vec<u64> = a.iter().map(|v| u64::from(v.to_bits())).collect();
        let out = lanes(&format!("{op} %d, %a;\ncvt.u64.u32 %ld, %d;"), &bits, &bits, &bits);
        for (x, y) in a.iter().zip(&out) {
            let (got, want) = (f64::from(f32::from_bits(*y as u32)), f(f64::from(*x)));
            assert!((got - want).abs() <= 3e-7 * want.abs().max(1.0), "{op} of {x}: {got} {want}");
        }
    }
}

#[test]
fn eight_bit_floats_round_trip() {
    // Every e4m3 and e5m2 value is a value of f16 and comes back.
    for ty in ["e4m3x2", "e5m2x2"] {
        let a: Vec<u64> = (0..32).collect();
        for block in 0..8u64 {
            let v: Vec<u64> = a
                .iter()
                .map(|l| {
                    let b = l + 32 * block;
                    b | (255 - b) << 8
                })
                .collect();
            let out = lanes(
                &format!(
                    "cvt.u16.u32 %h1, %a; cvt.rn.f16x2.{ty} %r2, %h1; cvt.rn.satfinite.{ty}.f16x2 %h2, %r2; cvt.u32.u16 %d, %h2; cvt.u64.u32 %ld, %d;"
                ),
                &v,
                &v,
                &v,
            );
            for (x, y) in v.iter().zip(&out) {
                let special = |b: u64| if ty == "e4m3x2" { b & 0x7f == 0x7f } else { b & 0x7c == 0x7c };
                if !special(x & 255) && !special(x >> 8) {
                    assert_eq!(x, y, "{ty}");
                }
            }
        }
    }
    let big: Vec<u64> = [1e9f32, -1e9, 448.0, 464.0, 465.0, 0.0].iter().map(|v| u64::from(v.to_bits())).collect();
    let out =
        lanes("cvt.rn.satfinite.e4m3x2.f32 %h1, %a, %a; cvt.u32.u16 %d, %h1; cvt.u64.u32 %ld, %d;", &big, &big, &big);
    assert_eq!(out[..6].iter().map(|v| v & 255).collect::<Vec<_>>(), [0x7e, 0xfe, 0x7e, 0x7e, 0x7e, 0]);
}

#[test]
fn sixty_four_bits() {
    let a: Vec<u64> = (0..32).map(|k| 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(k + 1)).collect();
    let b: Vec<u64> = a.iter().map(|v| v.rotate_left(17) | 1).collect();
    let check = |op: &str, want: &dyn Fn(u64, u64) -> u64| {
        let out = lanes(op, &a, &b, &a);
        for l in 0..32 {
            assert_eq!(out[l], want(a[l], b[l]), "{op}");
        }
    };
    check("mul.lo.u64 %ld, %la, %lb;", &|x, y| x.wrapping_mul(y));
    check("mul.hi.s64 %ld, %la, %lb;", &|x, y| ((i128::from(x as i64) * i128::from(y as i64)) >> 64) as u64);
    check("div.s64 %ld, %la, %lb;", &|x, y| (x as i64).wrapping_div(y as i64) as u64);
    check("rem.u64 %ld, %la, %lb;", &|x, y| x % y);
    check("bfe.s64 %ld, %la, 40, 30;", &|x, _| ((x as i64) >> 40) as u64);
    check("bfi.b64 %ld, %la, %lb, 60, 8;", &|x, y| y & !(15 << 60) | x << 60);
    check("mov.b64 {%a, %b}, %la; mov.b64 %ld, {%b, %a};", &|x, _| x.rotate_left(32));
    check("mad.wide.s32 %ld, %a, %b, %lb;", &|x, y| {
        ((i64::from(x as i32) * i64::from(y as i32)) as u64).wrapping_add(y)
    });
    check("add.cc.u64 %x6, %la, %lb; addc.u64 %ld, %la, 0;", &|x, y| {
        x.wrapping_add(u64::from(x.checked_add(y).is_none()))
    });
    check("cvt.rn.f64.s64 %ld, %la;", &|x, _| (x as i64 as f64).to_bits());
    check("cvt.rn.f32.u64 %d, %la; cvt.u64.u32 %ld, %d;", &|x, _| u64::from((x as f32).to_bits()));
    check("{ .reg .b128 %q; mov.b128 %q, {%la, %lb}; mov.b128 {%lc, %ld}, %q; }", &|_, y| y);
    check("add.rz.f64 %ld, %la, %lb;", &|x, y| {
        let (a, b) = (f64::from_bits(x), f64::from_bits(y));
        let s = a + b;
        let bb = s - a;
        let e = (a - (s - bb)) + (b - bb);
        let r = if !s.is_finite() || e == 0.0 || e.is_nan() || (e > 0.0) == (s > 0.0) {
            s
        } else if s > 0.0 {
            s.next_down()
        } else {
            s.next_up()
        };
        r.to_bits()
    });
}
