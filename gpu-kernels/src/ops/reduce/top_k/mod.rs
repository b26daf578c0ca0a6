//! The k largest elements of rows, and their positions.
//!
//! # Math
//! values\[r, 0..k\] are the k largest elements of x\[r, :\], the largest first, and indices\[r, j\] is the position of
//! values\[r, j\].
//!
//! # Layout
//! `x` is rows of d adjacent elements, `x_stride` elements apart; `values` and `indices` are rows of k, each at its own distance. Rows of `x` at
//! multiples of 16 bytes are read 16 bytes at a time, others element by element, eight in flight.
//!
//! # Mapping
//! For a row of up to 256 elements one warp finds up to [`FEW`], one after the other: [`top_few`]. Otherwise [`top_k`]
//! uses one block per row, which reads the row once. Elements become 64-bit candidates: the value in the upper bits,
//! and an earlier position counts as greater in the lower bits. A row of up to [`CAPACITY`] elements is sorted as a
//! whole. For a longer row each thread first finds the best of 16 elements. The k-th of these is a lower bound of the
//! row's k best elements, because at least k elements are that good. The row is then processed in tiles of four packs
//! per thread, 64 bytes in flight each. Elements greater than the threshold, at one comparison per element, go to a
//! list in shared memory: at first up to about 2.8·k elements of a tile. When the list is full it is sorted, its first
//! k stay, and the k-th is the new threshold, so that a row in random order fills it only a few times. One barrier per
//! tile checks whether it is full. Few long rows go to clusters: [`mod@cluster`].
//!
//! Radix selection is not used: it reads the row once per digit, and a single read is the lower bound.
//!
//! # Shared memory
//! [`top_k`]: [`CAPACITY`] candidates and their number, 8200 B.
//!
//! # Numerics
//! Exact: values are the elements themselves. NaN is greater than everything; −0 equals +0; equal elements are ordered
//! by position.
//!
//! # Cost
//! One read of rows × d elements, about six operations per element: bound by memory bandwidth where there is a block
//! for every multiprocessor. A sort takes about a microsecond, which dominates rows of up to [`CAPACITY`] that
//! [`top_few`] does not take; a row in ascending order needs one sort for every 760 elements.
//!
//! # Limits
//! k up to [`MAX_K`]; 2³¹ − 1 rows and columns.
//!
//! # Sources
//! Batcher, "Sorting Networks and Their Applications" (AFIPS 1968), for the sort.

pub mod cluster;

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{atomic, kernel, shared_field, thread, warp};

use super::key;

/// The most threads of a block.
pub const BLOCK: u32 = 512;
/// Candidates of a list.
pub const CAPACITY: u32 = 1024;
/// The greatest k.
pub const MAX_K: u32 = 256;

/// The greatest k that is found one element after the other, one lane for each.
pub const FEW: u32 = warp::SIZE;
/// Warps of a block of [`top_few`].
pub const WARPS: u32 = 8;

/// Elements per thread whose best ones give the first threshold.
const SAMPLE: usize = 16;
/// Places of the list that are reserved for the elements after a row's last pack.
const REST: u32 = 8;

/// Threads of the block of a row of `d` elements: a power of two, and [`MAX_K`] or more where a list does not hold the row.
pub const fn threads(d: usize) -> u32 {
    match d {
        0..=256 => 32,
        257..=1024 => 128,
        1025..=8192 => 256,
        _ => BLOCK,
    }
}

/// What a block shares.
#[repr(C)]
pub struct Shared {
    list: [u64; CAPACITY as usize],
    count: u32,
    padding: u32,
}

/// The list, and the number of candidates on it.
#[inline(always)]
fn list() -> (SharedPtr<u64>, SharedPtr<u32>) {
    let shared = shared::dynamic::<Shared>();
    (shared_field!(shared.list).cast(), shared_field!(shared.count))
}

/// A candidate: greater for greater elements and, among equal ones, for earlier positions. It is more than 0.
#[inline(always)]
pub const fn candidate(key: u32, place: u32) -> u64 {
    (key as u64) << 32 | !place as u64
}

/// The element with a candidate's key, up to the sign of 0; NaN for a key of no element.
#[inline(always)]
pub fn element(candidate: u64) -> f32 {
    let key = (candidate >> 32) as u32;
    f32::from_bits(if key >> 31 == 1 { key ^ 1 << 31 } else { !key })
}

