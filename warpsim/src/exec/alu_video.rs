//! Video instructions: arithmetic on parts of registers.

use super::lane::lane;
use super::regs::map3;

/// Operations of both forms.
pub const ADD: i64 = 0;
pub const SUB: i64 = 1;
pub const AVERAGE: i64 = 2;
pub const ABSDIFF: i64 = 3;
pub const MIN: i64 = 4;
pub const MAX: i64 = 5;
pub const COMPARE: i64 = 6;
/// Operations of the scalar form only.
pub const SHIFT: i64 = 7;

/// Flags of both forms, from bit 3 of `imm` on.
pub const SIGNED_A: i64 = 1 << 3;
pub const SIGNED_B: i64 = 1 << 4;
pub const SIGNED: i64 = 1 << 5;
pub const SATURATE: i64 = 1 << 6;
/// Two halves instead of four bytes.
pub const HALVES: i64 = 1 << 7;
/// Adds all lanes to `c`, instead of merging: without it, lanes that are masked out come from `c`.
pub const SUM: i64 = 1 << 8;
/// Lanes that are computed: a mask of four bits.
pub const MASK: u32 = 12;
/// The part that each lane takes: four bits per lane, where parts of `b` are numbered after those of `a`.
pub const PICK_A: u32 = 16;
pub const PICK_B: u32 = 32;
/// The comparison of [`COMPARE`]: bits for less, equal, greater.
pub const RELATION: u32 = 48;
/// The scalar form's second operation with `c`: 1 add, 2 min, 3 max.
pub const SECOND: u32 = 52;
/// A [`SHIFT`] to the right, and one by the lowest five bits of `b`.
pub const RIGHT: i64 = 1 << 54;
pub const WRAP: i64 = 1 << 55;
/// `vmad`: minus the product, minus `c`, plus one.
pub const MINUS_PRODUCT: i64 = 1 << 9;
pub const MINUS_C: i64 = 1 << 10;
pub const PLUS_ONE: i64 = 1 << 11;
/// The shift count by which `vmad` shifts its result to the right.
pub const SCALE: u32 = 48;

lane! {
    simd = |r, i, m| { let k = i.imm; map3(r, i, m, |a: u32, b: u32, c: u32| lanes(k, a, b, c)) };
    scalar = |r, i, m| { let k = i.imm; map3(r, i, m, |a: u32, b: u32, c: u32| whole(k, a, b, c)) };
    mad = |r, i, m| { let k = i.imm; map3(r, i, m, |a: u32, b: u32, c: u32| multiply(k, a, b, c)) };
}

fn compute(k: i64, a: i64, b: i64) -> i64 {
    match k & 7 {
        ADD => a + b,
        SUB => a - b,
        // Rounds non-negative sums up, and negative sums down.
        AVERAGE => (a + b + i64::from(a + b >= 0)) >> 1,
        ABSDIFF => (a - b).abs(),
        MIN => a.min(b),
        MAX => a.max(b),
        SHIFT => shift(k, a, b),
        _ => k >> RELATION >> (a.cmp(&b) as i64 + 1) & 1,
    }
}

fn shift(k: i64, a: i64, b: i64) -> i64 {
    let by = if k & WRAP != 0 { b & 31 } else { b.clamp(0, 32) };
    let wide = i128::from(a);
    let shifted = if k & RIGHT != 0 { wide >> by } else { wide << by };
    // Intermediate results have 34 bits.
    (shifted as i64) << 30 >> 30
}

/// The lowest bits of a register, extended.
fn extend(v: u32, bits: u32, signed: bool) -> i64 {
    let top = 64 - bits;
    if signed { (i64::from(v) << top) >> top } else { ((u64::from(v) << top) >> top) as i64 }
}

/// The range of numbers that the lowest bits can hold.
fn clamp(k: i64, v: i64, bits: u32) -> i64 {
    match (k & SATURATE != 0, k & SIGNED != 0) {
        (false, _) => v,
        (true, true) => v.clamp(-1 << (bits - 1), (1 << (bits - 1)) - 1),
        (true, false) => v.clamp(0, (1 << bits) - 1),
    }
}

fn lanes(k: i64, a: u32, b: u32, c: u32) -> u32 {
    let (count, bits) = if k & HALVES != 0 { (2, 16) } else { (4, 8) };
    let part = |pick: u32, lane: u32, signed: bool| {
        let at = (k >> pick >> (4 * lane)) as u32 & 7;
        let word = if at < count { a } else { b };
        extend(word >> (bits * (at % count)), bits, signed)
    };
    let keep = (1u32 << bits) - 1;
    let (mut sum, mut merged) = (c, 0);
    for lane in 0..count {
        let v = compute(k, part(PICK_A, lane, k & SIGNED_A != 0), part(PICK_B, lane, k & SIGNED_B != 0));
        let v = clamp(k, v, bits) as u32;
        let on = k >> MASK >> lane & 1 == 1;
        sum = sum.wrapping_add(if on { v } else { 0 });
        merged |= (if on { v } else { c >> (bits * lane) } & keep) << (bits * lane);
    }
    if k & SUM != 0 { sum } else { merged }
}

/// A part of a register, by its selector: 0 all of it, 1 to 4 a byte, 5 and 6 a half. Its bits, and where they begin.
fn place(selector: i64) -> (u32, u32) {
    match (selector & 7) as u32 {
        0 | 7 => (32, 0),
        s @ 1..=4 => (8, 8 * (s - 1)),
        s => (16, 16 * (s - 5)),
    }
}

fn part(v: u32, selector: i64, signed: bool) -> i64 {
    let (bits, at) = place(selector);
    extend(v >> at, bits, signed)
}

fn whole(k: i64, a: u32, b: u32, c: u32) -> u32 {
    let v = compute(k, part(a, k >> PICK_A, k & SIGNED_A != 0), part(b, k >> PICK_B, k & SIGNED_B != 0));
    let (bits, at) = place(k >> MASK);
    let v = clamp(k, v, bits);
    let third = extend(c, 32, k & SIGNED != 0);
    let t = extend(v as u32, 32, k & SIGNED != 0);
    match k >> SECOND & 3 {
        1 => (v + third) as u32,
        2 => t.min(third) as u32,
        3 => t.max(third) as u32,
        _ if bits == 32 => v as u32,
        _ => {
            let keep = ((1u32 << bits) - 1) << at;
            c & !keep | (v as u32) << at & keep
        }
    }
}

fn multiply(k: i64, a: u32, b: u32, c: u32) -> u32 {
    let (signed_a, signed_b) = (k & SIGNED_A != 0, k & SIGNED_B != 0);
    let signed = signed_a || signed_b || k & (MINUS_PRODUCT | MINUS_C) != 0;
    let product = i128::from(part(a, k >> PICK_A, signed_a)) * i128::from(part(b, k >> PICK_B, signed_b));
    let product = if k & MINUS_PRODUCT != 0 { -product } else { product };
    // It is turned around as a number of 32 bits, and extended then.
    let (c, one) = if k & MINUS_C != 0 { (!c, 1) } else { (c, i128::from(k & PLUS_ONE != 0)) };
    let sum = product + i128::from(extend(c, 32, signed)) + one >> (k >> SCALE & 15);
    match (k & SATURATE != 0, signed) {
        (false, _) => sum as u32,
        (true, true) => sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32,
        (true, false) => sum.clamp(0, u32::MAX.into()) as u32,
    }
}
