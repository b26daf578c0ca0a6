//! Attention forward, O = softmax(Q·Kᵀ·scale)·V.
//!
//! # Math
//! For a query q and the keys kⱼ that it sees: sⱼ = scale·q·kⱼ, with a soft cap c instead c·tanh(sⱼ / c), with ALiBi minus slope·|distance|;
//! L = log Σ e^sⱼ; o = Σ e^(sⱼ − L)·vⱼ. A query that sees no key gives zeros and L = −∞.
//!
//! **Online softmax.** No row of scores is ever stored as a whole. With m the greatest score so far, l = Σ e^(sⱼ − m)
//! and a = Σ e^(sⱼ − m)·vⱼ, a further tile with a greatest score m' above m changes the reference point: multiplied by
//! e^(m − m'), l and a are the sums relative to m'. After the last tile o = a / l and L = m + log l. The sums never
//! overflow, and one pass over K and V suffices.
//!
//! **Sinks.** A head may have a score of its own, b, that every query sees and that has no value: L = log (e^b + Σ e^sⱼ), so that weights add to less than
//! one. The sums start with it: m = b, l = 1 and a = 0. A query that sees no key gives zeros and L = b.
//!
//! # Layout
//! `q` and `o` are `[batch, heads, q_len, d]`, `k` and `v` `[batch, heads / group, k_len, d]`, by the strides of a
//! [`Problem`](super::Problem): BHSD and BSHD alike. d is contiguous. `lse` is `[batch, heads, q_len]`, dense.
//!
//! # Mapping
//! [`weights`]: one warp per query, between two products of matrices: the baseline, with scores in memory. [`simple`]:
//! one warp per query, lanes along d; any type, length and alignment: the one to read first. [`mma`]: four warps a tile
//! of 128 (64 where d is above 128) queries, tiles of keys through shared memory, tensor cores. [`hopper`]: pairs of
//! blocks that share tiles of keys, a producer and two or three consumers of 64 queries each.
//!
//! # Shared memory
//! [`weights`], [`simple`]: none. [`mma`]: the tile of queries, one of keys and one of values. [`hopper`]: the block's queries, rings of two (d = 128) or four
//! tiles of keys and of values, and their barriers.
//!
//! # Numerics
//! Scores, maxima, sums and O are f32; e^s is 2^(s·log₂e) by ex2.approx, 2 ulp. [`mma`] and [`hopper`] round the
//! weights e^(s − m), at most 1, to the storage type before the second product, but sum them unrounded. NaN in q gives
//! NaN in its row. An infinity or NaN in v may give NaN in rows that do not see it but whose tile contains it, as 0
//! times it is NaN; values hidden by padding count as zeros. A score of +∞ also gives NaN, and so does a greatest score
//! from ±2²⁸·ln 2 on for f16, or ±2³¹·ln 2 for bf16: see [`LIMIT_F16`](super::LIMIT_F16).
//!
//! # Cost
//! 4·q_len·k_len·d FLOPs a head (half of it if causal) against q, k, v and o once: bound by the tensor cores past a few hundred
//! tokens. [`mma`]: an element of S costs d/8 tensor cycles of a quarter multiprocessor's 512 FLOPs each, and one ex2 of 16 a cycle, a quarter of
//! a multiprocessor's 4 each: at d = 64 exponentials take half as long as the products, at d = 128 a quarter.
//!
//! # Limits
//! 2²⁸ tokens; d up to 256: [`mma`] for multiples of 8 and rows at multiples of 16 bytes. [`hopper`]:
//! compute capability 9.0, d 64 or 128, strides above 0, at least one key, no packed sequences, soft cap or ALiBi.
//!
//! # Sources
//! Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867); Dao et al., "FlashAttention"
//! (arXiv:2205.14135); Dao, "FlashAttention-2" (arXiv:2307.08691); Shah et al., "FlashAttention-3" (arXiv:2407.08608), for [`hopper`];
//! Press et al., "Train short, test long" (arXiv:2108.12409), for ALiBi; Gemma Team, "Gemma 2" (arXiv:2408.00118), for the soft cap;
//! Xiao et al., "Efficient Streaming Language Models with Attention Sinks" (arXiv:2309.17453), and OpenAI, "gpt-oss" (arXiv:2508.10925), for
//! learned sinks.

pub mod hopper;
pub mod mma;
pub mod simple;
pub mod weights;
