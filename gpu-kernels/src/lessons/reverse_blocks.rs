//! Rows of 16 bytes reversed within groups of 128, by blocks that allocate more shared memory than they need: the
//! effect of occupancy.
//!
//! A thread has one load of 16 bytes in flight, and its block does nothing until that load arrives. A multiprocessor
//! therefore has 2 KiB in flight for each resident block, and a block's shared memory decides how many are resident.
//!
//! # Shared memory
//! `KIB` KiB, of which the rows use 2.

use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

/// Threads of a block.
pub const BLOCK: u32 = 128;
/// Elements of a row.
pub const ROW: usize = 4;

/// Row b · 128 + i of y is the i-th last of the rows of x from b · 128 on, up to 128 of `rows`.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of that many rows, and both are aligned to 16 bytes; every block has a row.
#[kernel(values(KIB: 8, 27, 56, 98), block = BLOCK, shared = { KIB as usize * 1024 }, no_spills)]
pub unsafe fn reverse_blocks<const KIB: u32>(x: *const f32, y: *mut f32, rows: u64) {
    let first = u64::from(thread::block_idx_x()) * u64::from(BLOCK);
    let count = (rows - first).min(u64::from(BLOCK)) as u32;
    let tid = thread::thread_idx_x();
    let memory: SharedPtr<Pack<f32, ROW>> = shared::dynamic();
    let at = (first + u64::from(tid)) as usize * ROW;
    if tid < count {
        Pack::<f32, ROW>::load_nc(x.add(at)).store(memory.add(tid).as_ptr().cast());
    }
    thread::sync_threads();
    if tid < count {
        Pack::<f32, ROW>::load(memory.add(count - 1 - tid).as_ptr().cast()).store(y.add(at));
    }
}
