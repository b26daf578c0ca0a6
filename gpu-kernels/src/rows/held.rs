//! Rows in registers.

mod each;
mod packs;

use core::array;
use core::marker::PhantomData;

use cuda_std::float::Element;
use cuda_std::math::max_nan;
use cuda_std::tma::prefetch_bytes;
use cuda_std::vector::Pack;
use cuda_std::warp::{self, Lane};
use cuda_std::{arch, thread};

use packs::{but_one, elements};

use super::{Merge, Team, Threads, store_then_accumulate};
use crate::lanes;
use crate::map::{In, Out};

/// Threads `G` that hold up to `V` packs of their row each.
pub struct Held<G, const V: usize> {
    row: u64,
    /// Elements of the row, of which the first `n` exist; none for a team without a row.
    d: usize,
    n: usize,
    has_row: bool,
    has_work: bool,
    threads: PhantomData<G>,
}

impl<G, const V: usize> Clone for Held<G, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<G, const V: usize> Copy for Held<G, V> {}

/// A thread's packs of a row, as bits: the row's type parameter states the type of their elements.
pub struct HeldRow<T, const V: usize> {
    packs: [Pack<u32, 4>; V],
    /// Their address instead, if they stay in memory until they are used.
    shared: *const T,
    is_shared: bool,
}

impl<T, const V: usize> HeldRow<T, V> {
    /// Pack `i`, which starts at element `at`. Values computed from it earlier are recomputed, so that rows stay
    /// packed.
    #[inline(always)]
    unsafe fn pack(&self, i: usize, at: usize) -> Pack<u32, 4> {
        if self.is_shared { Pack::load_nc_evict_last(self.shared.add(at).cast()) } else { self.packs[i].forget() }
    }

    /// The greatest element, given a comparison of registers and one of elements.
    #[inline(always)]
    unsafe fn greatest(&self, of_registers: impl Fn(u32, u32) -> u32, of_elements: impl Fn(f32, f32) -> f32) -> f32
    where
        T: Element,
    {
        let mut greatest = self.packs[0];
        for i in 1..V {
            greatest = Pack(array::from_fn(|word| of_registers(greatest.0[word], self.packs[i].0[word])));
        }
        match lanes::<T>() {
            4 => elements::<T, 4>(greatest).into_iter().fold(f32::NEG_INFINITY, of_elements),
            _ => elements::<T, 8>(greatest).into_iter().fold(f32::NEG_INFINITY, of_elements),
        }
    }
}

impl<T, const V: usize> Clone for HeldRow<T, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const V: usize> Copy for HeldRow<T, V> {}

/// A thread's sums: those of a pack's elements, of which a pack of 32-bit elements has half.
#[derive(Clone, Copy)]
pub struct HeldSums<const V: usize>([[f32; 8]; V]);

/// The most packs per thread for which shared rows are loaded early and held. With more packs there are no registers
/// for them; they are then read when needed, from a nearby cache.
const MAX_SHARED: usize = 4;

impl<G: Threads, const V: usize> Held<G, V> {
    /// Where this thread's packs start: `V` of them `G::STRIDE` apart, so that their addresses differ by constants.
    #[inline(always)]
    fn first<T>() -> usize {
        let rank = G::rank();
        (rank / G::STRIDE * G::STRIDE * V + rank % G::STRIDE) * lanes::<T>()
    }

    /// Where pack `i` of this thread starts.
    #[inline(always)]
    fn at<T>(i: usize) -> usize {
        Self::first::<T>() + i * G::STRIDE * lanes::<T>()
    }

    /// The number of the first `n` elements that are at or after the start of this thread's packs.
    #[inline(always)]
    fn left<T>(n: usize) -> u32 {
        n.saturating_sub(Self::first::<T>()) as u32
    }

    /// Whether pack `i` starts within what is [`left`](Self::left).
    #[inline(always)]
    fn has<T>(i: usize, left: u32) -> bool {
        ((i * G::STRIDE * lanes::<T>()) as u32) < left
    }
}

impl<G: Threads, const V: usize> Team for Held<G, V> {
    const THREADS: u32 = G::MAX;
    const PACKS: u32 = V as u32;
    type Partials<const N: usize> = G::Partials<N>;
    type Row<T: Element> = HeldRow<T, V>;
    type Sums = HeldSums<V>;

