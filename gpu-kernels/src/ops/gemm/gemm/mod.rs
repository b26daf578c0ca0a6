//! 16-bit matrix product on the tensor cores, C = α·A·B + β·C, for K-major and MN-major operands, and batches of
//! products.
//!
//! # Math
//! cᵢⱼ = α·Σₖ aᵢₖ·bₖⱼ + β·cᵢⱼ, in each of `batch` products. With β = 0 C is not read: NaN in it means nothing.
//!
//! # Layout
//! `a` is m × k, `b` is k × n, each with strides of products, of its rows (A) or columns (B), and along k; `c` is m ×
//! n, row-major, in the operands' type or in f32. An operand is K-major (elements along k are adjacent) or MN-major
//! (elements along m or n are adjacent); all its other strides are then multiples of 16 bytes. So A·B, A·Bᵀ, Aᵀ·B and
//! Aᵀ·Bᵀ are one kernel, whose type parameters state each operand's layout; a linear layer's activations and transposed
//! weight, A·Bᵀ, are both K-major. [`mma`] takes any other strides too.
//!
//! # Mapping
//! [`hopper`]: clusters of two blocks walk over tiles of 256 rows and 256, 192, 128 or 64 columns, or also 160 or 96 if
//! A is K-major, and 240, 224, 208 or 144 if C has 16 bits besides; a block has a producer warpgroup and two consumers of 64 rows.
//! Rows that leave these tiles empty are columns of the swapped product, Cᵀ = Bᵀ·Aᵀ: tiles of 256 columns of C by 64 to 208
//! rows, transposed on their way through shared memory ([`gemm_swapped`](hopper::gemm_swapped)); where these are too few, of 128
//! columns, which the blocks of a pair share. [`skinny`] and [`pairs`]: clusters of
//! four or two blocks take 128 rows of the longer side, and split k. [`split`]: of few tiles and a long k the tiles compute
//! pieces along k, which a second launch adds. [`thin`]: a block takes 32 or 64 rows and all of k.
//! [`pad`] copies operands that are not aligned to packs. [`mma`]: one 128 × 128 tile per block, eight warps of 64 × 32.
//!
//! # Shared memory
//! [`hopper`]: 4 stages × (128 + 256) × 64 elements + 4 × 8 KiB for the epilogue + barriers = 229 440 B, one block a
//! multiprocessor; of narrower tiles 4 to 8 stages. [`mma`]: 4 stages × (128 + 128) × 32 elements = 64 KiB.
//!
//! # Numerics
//! Products are exact in f32 and accumulate in f32 in the order of the tensor core, which truncates when it aligns addends; α and β are applied in
//! f32 and C is rounded once, to nearest even. NaN and infinities propagate as in the sum.
//!
//! # Cost
//! 2·m·n·k FLOPs per product against 2·(m·k + k·n + m·n) bytes. The product is bound by the tensor cores once m and n
//! pass a few hundred; below that it is bound by memory, from which tiles, [`skinny`] and [`pairs`] read the longer operand once.
//! A tile of 256 × 256 loads (256 + 256)·2 bytes from L2 for every 2·256·256 FLOPs of one step of k, 128 FLOP/B.
//! mma.sync reaches some 350 TFLOP/s of an H200, half of what wgmma does. Tiles run in whole waves: 66 at a time on 132
//! multiprocessors, and a wave takes time in proportion to the tile's width.
//!
//! # Limits
//! m, n, k below 2³¹; 2³¹ − 1 tiles over all products. [`hopper`] needs compute capability 9.0, k above 0 and operands that lie as above.
//!
//! # Sources
//! Dongarra et al., "A set of level 3 basic linear algebra subprograms" (1990), for α, β and the transposed operands; NVIDIA, *PTX ISA*, on
//! wgmma, mma, ldmatrix, cp.async, cp.async.bulk.tensor and mbarrier; Thakkar et al., CUTLASS, for the terms K-major and MN-major and for warp
//! specialisation with a persistent grid; Osama et al., "Stream-K" (arXiv:2301.03598), on wave quantisation.

pub mod hopper;
pub mod mma;
pub mod pad;
pub mod pairs;
pub mod ring;
pub mod skinny;
pub mod split;
pub mod thin;
