//! Instructions that compilers rarely emit, against values computed in Rust.
#![allow(clippy::precedence)]

use crate::common::lanes::*;

fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

#[test]
fn packed_halves() {
    int32("add.u16x2 %d, %a, %b;", |a, b, _| halves(a, b, u16::wrapping_add));
    int32("add.s16x2 %d, %a, %b;", |a, b, _| halves(a, b, u16::wrapping_add));
    int32("min.u16x2 %d, %a, %b;", |a, b, _| halves(a, b, u16::min));
    int32("max.u16x2 %d, %a, %b;", |a, b, _| halves(a, b, u16::max));
    int32("min.s16x2 %d, %a, %b;", |a, b, _| halves(a, b, |x, y| (x as i16).min(y as i16) as u16));
    int32("max.relu.s16x2 %d, %a, %b;", |a, b, _| halves(a, b, |x, y| (x as i16).max(y as i16).max(0) as u16));
    int32("min.relu.s16x2 %d, %a, %b;", |a, b, _| halves(a, b, |x, y| (x as i16).min(y as i16).max(0) as u16));
    int32("min.relu.s32 %d, %a, %b;", |a, b, _| (a as i32).min(b as i32).max(0) as u32);
    int32("max.relu.s32 %d, %a, %b;", |a, b, _| (a as i32).max(b as i32).max(0) as u32);
}

#[test]
fn halves_are_flushed_before_their_sign_is_set() {
    let flushed = |h: u16| if h & 0x7c00 == 0 { h & 0x8000 } else { h };
    let canonical = |h: u16, or: u16| if h & 0x7fff > 0x7c00 { 0x7fff } else { or };
    int32("neg.ftz.f16x2 %d, %a;", |a, b, _| halves(a, b, |x, _| canonical(x, flushed(x) ^ 0x8000)));
    int32("abs.ftz.f16x2 %d, %a;", |a, b, _| halves(a, b, |x, _| canonical(x, flushed(x) & 0x7fff)));
}

#[test]
fn what_cancels_is_a_negative_zero_if_rounded_down() {
    let minus = "mov.b32 %c, 0x80000000; mov.b32 %b, 0x3f800000; mov.b32 %a, 0;";
    for (op, want) in [
        ("fma.rm.f32 %d, %a, %b, %c", 1 << 31),
        ("fma.rm.f32 %d, %c, %b, %a", 1 << 31),
        ("fma.rm.f32 %d, %c, %b, %c", 1 << 31),
        ("fma.rm.f32 %d, %a, %b, %a", 0),
        ("fma.rp.f32 %d, %a, %b, %c", 0),
        ("add.rm.f32 %d, %a, %c", 1 << 31),
        ("add.rm.f32 %d, %a, %a", 0),
        ("neg.f32 %c, %b; fma.rm.f32 %d, %b, %b, %c", 1 << 31),
    ] {
        int32(&format!("{minus} {op};"), |_, _, _| want);
    }
}

#[test]
fn nothing_is_added_to_what_lies_outside_a_tensor() {
    // Halves of `a`: 1 and what a tensor copy fills with; of `b`: 2 and 1.
    let halves = "mov.b32 %a, 0x7ff73c00; mov.b32 %b, 0x3c004000;";
    int32(&format!("{halves} fma.rn.oob.f16x2 %d, %a, %b, %b;"), |_, _, _| 0x4400);
    int32(&format!("{halves} fma.rn.oob.relu.f16x2 %d, %b, %a, %b;"), |_, _, _| 0x4400);
    int32(
        &format!("{halves} neg.s32 %c, -1; shl.b32 %c, %c, 31; xor.b32 %a, %a, %c; fma.rn.oob.f16x2 %d, %a, %b, %b;"),
        |_, _, _| 0x4400,
    );
    int32(&format!("{halves} fma.rn.f16x2 %d, %a, %b, %b;"), |_, _, _| 0x7fff_4400);
    int32("mov.b32 %a, 0x7fff3f80; mov.b32 %b, 0x3f804000; fma.rn.oob.bf16x2 %d, %a, %b, %b;", |_, _, _| 0x7fff_4080);
}