    #[inline(always)]
    fn at(turn: u64, rows: u64, d: u64) -> Self {
        let (row, first) = G::rows();
        let (row, first) = (row + turn * G::rows_of_grid(), first + turn * G::rows_of_grid());
        let has_row = row < rows;
        let d = if has_row { d as usize } else { 0 };
        Self { row: row.min(rows - 1), d, n: d, has_row, has_work: first < rows, threads: PhantomData }
    }

    #[inline(always)]
    fn has_work(&self) -> bool {
        self.has_work
    }

    #[inline(always)]
    fn row(&self) -> u64 {
        self.row
    }

    #[inline(always)]
    fn columns(&self) -> usize {
        self.d
    }

    #[inline(always)]
    fn leads(&self) -> bool {
        self.has_row && G::rank() == 0
    }

    #[inline(always)]
    fn prefix(self, n: usize) -> Self {
        Self { n: n.min(self.d), ..self }
    }

    #[inline(always)]
    unsafe fn load_or<T: Element>(&self, (x, stride): In<T>, fill: f32) -> HeldRow<T, V> {
        let x = x.add((self.row * stride) as usize);
        self.load_by(fill, |at| Pack::load_nc(x.add(at).cast()))
    }

    #[inline(always)]
    unsafe fn load_fetched<T: Element>(&self, (x, stride): In<T>) -> HeldRow<T, V> {
        let x = x.add((self.row * stride) as usize);
        self.load_by(0.0, |at| Pack::load_nc_no_allocate(x.add(at).cast()))
    }

    #[inline(always)]
    unsafe fn load_own_or<T: Element>(&self, (x, stride): In<T>, fill: f32) -> HeldRow<T, V> {
        let x = x.add((self.row * stride) as usize);
        self.load_by(fill, |at| Pack::load_evict_first(x.add(at).cast()))
    }

    #[inline(always)]
    unsafe fn fetch_ahead<T: Element>(&self, (x, stride): In<T>, threads: u32, wanted: impl FnOnce(usize) -> bool) {
        let Some(ahead) = G::ahead(threads).filter(|_| arch::number() >= 90) else { return };
        let row = self.row + ahead;
        // The block's part of a row is one piece.
        let elements = Self::left::<T>(self.d).min(thread::block_dim_x() * (V * lanes::<T>()) as u32);
        if thread::thread_idx_x() == 0 && row < G::rows_of_grid() && elements > 0 && wanted(row as usize) {
            prefetch_bytes(x.add((row * stride) as usize + Self::first::<T>()), elements * size_of::<T>() as u32);
        }
    }

    #[inline(always)]
    unsafe fn fetch<T: Element>(&self, (x, stride): In<T>) {
        if arch::number() >= 90 && self.has_row && G::rank() == 0 {
            prefetch_bytes(x.add((self.row * stride) as usize), (self.d * size_of::<T>()) as u32);
        }
    }

    #[inline(always)]
    unsafe fn load_shared<T: Element>(&self, x: *const T) -> HeldRow<T, V> {
        if V <= MAX_SHARED {
            self.load_by(0.0, |at| Pack::load_nc_evict_last(x.add(at).cast()))
        } else {
            HeldRow { packs: [Pack([0; 4]); V], shared: x, is_shared: true }
        }
    }

    #[inline(always)]
    unsafe fn held_max<T: Element>(&self, row: HeldRow<T, V>) -> Option<f32> {
        Some(row.greatest(T::max_of_registers, f32::max))
    }

    #[inline(always)]
    unsafe fn held_max_nan<T: Element>(&self, row: HeldRow<T, V>) -> Option<f32> {
        Some(row.greatest(T::max_nan_of_registers, max_nan))
    }

    #[inline(always)]
    unsafe fn fold_packs<T: Element, A, const K: usize>(
        &self,
        rows: [HeldRow<T, V>; K],
        first: A,
        f: impl Fn(A, [&[f32]; K], usize) -> A,
    ) -> A {
        match lanes::<T>() {
            4 => self.fold_by::<T, A, K, 4>(rows, first, f),
            _ => self.fold_by::<T, A, K, 8>(rows, first, f),
        }
    }

