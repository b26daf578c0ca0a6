//! Code that row operators share: which threads work on a row, how they hold it, and reductions over it.
//!
//! A kernel over rows is written once, for any [`Team`]: the threads that load a row, fold it, reduce the folded values
//! and store the result. The teams are the kernel's instances, and the host picks the smallest that holds a row:
//!
//! | team | threads of a row | rows up to |
//! |---|---|---|
//! | [`Lanes<2>`](Lanes) | a quarter of a warp | 16 packs of 16 bytes |
//! | [`Warp<4>`](Warp) | a warp | 128 packs |
//! | [`Block<2>`](Block), [`Block<8>`](Block) | a block of up to 512 threads | 1024 and 4096 packs |
//! | [`Cluster<4>`](Cluster), [`Cluster<8>`](Cluster) | eight blocks | 16,384 and 32,768 packs |
//! | [`Stream`] | a block | any length and alignment |
//!
//! There is one exception: from 513 packs on (257 in fused formulas, 1025 in rms_norm and add_rms_norm) a block has
//! fewer threads with eight packs each. That keeps more loads in flight per thread, and more blocks on a
//! multiprocessor, some of which load while others wait for a reduction.
//!
//! Kernels that read and write rows of a block or a cluster have rows fetched into L2 half a wave of blocks
//! [ahead](Team::fetch_ahead), each by one instruction: memory stays busy while blocks reduce, and each request covers
//! a whole row.
//!
//! All teams but the last hold the row in registers, so that memory is read once; the number V is the packs per thread.
//! A warp has 32 · V packs of a row, and lane l has packs l, l + 32 and so on: the warp's simultaneous loads are
//! adjacent, and a thread's addresses differ by constants. These teams need d to be a multiple of a pack, and rows at
//! multiples of 16 bytes. [`Stream`] reads the row again each time it is used.
//!
//! Reductions are reproducible: each thread in order, then a butterfly over the warp, then over the warps in order. A
//! reduction over a block or a cluster costs one barrier, because each of a kernel's reductions has its own slot of
//! shared memory, and every warp combines all partial results itself. In a cluster's first reduction that barrier is an
//! mbarrier in each block, which the other blocks' results complete.

mod held;
mod stream;
mod threads;

use cuda_std::float::Element;
use cuda_std::warp::Lane;

pub use held::{Held, HeldRow, HeldSums};
pub use stream::{StreamRow, StreamSums, Streamed};
pub(crate) use threads::butterfly;
pub use threads::{BlockThreads, CLUSTER, ClusterThreads, Group, Merge, Threads};

use crate::map::{In, Out};

/// Warps of a block in which each warp has its own rows.
pub const WARPS: u32 = 8;
/// The most threads of a block that shares a row.
pub const MAX_THREADS: u32 = 512;

/// Eight lanes per row, of up to 8·`V` packs.
pub type Lanes<const V: usize> = Held<Group<8>, V>;
/// One warp per row, of up to 32·`V` packs.
pub type Warp<const V: usize> = Held<Group<32>, V>;
/// One block per row, of up to [`MAX_THREADS`]·`V` packs. The block's size is a multiple of 32.
pub type Block<const V: usize> = Held<BlockThreads, V>;
/// One cluster of [`CLUSTER`] blocks per row, of up to as many times [`MAX_THREADS`]·`V` packs. The block's size is a
/// multiple of 32.
pub type Cluster<const V: usize> = Held<ClusterThreads, V>;

/// One block per row of any length and alignment, which is read again each time it is used.
pub type Stream = Streamed<4>;

/// The number of blocks to keep resident on a multiprocessor, for a team whose kernel holds `inputs` rows: as many as
/// leave 24 registers per thread beside those of the rows. Memory stays busy because some rows are loaded while others
/// are reduced and stored.
pub const fn blocks<P: Team>(inputs: u32) -> u32 {
    let blocks = 65_536 / registers::<P>(inputs) / P::THREADS;
    if blocks == 0 { 1 } else { blocks }
}

/// Of a thread.
const fn registers<P: Team>(inputs: u32) -> u32 {
    24 + 4 * P::PACKS * inputs
}

/// Half of a multiprocessor's resident threads, for a team whose kernel holds `inputs` rows: the distance by which rows
/// are fetched [ahead](Team::fetch_ahead). At twice this distance the fetched rows leave L2 before they are read:
/// layer_norm then takes 15% longer than without fetching, whereas this distance gains 1.5%.
pub const fn half_wave<P: Team>(inputs: u32) -> u32 {
    65_536 / registers::<P>(inputs) / 2
}

