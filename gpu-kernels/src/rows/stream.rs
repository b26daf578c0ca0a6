//! Rows of any length and alignment, read again each time they are used.

use core::array;

use cuda_std::float::Element;
use cuda_std::thread;
use cuda_std::vector::Pack;
use cuda_std::warp::Lane;

use super::{BlockThreads, Merge, Team, Threads};
use crate::lanes;
use crate::map::{In, Out};

/// One block of [`MAX_THREADS`](super::MAX_THREADS) per row, in which each thread has `V` packs of each operand in
/// flight.
#[derive(Clone, Copy)]
pub struct Streamed<const V: usize> {
    row: u64,
    /// Elements of the row, of which the first `n` are there.
    d: usize,
    n: usize,
    has_row: bool,
}

/// A row in memory.
pub struct StreamRow<T> {
    start: *const T,
    fill: f32,
}

/// Sums in memory: this team's row of the partial results.
#[derive(Clone, Copy)]
pub struct StreamSums {
    start: *mut f32,
    is_empty: bool,
}

impl<T> Clone for StreamRow<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for StreamRow<T> {}

impl<const V: usize> Streamed<V> {
    #[inline(always)]
    unsafe fn fold_by<T: Element, A, const K: usize, const N: usize>(
        &self,
        rows: [StreamRow<T>; K],
        first: A,
        f: impl Fn(A, [&[f32]; K], usize) -> A,
    ) -> A {
        let one = |folded: A, at: usize| {
            let values = rows.map(|row| [(*row.start.add(at)).to_f32()]);
            f(folded, array::from_fn(|k| &values[k][..]), at)
        };
        let pack = |folded: A, packs: [Pack<T, N>; K], at: usize| {
            let values = packs.map(Pack::to_f32);
            f(folded, array::from_fn(|k| &values[k][..]), at)
        };
        let load = |at: usize| -> [Pack<T, N>; K] { rows.map(|row| Pack::load(row.start.add(at))) };
        let mut folded = first;
        let mut whole = 0;
        let (rank, size) = (BlockThreads::rank(), BlockThreads::size());
        if is_aligned(rows.map(|row| row.start)) {
            whole = self.n / N * N;
            let mut at = rank * N;
            // Several loads are issued before the first is used.
            while at + (V - 1) * size * N < whole {
                let loaded: [_; V] = array::from_fn(|i| load(at + i * size * N));
                for i in 0..V {
                    folded = pack(folded, loaded[i], at + i * size * N);
                }
                at += V * size * N;
            }
            while at < whole {
                folded = pack(folded, load(at), at);
                at += size * N;
            }
        }
        let mut at = whole + rank;
        while at < self.n {
            folded = one(folded, at);
            at += size;
        }
        folded
    }

    #[inline(always)]
    unsafe fn store_by<T: Element, const K: usize, const O: usize, const N: usize>(
        &self,
        rows: [StreamRow<T>; K],
        outputs: [*mut T; O],
        f: impl Fn(usize, [f32; K]) -> [f32; O],
    ) {
        let (rank, size) = (BlockThreads::rank(), BlockThreads::size());
        let mut whole = 0;
        if is_aligned(rows.map(|row| row.start)) && is_aligned(outputs.map(|y| y.cast_const())) {
            whole = self.n / N * N;
            let mut at = rank * N;
            while at < whole {
                let values = rows.map(|row| Pack::<T, N>::load(row.start.add(at)).to_f32());
                let results: [[f32; O]; N] = array::from_fn(|e| f(at + e, array::from_fn(|k| values[k][e])));
                for o in 0..O {
                    let pack = Pack::<T, N>::from_f32(array::from_fn(|e| results[e][o]));
                    pack.store_global(outputs[o].add(at));
                }
                at += size * N;
            }
        }
        let mut at = whole + rank;
        while at < self.d {
            let values = rows.map(|row| if at < self.n { (*row.start.add(at)).to_f32() } else { row.fill });
            let results = f(at, values);
            for o in 0..O {
                *outputs[o].add(at) = T::from_f32(results[o]);
            }
            at += size;
        }
    }
}

#[inline(always)]
fn is_aligned<T, const K: usize>(pointers: [*const T; K]) -> bool {
    pointers.into_iter().fold(0, |bits, pointer| bits | pointer as usize).is_multiple_of(16)
}

