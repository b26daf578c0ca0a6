//! bf16 matrix product on the tensor cores, C = A·Bᵀ.
//!
//! # Math
//! cᵢⱼ = Σₖ aᵢₖ·bⱼₖ. Both operands are stored with k innermost ("NT"): the layout of activations times a linear layer's
//! weight, and the one both tensor-core paths read without transposing.
//!
//! # Layout
//! `a` is m × k, `b` is n × k, `c` is m × n, all row-major with leading dimensions `lda`, `ldb`, `ldc` in elements.
//!
//! # Mapping
//! [`hopper`]: clusters of two blocks walk 256 × 256 tiles; a producer warpgroup and two consumers of 64 × 256 a block.
//! [`mma`]: one 128 × 128 tile a block, eight warps of 64 × 32.
//!
//! # Shared memory
//! [`hopper`]: 4 stages × (128 + 256) × 64 bf16 + 4 × 8 KiB for the epilogue + barriers = 229 440 B, one block a
//! multiprocessor. [`mma`]: 4 stages × (128 + 128) × 32 bf16 = 64 KiB.
//!
//! # Numerics
//! Products of bf16 are exact in f32 and accumulate in f32 in the order of the tensor core (which truncates when aligning
//! addends); c is rounded once, to nearest even. NaN and infinities propagate as in the sum.
//!
//! # Cost
//! 2·m·n·k FLOPs against 2·(m·k + n·k + m·n) bytes: bound by the tensor cores once m and n pass a few hundred. A tile of
//! 256 × 256 loads (256 + 256)·2 bytes from L2 for every 2·256·256 FLOPs of a k, 128 FLOP/B.
//!
//! # Limits
//! m, n, k below 2³¹. [`hopper`] needs compute capability 9.0, k above 0, and a and b 16-byte aligned with lda and ldb multiples
//! of 8; any c. [`mma`] runs from compute capability 8.0 with any alignment, fastest when a and b are aligned as above.
//!
//! # Sources
//! NVIDIA, *PTX ISA*, on wgmma, mma, cp.async.bulk.tensor and mbarrier; Thakkar et al., CUTLASS, for warp specialisation with a
//! persistent grid; Osama et al., "Stream-K" (arXiv:2301.03598), on wave quantisation.

pub mod hopper;
pub mod mma;