/// The k best of a row of `d` elements per block, of [`threads`].
///
/// # Safety
/// `x` is valid for reads of a row of `d` elements per block at its stride, `values` and `indices` for writes of `k` at
/// theirs; k is at least 1 and at most d and [`MAX_K`]; d is below 2³¹.
#[kernel(dtypes(T: float), block = BLOCK, min_blocks = 2, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn top_k<T: Element>(
    x: *const T,
    values: *mut T,
    indices: *mut i32,
    d: u32,
    k: u32,
    x_stride: u64,
    values_stride: u64,
    indices_stride: u64,
) {
    let row = u64::from(thread::block_idx_x());
    let x = x.add((row * x_stride) as usize);
    let (values, indices) = (values.add((row * values_stride) as usize), indices.add((row * indices_stride) as usize));
    best(x, d, k);
    let (list, _) = list();
    let mut j = thread::thread_idx_x();
    while j < k {
        let place = !(list.add(j).read() as u32);
        *values.add(j as usize) = *x.add(place as usize);
        *indices.add(j as usize) = place as i32;
        j += thread::block_dim_x();
    }
}

/// Moves the k best of the `d` elements of `x` to the front of the block's list, the best first.
#[inline(always)]
unsafe fn best<T: Element>(x: *const T, d: u32, k: u32) {
    let (list, count) = list();
    let (tid, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let of = |place: u32| candidate(key((*x.add(place as usize)).to_f32()), place);
    let lanes = if (x as usize).is_multiple_of(16) { crate::lanes::<T>() as u32 } else { 1 };
    let mut scan = Scan { x, whole: d / lanes * lanes, start: 0, next: 0, good: 0 };
    // The number of candidates to sort: all elements, the best of the threads' first ones, or a full list.
    let is_short = d <= CAPACITY;
    let mut size = if is_short { d.next_power_of_two() } else { threads };
    if is_short {
        let mut i = tid;
        while i < size {
            list.add(i).write(if i < d { of(i) } else { 0 });
            i += threads;
        }
    } else {
        // No load is conditional, so that all are in flight at the same time.
        let place = |i: usize| tid + i as u32 * threads;
        let first: [Pack<T, 1>; SAMPLE] = array::from_fn(|i| Pack::load_nc(x.add(place(i).min(d - 1) as usize)));
        let candidate = |i: usize| if place(i) < d { candidate(key(first[i].to_f32()[0]), place(i)) } else { 0 };
        list.add(tid).write((0..SAMPLE).map(candidate).fold(0, u64::max));
        if tid < REST {
            // These stay last when the list is sorted.
            list.add(CAPACITY - REST + tid).write(0);
        }
    }
    let mut is_first = true;
    let mut is_last = is_short;
    loop {
        sort(list, size);
        if is_last {
            return;
        }
        // The k-th best of the threads' elements is a candidate itself. There may be fewer than k.
        let threshold = list.add(k - 1).read().saturating_sub(u64::from(is_first));
        if tid == 0 {
            count.write(if is_first { 0 } else { k });
        }
        thread::sync_threads();
        is_last = match lanes {
            1 => scan.run::<1, 8>(threshold),
            4 => scan.run::<4, 4>(threshold),
            _ => scan.run::<8, 4>(threshold),
        };
        size = CAPACITY;
        if is_last {
            // The elements after the last pack, then empty candidates up to a power of two.
            let found = count.read();
            size = (found + d - scan.whole).next_power_of_two();
            let mut i = found + tid;
            while i < size {
                let place = scan.whole + (i - found);
                list.add(i).write(if place < d { of(place) } else { 0 });
                i += threads;
            }
        }
        is_first = false;
    }
}

/// The k best of a row of up to 32 · `E` elements per warp, `E` a lane: one after the other, by two reductions each.
///
/// # Safety
/// `x` is valid for reads of `rows` rows of `d` elements at its stride, `values` and `indices` for writes of `k` each at theirs; k is at least 1
/// and at most d and [`FEW`], d at most 32 · `E`.
#[kernel(dtypes(T: float), values(E: 4, 8), block = WARPS * warp::SIZE, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn top_few<T: Element, const E: usize>(
    x: *const T,
    values: *mut T,
    indices: *mut i32,
    rows: u64,
    d: u32,
    k: u32,
    x_stride: u64,
    values_stride: u64,
    indices_stride: u64,
) {
    let row = u64::from(thread::block_idx_x()) * u64::from(WARPS) + u64::from(warp::warp_id());
    if row >= rows {
        return;
    }
    let x = x.add((row * x_stride) as usize);
    let lane = warp::lane_id();
    let place = |i: usize| lane + i as u32 * warp::SIZE;
    // No element has the key 0.
    let mut keys: [u32; E] =
        array::from_fn(|i| if place(i) < d { key((*x.add(place(i) as usize)).to_f32()) } else { 0 });
    let mut own = 0;
    for j in 0..k {
        let best = warp::redux_max_u32(keys.into_iter().fold(0, u32::max));
        let of_best = |i: usize| if keys[i] == best { place(i) } else { u32::MAX };
        let first = warp::redux_min_u32((0..E).map(of_best).fold(u32::MAX, u32::min));
        keys = array::from_fn(|i| if place(i) == first { 0 } else { keys[i] });
        if lane == j {
            own = first;
        }
    }
    if lane < k {
        *values.add((row * values_stride) as usize + lane as usize) = *x.add(own as usize);
        *indices.add((row * indices_stride) as usize + lane as usize) = own as i32;
    }
}

