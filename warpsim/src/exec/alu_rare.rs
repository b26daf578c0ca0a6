//! Integer instructions that compilers rarely emit.

use super::lane::lane;
use super::regs::{map2, map3};

/// Signed sources: bit 0 of `imm`. Results below zero become zero: bit 1.
pub const SIGNED: i64 = 1;
pub const RELU: i64 = 2;

lane! {
    fns = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| find_nth(a, b, c as i32));
    /// `imm`: bits of a field; negative when it is signed.
    cvt_pack = |r, i, m| { let k = i.imm; map3(r, i, m, |a: u32, b: u32, c: u32| pack(k, a, b, c)) };
    add16x2 = |r, i, m| map2(r, i, m, |a: u32, b: u32| a.wrapping_add(b) & 0xffff | (a & !0xffff).wrapping_add(b & !0xffff));
    min16x2 = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| halves(k, a, b, i64::min)) };
    max16x2 = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| halves(k, a, b, i64::max)) };
    min_relu = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a as i32).min(b as i32).max(0) as u32);
    max_relu = |r, i, m| map2(r, i, m, |a: u32, b: u32| (a as i32).max(b as i32).max(0) as u32);
    sad_u16 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| c.wrapping_add(u32::from((a as u16).abs_diff(b as u16))) & 0xffff);
    sad_s16 = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| c.wrapping_add(u32::from((a as i16).abs_diff(b as i16))) & 0xffff);
    sad_u64 = |r, i, m| map3(r, i, m, |a: u64, b: u64, c: u64| c.wrapping_add(a.abs_diff(b)));
    sad_s64 = |r, i, m| map3(r, i, m, |a: u64, b: u64, c: u64| c.wrapping_add((a as i64).abs_diff(b as i64)));
    /// Bits 16 to 47 of the 48-bit product.
    mul24hi_u = |r, i, m| map2(r, i, m, |a: u32, b: u32| (u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff) >> 16) as u32);
    mul24hi_s = |r, i, m| map2(r, i, m, |a: u32, b: u32| (i64::from((a << 8) as i32 >> 8) * i64::from((b << 8) as i32 >> 8) >> 16) as u32);
}

/// Position of the n-th set bit, counted upwards or downwards from `base`; all ones if there is none.
fn find_nth(mask: u32, base: u32, n: i32) -> u32 {
    let set = |p: &u32| mask >> p & 1 == 1;
    if base > 31 {
        return !0;
    }
    let skip = n.unsigned_abs().saturating_sub(1) as usize;
    match n {
        0 => Some(base).filter(set),
        1.. => (base..32).filter(set).nth(skip),
        _ => (0..=base).rev().filter(set).nth(skip),
    }
    .unwrap_or(!0)
}

fn pack(field: i64, a: u32, b: u32, c: u32) -> u32 {
    let bits = field.unsigned_abs() as u32;
    let (low, high) = if field < 0 { (-1i64 << (bits - 1), (1i64 << (bits - 1)) - 1) } else { (0, (1i64 << bits) - 1) };
    let fit = |v: u32| i64::from(v as i32).clamp(low, high) as u32 & ((1 << bits) - 1);
    fit(b) | fit(a) << bits | c.checked_shl(2 * bits).unwrap_or(0)
}

#[inline(always)]
fn halves(k: i64, a: u32, b: u32, f: impl Fn(i64, i64) -> i64) -> u32 {
    let one = |a: u32, b: u32| {
        let wide = |v: u32| if k & SIGNED != 0 { i64::from(v as i16) } else { i64::from(v as u16) };
        let v = f(wide(a), wide(b));
        u32::from((if k & RELU != 0 { v.max(0) } else { v }) as u16)
    };
    one(a, b) | one(a >> 16, b >> 16) << 16
}
