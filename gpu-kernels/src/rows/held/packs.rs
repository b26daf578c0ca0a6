//! Packs of a row and their elements.

use core::{array, mem};

use cuda_std::float::Element;
use cuda_std::vector::Pack;

use crate::lanes;

/// A pack's elements. `N` is [`lanes`] of `T`.
#[inline(always)]
pub(super) unsafe fn elements<T: Element, const N: usize>(pack: Pack<u32, 4>) -> [f32; N] {
    mem::transmute_copy::<_, Pack<T, N>>(&pack).to_f32()
}

/// Applies g to the result at `place`, if that is among these.
#[inline(always)]
pub(super) fn but_one<const O: usize, const N: usize>(
    results: [[f32; O]; N],
    place: usize,
    g: impl Fn([f32; O]) -> [f32; O],
) -> [[f32; O]; N] {
    if place >= N {
        return results;
    }
    array::from_fn(|e| if e == place { g(results[e]) } else { results[e] })
}

/// The pack with `fill` in place of all but its first elements.
#[inline(always)]
pub(super) unsafe fn cut<T: Element>(pack: Pack<u32, 4>, first: usize, fill: f32) -> Pack<u32, 4> {
    match lanes::<T>() {
        4 => cut_by::<T, 4>(pack, first, fill),
        _ => cut_by::<T, 8>(pack, first, fill),
    }
}

#[inline(always)]
unsafe fn cut_by<T: Element, const N: usize>(pack: Pack<u32, 4>, first: usize, fill: f32) -> Pack<u32, 4> {
    let values: [f32; N] = elements::<T, N>(pack);
    mem::transmute_copy(&Pack::<T, N>::from_f32(array::from_fn(|e| if e < first { values[e] } else { fill })))
}
