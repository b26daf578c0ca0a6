//! Attention: softmax(Q·Kᵀ)·V over tokens, and its gradient. This module has what the kernels share: sizes, which keys
//! a query sees, and the assignment of work to blocks.

use core::num::NonZeroU32;

use cuda_std::launch::Fields;
use cuda_std::{math, thread};

pub mod backward;
pub mod decode;
pub mod forward;
pub mod fp8;
mod fragments;
mod limits;
mod online;

pub use limits::{LIMIT_BF16, LIMIT_E4M3, LIMIT_F16};

/// 2^x = e^(x / ln 2): the kernels compute their exponentials to base 2.
pub const LOG2_E: f32 = core::f32::consts::LOG2_E;

/// An attention problem, in the form that kernels take. Strides are those of batch, head and token, in elements; the
/// stride of d is 1.
///
/// Tokens may be packed: then there is one batch in memory, and `cu_q` and `cu_k` give the starts of its sequences.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Problem {
    /// Of Q.
    pub q: [u64; 3],
    /// Of K.
    pub k: [u64; 3],
    /// Of V.
    pub v: [u64; 3],
    /// Of O.
    pub o: [u64; 3],
    /// Sequences.
    pub batch: u32,
    /// Heads of Q.
    pub heads: u32,
    /// Heads of Q that share a head of K and V.
    pub group: u32,
    /// Queries of a head: of a sequence, or of all of them if they are packed.
    pub q_len: u32,
    /// Keys of a head, likewise.
    pub k_len: u32,
    /// Elements of a query, a key and a value.
    pub d: u32,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores x become c·tanh(x / c) if this is above 0.
    pub softcap: f32,
    /// Keys before the diagonal that a query sees.
    pub left: i32,
    /// Keys past the diagonal that a query sees.
    pub right: i32,
}

/// Strides of the gradients, as in a [`Problem`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Gradients {
    /// Of dO.
    pub d_o: [u64; 3],
    /// Of dQ.
    pub dq: [u64; 3],
    /// Of dK.
    pub dk: [u64; 3],
    /// Of dV.
    pub dv: [u64; 3],
}

// SAFETY: 12 u64.
unsafe impl Fields for Gradients {}

// SAFETY: 12 u64 and 10 four-byte numbers: no padding, alignment 8.
unsafe impl Fields for Problem {}

/// Pointers to data that describes the sequences; null if not given.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Where packed sequences of queries start: batch + 1 numbers.
    pub cu_q: *const i32,
    /// Where packed sequences of keys start.
    pub cu_k: *const i32,
    /// Keys of each sequence, where they are not packed.
    pub key_lengths: *const i32,
}

/// One sequence: the tokens that belong to it.
#[derive(Clone, Copy)]
pub(super) struct Sequence {
    /// Its index along the batch stride.
    pub batch: u32,
    pub q0: u32,
    pub q_len: u32,
    pub k0: u32,
    pub k_len: u32,
    /// Whether it may have fewer keys than there is memory for, in which case the others are padding.
    pub padded: bool,
    /// Packed sequences before it.
    pub before: u32,
}

/// A tile of one sequence and one head of Q, or, for tiles of keys, of K.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub sequence: Sequence,
    pub head: u32,
    /// The tile's first token, counted in its sequence.
    pub first: u32,
}

/// The side, queries or keys, whose tiles the work is divided into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Queries,
    Keys,
}

/// A length or an offset read from memory, clamped to its valid range.
#[inline(always)]
unsafe fn bounded(from: *const i32, index: u32, low: u32, high: u32) -> u32 {
    (*from.add(index as usize)).max(low as i32).min(high as i32) as u32
}

/// A value that cannot be zero where there is work, in a form that tells the compiler so.
#[inline(always)]
fn nonzero(n: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(n - 1)
}

impl Problem {
    /// The head of K and V that a head of Q reads.
    #[inline(always)]
    pub(super) fn kv_head(&self, head: u32) -> u32 {
        head / nonzero(self.group)
    }

    /// Heads and tokens of a side, where sequences are not packed.
    #[inline(always)]
    fn shape(&self, side: Side) -> (NonZeroU32, u32) {
        match side {
            Side::Queries => (nonzero(self.heads), self.q_len),
            Side::Keys => (nonzero(self.heads / nonzero(self.group)), self.k_len),
        }
    }

    /// Sequence `batch`, where sequences are not packed.
    #[inline(always)]
    unsafe fn sequence(&self, bounds: Bounds, batch: u32) -> Sequence {
        let k_len =
            if bounds.key_lengths.is_null() { self.k_len } else { bounded(bounds.key_lengths, batch, 0, self.k_len) };
        Sequence { batch, q0: 0, q_len: self.q_len, k0: 0, k_len, padded: true, before: 0 }
    }

