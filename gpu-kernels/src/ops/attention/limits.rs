//! The limits on the magnitude of scores.

use cuda_std::float::Element;

/// For f16: if a query's greatest score, to base 2, has this magnitude or more, its results are NaN.
///
/// A weight is 2^(s·scale − m), by a fused multiply-add, where m is the greatest s·scale of the query, rounded to f32.
/// The error of that rounding is the same factor in all of the query's weights and in their sum, at most 2^±(ulp of m /
/// 2). It cancels as long as the weights' type has room for it: here for 2^±8. This limit, and a score of +∞, are
/// checked once per query, at the end: branches in the loop over the keys cost some percent.
pub const LIMIT_F16: f32 = (1u32 << 28) as f32;
/// [`LIMIT_F16`] of bf16, with room for 2^±64.
pub const LIMIT_BF16: f32 = (1u32 << 31) as f32;
/// [`LIMIT_F16`] of E4M3, with room for 2^±0.5: weights are up to 256, and the format ends at 448.
pub const LIMIT_E4M3: f32 = (1u32 << 24) as f32;

/// The limit for weights of type `T`; f32 has room for all finite scores.
#[inline(always)]
pub(super) const fn of<T: Element>() -> f32 {
    match T::INDEX {
        0 => f32::INFINITY,
        1 => LIMIT_F16,
        _ => LIMIT_BF16,
    }
}

/// The sum of a query's weights, or NaN if its greatest score, to base 2, is not below the limit; −∞ is that of a query that saw nothing.
#[inline(always)]
pub(super) fn checked(sum: f32, greatest: f32, limit: f32) -> f32 {
    if greatest.abs() >= limit && greatest != f32::NEG_INFINITY { f32::NAN } else { sum }
}
