//! Dropout whose mask is never stored: backward regenerates it.
//!
//! # Math
//! y = x · scale where the element's random word w is at least `threshold`, else 0. The threshold is p · 2³², so that an element is
//! dropped with probability p, and the scale 1 / (1 − p). Backward is the same function: dx = dropout(dy).
//!
//! # Layout
//! Rows of d elements that may be padded: see [`map`](mod@crate::map). For the random word of an element, see [`quad`].
//!
//! # Mapping
//! As every elementwise kernel: two packs of 16 bytes in flight per thread, in blocks of [`map::block`] threads. A
//! thread computes the four words of a quad at once, for packs of 16 bytes one or two quads.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! The set of dropped elements is exact, with p in multiples of 2⁻³². One f32 product, rounded once to the storage
//! type. Dropped elements are 0, even if x is infinite or NaN.
//!
//! # Cost
//! 2·n elements of traffic, 20 wide products and 20 three-way XORs for four elements: bound by memory bandwidth. With
//! instructions in the order that they are written in, an H200 takes 1 to 2% less time.
//!
//! # Limits
//! Rows of up to (2³¹ − 1) · 4 KiB.
//!
//! # Sources
//! Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting" (JMLR 15, 2014); Salmon et al., "Parallel
//! Random Numbers: As Easy as 1, 2, 3" (SC 2011).

use cuda_std::float::Element;
use cuda_std::kernel;
use cuda_std::vector::Pack;

use super::{element, elements, quad};
use crate::map::{self, HEAVY, In, Out, block};

/// y = x · scale where the word of an element is at least `threshold`, else 0, for `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
#[kernel(dtypes(T: float), block = block(size_of::<T>(), HEAVY), min_blocks = 4, no_spills, opt_level = 1)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn dropout<T: Element>(
    x: *const T,
    y: *mut T,
    rows: u64,
    d: u64,
    x_stride: u64,
    y_stride: u64,
    threshold: u32,
    scale: f32,
    seed: u64,
    offset: u64,
) {
    let words = |number: u64| quad(seed, offset, number);
    let drop = |word: u32, x: f32| if word < threshold { 0.0 } else { x * scale };
    if size_of::<T>() == 4 {
        drop_packs::<T, 4>((x, x_stride), (y, y_stride), rows, d, words, drop);
    } else {
        drop_packs::<T, 8>((x, x_stride), (y, y_stride), rows, d, words, drop);
    }
}

#[inline(always)]
unsafe fn drop_packs<T: Element, const N: usize>(
    x: In<T>,
    y: Out<T>,
    rows: u64,
    d: u64,
    words: impl Fn(u64) -> [u32; 4],
    drop: impl Fn(u32, f32) -> f32,
) {
    let load = |_: usize, from: *const T| Pack::<T, N>::load_nc(from);
    let pack = |[x]: [Pack<T, N>; 1], first: u64| {
        let (x, words) = (x.to_f32(), elements::<u32, N>(first, &words));
        [Pack::from_f32(core::array::from_fn(|e| drop(words[e], x[e])))]
    };
    let one = |[x]: [T; 1], place: u64| [T::from_f32(drop(element(place, &words), x.to_f32()))];
    map::move_packs_by::<T, T, 1, 1, N, HEAVY>([x], [y], rows, d, load, pack, one);
}
