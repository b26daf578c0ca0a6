//! The gradient of attention.
//!
//! # Math
//! With the weights pᵢⱼ = e^(sᵢⱼ − Lᵢ), recomputed from the logsumexp L that the forward left, and dpᵢⱼ = dOᵢ·vⱼ:
//! dvⱼ = Σᵢ pᵢⱼ·dOᵢ. The softmax's own derivative is dsᵢⱼ = pᵢⱼ·(dpᵢⱼ − Σₖ pᵢₖ·dpᵢₖ), and the sum, which no tile has all of, is
//! Dᵢ = Σₖ pᵢₖ·dOᵢ·vₖ = dOᵢ·oᵢ: a dot product of rows. Then with the scores' factor (and the soft cap's slope) in ds,
//! dqᵢ = Σⱼ dsᵢⱼ·kⱼ and dkⱼ = Σᵢ dsᵢⱼ·qᵢ. What a query does not see has p = 0.
//!
//! A head's sink b has no value, and L already includes it. Its own gradient is the softmax's with dp = 0: db = −Σᵢ
//! e^(b − Lᵢ)·Dᵢ over the head's queries.
//!
//! Recomputing S costs a fifth of the arithmetic and saves q_len · k_len values of memory and traffic.
//!
//! # Layout
//! As in the [forward](super::forward) pass; dQ, dK and dV have the strides of [`Gradients`](super::Gradients).
//! `delta`, Dᵢ, is dense like `lse`.
//!
//! # Mapping
//! [`delta`]: sixteen threads per query. [`simple`]: one warp per query for dQ, one warp per key for dK and dV.
//! [`mma`]: the same in tiles on the tensor cores: one block per tile of queries for dQ, looping over keys; one block
//! per tile of keys for dK and dV, looping over the queries of all heads that share them, so that GQA needs no second
//! pass. No atomics: results are reproducible. [`hopper`] and [`fused`]: all three gradients in the second of these
//! loops, with dQ added to memory. [`sinks`]: one block per head.
//!
//! # Shared memory
//! [`sinks`]: one number per warp. [`mma`] and [`fused`]: the block's own two tiles, and two buffers of the two tiles
//! it walks over; [`fused`] also P and dS.
//!
//! # Numerics
//! S, P, dP, dS and the sums in f32; [`mma`] rounds P and dS to the storage type for the products that consume them, and [`fused`]
//! forms dS of the rounded P.
//!
//! # Cost
//! Five products of q_len · k_len · d a head are the least; dQ apart from dK and dV makes seven, because S and dP are formed twice. Bound by the tensor
//! cores.
//!
//! # Limits
//! As of the [forward](super::forward).
//!
//! # Sources
//! Dao et al., "FlashAttention" (arXiv:2205.14135), appendix B; Dao, "FlashAttention-2" (arXiv:2307.08691).

pub mod delta;
pub mod fused;
pub mod hopper;
pub mod mma;
pub mod simple;
pub mod sinks;
