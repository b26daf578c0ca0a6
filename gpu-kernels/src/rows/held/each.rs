//! Loops over each pack of rows, of `N` elements.

use core::{array, mem, ptr};

use cuda_std::float::Element;
use cuda_std::vector::Pack;

use super::super::Threads;
use super::packs::{cut, elements};
use super::{Held, HeldRow, HeldSums};
use crate::lanes;

impl<G: Threads, const V: usize> Held<G, V> {
    #[inline(always)]
    pub(super) unsafe fn load_by<T: Element>(&self, fill: f32, load: impl Fn(usize) -> Pack<u32, 4>) -> HeldRow<T, V> {
        let empty = match lanes::<T>() {
            4 => mem::transmute_copy(&Pack::<T, 4>::from_f32([fill; 4])),
            _ => mem::transmute_copy(&Pack::<T, 8>::from_f32([fill; 8])),
        };
        let left = Self::left::<T>(self.n);
        let mut packs: [_; V] =
            array::from_fn(|i| if Self::has::<T>(i, left) { load(Self::at::<T>(i)) } else { empty });
        // This is separate from the loads: a use of a pack waits for its load, and for all loads issued after it.
        if !self.n.is_multiple_of(lanes::<T>()) {
            for i in 0..V {
                let at = Self::at::<T>(i);
                if Self::has::<T>(i, left) && at + lanes::<T>() > self.n {
                    packs[i] = cut::<T>(packs[i], self.n - at, fill);
                }
            }
        }
        HeldRow { packs, shared: ptr::null(), is_shared: false }
    }

    #[inline(always)]
    pub(super) unsafe fn fold_by<T: Element, A, const K: usize, const N: usize>(
        &self,
        rows: [HeldRow<T, V>; K],
        first: A,
        f: impl Fn(A, [&[f32]; K], usize) -> A,
    ) -> A {
        let left = Self::left::<T>(self.n);
        let mut folded = first;
        for i in 0..V {
            if Self::has::<T>(i, left) {
                let packs: [[f32; N]; K] = array::from_fn(|k| elements::<T, N>(rows[k].pack(i, Self::at::<T>(i))));
                folded = f(folded, array::from_fn(|k| &packs[k][..]), Self::at::<T>(i));
            }
        }
        folded
    }

    #[inline(always)]
    pub(super) unsafe fn store_row_by<T: Element, const K: usize, const N: usize>(
        &self,
        rows: [HeldRow<T, V>; K],
        y: *mut T,
        f: impl Fn([f32; K]) -> f32,
    ) -> HeldRow<T, V> {
        let left = Self::left::<T>(self.d);
        let packs = array::from_fn(|i| {
            let packs: [[f32; N]; K] = array::from_fn(|k| elements::<T, N>(rows[k].packs[i]));
            let results = Pack::<T, N>::from_f32(array::from_fn(|e| f(array::from_fn(|k| packs[k][e]))));
            if Self::has::<T>(i, left) {
                results.store_global(y.add(Self::at::<T>(i)));
            }
            mem::transmute_copy(&results)
        });
        HeldRow { packs, shared: ptr::null(), is_shared: false }
    }

    #[inline(always)]
    pub(super) unsafe fn accumulate_by<T: Element, const K: usize, const N: usize>(
        &self,
        sums: &mut HeldSums<V>,
        rows: [HeldRow<T, V>; K],
        f: impl Fn([f32; K]) -> f32,
    ) {
        let left = Self::left::<T>(self.n);
        for i in 0..V {
            if Self::has::<T>(i, left) {
                let packs: [[f32; N]; K] = array::from_fn(|k| elements::<T, N>(rows[k].pack(i, Self::at::<T>(i))));
                for e in 0..N {
                    sums.0[i][e] += f(array::from_fn(|k| packs[k][e]));
                }
            }
        }
    }

    #[inline(always)]
    pub(super) unsafe fn store_and_accumulate_by<
        T: Element,
        const K: usize,
        const O: usize,
        const S: usize,
        const N: usize,
    >(
        &self,
        rows: [HeldRow<T, V>; K],
        outputs: [*mut T; O],
        sums: [&mut HeldSums<V>; S],
        f: impl Fn([f32; K]) -> ([f32; O], [f32; S]),
    ) {
        let left = Self::left::<T>(self.n);
        for i in 0..V {
            if Self::has::<T>(i, left) {
                let at = Self::at::<T>(i);
                let packs: [[f32; N]; K] = array::from_fn(|k| elements::<T, N>(rows[k].pack(i, at)));
                let results: [_; N] = array::from_fn(|e| f(array::from_fn(|k| packs[k][e])));
                for o in 0..O {
                    let pack = Pack::<T, N>::from_f32(array::from_fn(|e| results[e].0[o]));
                    pack.store_global(outputs[o].add(at));
                }
                for s in 0..S {
                    for e in 0..N {
                        sums[s].0[i][e] += results[e].1[s];
                    }
                }
            }
        }
    }

    /// If `OWN`, the results overwrite rows that were loaded with evict-first priority, and are stored with the same
    /// priority.
    #[inline(always)]
    pub(super) unsafe fn store_by<T: Element, const K: usize, const O: usize, const N: usize, const OWN: bool>(
        &self,
        rows: [HeldRow<T, V>; K],
        outputs: [*mut T; O],
        f: impl Fn(usize, [[f32; K]; N]) -> [[f32; O]; N],
    ) {
        let left = Self::left::<T>(self.d);
        for i in 0..V {
            if Self::has::<T>(i, left) {
                let packs: [[f32; N]; K] = array::from_fn(|k| elements::<T, N>(rows[k].pack(i, Self::at::<T>(i))));
                let at = Self::at::<T>(i);
                let results = f(at, array::from_fn(|e| array::from_fn(|k| packs[k][e])));
                for o in 0..O {
                    let pack = Pack::<T, N>::from_f32(array::from_fn(|e| results[e][o]));
                    let to = outputs[o].add(at);
                    if OWN { pack.store_streaming(to) } else { pack.store_global(to) }
                }
            }
        }
    }
}
