//! A warp's stretches of rows, in a ring of places in shared memory.

use core::{array, mem};

use cuda_std::float::Element;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{cluster, shared_field, tma, warp};

use super::{Bytes, MOST_PLACES, PACK, PACKS, STRETCHES, Shared, WARPS};
use crate::lanes;
use crate::map::{In, Out};
use crate::ops::loss::kl_divergence::Moments;
use crate::ops::softmax::shift;
use crate::rows::butterfly;

/// A place of a ring.
#[derive(Clone, Copy)]
pub(super) struct Place {
    number: u32,
    /// That of the barrier's phase.
    parity: u32,
}

impl Place {
    pub(super) const FIRST: Self = Self { number: 0, parity: 0 };

    /// The one after it, of so many.
    #[inline(always)]
    pub(super) fn next(self, places: u32) -> Self {
        if self.number + 1 < places {
            Self { number: self.number + 1, ..self }
        } else {
            Self { number: 0, parity: self.parity ^ 1 }
        }
    }
}

/// A warp's stretches of rows, in its ring.
pub(super) struct Stretches {
    /// Packs before this warp's in a row, and how many it has.
    start: u32,
    packs: u32,
    /// Packs of a place, and how many places there are.
    stretch: u32,
    pub(super) places: u32,
    /// One bit per turn, of 32: whether the turn's row counts. Other rows are not read.
    counts: u32,
}

impl Stretches {
    /// Those of this warp in rows of `d` elements.
    #[inline(always)]
    pub(super) fn of<T: Element>(d: u64) -> Self {
        let packs = d as u32 / lanes::<T>() as u32;
        let stretch = packs.div_ceil(STRETCHES).max(1);
        let start = (cluster::rank() * WARPS + warp::warp_id()) * stretch;
        let places = (PACKS / stretch).clamp(1, MOST_PLACES);
        Self { start, packs: stretch.min(packs.saturating_sub(start)), stretch, places, counts: 0 }
    }

    /// The addresses of the packs of both rows, and the barrier that completes when they have arrived.
    #[inline(always)]
    fn at(&self, place: Place) -> ([SharedPtr<Bytes>; 2], SharedPtr<Barrier>) {
        let (memory, warp) = (shared::dynamic::<Shared>(), warp::warp_id());
        let ring = shared_field!(memory.rings).at(warp).cast::<Bytes>().add(2 * place.number * self.stretch);
        ([ring, ring.add(self.stretch)], shared_field!(memory.loaded).at(warp).at(place.number))
    }

    #[inline(always)]
    fn counts(&self, turn: u32) -> bool {
        self.counts >> (turn % 32) & 1 != 0
    }

    /// Starts loading the stretches of a row, if it counts. The previous stretches in this place have been used.
    #[inline(always)]
    pub(super) unsafe fn ask<T: Element>(
        &mut self,
        place: Place,
        turn: u32,
        row: usize,
        inputs: [In<T>; 2],
        counts: bool,
    ) {
        let bit = turn % 32;
        self.counts = self.counts & !(1 << bit) | u32::from(counts) << bit;
        if warp::lane_id() == 0 {
            let (places, loaded) = self.at(place);
            let bytes = if counts { self.packs * PACK } else { 0 };
            loaded.arrive_expect_tx(2 * bytes);
            if bytes > 0 {
                for k in 0..2 {
                    let (x, stride) = inputs[k];
                    let x = x.add(row * stride as usize + self.start as usize * lanes::<T>());
                    tma::load_bytes(places[k], x, bytes, loaded);
                }
            }
        }
    }

    /// Those of this warp's stretch of the turn's rows.
    #[inline(always)]
    pub(super) unsafe fn sums<T: Element>(&self, place: Place, turn: u32, moments: Moments) -> [f32; 5] {
        let (_, loaded) = self.at(place);
        loaded.wait_parity(place.parity);
        match lanes::<T>() {
            4 => self.sums_by::<T, 4>(place, turn, moments),
            _ => self.sums_by::<T, 8>(place, turn, moments),
        }
    }

    #[inline(always)]
    unsafe fn sums_by<T: Element, const N: usize>(&self, place: Place, turn: u32, moments: Moments) -> [f32; 5] {
        let nothing = mem::transmute_copy::<_, [f32; 4]>(&Pack::<T, N>::from_f32([f32::NEG_INFINITY; N]));
        let greatest = self.fold(place, turn, [nothing; 2], |greatest, packs| {
            let greater = |a: f32, b: f32| f32::from_bits(T::max_of_registers(a.to_bits(), b.to_bits()));
            array::from_fn(|k| array::from_fn(|word| greater(greatest[k][word], packs[k][word])))
        });
        let own = greatest.map(|pack| elements::<T, N>(pack).into_iter().fold(f32::NEG_INFINITY, f32::max));
        let [p_max, q_max] = butterfly::<{ warp::SIZE }, _, 2>(own, |a, b| array::from_fn(|i| a[i].max(b[i])));
        let max = [p_max, q_max].map(shift);
        let own = self.fold(place, turn, [0.0; 3], |sums, packs| {
            let packs = packs.map(|pack| elements::<T, N>(pack));
            (0..N).fold(sums, |sums, e| moments.and(sums, packs.map(|pack| pack[e]), max))
        });
        let [from, to, ratios] = butterfly::<{ warp::SIZE }, _, 3>(own, |a, b| array::from_fn(|i| a[i] + b[i]));
        [p_max, q_max, from, to, ratios]
    }

    /// Folds the packs that this thread has of the turn's rows, if these count.
    #[inline(always)]
    unsafe fn fold<A>(&self, place: Place, turn: u32, first: A, f: impl Fn(A, [[f32; 4]; 2]) -> A) -> A {
        let (places, _) = self.at(place);
        let packs = if self.counts(turn) { self.packs } else { 0 };
        let (mut folded, mut at) = (first, warp::lane_id());
        while at < packs {
            folded = f(folded, places.map(|place| place.add(at).cast::<f32>().load_x4()));
            at += warp::SIZE;
        }
        folded
    }

    /// Writes f(elements) for every place of the turn's rows, and 0 if these do not count.
    #[inline(always)]
    pub(super) unsafe fn store<T: Element>(
        &self,
        place: Place,
        turn: u32,
        row: usize,
        y: Out<T>,
        f: impl Fn([f32; 2]) -> f32,
    ) {
        match lanes::<T>() {
            4 => self.store_by::<T, 4>(place, turn, row, y, f),
            _ => self.store_by::<T, 8>(place, turn, row, y, f),
        }
    }

    #[inline(always)]
    unsafe fn store_by<T: Element, const N: usize>(
        &self,
        place: Place,
        turn: u32,
        row: usize,
        (y, stride): Out<T>,
        f: impl Fn([f32; 2]) -> f32,
    ) {
        let y = y.add(row * stride as usize + self.start as usize * N);
        let ((places, _), counts) = (self.at(place), self.counts(turn));
        let mut at = warp::lane_id();
        while at < self.packs {
            let mut results = [0.0; N];
            if counts {
                let packs = places.map(|place| elements::<T, N>(place.add(at).cast::<f32>().load_x4()));
                results = array::from_fn(|e| f(packs.map(|pack| pack[e])));
            }
            Pack::<T, N>::from_f32(results).store_global(y.add(at as usize * N));
            at += warp::SIZE;
        }
    }
}

/// A pack's elements. `N` is [`lanes`] of `T`.
#[inline(always)]
unsafe fn elements<T: Element, const N: usize>(words: [f32; 4]) -> [f32; N] {
    mem::transmute_copy::<_, Pack<T, N>>(&words).to_f32()
}