/// The threads that share a row, positioned at one row. Every thread of a warp calls every function, convergently.
pub trait Team: Copy {
    /// The most threads of a block.
    const THREADS: u32;
    /// The most packs of a row in a thread's registers at once.
    const PACKS: u32;
    /// Shared memory for `N` reductions of one value each.
    type Partials<const N: usize>;
    /// A row in the form in which these threads hold it.
    type Row<T: Element>: Copy;

    /// Sums over many rows, one for each element of a row, in f32.
    type Sums: Copy;

    /// The team of this thread, at its row of `rows` rows of `d` elements; `None` where the whole warp has no row. A team without a
    /// row beside one with a row reads and writes nothing.
    #[inline(always)]
    fn of(rows: u64, d: u64) -> Option<Self> {
        let team = Self::at(0, rows, d);
        team.has_work().then_some(team)
    }

    /// The same for a grid with fewer teams than rows, in which each team takes one row per turn. `rows` is at least 1.
    fn at(turn: u64, rows: u64, d: u64) -> Self;

    /// Whether a team of this warp has a row, the same in all of its threads.
    fn has_work(&self) -> bool;

    /// The number of the row.
    fn row(&self) -> u64;

    /// Elements of the row.
    fn columns(&self) -> usize;

    /// Whether this thread is the one that writes the row's single results.
    fn leads(&self) -> bool;

    /// The same team, for which the row consists of its first `n` elements only.
    #[must_use]
    fn prefix(self, n: usize) -> Self;

    /// Reads the row of `x`. Elements beyond a [`prefix`](Self::prefix) are replaced by `fill`.
    unsafe fn load_or<T: Element>(&self, x: In<T>, fill: f32) -> Self::Row<T>;

    /// Reads a row of `x` that was [fetched](Self::fetch) ahead. It is evicted from L2 before rows that are fetched and
    /// not yet read.
    #[inline(always)]
    unsafe fn load_fetched<T: Element>(&self, x: In<T>) -> Self::Row<T> {
        self.load(x)
    }

    /// [`load_or`](Self::load_or) for memory that this kernel may write: each thread writes only the places that it has
    /// read.
    unsafe fn load_own_or<T: Element>(&self, x: In<T>, fill: f32) -> Self::Row<T>;

    /// If `wanted`, fetches a later row into L2: the one whose team runs on this multiprocessor after `threads` threads
    /// of other teams, in a grid with one team per row. This is for teams of a block or more, which load nothing while
    /// they reduce and store.
    #[inline(always)]
    unsafe fn fetch_ahead<T: Element>(&self, _: In<T>, _threads: u32, _wanted: impl FnOnce(usize) -> bool) {}

    /// Fetches the row into L2; no thread waits for it and no register holds it. In a grid of few teams, each loads one
    /// row ahead, and fetching the rows after these gives memory enough to do.
    #[inline(always)]
    unsafe fn fetch<T: Element>(&self, _: In<T>) {}

    /// Reads data that all rows share: it is evicted from the cache last.
    unsafe fn load_shared<T: Element>(&self, x: *const T) -> Self::Row<T>;

    /// The greatest element that this thread has of the row, whose elements beyond the prefix were filled with −∞, by
    /// comparing register contents before conversion. NaN does not count. `None` if the team holds no row, and would
    /// have to read it again for this.
    unsafe fn held_max<T: Element>(&self, row: Self::Row<T>) -> Option<f32>;

    /// The same where NaN is greater than every number.
    unsafe fn held_max_nan<T: Element>(&self, row: Self::Row<T>) -> Option<f32>;

    /// Folds the packs that this thread has of the rows, without those beyond the prefix; elements beyond the prefix in
    /// the last pack are `fill`.
    unsafe fn fold_packs<T: Element, A, const K: usize>(
        &self,
        rows: [Self::Row<T>; K],
        first: A,
        f: impl Fn(A, [&[f32]; K], usize) -> A,
    ) -> A;

