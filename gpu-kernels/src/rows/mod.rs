//! What row operators share: who works on a row, how it is held, and reductions over it.
//!
//! A kernel over rows is written once, for any [`Team`]: threads that load a row, fold it, reduce what they folded and store what
//! becomes of it. The teams are the kernel's instances, and the host picks the smallest that holds a row:
//!
//! | team | threads of a row | rows up to |
//! |---|---|---|
//! | [`Lanes<2>`](Lanes) | a quarter of a warp | 16 packs of 16 bytes |
//! | [`Warp<4>`](Warp) | a warp | 128 packs |
//! | [`Block<2>`](Block), [`Block<8>`](Block) | a block of up to 512 threads | 1024 and 4096 packs |
//! | [`Cluster<4>`](Cluster), [`Cluster<8>`](Cluster) | eight blocks | 16,384 and 32,768 packs |
//! | [`Stream`] | a block | any length and alignment |
//!
//! But from 513 packs on, of fused ones from 257 and of rms_norm and add_rms_norm from 1025, a block has few threads
//! with eight packs each: that keeps more loads in flight per thread, and more blocks on a multiprocessor, of which
//! some load while others wait for a reduction.
//!
//! Kernels that read and write rows of a block or a cluster have rows fetched into L2 half a round [ahead](Team::fetch_ahead), each by one instruction: memory is busy while blocks reduce, and
//! what it reads at a time is a row.
//!
//! All but the last hold the row in registers, so that memory is read once; the number V is the packs a thread. A warp has 32 · V packs in
//! a row of them, lane l packs l, l + 32 and so on: what it loads at once is adjacent, and a thread's addresses differ by constants.
//! These teams need d to be a multiple of a pack, and rows at multiples of 16 bytes. [`Stream`] reads the row again each time it is used.
//!
//! Reductions are reproducible: each thread in order, then a butterfly over the warp, then over the warps in order. A block's or a
//! cluster's reduction costs one barrier, because each of a kernel's reductions has a slot of shared memory of its own, and every
//! warp combines all partial results itself. That of a cluster's first is an mbarrier of each block, on which the others' results complete.

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

/// Warps of a block that gives each warp rows of its own.
pub const WARPS: u32 = 8;
/// The most threads of a block that shares a row.
pub const MAX_THREADS: u32 = 512;

/// Eight lanes a row, of up to 8·`V` packs.
pub type Lanes<const V: usize> = Held<Group<8>, V>;
/// One warp per row, of up to 32·`V` packs.
pub type Warp<const V: usize> = Held<Group<32>, V>;
/// One block per row, of up to [`MAX_THREADS`]·`V` packs. The block's size is a multiple of 32.
pub type Block<const V: usize> = Held<BlockThreads, V>;
/// A cluster of [`CLUSTER`] blocks a row, of up to as many times [`MAX_THREADS`]·`V` packs. The block's size is a multiple of 32.
pub type Cluster<const V: usize> = Held<ClusterThreads, V>;

/// One block per row of any length and alignment, which is read again each time it is used.
pub type Stream = Streamed<4>;

/// Blocks that a multiprocessor is to hold at once, of a team whose kernel holds `inputs` rows: as many as leave 24
/// registers per thread beside the rows'. Rows that are loaded while others are reduced and stored are what keeps
/// memory busy.
pub const fn blocks<P: Team>(inputs: u32) -> u32 {
    let blocks = 65_536 / registers::<P>(inputs) / P::THREADS;
    if blocks == 0 { 1 } else { blocks }
}

/// Of a thread.
const fn registers<P: Team>(inputs: u32) -> u32 {
    24 + 4 * P::PACKS * inputs
}

/// Half of the threads that a multiprocessor has at once, of a team whose kernel holds `inputs` rows: how far [ahead](Team::fetch_ahead) rows are fetched. Twice
/// as far, what is fetched leaves L2 before it is read: layer_norm takes 15% longer than with none of it, where half a round gains 1.5%.
pub const fn half_round<P: Team>(inputs: u32) -> u32 {
    65_536 / registers::<P>(inputs) / 2
}

/// The threads that share a row, at a row. Every thread of a warp calls every function, convergently.
pub trait Team: Copy {
    /// The most threads of a block.
    const THREADS: u32;
    /// The most packs of a row in a thread's registers at once.
    const PACKS: u32;
    /// Shared memory for `N` reductions of a value each.
    type Partials<const N: usize>;
    /// A row as these threads hold it.
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

    /// The same in a grid with fewer teams than rows, each of which takes a row every turn. `rows` is at least 1.
    fn at(turn: u64, rows: u64, d: u64) -> Self;

    /// Whether a team of this warp has a row, the same in all of its threads.
    fn has_work(&self) -> bool;

    /// The number of the row.
    fn row(&self) -> u64;

    /// Elements of the row.
    fn columns(&self) -> usize;

    /// Whether this thread is the one that writes what the row has one of.
    fn leads(&self) -> bool;

