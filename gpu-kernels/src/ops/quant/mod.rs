//! Quantization to few bits with scales, and dequantization.

mod blocks;
pub mod dequantize_fp8;
pub mod dequantize_int4;
pub mod dequantize_int8;
pub mod dequantize_mxfp8;
mod norm_row;
pub mod quantize_columns_int8;
pub mod quantize_fp8_128x128;
pub mod quantize_fp8_1x128;
pub mod quantize_int4;
pub mod quantize_int8;
pub mod quantize_mxfp8_1x32;
pub mod quantize_mxfp8_32x1;
pub mod quantize_rows_int8;
pub mod rms_norm_quantize_fp8_1x128;
pub mod rms_norm_quantize_rows_int8;
mod row;
pub mod swiglu_quantize_fp8_1x128;

pub(crate) use blocks::{Scale, narrow};

use core::mem::transmute_copy;

use cuda_std::float::Element;
use cuda_std::math;
use cuda_std::vector::Pack;

/// The 8-bit integers nearest to x + zero, ties to even before zero is added, saturating; NaN gives zero.
#[inline(always)]
pub(crate) fn round<const N: usize>(x: [f32; N], zero: i32) -> Pack<i8, N> {
    Pack(math::saturate_to_i8(x.map(|x| math::round_to_i32(x).saturating_add(zero))))
}

/// The scale of a range that spans `steps` steps, and its inverse: at least the least normal number, so that neither
/// loses bits.
#[inline(always)]
pub(crate) fn scale_of(range: f32, steps: f32) -> (f32, f32) {
    let range = math::max_nan(range, steps * f32::MIN_POSITIVE);
    (range / steps, steps / range)
}

/// `f` over the registers that hold a pack: elements of 16 bits are compared in pairs, before they are converted.
#[inline(always)]
pub(crate) fn fold_registers<T: Element, const N: usize>(
    pack: Pack<T, N>,
    first: u32,
    f: impl Fn(u32, u32) -> u32,
) -> u32 {
    let registers = (&raw const pack).cast::<u32>();
    let mut folded = first;
    for i in 0..size_of::<Pack<T, N>>() / 4 {
        // SAFETY: the access is inside the pack, for which every bit pattern is a valid number.
        folded = f(folded, unsafe { registers.add(i).read_unaligned() });
    }
    folded
}

/// `f` of the values that a register holds.
#[inline(always)]
pub(crate) fn of_register<T: Element>(register: u32, f: impl Fn(f32, f32) -> f32) -> f32 {
    if size_of::<T>() == 4 {
        return f32::from_bits(register);
    }
    // SAFETY: two 16-bit values, for which every bit pattern is valid.
    let [low, high]: [T; 2] = unsafe { transmute_copy(&[register; 2]) };
    f(low.to_f32(), high.to_f32())
}

/// The greatest magnitude of a pack; NaN if one is. Of single elements of 16 bits as of others.
#[inline(always)]
pub(crate) fn greatest<T: Element, const N: usize>(pack: Pack<T, N>) -> f32 {
    if size_of::<Pack<T, N>>() < 4 {
        return pack.to_f32().into_iter().fold(0.0, math::max_magnitude);
    }
    of_register::<T>(fold_registers(pack, 0, T::max_magnitude_of_registers), math::max_nan)
}
