//! Random numbers and their uses: their memory traffic is that of [`map`](mod@crate::map), and each file defines the
//! results of four random words.
//!
//! Element i of a tensor, counted over all its rows without their padding, has word i mod 4 of [`quad`] i / 4. Its
//! random word depends on nothing else: not on the element type, the strides, the width of an access or the grid.

pub mod dropout;
pub mod fill;
pub mod random_normal;
pub mod random_uniform;
pub mod sample;

use core::array;

use cuda_std::float::Element;
use cuda_std::random::philox4x32;
use cuda_std::vector::Pack;

use crate::map::{self, BUSY, Out};

/// The random words of elements 4·`number` to 4·`number` + 3, of the sequence that `seed` and `offset` name: Philox4x32-10 with the
/// counter (number, offset), each low word first, and the key `seed`.
#[inline(always)]
pub fn quad(seed: u64, offset: u64, number: u64) -> [u32; 4] {
    let counter = [number as u32, (number >> 32) as u32, offset as u32, (offset >> 32) as u32];
    philox4x32(counter, [seed as u32, (seed >> 32) as u32])
}

/// The results for `N` elements from number `first` on, where `quad` gives those of four; `N` is 4 or 8.
#[inline(always)]
fn elements<V: Copy, const N: usize>(first: u64, quad: impl Fn(u64) -> [V; 4]) -> [V; N] {
    let number = first / 4;
    let low = quad(number);
    let high = if N > 4 { quad(number + 1) } else { low };
    let whole = |e: usize| if e < 4 { low[e] } else { high[e % 4] };
    let shift = first % 4;
    if shift == 0 {
        return array::from_fn(whole);
    }
    // Packs of rows whose length is no multiple of four: they take one more quad, and all elements are shifted alike.
    let last = quad(number + N as u64 / 4);
    let any = |e: usize| if e < N { whole(e) } else { last[e - N] };
    array::from_fn(|e| match shift {
        1 => any(e + 1),
        2 => any(e + 2),
        _ => any(e + 3),
    })
}

/// What element `place` gets.
#[inline(always)]
fn element<V: Copy>(place: u64, quad: impl Fn(u64) -> [V; 4]) -> V {
    let [a, b, c, d] = quad(place / 4);
    match place % 4 {
        0 => a,
        1 => b,
        2 => c,
        _ => d,
    }
}

/// Writes `rows` rows of `d` elements, where `quad` says what four get.
#[inline(always)]
unsafe fn generate<T: Element>(y: Out<T>, rows: u64, d: u64, quad: impl Fn(u64) -> [f32; 4]) {
    if size_of::<T>() == 4 {
        generate_packs::<T, 4>(y, rows, d, quad);
    } else {
        generate_packs::<T, 8>(y, rows, d, quad);
    }
}

#[inline(always)]
unsafe fn generate_packs<T: Element, const N: usize>(y: Out<T>, rows: u64, d: u64, quad: impl Fn(u64) -> [f32; 4]) {
    // There is no input to load.
    let load = |_: usize, from: *const T| Pack::<T, N>::load(from);
    let pack = |_: [Pack<T, N>; 0], first: u64| [Pack::from_f32(elements::<f32, N>(first, &quad))];
    let one = |_: [T; 0], place: u64| [T::from_f32(element(place, &quad))];
    map::move_packs_by::<T, T, 0, 1, N, BUSY>([], [y], rows, d, load, pack, one);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_have_the_numbers_of_their_elements() {
        let quad = |number: u64| quad(7, 1, number);
        // This also wraps around an index beyond 32 bits of counter.
        for first in (0..9).chain((1 << 34) - 9..(1 << 34) + 9) {
            let expected = |n: u64| element(first + n, quad);
            assert_eq!(elements::<u32, 4>(first, quad), array::from_fn(|e| expected(e as u64)));
            assert_eq!(elements::<u32, 8>(first, quad), array::from_fn(|e| expected(e as u64)));
        }
    }

    #[test]
    fn sequences_differ() {
        let first = quad(0, 0, 0);
        for other in [quad(1, 0, 0), quad(1 << 32, 0, 0), quad(0, 1, 0), quad(0, 1 << 32, 0), quad(0, 0, 1 << 32)] {
            assert_ne!(first, other);
        }
    }
}
