//! Conversions to integers, and packed integer arithmetic.

/// The nearest integer, ties to even, saturating; NaN gives 0. PTX `cvt.rni.s32.f32`.
#[inline(always)]
pub fn round_to_i32(x: f32) -> i32 {
    let result: i32;
    // SAFETY: arithmetic.
    unsafe {
        ptx!("cvt.rni.s32.f32 {}, {};", out(reg32) result, in(reg32) x, options(pure, nomem, nostack));
    }
    result
}

/// The nearest 8-bit integer, ties to even, saturating; NaN gives 0. PTX `cvt.rni.sat.s8.f32`.
#[inline(always)]
pub fn round_to_i8(x: f32) -> i8 {
    let result: i32;
    // SAFETY: arithmetic.
    unsafe {
        ptx!("cvt.rni.sat.s8.f32 {}, {};", out(reg32) result, in(reg32) x, options(pure, nomem, nostack));
    }
    result as i8
}

/// `sum` plus the products of four pairs of packed 8-bit integers. PTX `dp4a.s32.s32`, sm_61.
#[inline(always)]
pub fn dp4a(a: u32, b: u32, sum: i32) -> i32 {
    let result: i32;
    // SAFETY: arithmetic.
    unsafe {
        ptx!(
            "dp4a.s32.s32 {}, {}, {}, {};",
            out(reg32) result, in(reg32) a, in(reg32) b, in(reg32) sum,
            options(pure, nomem, nostack),
        );
    }
    result
}

/// Picks four of the eight bytes of `low` and `high`, one for each nibble of `selector`. PTX `prmt.b32`.
#[inline(always)]
pub fn permute_bytes(low: u32, high: u32, selector: u32) -> u32 {
    let result: u32;
    // SAFETY: arithmetic.
    unsafe {
        ptx!(
            "prmt.b32 {}, {}, {}, {};",
            out(reg32) result, in(reg32) low, in(reg32) high, in(reg32) selector,
            options(pure, nomem, nostack),
        );
    }
    result
}

/// The function of three bits that `TABLE` gives, bit by bit; for instance `TABLE = (0xf0 & 0xcc) | 0xaa` is `a & b | c`.
/// PTX `lop3.b32`.
#[inline(always)]
pub fn logic3<const TABLE: u32>(a: u32, b: u32, c: u32) -> u32 {
    const { assert!(TABLE < 256) };
    let result: u32;
    // SAFETY: arithmetic.
    unsafe {
        ptx!(
            "lop3.b32 {}, {}, {}, {}, {};",
            out(reg32) result, in(reg32) a, in(reg32) b, in(reg32) c, const TABLE,
            options(pure, nomem, nostack),
        );
    }
    result
}
