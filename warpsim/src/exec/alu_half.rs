//! f16, bf16 and their packed pairs; conversions between number formats.
//!
//! Arithmetic is done in f32 or f64, which are wide enough that a single rounding at the end gives the correct result.

use super::alu_float::{Approx, approx};
use super::lane::lane;
use super::regs::{cmp2, map1, map2, map3};
use crate::num::{self, Rnd, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::tensor_map::OOB_NAN;

/// Flags in `Inst::imm` for half instructions.
pub const BF: i64 = 1;
pub const PACKED: i64 = 2;
pub const FTZ: i64 = 4;
pub const SAT: i64 = 8;
pub const RELU: i64 = 16;
pub const MAX: i64 = 32;
pub const NAN: i64 = 64;
pub const XORSIGN: i64 = 128;
/// Nothing is added to what a tensor copy filled with NaN.
pub const OOB: i64 = 256;

#[inline(always)]
fn get(h: u32, k: i64) -> f32 {
    if k & BF != 0 { num::bf16_to_f32(h & 0xffff) } else { f16_to_f32(flush(h, k) & 0xffff) }
}

/// Flushes an f16 subnormal to a zero of the same sign, if `k` asks for it.
#[inline(always)]
fn flush(h: u32, k: i64) -> u32 {
    if k & FTZ != 0 && h & 0x7c00 == 0 { h & 0x8000 } else { h }
}

#[inline(always)]
fn put(v: f32, k: i64) -> u32 {
    let v = if k & SAT != 0 { if v > 0.0 { v.min(1.0) } else { 0.0 } } else { v };
    let v = if k & RELU != 0 && !v.is_nan() && !(v > 0.0) { 0.0 } else { v };
    if k & BF != 0 { f32_to_bf16(v) } else { flush(f32_to_f16(v), k) }
}

/// From f64 with one rounding.
fn put64(v: f64, k: i64) -> u32 {
    let f = if k & BF != 0 { num::BF16 } else { num::F16 };
    let v = if k & SAT != 0 { if v > 0.0 { v.min(1.0) } else { 0.0 } } else { v };
    let v = if k & RELU != 0 && !v.is_nan() && v <= 0.0 { 0.0 } else { v };
    let h = f.encode(v, Rnd::Rn, false);
    if k & BF != 0 { h } else { flush(h, k) }
}

/// Returns `result`, or the canonical NaN if `x` is a NaN.
#[inline(always)]
fn unless_nan(x: u32, k: i64, result: u32) -> u32 {
    let infinity = if k & BF != 0 { 0x7f80 } else { 0x7c00 };
    if x & 0x7fff > infinity { 0x7fff } else { result }
}

/// Whether a tensor copy filled with it, or arithmetic changed its sign since.
fn outside(x: u32) -> bool {
    x & 0x7fff == OOB_NAN.into()
}

#[inline(always)]
fn each1(a: u32, k: i64, f: impl Fn(u32) -> u32) -> u32 {
    if k & PACKED != 0 { f(a & 0xffff) | f(a >> 16) << 16 } else { f(a & 0xffff) }
}

#[inline(always)]
fn each2(a: u32, b: u32, k: i64, f: impl Fn(u32, u32) -> u32) -> u32 {
    if k & PACKED != 0 { f(a & 0xffff, b & 0xffff) | f(a >> 16, b >> 16) << 16 } else { f(a & 0xffff, b & 0xffff) }
}

fn minmax(a: u32, b: u32, k: i64) -> u32 {
    let (mut x, mut y) = (get(a, k), get(b, k));
    let sign = (a ^ b) & 0x8000;
    if k & XORSIGN != 0 {
        (x, y) = (x.abs(), y.abs());
    }
    if x.is_nan() && y.is_nan() || k & NAN != 0 && (x.is_nan() || y.is_nan()) {
        return 0x7fff;
    }
    let take_x = if x.is_nan() {
        false
    } else if y.is_nan() {
        true
    } else if x == y {
        x.is_sign_negative() != (k & MAX != 0)
    } else {
        (x < y) != (k & MAX != 0)
    };
    let v = put(if take_x { x } else { y }, k);
    if k & XORSIGN != 0 { v | sign } else { v }
}

lane! {
    hadd = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| each2(a, b, k, |x, y| if k & BF != 0 { put64(num::add_odd(get(x, k).into(), get(y, k).into()), k) } else { put(get(x, k) + get(y, k), k) })) };
    hsub = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| each2(a, b, k, |x, y| if k & BF != 0 { put64(num::add_odd(get(x, k).into(), (-get(y, k)).into()), k) } else { put(get(x, k) - get(y, k), k) })) };
    hmul = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| each2(a, b, k, |x, y| put64(f64::from(get(x, k)) * f64::from(get(y, k)), k))) };
    hfma = |r, i, m| { let k = i.imm; map3(r, i, m, |a: u32, b: u32, c: u32| {
        let one = |x, y, z| if k & OOB != 0 && (outside(x) || outside(y)) { 0 } else { put64(num::fma_odd(get(x, k).into(), get(y, k).into(), get(z, k).into()), k) };
        let lo = one(a & 0xffff, b & 0xffff, c & 0xffff);
        if k & PACKED != 0 { lo | one(a >> 16, b >> 16, c >> 16) << 16 } else { lo }
    }) };
    hneg = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| each1(a, k, |x| unless_nan(x, k, flush(x, k) ^ 0x8000))) };
    habs = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| each1(a, k, |x| unless_nan(x, k, flush(x, k) & 0x7fff))) };
    hminmax = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| each2(a, b, k, |x, y| minmax(x, y, k))) };
    hex2 = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| each1(a, k, |x| put(approx(Approx::Ex2, get(x, k)), k))) };
    htanh = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| each1(a, k, |x| put(approx(Approx::Tanh, get(x, k)), k))) };

    // Comparisons: flags above the bits that `cmp2` uses (shifted by 8); bit 16 picks the high half.
    heq = |r, i, m| { let k = i.imm >> 8; let s = (i.imm >> 16 & 1) as u32 * 16; cmp2(r, i, m, |a: u32, b: u32| get(a >> s, k) == get(b >> s, k)) };
    hlt = |r, i, m| { let k = i.imm >> 8; let s = (i.imm >> 16 & 1) as u32 * 16; cmp2(r, i, m, |a: u32, b: u32| get(a >> s, k) < get(b >> s, k)) };
    hle = |r, i, m| { let k = i.imm >> 8; let s = (i.imm >> 16 & 1) as u32 * 16; cmp2(r, i, m, |a: u32, b: u32| get(a >> s, k) <= get(b >> s, k)) };
    hone = |r, i, m| { let k = i.imm >> 8; let s = (i.imm >> 16 & 1) as u32 * 16; cmp2(r, i, m, |a: u32, b: u32| { let (x, y) = (get(a >> s, k), get(b >> s, k)); x < y || x > y }) };
    hunord = |r, i, m| { let k = i.imm >> 8; let s = (i.imm >> 16 & 1) as u32 * 16; cmp2(r, i, m, |a: u32, b: u32| get(a >> s, k).is_nan() || get(b >> s, k).is_nan()) };

    cvt_f32_f16 = |r, i, m| map1(r, i, m, |a: u32| num::canon(f16_to_f32(a & 0xffff)));
    cvt_f16_f32 = |r, i, m| map1(r, i, m, |a: u32| f32_to_f16(f32::from_bits(a)));
    cvt_f32_bf16 = |r, i, m| map1(r, i, m, |a: u32| a << 16);
    cvt_bf16_f32 = |r, i, m| map1(r, i, m, |a: u32| f32_to_bf16(f32::from_bits(a)));
    /// d = a in the high half, b in the low half.
    cvt_f16x2_f32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| f32_to_f16(f32::from_bits(a)) << 16 | f32_to_f16(f32::from_bits(b)));
    cvt_bf16x2_f32 = |r, i, m| map2(r, i, m, |a: u32, b: u32| f32_to_bf16(f32::from_bits(a)) << 16 | f32_to_bf16(f32::from_bits(b)));
    cvt_f32_s32 = |r, i, m| map1(r, i, m, |a: u32| (a as i32 as f32).to_bits());
    cvt_f32_u32 = |r, i, m| map1(r, i, m, |a: u32| (a as f32).to_bits());
    cvt_s32_f32_rz = |r, i, m| map1(r, i, m, |a: u32| f32::from_bits(a) as i32 as u32);
    cvt_u32_f32_rz = |r, i, m| map1(r, i, m, |a: u32| f32::from_bits(a) as u32);
    cvt_f64_f32 = |r, i, m| map1(r, i, m, |a: u32| f64::from(f32::from_bits(a)).to_bits());
    cvt_f32_f64 = |r, i, m| map1(r, i, m, |a: u64| {
        let x = f64::from_bits(a);
        if x.is_nan() { num::nan_to_f32(a) } else { (x as f32).to_bits() }
    });
}
