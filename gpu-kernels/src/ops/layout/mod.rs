//! Operators that move elements, look them up, or rotate them by their position. This module has the code shared by
//! those that move runs.
//!
//! A run is `width` adjacent packs: a head's vector, or a row of an embedding. Runs are numbered below 2³², and the
//! operator determines the address of each. A block has [`BLOCK`] threads and each thread two packs, both loaded before
//! the first is stored: of one run if it is long, of two runs if a block covers several.

pub mod append_kv;
pub mod append_kv_quantized;
pub mod attention_mask;
pub mod embedding;
pub mod embedding_backward;
mod heads;
pub mod permute_heads;
pub mod qk_norm_rope;
pub mod qk_norm_rope_backward;
pub mod repeat_kv;
pub mod rope;
pub mod rope_table;
pub mod transpose;
mod visits;

use cuda_std::thread;
use cuda_std::vector::Pack;

use crate::div_rem;

/// Threads of a block.
pub const BLOCK: u32 = 128;
/// Packs a thread moves.
pub const PACKS: u32 = 2;

/// Runs of `width` packs that a block moves; a run wider than a block takes several blocks along y, of `PACKS` · `BLOCK` packs each.
pub const fn runs_per_block(width: u32) -> u32 {
    if width > BLOCK / 2 { 1 } else { PACKS * (BLOCK / width) }
}

/// This thread's packs, each the number of its run and its place there, or `None` beyond the end.
///
/// # Safety
/// `width` is not 0.
#[inline(always)]
pub(crate) unsafe fn places(width: u32, runs: u32) -> [Option<(u32, u32)>; PACKS as usize] {
    let (tid, block) = (thread::thread_idx_x(), thread::block_idx_x());
    if width > BLOCK / 2 {
        let first = thread::block_idx_y() * (PACKS * BLOCK) + tid;
        [first, first + BLOCK].map(|pack| (pack < width).then_some((block, pack)))
    } else {
        let (half, _) = div_rem(BLOCK, width);
        let (row, pack) = div_rem(tid, width);
        let first = u64::from(block) * u64::from(PACKS * half) + u64::from(row);
        let inside = |run: u64| (row < half && run < u64::from(runs)).then_some((run as u32, pack));
        [inside(first), inside(first + u64::from(half))]
    }
}

/// Moves each pack of `runs` runs from `load` to `store`.
///
/// # Safety
/// `width` is not 0.
#[inline(always)]
pub(crate) unsafe fn move_runs<P: Copy>(
    width: u32,
    runs: u32,
    load: impl Fn(u32, u32) -> P,
    store: impl Fn(u32, u32, P),
) {
    let [first, second] = places(width, runs);
    let words = [first.map(|(run, pack)| load(run, pack)), second.map(|(run, pack)| load(run, pack))];
    if let (Some((run, pack)), Some(words)) = (first, words[0]) {
        store(run, pack, words);
    }
    if let (Some((run, pack)), Some(words)) = (second, words[1]) {
        store(run, pack, words);
    }
}

/// Loads `V` words of data that is read once.
#[inline(always)]
pub(crate) unsafe fn load<W: Copy, const V: usize>(from: *const W) -> Pack<W, V> {
    if size_of::<W>() * V == 16 { Pack::load_nc(from) } else { Pack::load(from) }
}

/// Stores `V` words.
#[inline(always)]
pub(crate) unsafe fn store<W: Copy, const V: usize>(words: Pack<W, V>, to: *mut W) {
    if size_of::<W>() * V == 16 { words.store_global(to) } else { words.store(to) }
}