    /// The same team, for which only the first `n` elements of the row are there.
    #[must_use]
    fn prefix(self, n: usize) -> Self;

    /// Reads the row of `x`. In place of elements beyond a [`prefix`](Self::prefix) there is `fill`.
    unsafe fn load_or<T: Element>(&self, x: In<T>, fill: f32) -> Self::Row<T>;

    /// Reads a row of `x` that was [fetched](Self::fetch) ahead: it leaves L2 before those that are fetched and not yet read.
    #[inline(always)]
    unsafe fn load_fetched<T: Element>(&self, x: In<T>) -> Self::Row<T> {
        self.load(x)
    }

    /// [`load_or`](Self::load_or) of what this kernel may write: each thread the places that it read.
    unsafe fn load_own_or<T: Element>(&self, x: In<T>, fill: f32) -> Self::Row<T>;

    /// Has the row fetched into L2 whose team comes to this multiprocessor after so many `threads` of others, if it is `wanted`, in a grid with a team a
    /// row: of teams of a block and more, which load nothing while they reduce and store.
    #[inline(always)]
    unsafe fn fetch_ahead<T: Element>(&self, _: In<T>, _threads: u32, _wanted: impl FnOnce(usize) -> bool) {}

    /// Has the row fetched into L2, which no thread waits for and no register holds. Beside the rows of a grid of few teams, which are loaded one
    /// ahead, it takes the rows after these for memory to have enough to do.
    #[inline(always)]
    unsafe fn fetch<T: Element>(&self, _: In<T>) {}

    /// Reads what all rows share: it leaves the cache last.
    unsafe fn load_shared<T: Element>(&self, x: *const T) -> Self::Row<T>;

    /// The greatest element that this thread has of the row, which was filled with −∞ beyond the prefix, by comparing what registers hold
    /// before it is converted. NaN does not count. `None` if the team holds no row, and would have to read it for that.
    unsafe fn held_max<T: Element>(&self, row: Self::Row<T>) -> Option<f32>;

    /// The same where NaN is greater than every number.
    unsafe fn held_max_nan<T: Element>(&self, row: Self::Row<T>) -> Option<f32>;

    /// Folds the packs that this thread has of the rows, those beyond the prefix left out; what a pack has beyond it is `fill`.
    unsafe fn fold_packs<T: Element, A, const K: usize>(
        &self,
        rows: [Self::Row<T>; K],
        first: A,
        f: impl Fn(A, [&[f32]; K], usize) -> A,
    ) -> A;

    /// Writes f(place, elements) of every place of the rows, beyond the prefix as well. Elements are converted again, so that rows stay
    /// packed till here.
    unsafe fn store_places<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [Self::Row<T>; K],
        outputs: [Out<T>; O],
        f: impl Fn(usize, [f32; K]) -> [f32; O],
    );

    /// Writes f(elements) of every place, and g of what f gives at one place: a comparison a pack, not an element.
    unsafe fn store_but_one<T: Element, const K: usize, const O: usize>(
        &self,
        rows: [Self::Row<T>; K],
        outputs: [Out<T>; O],
        place: usize,
        f: impl Fn([f32; K]) -> [f32; O],
        g: impl Fn([f32; O]) -> [f32; O],
    );

    /// Writes f(elements) of every place to `output`, and gives what it wrote as a row.
    unsafe fn store_row<T: Element, const K: usize>(
        &self,
        rows: [Self::Row<T>; K],
        output: Out<T>,
        f: impl Fn([f32; K]) -> f32,
    ) -> Self::Row<T>;

    /// Sums of nothing yet, of the team of turn 0. Of the `partials` a row of `d` belongs to each warp that has rows of its own, or to
    /// each block that shares a row.
    unsafe fn zeros(&self, partials: *mut f32) -> Self::Sums;

    /// Adds f(elements) of every place to its sum.
    unsafe fn accumulate<T: Element, const K: usize>(
        &self,
        sums: &mut Self::Sums,
        rows: [Self::Row<T>; K],
        f: impl Fn([f32; K]) -> f32,
    );

    /// Of f(elements) of every place, writes what comes first and adds to the sums what comes second: elements are converted once for both.
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

    /// Writes the sums to their row of `partials`, those of a warp's teams as one. The team is that of turn 0.
    unsafe fn store_sums<T: Element>(&self, sums: Self::Sums, partials: *mut f32);

    /// What stands for what all threads have, in every thread; `identity` is what stands for nobody. The values take the slots from `slot`
    /// on of the kernel's [`Partials`](Self::Partials), and each reduction has slots of its own, the first one number 0.
    unsafe fn merge<L: Lane, const M: usize>(
        &self,
        values: [L; M],
        identity: [L; M],
        slot: u32,
        merge: impl Merge<L, M>,
    ) -> [L; M];

    /// [`merge`](Self::merge) by a function of what two threads have.
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

    /// `d` as the compiler sees that it is whole packs, of a team whose rows are: without it a row may end within one.
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