#[test]
fn products_and_differences() {
    let s24 = |v: u32| i64::from((v << 8) as i32 >> 8);
    let u24 = |v: u32| u64::from(v & 0xff_ffff);
    int32("mul24.lo.s32 %d, %a, %b;", |a, b, _| (s24(a) * s24(b)) as u32);
    int32("mul24.hi.s32 %d, %a, %b;", |a, b, _| (s24(a) * s24(b) >> 16) as u32);
    int32("mul24.hi.u32 %d, %a, %b;", |a, b, _| (u24(a) * u24(b) >> 16) as u32);
    int32("mad24.lo.u32 %d, %a, %b, %c;", |a, b, c| ((u24(a) * u24(b)) as u32).wrapping_add(c));
    int32("mad24.hi.u32 %d, %a, %b, %a;", |a, b, _| ((u24(a) * u24(b) >> 16) as u32).wrapping_add(a));
    int32("mad24.hi.sat.s32 %d, %a, %b, %a;", |a, b, _| {
        ((s24(a) * s24(b) >> 16) as i32).saturating_add(a as i32) as u32
    });
    int32("mad.hi.sat.s32 %d, %a, %b, %b;", |a, b, _| {
        ((i64::from(a as i32) * i64::from(b as i32) >> 32) as i32).saturating_add(b as i32) as u32
    });
    int32(
        "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; cvt.u16.u32 %h3, %c; sad.u16 %h4, %h1, %h2, %h3; cvt.u32.u16 %d, %h4;",
        |a, b, c| u32::from((a as u16).abs_diff(b as u16).wrapping_add(c as u16)),
    );
    int32(
        "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; cvt.u16.u32 %h3, %c; sad.s16 %h4, %h1, %h2, %h3; cvt.u32.u16 %d, %h4;",
        |a, b, c| u32::from((a as i16).abs_diff(b as i16).wrapping_add(c as u16)),
    );
    int32("sad.s32 %d, %a, %b, %c;", |a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c));
    int32("dp4a.u32.s32 %d, %a, %b, %c;", |a, b, c| {
        (0..4)
            .fold(c, |s, k| s.wrapping_add((i32::from((a >> (8 * k)) as u8) * i32::from((b >> (8 * k)) as i8)) as u32))
    });
    int32("dp2a.lo.s32.u32 %d, %a, %b, %c;", |a, b, c| {
        (0..2).fold(c, |s, k| {
            s.wrapping_add((i32::from((a >> (16 * k)) as i16) * i32::from((b >> (8 * k)) as u8)) as u32)
        })
    });
    int32("dp2a.hi.u32.s32 %d, %a, %b, %c;", |a, b, c| {
        let part = |k: u32| i32::from((a >> (16 * k)) as u16).wrapping_mul(i32::from((b >> (16 + 8 * k)) as i8));
        (0..2).fold(c, |s, k| s.wrapping_add(part(k) as u32))
    });
}

#[test]
fn carries() {
    // A product of 64 bits by 32-bit pieces, as compilers write it.
    let wide = "{ .reg .u32 l, h, m; mul.lo.u32 l, %a, %b; mul.hi.u32 h, %a, %b; mad.lo.cc.u32 m, %a, %b, l; madc.hi.u32 h, %a, %b, h; mov.b32 %d, h; }";
    int32(wide, |a, b, _| {
        let p = u64::from(a) * u64::from(b);
        (p.wrapping_add(p) >> 32) as u32
    });
    int32("{ .reg .u32 t; add.cc.u32 t, %a, %b; addc.cc.u32 t, %a, %a; addc.u32 %d, 0, 0; }", |a, b, _| {
        let first = u64::from(a.checked_add(b).is_none());
        ((2 * u64::from(a) + first) >> 32) as u32
    });
    int32("{ .reg .u32 t; sub.cc.u32 t, %a, %b; subc.cc.u32 t, %b, %a; subc.u32 %d, 9, 0; }", |a, b, _| {
        let first = i64::from(a < b);
        9 - u32::from(i64::from(b) - i64::from(a) - first < 0)
    });
    // What a subtraction leaves is the carry of adding the complement.
    int32("{ .reg .u32 t; sub.cc.u32 t, %a, %b; addc.u32 %d, 5, 0; }", |a, b, _| 5 + u32::from(a >= b));
    int32("{ .reg .u32 t; add.cc.u32 t, %a, %b; subc.u32 %d, 5, 0; }", |a, b, _| {
        4 + u32::from(a.checked_add(b).is_none())
    });
    int32("{ .reg .u32 t; mad.hi.cc.u32 t, %a, %b, %b; madc.lo.u32 %d, %a, %c, 7; }", |a, b, c| {
        let hi = (u64::from(a) * u64::from(b) >> 32) as u32;
        a.wrapping_mul(c).wrapping_add(7).wrapping_add(u32::from(hi.checked_add(b).is_none()))
    });
}