    /// As [`tile`](Self::tile), but neighbouring blocks share `at_once` heads, above 0, so that L2 holds what they
    /// read: heads are innermost among these, then tiles in that function's order. Packed sequences are ordered as
    /// there.
    #[inline(always)]
    pub(super) unsafe fn tile_of_few_heads(&self, bounds: Bounds, side: Side, rows: u32, at_once: u32) -> Option<Tile> {
        if !bounds.cu_q.is_null() {
            return self.tile(bounds, side, rows);
        }
        let index = thread::block_idx_x();
        let (heads, len) = self.shape(side);
        let pairs = heads.get() * self.batch;
        let (at_once, tiles) = (at_once.min(pairs), len.div_ceil(rows));
        let turn = index / nonzero(at_once * tiles);
        let within = index - turn * at_once * tiles;
        let at_once_here = nonzero(at_once.min(pairs - turn * at_once));
        let (pair, tile) = (turn * at_once + within % at_once_here, within / at_once_here);
        let tile = if side == Side::Queries { tiles - 1 - tile } else { tile };
        Some(Tile { sequence: self.sequence(bounds, pair / heads), head: pair % heads, first: tile * rows })
    }

    /// The tile of this block, of `rows` tokens of a `side`; `None` if there is none. Blocks are numbered with the
    /// heads innermost, so that blocks which run at the same time are at about the same place in their heads, and from
    /// the last tile to the first: with a causal mask the longest queries start first.
    #[inline(always)]
    pub(super) unsafe fn tile(&self, bounds: Bounds, side: Side, rows: u32) -> Option<Tile> {
        let (heads, len) = self.shape(side);
        let index = thread::block_idx_x();
        if bounds.cu_q.is_null() {
            let pairs = heads.saturating_mul(nonzero(self.batch));
            let (pair, tile) = (index % pairs, index / pairs);
            let tiles = len.div_ceil(rows);
            let tile = if side == Side::Queries { tiles - 1 - tile } else { tile };
            let sequence = self.sequence(bounds, pair / heads);
            return Some(Tile { sequence, head: pair % heads, first: tile * rows });
        }
        let mut before = index / heads;
        let mut sequence = Sequence { batch: 0, q0: 0, q_len: 0, k0: 0, k_len: 0, padded: false, before: 0 };
        let mut i = 0;
        while i < self.batch {
            // The first sequence starts at 0, the last ends with the tokens, and none ends before it starts: every
            // token belongs to exactly one.
            sequence.q0 += sequence.q_len;
            sequence.k0 += sequence.k_len;
            let last = i + 1 == self.batch;
            let q_end = if last { self.q_len } else { bounded(bounds.cu_q, i + 1, sequence.q0, self.q_len) };
            let k_end = if last { self.k_len } else { bounded(bounds.cu_k, i + 1, sequence.k0, self.k_len) };
            sequence.q_len = q_end - sequence.q0;
            sequence.k_len = k_end - sequence.k0;
            let tiles = if side == Side::Queries { sequence.q_len } else { sequence.k_len }.div_ceil(rows);
            if before < tiles {
                return Some(Tile { sequence, head: index % heads, first: before * rows });
            }
            before -= tiles;
            i += 1;
            sequence.before = i;
        }
        None
    }

    /// Where row `token` of `head` starts, for a tensor with such strides.
    #[inline(always)]
    pub(super) fn at(strides: [u64; 3], batch: u32, head: u32, token: u32) -> usize {
        let [b, h, s] = strides;
        (u64::from(batch) * b + u64::from(head) * h + u64::from(token) * s) as usize
    }

    /// The index of a query's number, such as its logsumexp, in `[batch, heads, q_len]`.
    #[inline(always)]
    pub(super) fn row(&self, sequence: &Sequence, head: u32, query: u32) -> usize {
        let heads = u64::from(sequence.batch) * u64::from(self.heads) + u64::from(head);
        (heads * u64::from(self.q_len) + u64::from(sequence.q0 + query)) as usize
    }

    /// The number of keys that there is memory for: more than the sequence has if it is padded.
    #[inline(always)]
    pub(super) fn keys_in_memory(&self, sequence: &Sequence) -> u32 {
        if sequence.padded { self.k_len } else { sequence.k_len }
    }

    /// The key position of the first query of `sequence`, below 0 if there are more queries than keys. Padding counts
    /// as keys: it does not shift queries.
    #[inline(always)]
    fn shift(&self, sequence: &Sequence) -> i32 {
        self.keys_in_memory(sequence) as i32 - sequence.q_len as i32
    }