impl<const V: usize> Team for Streamed<V> {
    const THREADS: u32 = BlockThreads::MAX;
    // Registers for the packs in flight, and as many again for addresses.
    const PACKS: u32 = 2 * V as u32;
    type Partials<const N: usize> = <BlockThreads as Threads>::Partials<N>;
    type Row<T: Element> = StreamRow<T>;
    type Sums = StreamSums;

    #[inline(always)]
    fn at(turn: u64, rows: u64, d: u64) -> Self {
        let row = u64::from(thread::block_idx_x()) + turn * BlockThreads::rows_of_grid();
        let has_row = row < rows;
        let d = if has_row { d as usize } else { 0 };
        Self { row: row.min(rows - 1), d, n: d, has_row }
    }

    #[inline(always)]
    fn has_work(&self) -> bool {
        self.has_row
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
        BlockThreads::rank() == 0
    }

    #[inline(always)]
    fn prefix(self, n: usize) -> Self {
        Self { n: n.min(self.d), ..self }
    }

    #[inline(always)]
    unsafe fn load_or<T: Element>(&self, (x, stride): In<T>, fill: f32) -> StreamRow<T> {
        StreamRow { start: x.add((self.row * stride) as usize), fill }
    }

    #[inline(always)]
    unsafe fn store_but_one<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [StreamRow<T>; K],
        outputs: [Out<T>; O],
        place: usize,
        f: impl Fn([f32; K]) -> [f32; O],
        g: impl Fn([f32; O]) -> [f32; O],
    ) {
        self.store_places(rows, outputs, |at, elements| {
            let results = f(elements);
            if at == place { g(results) } else { results }
        });
    }

    #[inline(always)]
    unsafe fn load_own_or<T: Element>(&self, x: In<T>, fill: f32) -> StreamRow<T> {
        self.load_or(x, fill)
    }

    #[inline(always)]
    unsafe fn load_shared<T: Element>(&self, x: *const T) -> StreamRow<T> {
        StreamRow { start: x, fill: 0.0 }
    }

    #[inline(always)]
    unsafe fn held_max<T: Element>(&self, _: StreamRow<T>) -> Option<f32> {
        None
    }

    #[inline(always)]
    unsafe fn held_max_nan<T: Element>(&self, _: StreamRow<T>) -> Option<f32> {
        None
    }

    #[inline(always)]
    unsafe fn fold_packs<T: Element, A, const K: usize>(
        &self,
        rows: [StreamRow<T>; K],
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
        rows: [StreamRow<T>; K],
        outputs: [Out<T>; O],
        f: impl Fn(usize, [f32; K]) -> [f32; O],
    ) {
        let outputs = outputs.map(|(y, stride)| y.add((self.row * stride) as usize));
        match lanes::<T>() {
            4 => self.store_by::<T, K, O, 4>(rows, outputs, f),
            _ => self.store_by::<T, K, O, 8>(rows, outputs, f),
        }
    }

    #[inline(always)]
    unsafe fn store_row<T: Element, const K: usize>(
        &self,
        rows: [StreamRow<T>; K],
        output: Out<T>,
        f: impl Fn([f32; K]) -> f32,
    ) -> StreamRow<T> {
        self.store(rows, [output], |values| [f(values)]);
        // The assignment of a row's elements to threads depends on its alignment.
        thread::sync_threads();
        self.load((output.0.cast_const(), output.1))
    }

    #[inline(always)]
    unsafe fn zeros(&self, partials: *mut f32) -> StreamSums {
        StreamSums { start: partials.add(self.row as usize * self.d), is_empty: true }
    }

    #[inline(always)]
    unsafe fn accumulate<T: Element, const K: usize>(
        &self,
        sums: &mut StreamSums,
        rows: [StreamRow<T>; K],
        f: impl Fn([f32; K]) -> f32,
    ) {
        let mut at = BlockThreads::rank();
        while at < self.n {
            let before = if sums.is_empty { 0.0 } else { *sums.start.add(at) };
            *sums.start.add(at) = before + f(rows.map(|row| (*row.start.add(at)).to_f32()));
            at += BlockThreads::size();
        }
        sums.is_empty = false;
    }

    #[inline(always)]
    unsafe fn store_sums<T: Element>(&self, _: StreamSums, _: *mut f32) {}

    #[inline(always)]
    unsafe fn merge<L: Lane, const M: usize>(
        &self,
        values: [L; M],
        identity: [L; M],
        slot: u32,
        merge: impl Merge<L, M>,
    ) -> [L; M] {
        BlockThreads::merge(values, identity, slot, merge)
    }
}
