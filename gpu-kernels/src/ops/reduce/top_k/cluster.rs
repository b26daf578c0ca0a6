//! The k largest elements of rows that are too few to keep a GPU busy with one block each: one cluster per row.
//!
//! # Mapping
//! Each of eight blocks finds the k best elements of its part of the row, as [`top_k`](super::top_k) does, and sends
//! them to all blocks. Candidates are distinct, and each block's candidates are sorted. A candidate's place in the
//! result is the number of better ones among all, the sum of eight binary searches; those with a place below k are
//! written.
//!
//! # Shared memory
//! The list of [`top_k`](super::top_k), and k candidates of each block: 24,584 B.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{cluster, kernel, shared_field, thread};

use super::{BLOCK, MAX_K, best, list};
use crate::rows::CLUSTER;

/// What a block shares.
#[repr(C)]
pub struct Shared {
    block: super::Shared,
    /// The best of all blocks, k each.
    all: [u64; (CLUSTER * MAX_K) as usize],
}

/// The k best of a row of `d` elements a cluster, of which each block looks at `part`, the last one at the rest.
///
/// # Safety
/// As for [`top_k`](super::top_k), with blocks of [`MAX_K`] threads or more; every part has k elements or more.
#[kernel(
    dtypes(T: float),
    block = BLOCK,
    min_blocks = 2,
    cluster = CLUSTER,
    arch = "sm_90a",
    shared = Shared,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn top_k_cluster<T: Element>(
    x: *const T,
    values: *mut T,
    indices: *mut i32,
    d: u32,
    part: u32,
    k: u32,
    x_stride: u64,
    values_stride: u64,
    indices_stride: u64,
) {
    // Blocks may be written to only once all of them have started.
    cluster::arrive_relaxed();
    let row = u64::from(thread::block_idx_x() / CLUSTER);
    let x = x.add((row * x_stride) as usize);
    let (rank, tid) = (cluster::rank(), thread::thread_idx_x());
    let start = rank * part;
    best(x.add(start as usize), part.min(d - start), k);
    let (list, _) = list();
    let shared = shared::dynamic::<Shared>();
    let all: SharedPtr<u64> = shared_field!(shared.all).cast();
    cluster::wait();
    let mut own = 0;
    if tid < k {
        // The place in the part is converted to one in the row.
        own = list.add(tid).read() - u64::from(start);
        for to in 0..CLUSTER {
            let words = cluster::map(all.add(rank * k + tid), to).cast::<u32>();
            words.write(own as u32);
            words.add(1).write((own >> 32) as u32);
        }
    }
    cluster::sync();
    if tid < k {
        let mut better = [0; CLUSTER as usize];
        let mut step = MAX_K;
        while step > 0 {
            better = array::from_fn(|block| {
                let next = better[block] + step;
                let is_better = next <= k && all.add(block as u32 * k + next - 1).read() > own;
                if is_better { next } else { better[block] }
            });
            step /= 2;
        }
        let j: u32 = better.into_iter().sum();
        if j < k {
            let place = !(own as u32);
            *values.add((row * values_stride) as usize + j as usize) = *x.add(place as usize);
            *indices.add((row * indices_stride) as usize + j as usize) = place as i32;
        }
    }
}