#[test]
fn bits() {
    int32("clz.b32 %d, %a;", |a, _, _| a.leading_zeros());
    int32("bmsk.wrap.b32 %d, %c, %b;", |_, b, c| (((1u64 << (b & 31)) - 1) << (c & 31)) as u32);
    int32("bmsk.clamp.b32 %d, 3, %b;", |_, b, _| (((1u64 << b.min(32)) - 1) << 3) as u32);
    int32("szext.clamp.u32 %d, %a, %c;", |a, _, c| (u64::from(a) & ((1 << c.min(32)) - 1)) as u32);
    int32("szext.clamp.s32 %d, %a, %c;", |a, _, c| match c.min(32) {
        0 => 0,
        n => ((a << (32 - n)) as i32 >> (32 - n)) as u32,
    });
    int32(
        "prmt.b32.rc16 %d, %a, %b, %c;",
        |a, _, c| if c & 1 == 0 { (a & 0xffff) * 0x1_0001 } else { (a >> 16) * 0x1_0001 },
    );
    int32("prmt.b32.f4e %d, %a, %b, %c;", |a, b, c| ((u64::from(b) << 32 | u64::from(a)) >> (8 * (c & 3))) as u32);
    let nth = |mask: u32, base: u32, n: i32| -> u32 {
        // As the definition of `fns` is written.
        let (mut pos, mut count) = (base as i32, n.abs() - 1);
        if n == 0 {
            return if mask >> base & 1 == 1 { base } else { !0 };
        }
        while (0..32).contains(&pos) {
            if mask >> pos & 1 == 1 {
                if count == 0 {
                    return pos as u32;
                }
                count -= 1;
            }
            pos += n.signum();
        }
        !0
    };
    for n in [0, 1, 2, 5, 17, -1, -2, -4, i32::MIN + 1] {
        int32(&format!("{{ .reg .u32 base; and.b32 base, %b, 31; fns.b32 %d, %a, base, {n}; }}"), |a, b, _| {
            nth(a, b & 31, n)
        });
    }
    int32(
        "setp.gt.u32 %p2, %a, %b; lop3.or.b32 %r2|%p1, %a, %b, %c, 0xe8, !%p2; selp.u32 %d, 1, 0, %p1; @%p1 add.u32 %d, %d, %r2;",
        |a, b, c| {
            let v = a & b | b & c | a & c;
            if v != 0 || a <= b { v.wrapping_add(1) } else { 0 }
        },
    );
    int32("setp.gt.u32 %p2, %a, %b; lop3.and.b32 _|%p2, %a, %b, %c, 0x80, %p2; selp.u32 %d, 1, 0, %p2;", |a, b, c| {
        u32::from(a & b & c != 0 && a > b)
    });
}

#[test]
fn conversions_that_pack() {
    let fit = |v: u32, low: i32, high: i32, bits: u32| (v as i32).clamp(low, high) as u32 & ((1 << bits) - 1);
    int32("cvt.pack.sat.u16.s32 %d, %a, %b;", |a, b, _| fit(a, 0, 65535, 16) << 16 | fit(b, 0, 65535, 16));
    int32("cvt.pack.sat.s16.s32 %d, %a, %b;", |a, b, _| fit(a, -32768, 32767, 16) << 16 | fit(b, -32768, 32767, 16));
    int32("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %a;", |a, b, _| a << 16 | fit(a, 0, 255, 8) << 8 | fit(b, 0, 255, 8));
    int32("cvt.pack.sat.s8.s32.b32 %d, %a, %b, 0;", |a, b, _| fit(a, -128, 127, 8) << 8 | fit(b, -128, 127, 8));
    int32("cvt.pack.sat.u4.s32.b32 %d, %a, %b, %b;", |a, b, _| b << 8 | fit(a, 0, 15, 4) << 4 | fit(b, 0, 15, 4));
    int32("cvt.pack.sat.s2.s32.b32 %d, %a, %b, %a;", |a, b, _| a << 4 | fit(a, -2, 1, 2) << 2 | fit(b, -2, 1, 2));
}

