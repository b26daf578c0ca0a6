//! Conversions to integers, and packed integer arithmetic.

use core::array;

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

/// x without its fraction, saturating; NaN gives 0. PTX `cvt.rzi.u32.f32`, to which the compiler need not translate
/// `x as u32`.
#[inline(always)]
pub fn truncate_to_u32(x: f32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!("cvt.rzi.u32.f32 {}, {};", out(reg32) result, in(reg32) x, options(pure, nomem, nostack));
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        x as u32
    }
}

/// The lower and the upper half of a · b. PTX `mul.wide.u32`, which a product of `u64` is not where one of them is a constant beyond `i32`.
#[inline(always)]
pub fn mul_wide(a: u32, b: u32) -> [u32; 2] {
    #[cfg(target_arch = "nvptx64")]
    {
        let (low, high): (u32, u32);
        // SAFETY: arithmetic.
        unsafe {
            ptx!(
                "{{ .reg .b64 product; mul.wide.u32 product, {}, {}; mov.b64 {{{}, {}}}, product; }}",
                in(reg32) a, in(reg32) b, out(reg32) low, out(reg32) high,
                options(pure, nomem, nostack),
            );
        }
        [low, high]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let product = u64::from(a) * u64::from(b);
        [product as u32, (product >> 32) as u32]
    }
}

/// The integers of 8 bits that are nearest. PTX `cvt.pack.sat.s8.s32`, which takes two at once.
#[inline(always)]
pub fn saturate_to_i8<const N: usize>(x: [i32; N]) -> [i8; N] {
    let mut packed = 0u32;
    array::from_fn(|i| {
        if i.is_multiple_of(4) {
            let [a, b, c, d]: [i32; 4] = array::from_fn(|e| if i + e < N { x[i + e] } else { 0 });
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    "{{ .reg .b32 high; cvt.pack.sat.s8.s32.b32 high, {}, {}, 0; cvt.pack.sat.s8.s32.b32 {}, {}, {}, high; }}",
                    in(reg32) d, in(reg32) c, out(reg32) packed, in(reg32) b, in(reg32) a,
                    options(pure, nomem, nostack),
                );
            }
        }
        (packed >> (8 * (i % 4))) as i8
    })
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
