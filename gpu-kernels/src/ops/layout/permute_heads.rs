//! Exchange of the sequence and the heads: [batch, sequence, heads, d] ↔ [batch, heads, sequence, d].
//!
//! # Math
//! y[b, j, i, :] = x[b, i, j, :], bit by bit. It is its own inverse.
//!
//! # Layout
//! Runs of d adjacent words, which may lie anywhere apart along each of the other dimensions: see [`runs`](super).
//!
//! # Mapping
//! A thread moves two packs; threads follow the runs of `y`, so that writes are one stretch and reads whole runs.
//!
//! # Shared memory
//! None: a run of 16 bytes or more is adjacent on both sides.
//!
//! # Numerics
//! Bit by bit.
//!
//! # Cost
//! One read and one write of everything: bound by memory bandwidth.
//!
//! # Limits
//! 2³² − 1 runs.
//!
//! # Sources
//! Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), section 3.2.2: heads.

use cuda_std::kernel;

use super::{BLOCK, load, move_runs, store};
use crate::div_rem;

/// `y`[b, j, i] = `x`[b, i, j] for runs of `width` packs of `V` words, `inner` · `middle` of them a batch entry, of which i counts
/// `inner` and j `middle`.
///
/// # Safety
/// `x` is valid for reads and `y` for writes of `runs` runs at their strides; no size is 0; packs of 16 bytes are aligned.
#[kernel(dtypes(W: u8, u16, u32, u64), values(V: 1, 4), where(V == 1 || W == u32), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn permute_heads<W: Copy, const V: usize>(
    x: *const W,
    y: *mut W,
    runs: u32,
    width: u32,
    inner: u32,
    middle: u32,
    x_batch: u64,
    x_inner: u64,
    x_middle: u64,
    y_batch: u64,
    y_middle: u64,
    y_inner: u64,
) {
    // Run number and strides to the first word of a run.
    let at = |run: u32, batch: u64, along_middle: u64, along_inner: u64| {
        let (rest, i) = div_rem(run, inner);
        let (b, j) = div_rem(rest, middle);
        (u64::from(b) * batch + u64::from(j) * along_middle + u64::from(i) * along_inner) as usize
    };
    move_runs(
        width,
        runs,
        |run, pack| load::<W, V>(x.add(at(run, x_batch, x_middle, x_inner) + pack as usize * V)),
        |run, pack, words| store(words, y.add(at(run, y_batch, y_middle, y_inner) + pack as usize * V)),
    );
}