#[test]
fn selections() {
    int32("slct.u32.s32 %d, %a, %b, %a;", |a, b, _| if a as i32 >= 0 { a } else { b });
    let f = |v: u32| f32::from_bits(v);
    int32("slct.b32.f32 %d, %a, %b, %a;", |a, b, _| if f(a) >= 0.0 { a } else { b });
    // A negative subnormal counts as zero.
    int32("or.b32 %r2, %c, 0x80000000; slct.ftz.b32.f32 %d, %a, %b, %r2;", |a, _, _| a);
    int32("or.b32 %r2, %c, 0x80000000; slct.b32.f32 %d, %a, %b, %r2;", |a, b, c| if c == 0 { a } else { b });
    int32("copysign.f32 %d, %a, %b;", |a, b, _| b & 0x7fff_ffff | a & 0x8000_0000);
}

#[test]
fn set_gives_one_or_all_ones_in_each_half() {
    let values = [0x3c00_0000u64, 0x0000_3c00, 0x7e00_bc00, 0x8000_0000, 0x4000_c000, 0xfc00_7c00, 0x0001_8001];
    let h = |v: u64, k: usize| warpsim::f16_value((v >> (16 * k)) as u16);
    let bf = |v: u64, k: usize| warpsim::bf16_value((v >> (16 * k)) as u16);
    for turn in 0..values.len() {
        let other: Vec<u64> = (0..values.len()).map(|k| values[(k + turn) % values.len()]).collect();
        let check = |op: &str, one: u64, bfloat: bool, cmp: &dyn Fn(f64, f64) -> bool| {
            let out = lanes(&format!("{op}\ncvt.u64.u32 %ld, %d;"), &values, &other, &other);
            for (l, (x, y)) in values.iter().zip(&other).enumerate() {
                let want = (0..2).fold(0, |w, k| {
                    let (a, b) = if bfloat { (bf(*x, k), bf(*y, k)) } else { (h(*x, k), h(*y, k)) };
                    w | if cmp(a, b) { one << (16 * k) } else { 0 }
                });
                assert_eq!(out[l], want, "{op} {x:#x} {y:#x}");
            }
        };
        check("set.gt.f16x2.f16x2 %d, %a, %b;", 0x3c00, false, &|a, b| a > b);
        check("set.leu.u32.f16x2 %d, %a, %b;", 0xffff, false, &|a, b| a <= b || a.is_nan() || b.is_nan());
        check("set.num.s32.bf16x2 %d, %a, %b;", 0xffff, true, &|a, b| !a.is_nan() && !b.is_nan());
        check("set.eq.bf16x2.bf16x2 %d, %a, %b;", 0x3f80, true, &|a, b| a == b);
        check("setp.eq.u32 %p1, 0, 1; set.ne.and.f16x2.f16x2 %d, %a, %b, %p1;", 0x3c00, false, &|_, _| false);
    }
    let out = lanes(
        "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; set.le.bf16.bf16 %h3, %h1, %h2; cvt.u32.u16 %d, %h3; cvt.u64.u32 %ld, %d;",
        &[0x3f80, 0x4000],
        &[0x3fc0, 0x3f80],
        &[0],
    );
    assert_eq!(out[..2], [0x3f80, 0]);
}

