//! A copy whose threads have 1 to 16 loads of 16 bytes in flight: memory-level parallelism per thread in place of more
//! threads.
//!
//! A thread loads `PACKS` packs before it stores the first. A multiprocessor therefore has 16 · `PACKS` bytes in flight
//! per resident thread, whether it has many threads or a few threads with many registers: by Little's law its bandwidth
//! is the bytes in flight divided by the latency.
//!
//! # Mapping
//! A block of 128 threads copies [`PER_BLOCK`] packs, 128 · `PACKS` per round; neighbouring threads copy neighbouring
//! packs.
//!
//! # Shared memory
//! `KIB` KiB of unused shared memory, whose only purpose is to limit how many blocks are resident on a multiprocessor.
//!
//! # Cost
//! Registers: 4 · `PACKS` for the packs alone.

use core::array;

use cuda_std::vector::Pack;
use cuda_std::{kernel, thread};

use super::reverse_blocks::{BLOCK, ROW as PACK};

/// Packs that a block copies: enough that a block's startup is a small part of its time.
pub const PER_BLOCK: u32 = 64 * BLOCK;

/// y = x, `n` packs.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of that many packs, and both are aligned to 16 bytes; every block has at
/// least one pack.
#[kernel(
    values(KIB: 8, 98, PACKS: 1, 2, 4, 8, 16),
    where(KIB == 98 || PACKS == 1),
    block = BLOCK,
    shared = { KIB as usize * 1024 },
    no_spills
)]
pub unsafe fn packs_in_flight<const KIB: u32, const PACKS: usize>(x: *const f32, y: *mut f32, n: u64) {
    let first = u64::from(thread::block_idx_x()) * u64::from(PER_BLOCK);
    let end = (first + u64::from(PER_BLOCK)).min(n);
    let round = u64::from(BLOCK) * PACKS as u64;
    let mut at = first + u64::from(thread::thread_idx_x());
    while at + round - u64::from(BLOCK) < end {
        let place = |i: usize| (at as usize + i * BLOCK as usize) * PACK;
        // This does not use the read-only path, because there the assembler could move the next round's loads before
        // this round's stores.
        let packs: [Pack<f32, PACK>; PACKS] = array::from_fn(|i| Pack::load_global(x.add(place(i))));
        for i in 0..PACKS {
            packs[i].store(y.add(place(i)));
        }
        at += round;
    }
    while at < end {
        let place = at as usize * PACK;
        Pack::<f32, PACK>::load_global(x.add(place)).store(y.add(place));
        at += u64::from(BLOCK);
    }
}
