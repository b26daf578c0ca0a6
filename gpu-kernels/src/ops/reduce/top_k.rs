//! The k largest elements of rows, and where they are.
//!
//! # Math
//! values\[r, 0..k\] are the k largest of x\[r, :\], the largest first, and indices\[r, j\] is where values\[r, j\] stands.
//!
//! # Layout
//! `x` is rows of d adjacent elements, `x_stride` elements apart; `values` and `indices` are rows of k, each at its own distance. Rows of `x` at
//! multiples of 16 bytes are read 16 bytes at a time, others element by element, eight in flight.
//!
//! # Mapping
//! A block a row, which it reads once. Elements become 64-bit candidates: how great they are, and then how early. Of a row of up to
//! [`CAPACITY`] elements all are sorted. Of a longer one each thread looks at 16 elements for the best of them: no more than k threads have
//! something better than the k-th of these, so that the best k elements of the row are that good. The row then goes by tiles of four packs a
//! thread, 64 bytes in flight each. What is greater than the threshold, a comparison an element, goes to a list in shared memory: of a
//! tile up to about 2.8·k elements at first. When the list is full it is sorted, its first k stay, and the k-th is the new threshold, so that a
//! row in random order fills it a few times only. A barrier a tile asks whether it is full.
//!
//! Not by counting digits (radix selection): that reads the row once a digit, and one read is the floor.
//!
//! # Shared memory
//! [`CAPACITY`] candidates and their number, 8200 B.
//!
//! # Numerics
//! Exact: values are the elements themselves. NaN is greater than everything; −0 equals +0; equals are in the order of their places.
//!
//! # Cost
//! One read of rows × d elements, about six operations an element: bound by memory bandwidth where there is a block for every
//! multiprocessor. A sort takes about a microsecond, which bounds rows of up to [`CAPACITY`]; in a row that rises from end to end there is one
//! for every 760 elements.
//!
//! # Limits
//! k up to [`MAX_K`]; 2³¹ − 1 rows and columns.
//!
//! # Sources
//! Batcher, "Sorting Networks and Their Applications" (AFIPS 1968), for the sort.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{atomic, kernel, shared_field, thread, warp};

use super::argmax::key;

/// The most threads of a block.
pub const BLOCK: u32 = 512;
/// Candidates of a list.
pub const CAPACITY: u32 = 1024;
/// The most elements of a row that are found.
pub const MAX_K: u32 = 256;

/// Elements a thread whose best give the first threshold.
const SAMPLE: u32 = 16;
/// Places at the list's end for what follows a row's last pack.
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

/// The list, and how many candidates are on it.
#[inline(always)]
fn list() -> (SharedPtr<u64>, SharedPtr<u32>) {
    let shared = shared::dynamic::<Shared>();
    (shared_field!(shared.list).cast(), shared_field!(shared.count))
}

/// A candidate: greater for greater elements, and for the first of equals. More than 0.
#[inline(always)]
pub const fn candidate(key: u32, place: u32) -> u64 {
    (key as u64) << 32 | !place as u64
}

/// The element with a candidate's key, up to the sign of 0; NaN for what is no key.
#[inline(always)]
fn element(candidate: u64) -> f32 {
    let key = (candidate >> 32) as u32;
    f32::from_bits(if key >> 31 == 1 { key ^ 1 << 31 } else { !key })
}

/// The k best of a row of `d` elements a block, of [`threads`].
///
/// # Safety
/// `x` is valid for reads of a row of `d` elements a block at its stride, `values` and `indices` for writes of `k` at theirs; k is at least 1
/// and at most d and [`MAX_K`]; d is below 2³¹.
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
    let (list, count) = list();
    let (tid, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let of = |place: u32| candidate(key((*x.add(place as usize)).to_f32()), place);
    let mut size = CAPACITY;
    if d <= CAPACITY {
        size = d.next_power_of_two();
        let mut i = tid;
        while i < size {
            list.add(i).write(if i < d { of(i) } else { 0 });
            i += threads;
        }
    } else {
        let best = (0..SAMPLE).map(|i| tid + i * threads).filter(|place| *place < d).map(of).fold(0, u64::max);
        list.add(tid).write(best);
        if tid < REST {
            // They stay the last when the list is sorted.
            list.add(CAPACITY - REST + tid).write(0);
        }
        sort(list, threads);
        // The k-th best is a candidate itself. There may be fewer.
        let first = list.add(k - 1).read().saturating_sub(1);
        if tid == 0 {
            count.write(0);
        }
        thread::sync_threads();
        let lanes = if (x as usize).is_multiple_of(16) { crate::lanes::<T>() as u32 } else { 1 };
        let whole = d / lanes * lanes;
        let found = match lanes {
            1 => scan::<T, 1, 8>(x, whole, k, first),
            4 => scan::<T, 4, 4>(x, whole, k, first),
            _ => scan::<T, 8, 4>(x, whole, k, first),
        };
        let mut i = found + tid;
        while i < CAPACITY {
            let place = i.wrapping_sub(CAPACITY - REST).wrapping_add(whole);
            list.add(i).write(if i >= CAPACITY - REST && place < d { of(place) } else { 0 });
            i += threads;
        }
    }
    sort(list, size);
    let mut j = tid;
    while j < k {
        let place = !(list.add(j).read() as u32);
        *values.add(j as usize) = *x.add(place as usize);
        *indices.add(j as usize) = place as i32;
        j += threads;
    }
}

/// Puts what may be among the k best of the first `whole` elements, all of them greater than `first`, on the list, and says how many they are: all but [`REST`] of its places
/// at most. `P` packs of `N` elements a thread are a tile.
#[inline(always)]
#[allow(clippy::neg_cmp_op_on_partial_ord)] // NaN is not less than anything.
unsafe fn scan<T: Element, const N: usize, const P: usize>(x: *const T, whole: u32, k: u32, first: u64) -> u32 {
    const { assert!(N * P <= 32) };
    let (list, count) = list();
    let (tid, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let mut start = 0;
    let mut threshold = first;
    while start < whole {
        let at = |pack: u32| start + (pack * threads + tid) * N as u32;
        let none = Pack::<T, N>::splat(T::from_f32(0.0));
        let packs: [_; P] = array::from_fn(|i| {
            let at = at(i as u32);
            if at < whole { Pack::load_nc_no_allocate(x.add(at as usize)) } else { none }
        });
        let limit = element(threshold);
        // A bit an element that is not less.
        let mut good = 0u32;
        for i in 0..P {
            let elements = packs[i].to_f32();
            for e in 0..N {
                good |= u32::from(at(i as u32) < whole && !(elements[e] < limit)) << (i * N + e);
            }
        }
        loop {
            while good != 0 {
                let e = good.trailing_zeros();
                let place = at(e / N as u32) + e % N as u32;
                // From memory: registers have no numbers at run time, and few elements come here.
                let this = candidate(key((*x.add(place as usize)).to_f32()), place);
                if this > threshold {
                    let slot = atomic::block::add_u32(count.as_ptr(), 1);
                    if slot >= CAPACITY - REST {
                        break;
                    }
                    list.add(slot).write(this);
                }
                good &= good - 1;
            }
            if !thread::sync_threads_or(good != 0) {
                break;
            }
            sort(list, CAPACITY);
            threshold = list.add(k - 1).read();
            if tid == 0 {
                count.write(k);
            }
            thread::sync_threads();
        }
        start += threads * (N * P) as u32;
    }
    count.read()
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
            // Up to here a warp's pairs lie in 64 places that no other warp touches.
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