    /// Which keys the queries of `sequence` see.
    #[inline(always)]
    pub(super) fn span(&self, sequence: &Sequence) -> Span {
        let shift = self.shift(sequence);
        Span {
            low: shift - self.left,
            high: shift + self.right,
            keys: sequence.k_len as i32,
            queries: sequence.q_len as i32,
        }
    }
}

/// Query i sees the existing keys from i + `low` to i + `high`, both included. The diagonal ends at the last query and
/// the last key, even if that is padding.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub low: i32,
    pub high: i32,
    pub keys: i32,
    pub queries: i32,
}

impl Span {
    /// Whether query `i` sees key `j`.
    #[inline(always)]
    pub(super) fn sees(self, i: i32, j: i32) -> bool {
        j >= i + self.low && j <= i + self.high && j < self.keys
    }

    /// Whether queries `i .. i + m` all see all the keys `j .. j + n`.
    #[inline(always)]
    pub(super) fn sees_all(self, i: i32, m: i32, j: i32, n: i32) -> bool {
        j >= i + m - 1 + self.low && j + n - 1 <= i + self.high && j + n <= self.keys
    }

    /// The tiles of `n` keys, first and past the last, that queries `i .. i + m` see anything of.
    #[inline(always)]
    pub(super) fn key_tiles(self, i: i32, m: i32, n: i32) -> (u32, u32) {
        let last = (i + m).min(self.queries) - 1;
        let first = (i + self.low).max(0);
        let end = (last + self.high + 1).min(self.keys);
        if first >= end { (0, 0) } else { ((first / n) as u32, (end as u32).div_ceil(n as u32)) }
    }

    /// The tiles of `m` queries, first and past the last, that see anything of keys `j .. j + n`.
    #[inline(always)]
    pub(super) fn query_tiles(self, j: i32, n: i32, m: i32) -> (u32, u32) {
        let last = (j + n).min(self.keys) - 1;
        let first = (j - self.high).max(0);
        let end = (last - self.low + 1).min(self.queries);
        if last < j || first >= end { (0, 0) } else { ((first / m) as u32, (end as u32).div_ceil(m as u32)) }
    }
}

/// The sink of a head, a score without a value; −∞, which counts for nothing, where there are none.
#[inline(always)]
unsafe fn sink(sinks: *const f32, head: u32) -> f32 {
    if sinks.is_null() { f32::NEG_INFINITY } else { *sinks.add(head as usize) }
}

/// The online softmax that has seen a sink alone: the greatest score and the sum of weights.
#[inline(always)]
unsafe fn start(sinks: *const f32, head: u32) -> (f32, f32) {
    let sink = sink(sinks, head);
    (sink, if sink == f32::NEG_INFINITY { 0.0 } else { 1.0 })
}

/// The transformations of a score besides its scale; most models have none.
#[derive(Clone, Copy)]
pub(super) struct Bias {
    pub softcap: f32,
    /// ALiBi: the head's penalty for each key of distance from the diagonal.
    pub slope: f32,
    /// The shift of the diagonal.
    pub shift: i32,
}

impl Bias {
    #[inline(always)]
    pub(super) unsafe fn of(problem: &Problem, slopes: *const f32, tile: &Tile, head: u32) -> Self {
        let slope = if slopes.is_null() { 0.0 } else { *slopes.add(head as usize) };
        Self { softcap: problem.softcap, slope, shift: problem.shift(&tile.sequence) }
    }

    /// The score that x, which has the problem's factor, becomes by the soft cap, and the derivative. The error is 2⁻²² of the cap, or 2⁻¹⁸ of
    /// the score if that is less: a cap far above all scores leaves them as they are.
    #[inline(always)]
    pub(super) fn cap(self, x: f32) -> (f32, f32) {
        if self.softcap > 0.0 {
            let share = x * (1.0 / self.softcap);
            let square = share * share;
            // c·tanh(x / c) by its series while |x| is below a 16th of c.
            let near = math::fma(x * square, math::fma(square, 2.0 / 15.0, -1.0 / 3.0), x);
            let power = math::ex2_approx_ftz(share * (2.0 * LOG2_E));
            let t = math::fma(math::rcp_approx_ftz(power + 1.0), -2.0, 1.0);
            (if square < 1.0 / 256.0 { near } else { self.softcap * t }, math::fma(-t, t, 1.0))
        } else {
            (x, 1.0)
        }
    }

    /// The ALiBi penalty that is subtracted from the score of query `i` and key `j`.
    #[inline(always)]
    pub(super) fn penalty(self, i: i32, j: i32) -> f32 {
        self.slope * ((i + self.shift - j).abs() as f32)
    }
}
