//! GELU one operation at a time, as a program computes it that calls one operator for each, and in one kernel with one
//! thread per element.
//!
//! # Math
//! y = x · (½ + ½·tanh(√(2/π)·(x + 0.044715·x³))) in eight steps: x², x³, 0.044715·x³, the sum with x, the product with
//! √(2/π), tanh, ½ + ½·tanh, and the product with x. Five steps have one operand; three also read x.
//!
//! # Mapping
//! Each step is an elementwise kernel like the library's: see [`map`](mod@crate::map). [`gelu_naive`] has one thread
//! per element: loads of 4 bytes.
//!
//! # Numerics
//! f32. Every step rounds; ½ + ½·tanh cancels where x < 0, so that the error there is relative to x and not to y.
//!
//! # Cost
//! 5 · 2 + 3 · 3 = 19 operands of traffic in eight steps, 2 in one kernel.

use cuda_std::{kernel, math, thread};

use crate::map::{self, LIGHT};
use crate::ops::activation::gelu;

const SQRT_2_OVER_PI: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// A step with one operand.
pub trait Unary {
    /// The result for one value.
    fn of(v: f32) -> f32;
}

/// A step of two operands: the result of the step before, and x.
pub trait Binary {
    /// The result for one value and its x.
    fn of(v: f32, x: f32) -> f32;
}

/// v²
pub struct Square;
/// 0.044715·v
pub struct ScaleCubic;
/// √(2/π)·v
pub struct ScaleRoot;
/// tanh v
pub struct Tanh;
/// ½ + ½·v
pub struct Half;
/// v + x
pub struct Plus;
/// v · x
pub struct Times;

impl Unary for Square {
    #[inline(always)]
    fn of(v: f32) -> f32 {
        v * v
    }
}

impl Unary for ScaleCubic {
    #[inline(always)]
    fn of(v: f32) -> f32 {
        CUBIC * v
    }
}

impl Unary for ScaleRoot {
    #[inline(always)]
    fn of(v: f32) -> f32 {
        SQRT_2_OVER_PI * v
    }
}

impl Unary for Tanh {
    #[inline(always)]
    fn of(v: f32) -> f32 {
        math::tanh(v)
    }
}

impl Unary for Half {
    #[inline(always)]
    fn of(v: f32) -> f32 {
        math::fma(v, 0.5, 0.5)
    }
}

impl Binary for Plus {
    #[inline(always)]
    fn of(v: f32, x: f32) -> f32 {
        v + x
    }
}

impl Binary for Times {
    #[inline(always)]
    fn of(v: f32, x: f32) -> f32 {
        v * x
    }
}

/// y = step(v), for `n` elements.
///
/// # Safety
/// `v` is valid for reads and `y` for writes of `n` elements, which is at least 1, and they do not overlap.
#[kernel(types(S: Square, ScaleCubic, ScaleRoot, Tanh, Half), block = map::block(4, LIGHT), min_blocks = 2, no_spills)]
pub unsafe fn gelu_unary<S: Unary>(v: *const f32, y: *mut f32, n: u64) {
    map::zip::<f32, f32, 1, 0, LIGHT>([(v, n)], (y, n), 1, n, |[v]| S::of(v));
}

/// y = step(v, x), for `n` elements.
///
/// # Safety
/// `v` and `x` are valid for reads and `y` for writes of `n` elements, which is at least 1, and y overlaps neither.
#[kernel(types(S: Plus, Times), block = map::block(4, LIGHT), min_blocks = 2, no_spills)]
pub unsafe fn gelu_binary<S: Binary>(v: *const f32, x: *const f32, y: *mut f32, n: u64) {
    map::zip::<f32, f32, 2, 0, LIGHT>([(v, n), (x, n)], (y, n), 1, n, |[v, x]| S::of(v, x));
}

/// Threads of a block of [`gelu_naive`].
pub const BLOCK: u32 = 256;

/// y = gelu(x) for `n` elements, one a thread.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `n` elements.
#[kernel(block = BLOCK, no_spills)]
pub unsafe fn gelu_naive(x: *const f32, y: *mut f32, n: u64) {
    let i = u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x());
    if i < n {
        *y.add(i as usize) = gelu::value(*x.add(i as usize));
    }
}