/// A thread's progress through a row.
struct Scan<T> {
    x: *const T,
    /// Elements of the row that are read by packs.
    whole: u32,
    /// Where its tile starts, and the next.
    start: u32,
    next: u32,
    /// One bit for each element of the tile that may have to go to the list.
    good: u32,
}

impl<T: Element> Scan<T> {
    /// Appends elements greater than `threshold` to the list until the list is full or the row ends, and returns
    /// whether the row has ended. A tile is `P` packs of `N` elements per thread.
    #[inline(always)]
    #[allow(clippy::neg_cmp_op_on_partial_ord)] // NaN is not less than anything.
    unsafe fn run<const N: usize, const P: usize>(&mut self, threshold: u64) -> bool {
        const { assert!(N * P <= 32) };
        let (list, count) = list();
        let (tid, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let limit = element(threshold);
        loop {
            let start = self.start;
            while self.good != 0 {
                let e = self.good.trailing_zeros();
                let place = start + (e / N as u32 * threads + tid) * N as u32 + e % N as u32;
                // Reads the element from memory again: registers cannot be indexed at run time, and few elements get
                // here.
                let this = candidate(key((*self.x.add(place as usize)).to_f32()), place);
                if this > threshold {
                    let slot = atomic::block::add_u32(count.as_ptr(), 1);
                    if slot >= CAPACITY - REST {
                        break;
                    }
                    list.add(slot).write(this);
                }
                self.good &= self.good - 1;
            }
            if thread::sync_threads_or(self.good != 0) {
                return false;
            }
            if self.next >= self.whole {
                return true;
            }
            self.start = self.next;
            self.next += threads * (N * P) as u32;
            let at = |pack: usize| self.start + (pack as u32 * threads + tid) * N as u32;
            let none = Pack::<T, N>::splat(T::from_f32(0.0));
            let packs: [_; P] =
                array::from_fn(|i| if at(i) < self.whole { Pack::load_nc(self.x.add(at(i) as usize)) } else { none });
            for i in 0..P {
                let elements = packs[i].to_f32();
                for e in 0..N {
                    self.good |= u32::from(at(i) < self.whole && !(elements[e] < limit)) << (i * N + e);
                }
            }
        }
    }
}

/// Sorts the first `n` candidates, a power of two, the greatest first.
#[inline(always)]
unsafe fn sort(list: SharedPtr<u64>, n: u32) {
    let (tid, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let mut was_wide = true;
    let mut size = 2;
    while size <= n {
        let mut stride = size / 2;
        while stride > 0 {
            // Up to this distance, a warp's pairs are in 64 places that no other warp touches.
            let is_wide = stride > warp::SIZE;
            if is_wide || was_wide {
                thread::sync_threads();
            } else {
                warp::sync(u32::MAX);
            }
            was_wide = is_wide;
            let mut pair = tid;
            while pair < n / 2 {
                let low = 2 * pair - (pair & (stride - 1));
                let (first, second) = (list.add(low), list.add(low + stride));
                let (a, b) = (first.read(), second.read());
                if (a < b) == (low & size == 0) {
                    first.write(b);
                    second.write(a);
                }
                pair += threads;
            }
            stride /= 2;
        }
        size *= 2;
    }
    thread::sync_threads();
}