    /// Writes f(place, elements) for every place of the rows, beyond the prefix as well. Elements are converted again,
    /// so that rows stay packed until here.
    unsafe fn store_places<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [Self::Row<T>; K],
        outputs: [Out<T>; O],
        f: impl Fn(usize, [f32; K]) -> [f32; O],
    );

    /// Writes f(elements) for every place, and at one place g of f's result: this costs one comparison per pack, not
    /// per element.
    unsafe fn store_but_one<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [Self::Row<T>; K],
        outputs: [Out<T>; O],
        place: usize,
        f: impl Fn([f32; K]) -> [f32; O],
        g: impl Fn([f32; O]) -> [f32; O],
    );

    /// Writes f(elements) for every place to `output`, and returns what it wrote as a row.
    unsafe fn store_row<T: Element, const K: usize>(
        &self,
        rows: [Self::Row<T>; K],
        output: Out<T>,
        f: impl Fn([f32; K]) -> f32,
    ) -> Self::Row<T>;

    /// Sums initialised to zero, for the team of turn 0. Each warp that has its own rows, or each block that shares
    /// one, owns a row of `d` of the `partials`.
    unsafe fn zeros(&self, partials: *mut f32) -> Self::Sums;

    /// Adds f(elements) to the sum of every place.
    unsafe fn accumulate<T: Element, const K: usize>(
        &self,
        sums: &mut Self::Sums,
        rows: [Self::Row<T>; K],
        f: impl Fn([f32; K]) -> f32,
    );

    /// Computes f(elements) for every place, writes the first result and adds the second to the sums: elements are
    /// converted once for both.
    #[inline(always)]
    unsafe fn store_and_accumulate<T: Element, const K: usize, const O: usize, const S: usize>(
        &self,
        rows: [Self::Row<T>; K],
        outputs: [Out<T>; O],
        sums: [&mut Self::Sums; S],
        f: impl Fn([f32; K]) -> ([f32; O], [f32; S]),
    ) {
        store_then_accumulate(self, rows, outputs, sums, f);
    }

    /// Writes the sums to their row of `partials`, combined over the teams of a warp. The team is that of turn 0.
    unsafe fn store_sums<T: Element>(&self, sums: Self::Sums, partials: *mut f32);

    /// Combines the values of all threads, with the result in every thread; `identity` is the neutral value. The values
    /// take the slots from `slot` on of the kernel's [`Partials`](Self::Partials); each reduction has its own slots,
    /// and the first one starts at slot 0.
    unsafe fn merge<L: Lane, const M: usize>(
        &self,
        values: [L; M],
        identity: [L; M],
        slot: u32,
        merge: impl Merge<L, M>,
    ) -> [L; M];

    /// [`merge`](Self::merge) by a function of two threads' values.
    #[inline(always)]
    unsafe fn reduce<L: Lane, const M: usize>(
        &self,
        values: [L; M],
        identity: [L; M],
        slot: u32,
        combine: impl Fn([L; M], [L; M]) -> [L; M],
    ) -> [L; M] {
        self.merge(values, identity, slot, combine)
    }

    /// Reads the row of `x`.
    #[inline(always)]
    unsafe fn load<T: Element>(&self, x: In<T>) -> Self::Row<T> {
        self.load_or(x, 0.0)
    }

    /// Writes f(elements) of every place of the rows, beyond the prefix as well.
    #[inline(always)]
    unsafe fn store<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [Self::Row<T>; K],
        outputs: [Out<T>; O],
        f: impl Fn([f32; K]) -> [f32; O],
    ) {
        self.store_places(rows, outputs, |_, elements| f(elements));
    }

    /// Folds the elements that this thread has of the rows.
    #[inline(always)]
    unsafe fn fold<T: Element, A, const K: usize>(
        &self,
        rows: [Self::Row<T>; K],
        first: A,
        f: impl Fn(A, [f32; K]) -> A,
    ) -> A {
        self.fold_packs(rows, first, |first, packs, _| {
            let mut folded = first;
            for e in 0..packs[0].len() {
                folded = f(folded, packs.map(|pack| pack[e]));
            }
            folded
        })
    }

    /// The sums over the whole team.
    #[inline(always)]
    unsafe fn sums<const M: usize>(&self, values: [f32; M], slot: u32) -> [f32; M] {
        self.reduce(values, [0.0; M], slot, |a, b| core::array::from_fn(|i| a[i] + b[i]))
    }

    /// The sum over the whole team.
    #[inline(always)]
    unsafe fn sum(&self, value: f32, slot: u32) -> f32 {
        self.sums([value], slot)[0]
    }

    /// `d` in a form that tells the compiler that it is a whole number of packs, for a team whose rows are: otherwise
    /// the compiler would have to assume that a row ends within a pack.
    #[inline(always)]
    fn whole<T: Element>(d: u64) -> u64 {
        d
    }
}

/// [`Team::store_and_accumulate`] in a loop for each.
#[inline(always)]
unsafe fn store_then_accumulate<P: Team, T: Element, const K: usize, const O: usize, const S: usize>(
    team: &P,
    rows: [P::Row<T>; K],
    outputs: [Out<T>; O],
    sums: [&mut P::Sums; S],
    f: impl Fn([f32; K]) -> ([f32; O], [f32; S]),
) {
    team.store(rows, outputs, |elements| f(elements).0);
    for s in 0..S {
        team.accumulate(&mut *sums[s], rows, |elements| f(elements).1[s]);
    }
}