#[test]
fn sixty_four_bits() {
    let a: Vec<u64> = (0..32).map(|k| 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(k + 1) >> k).collect();
    let b: Vec<u64> = a.iter().map(|v| v.rotate_left(17) | 1).collect();
    let check = |op: &str, want: &dyn Fn(u64, u64) -> u64| {
        let out = lanes(op, &a, &b, &a);
        (0..32).for_each(|l| assert_eq!(out[l], want(a[l], b[l]), "{op}"));
    };
    check("sad.u64 %ld, %la, %lb, %la;", &|x, y| x.abs_diff(y).wrapping_add(x));
    check("sad.s64 %ld, %la, %lb, %lb;", &|x, y| (x as i64).abs_diff(y as i64).wrapping_add(y));
    check("clz.b64 %d, %la; cvt.u64.u32 %ld, %d;", &|x, _| x.leading_zeros().into());
    check("popc.b64 %d, %la; cvt.u64.u32 %ld, %d;", &|x, _| x.count_ones().into());
    check("bfind.s64 %d, %la; cvt.u64.u32 %ld, %d;", &|x, _| {
        let v = if (x as i64) < 0 { !x } else { x };
        v.checked_ilog2().unwrap_or(!0).into()
    });
    check("bfind.shiftamt.u64 %d, %la; cvt.u64.u32 %ld, %d;", &|x, _| {
        x.checked_ilog2().map_or(!0u32, |n| 63 - n).into()
    });
    check("brev.b64 %ld, %la;", &|x, _| x.reverse_bits());
    check("sub.cc.u64 %x6, %la, %lb; subc.u64 %ld, %lb, 5;", &|x, y| y.wrapping_sub(5).wrapping_sub(u64::from(x < y)));
    check("mad.lo.cc.u64 %x6, %la, %lb, %lb; madc.hi.u64 %ld, %la, %lb, 0;", &|x, y| {
        ((u128::from(x) * u128::from(y) + u128::from(y)) >> 64) as u64
    });
    check("copysign.f64 %ld, %la, %lb;", &|x, y| y & !(1 << 63) | x & 1 << 63);
    check("testp.normal.f64 %p1, %la; selp.u64 %ld, 1, 0, %p1;", &|x, _| f64::from_bits(x).is_normal().into());
    check("slct.b64.s32 %ld, %la, %lb, %a;", &|x, y| if x as i32 >= 0 { x } else { y });
}

#[test]
fn seeds_of_doubles_have_an_upper_word() {
    let tiny = 2f64.powi(-1030);
    let values = [2.0, 3.0, 0.1, 1e300, 0.0, -0.0, f64::INFINITY, -1.0, f64::NAN, tiny, -tiny, 1.0 + f64::EPSILON];
    let bits = values.map(f64::to_bits);
    let run = |op: &str| lanes(&format!("{op} %ld, %la;"), &bits, &bits, &bits);
    let (exact, seeds, inverse) = (run("rsqrt.approx.f64"), run("rsqrt.approx.ftz.f64"), run("rcp.approx.ftz.f64"));
    let same = |got: f64, want: f64, within: f64| {
        got == want || got.is_nan() && want.is_nan() || (got / want - 1.0).abs() <= within
    };
    for (k, x) in values.into_iter().enumerate() {
        let (got, want) = (f64::from_bits(exact[k]), 1.0 / x.sqrt());
        assert!(same(got, want, 3e-16), "{x}: {got} {want}");
        // What is below the upper word, or too small, does not count.
        let x = if x.is_subnormal() { 0f64.copysign(x) } else { f64::from_bits(bits[k] >> 32 << 32) };
        for (got, want) in [(seeds[k], 1.0 / x.sqrt()), (inverse[k], 1.0 / x)] {
            assert!(got as u32 == 0 && same(f64::from_bits(got), want, 2f64.powi(-20)), "{x}: {got:#x} {want}");
        }
    }
}