    #[inline(always)]
    unsafe fn store_places<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [HeldRow<T, V>; K],
        outputs: [Out<T>; O],
        f: impl Fn(usize, [f32; K]) -> [f32; O],
    ) {
        let outputs = outputs.map(|(y, stride)| y.add((self.row * stride) as usize));
        match lanes::<T>() {
            4 => self.store_by::<T, K, O, 4, false>(rows, outputs, |at, pack| array::from_fn(|e| f(at + e, pack[e]))),
            _ => self.store_by::<T, K, O, 8, false>(rows, outputs, |at, pack| array::from_fn(|e| f(at + e, pack[e]))),
        }
    }

    #[inline(always)]
    unsafe fn store_but_one<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [HeldRow<T, V>; K],
        outputs: [Out<T>; O],
        place: usize,
        f: impl Fn([f32; K]) -> [f32; O],
        g: impl Fn([f32; O]) -> [f32; O],
    ) {
        let outputs = outputs.map(|(y, stride)| y.add((self.row * stride) as usize));
        match lanes::<T>() {
            4 => self.store_by::<T, K, O, 4, true>(rows, outputs, |at, pack| {
                but_one(pack.map(&f), place.wrapping_sub(at), &g)
            }),
            _ => self.store_by::<T, K, O, 8, true>(rows, outputs, |at, pack| {
                but_one(pack.map(&f), place.wrapping_sub(at), &g)
            }),
        }
    }

    #[inline(always)]
    unsafe fn store_row<T: Element, const K: usize>(
        &self,
        rows: [HeldRow<T, V>; K],
        (y, stride): Out<T>,
        f: impl Fn([f32; K]) -> f32,
    ) -> HeldRow<T, V> {
        let y = y.add((self.row * stride) as usize);
        match lanes::<T>() {
            4 => self.store_row_by::<T, K, 4>(rows, y, f),
            _ => self.store_row_by::<T, K, 8>(rows, y, f),
        }
    }

    #[inline(always)]
    unsafe fn zeros(&self, _: *mut f32) -> HeldSums<V> {
        HeldSums([[0.0; 8]; V])
    }

    #[inline(always)]
    unsafe fn accumulate<T: Element, const K: usize>(
        &self,
        sums: &mut HeldSums<V>,
        rows: [HeldRow<T, V>; K],
        f: impl Fn([f32; K]) -> f32,
    ) {
        match lanes::<T>() {
            4 => self.accumulate_by::<T, K, 4>(sums, rows, f),
            _ => self.accumulate_by::<T, K, 8>(sums, rows, f),
        }
    }

    #[inline(always)]
    unsafe fn store_and_accumulate<T: Element, const K: usize, const O: usize, const S: usize>(
        &self,
        rows: [HeldRow<T, V>; K],
        outputs: [Out<T>; O],
        sums: [&mut HeldSums<V>; S],
        f: impl Fn([f32; K]) -> ([f32; O], [f32; S]),
    ) {
        // If rows are short, a warp has several of them, and its stores wait for no other warp.
        if G::TEAMS_OF_WARP > 1 {
            return store_then_accumulate(self, rows, outputs, sums, f);
        }
        let outputs = outputs.map(|(y, stride)| y.add((self.row * stride) as usize));
        match lanes::<T>() {
            4 => self.store_and_accumulate_by::<T, K, O, S, 4>(rows, outputs, sums, f),
            _ => self.store_and_accumulate_by::<T, K, O, S, 8>(rows, outputs, sums, f),
        }
    }

    #[inline(always)]
    unsafe fn store_sums<T: Element>(&self, sums: HeldSums<V>, partials: *mut f32) {
        let partials = partials.add((self.row / u64::from(G::TEAMS_OF_WARP)) as usize * self.d);
        // In a warp with at least one row, the first team has one.
        let writes = warp::lane_id() < 32 / G::TEAMS_OF_WARP;
        for i in 0..V {
            let at = Self::at::<T>(i);
            for e in (0..lanes::<T>()).step_by(4) {
                let sums = array::from_fn(|k| G::sum_of_teams(sums.0[i][e + k]));
                if writes && at < self.d {
                    Pack::<f32, 4>(sums).store(partials.add(at + e));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn merge<L: Lane, const M: usize>(
        &self,
        values: [L; M],
        identity: [L; M],
        slot: u32,
        merge: impl Merge<L, M>,
    ) -> [L; M] {
        G::merge(values, identity, slot, merge)
    }

    #[inline(always)]
    fn whole<T: Element>(d: u64) -> u64 {
        d / lanes::<T>() as u64 * lanes::<T>() as u64
    }
}
