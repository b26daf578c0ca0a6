//! Keys or values repeated for the query heads that share them: [batch, kv_heads, s, d] → [batch, kv_heads · repeat, s, d].
//!
//! # Math
//! y[b, h, i, :] = x[b, ⌊h / repeat⌋, i, :], bit by bit.
//!
//! # Layout
//! Runs of d adjacent words, which may lie anywhere apart along each of the other dimensions: see [`runs`](super).
//!
//! # Mapping
//! A thread loads two packs and stores each `repeat` times.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! Bit by bit.
//!
//! # Cost
//! One read of x and one write of y: bound by memory bandwidth. Attention kernels that know of groups need no such copy.
//!
//! # Limits
//! 2³² − 1 runs of x.
//!
//! # Sources
//! Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints" (arXiv:2305.13245).

use cuda_std::kernel;

use super::{BLOCK, load, move_runs, store};
use crate::div_rem;

/// Repeats `runs` runs of `width` packs of `V` words, `heads` · `tokens` a batch entry.
///
/// # Safety
/// `x` is valid for reads of these runs and `y` for writes of `repeat` times as many, at their strides; no size is 0, and packs of 16 bytes
/// are aligned.
#[kernel(dtypes(W: u16, u32), values(V: 1, 4), where(V == 1 || W == u32), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn repeat_kv<W: Copy, const V: usize>(
    x: *const W,
    y: *mut W,
    runs: u32,
    width: u32,
    heads: u32,
    tokens: u32,
    repeat: u32,
    x_batch: u64,
    x_head: u64,
    x_token: u64,
    y_batch: u64,
    y_head: u64,
    y_token: u64,
) {
    let split = |run: u32| {
        let (rest, token) = div_rem(run, tokens);
        let (batch, head) = div_rem(rest, heads);
        [batch, head, token].map(u64::from)
    };
    move_runs(
        width,
        runs,
        |run, pack| {
            let [batch, head, token] = split(run);
            load::<W, V>(x.add((batch * x_batch + head * x_head + token * x_token) as usize + pack as usize * V))
        },
        |run, pack, words| {
            let [batch, head, token] = split(run);
            let first = batch * y_batch + head * u64::from(repeat) * y_head + token * y_token;
            let mut to = y.add(first as usize + pack as usize * V);
            for _ in 0..repeat {
                store(words, to);
                to = to.wrapping_add(y_head as usize);
            }
        },
    );
}