/// What an H200 gave for operands at the ends of what numbers can be.
#[test]
fn ends_of_what_numbers_can_be() {
    let one = |body: &str, a: u64, b: u64| lanes(body, &[a], &[b], &[0])[0];
    let nan = f64::NAN.to_bits();
    // No number: of doubles the highest bit of the result, else zero.
    for (ty, want) in [("u8", 0x80), ("s8", 0xffff_ff80), ("u16", 0x8000), ("s16", 0xffff_8000), ("s32", 0x8000_0000)] {
        let body = format!(".reg .f64 %f; mov.b64 %f, %la; cvt.rzi.{ty}.f64 %d, %f; cvt.u64.u32 %ld, %d;");
        assert_eq!(one(&body, nan, 0), want, "{ty} of a double");
    }
    let body = ".reg .f32 %f; mov.b32 %f, %a; cvt.rzi.u8.f32 %d, %f; cvt.u64.u32 %ld, %d;";
    assert_eq!(one(body, f32::NAN.to_bits().into(), 0), 0);
    // Below 2⁶⁴, and not below.
    let body = ".reg .f32 %f; mov.b32 %f, %a; cvt.rzi.u64.f32 %ld, %f;";
    assert_eq!(one(body, 0x5f7c_c2b0, 0), 0xfcc2_b000_0000_0000);
    assert_eq!(one(body, 0x5f80_0000, 0), u64::MAX);
    // 64-bit integers have more digits than doubles.
    for (mode, up) in [("rz", 0), ("rm", 0), ("rp", 1), ("rn", 0)] {
        let body = format!(".reg .f64 %f; cvt.{mode}.f64.u64 %f, %la; mov.b64 %ld, %f;");
        assert_eq!(one(&body, (1 << 60) + 1, 0), (2f64.powi(60)).to_bits() + up, "{mode}");
        assert_eq!(one(&body, 3 << 59, 0), (1.5 * 2f64.powi(60)).to_bits(), "{mode}");
    }
    // Too large, and too small, for the direction.
    let double = |op: &str, a: f64, b: f64| {
        let body = format!(".reg .f64 %f<4>; mov.b64 %f1, %la; mov.b64 %f2, %lb; {op}; mov.b64 %ld, %f3;");
        f64::from_bits(one(&body, a.to_bits(), b.to_bits()))
    };
    let tiny = f64::from_bits(1);
    assert_eq!(double("rcp.rz.f64 %f3, %f1", tiny, 0.0), f64::MAX);
    assert_eq!(double("rcp.rp.f64 %f3, %f1", -tiny, 0.0), -f64::MAX);
    assert_eq!(double("div.rm.f64 %f3, %f1, %f2", 1e300, 1e-300), f64::MAX);
    assert_eq!(double("mul.rp.f64 %f3, %f1, %f2", 1e-300, 1e-300), tiny);
    assert_eq!(double("add.rz.f64 %f3, %f1, %f2", f64::MAX, f64::MAX), f64::MAX);
    assert_eq!(double("fma.rm.f64 %f3, %f1, %f2, %f1", 1e-300, -1e-300), 1e-300f64.next_down());
    assert_eq!(double("sqrt.rz.f64 %f3, %f1", f64::from_bits(0x20_0000_0000), 0.0).to_bits(), 0x1f86_a09e_667f_3bcc);
    // Approximate quotients by more than 2¹²⁶ are zero.
    let single = |op: &str, a: f32, b: f32| {
        let body = format!(
            ".reg .f32 %f<4>; mov.b32 %f1, %a; mov.b32 %f2, %b; {op} %f3, %f1, %f2; mov.b32 %d, %f3; cvt.u64.u32 %ld, %d;"
        );
        f32::from_bits(one(&body, a.to_bits().into(), b.to_bits().into()) as u32)
    };
    let large = 2f32.powi(126);
    for op in ["div.approx.f32", "div.approx.ftz.f32"] {
        assert_eq!(single(op, -3e38, large.next_up()).to_bits(), 1 << 31);
        assert_eq!(single(op, 1.0, f32::MAX).to_bits(), 0);
        assert!(single(op, f32::INFINITY, f32::MAX).is_nan());
        assert_eq!(single(op, large, large), 1.0);
        assert_eq!(single(op, 1.0, f32::NEG_INFINITY).to_bits(), 1 << 31);
    }
    assert_eq!(single("div.full.f32", f32::MAX, f32::MAX), 1.0);
    // Nothing is divided by zero.
    for (op, want) in [("rem.s32 %d, %a, %b; cvt.u64.u32 %ld, %d;", 0xffff_ffff), ("rem.u64 %ld, %la, %lb;", u64::MAX)]
    {
        assert_eq!(one(op, 7, 0), want, "{op}");
    }
    // Zeros are normal.
    let body = ".reg .f64 %f; mov.b64 %f, %la; testp.normal.f64 %p1, %f; selp.u64 %ld, 1, 0, %p1;";
    assert_eq!([one(body, 0, 0), one(body, 1 << 63, 0), one(body, 1, 0)], [1, 1, 0]);
    let body = ".reg .f32 %f; mov.b32 %f, %a; testp.normal.f32 %p1, %f; selp.u64 %ld, 1, 0, %p1;";
    assert_eq!([one(body, 0, 0), one(body, 1 << 31, 0), one(body, 1, 0)], [1, 1, 0]);
}
