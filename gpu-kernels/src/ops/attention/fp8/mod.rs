//! Attention forward of 8-bit floats, O = softmax(Q·Kᵀ·scale)·V, every head with its scales.
//!
//! # Math
//! As [`attention`](super::forward)'s, of q·sᑫ, k·sᵏ and v·sᵛ, where a head of K and the heads of Q that share it have one scale each: sⱼ = scale·sᑫ·sᵏ·q·kⱼ and
//! o = sᵛ·Σ e^(sⱼ − L)·vⱼ. No element is multiplied with its scale. A product sᑫ·sᵏ below zero counts as zero.
//!
//! There is a scale for each head of a sequence, and not one for all heads, because heads differ in magnitude. Finer
//! scales gain little: E4M3 has 3 bits of mantissa anyway, and only small elements lose some of those. A scale for each
//! token would have to be applied to every score and weight.
//!
//! # Layout
//! As [`attention`](super::forward)'s. `q`, `k` and `v` are E4M3, `o` f16 or bf16. Scales are `[batch, heads / group]`, dense, or a single number.
//!
//! wgmma takes 8-bit operands only if they are contiguous along k: queries and keys along d, as they are stored, but
//! weights and values along the keys. A separate kernel, [`prepare`], therefore first writes Vᵀ to memory. It also
//! permutes keys, which removes the other obstacle: of 16 keys, a lane's accumulators are at 2t, 2t + 1, 2t + 8 and
//! 2t + 9, but operand A requires four neighbours. The order of a sum over keys is free: with Vᵀ's columns in the order
//! 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15 the weights are already in place, and no data moves between lanes.
//!
//! # Mapping
//! [`simple`]: one warp per query, any layout, on every GPU: the readable kernel, and the one for what the other does
//! not take. [`hopper`]: as [`attention`](super::forward::hopper)'s kernel, pairs of blocks, a producer and two (d = 128)
//! or three consumers of 64 queries. [`prepare`]: a block of 128 threads 16 KiB of V, which it transposes in
//! registers, words of four bytes at a time, and writes in rows of 128 bytes and more.
//!
//! # Shared memory
//! [`simple`]: none. [`prepare`]: 16 KiB. [`hopper`]: rings of four (d = 128) or eight tiles of 128 keys and values,
//! and for each consumer 128·d bytes, through which its queries are loaded and O is stored: 160 and 152 KiB.
//!
//! # Numerics
//! Scores, maxima, sums and O are f32. [`simple`] rounds nothing else. In [`hopper`]:
//!
//! - **Weights** are e^(s − m) ≤ 1, and E4M3 has all its bits down to 2⁻⁶ only. As 2⁸ times that, 256 at most where the format ends at 448, they are rounded to
//!   3 bits of mantissa down to 2⁻¹⁴ of the greatest, and to multiples of 2⁻¹⁷ below; less than 2⁻¹⁸ is lost. The sum is of what they were before. So a weight
//!   is off by 2⁻⁴ of it at most and by 2⁻⁴/√6 = 2.6 % in the mean square; the greatest is exact. Over n keys of independent values both o and
//!   its error go with √Σp²: 2.6 % of o's size, however many keys there are; and less where one weight is nearly all.
//! - **Sums.** Hopper's tensor cores align the 32 products of a step, and what was summed before, to the greatest of them and cut some 13 bits below its leading
//!   one. Over all keys that would pull O towards zero: 16384 of them are 512 steps. Here O is in f32, and the tensor cores sum over one tile: four steps.
//!   The online softmax multiplies O with a factor for each tile anyway; a fused multiply-add in its place adds the tile's part.
//! - Scores are sums over d, two or four steps.
//! - A greatest score from ±2²⁴·ln 2 on gives NaN in its row: see [`LIMIT_E4M3`](super::LIMIT_E4M3). From 2²¹·ln 2 on the greatest weight is off as others are.
//! - NaN in q or k gives NaN in the rows that see it. NaN in v does too, and may in rows whose tile has it without their seeing it: a weight of 0 times NaN.
//!
//! # Cost
//! 4·q_len·k_len·d FLOPs a head (half of it if causal). For 128 queries and 128 keys, cycles of a multiprocessor in [`hopper`]:
//!
//! | | d = 64 | d = 128 |
//! |---|---|---|
//! | products, 8192 FLOPs a cycle | 512 | 1024 |
//! | exponentials, 16 a cycle | 1024 | 1024 |
//! | instructions of the softmax, 128 threads a cycle: 4.5 an element of S and 1 of O | 640 | 700 |
//!
//! So twice the rate of 16 bits is out of reach: exponentials, of which there are as many, are the limit at d = 64, and one of two at d = 128.
//! [`prepare`] reads V and writes it, 2·k_len·d bytes a head of K, against 4·q_len·k_len·d operations for each head of Q: for 16 heads of 16384
//! tokens and d = 128 16 µs at 4.2 TB/s, beside some 2.5 ms; for 8 sequences of 2048 tokens as long, beside 0.3 ms.
//!
//! # Limits
//! As [`attention`](super::forward)'s; [`hopper`] takes d 64 and 128, rows at multiples of 16 bytes, strides above 0, at least one key, no packed sequences, soft cap or
//! ALiBi, on compute capability 9.0, and needs memory for Vᵀ.
//!
//! # Sources
//! Shah et al., "FlashAttention-3" (arXiv:2407.08608), for scales by head, the factor 2⁸ and the order of keys; Micikevicius et al., "FP8 Formats for Deep Learning"
//! (arXiv:2209.05433); DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), on the precision of sums; and
//! [`attention`](super::forward)'s.

pub mod hopper;
pub mod prepare;
pub mod simple;

use cuda_std::math::max_nan;

/// The factors of queries, keys and values, by the number of a sequence's head of K.
#[derive(Clone, Copy)]
struct Scales {
    of: [*const f32; 3],
    /// The distance from a head's scale to the next: 1, or 0 for a single scale that all heads share.
    steps: [u32; 3],
}

impl Scales {
    /// The factor of scores, which is not below zero.
    #[inline(always)]
    unsafe fn of_scores(self, head: u32) -> f32 {
        let Self { of: [q, k, _], steps: [q_step, k_step, _] } = self;
        max_nan(*q.add((head * q_step) as usize) * *k.add((head * k_step) as usize), 0.0)
    }

    /// The factor of O.
    #[inline(always)]
    unsafe fn of_values(self, head: u32) -> f32 {
        let Self { of: [.., v], steps: [.., step] } = self;
        *v.add((head * step) as usize)
    }
}
