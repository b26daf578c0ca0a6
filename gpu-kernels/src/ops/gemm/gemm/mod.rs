//! 16-bit matrix product on the tensor cores, C = α·A·B + β·C, for operands that lie either way, and batches of them.
//!
//! # Math
//! cᵢⱼ = α·Σₖ aᵢₖ·bₖⱼ + β·cᵢⱼ, in each of `batch` products. With β = 0 C is not read: NaN in it means nothing.
//!
//! # Layout
//! `a` is m × k, `b` is k × n, each by the distance of its products, of its rows (A) or columns (B) and along k; `c` is m × n, row-major, in the
//! operands' type or in f32. An operand is K-major, elements along k adjacent, or MN-major, those along m or n; everything else that it steps by
//! is then a multiple of 16 bytes. So A·B, A·Bᵀ, Aᵀ·B and Aᵀ·Bᵀ are one kernel, told by its types how the operands lie; a linear layer's
//! activations and transposed weight, A·Bᵀ, are both K-major. [`mma`] takes any other strides too.
//!
//! # Mapping
//! [`hopper`]: clusters of two blocks walk tiles of 256 rows and 256, 192, 128 or 64 columns, or with A K-major and C
//! of 16 bits widths between; a producer warpgroup and two consumers of 64 rows per block. Few rows take the same tiles
//! of the swapped operands, Cᵀ = Bᵀ·Aᵀ: 256 columns of C by 128 or 64 rows, transposed on their way through shared
//! memory ([`gemm_swapped`](hopper::gemm_swapped)). [`skinny`]: clusters of four or two blocks take 128 rows of the
//! longer side, and share k. [`thin`]: a block takes 32 and all of k. [`pad`] copies operands that lie between packs.
//! [`mma`]: one 128 × 128 tile a block, eight warps of 64 × 32.
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
//! 2·m·n·k FLOPs a product against 2·(m·k + k·n + m·n) bytes: bound by the tensor cores once m and n pass a few hundred, and before by memory,
//! which tiles and [`skinny`] read the longer operand from once. A tile of
//! 256 × 256 loads (256 + 256)·2 bytes from L2 for every 2·256·256 FLOPs of a k, 128 FLOP/B. mma.sync reaches some 350 TFLOP/s of an H200,
//! half of what wgmma does. Whole rounds of tiles are paid for: 66 at a time on 132 multiprocessors, each as long as it is wide.
//!
//! # Limits
//! m, n, k below 2³¹; 2³¹ − 1 tiles over all products. [`hopper`] needs compute capability 9.0, k above 0 and operands that lie as above.
//!
//! # Sources
//! Dongarra et al., "A set of level 3 basic linear algebra subprograms" (1990), for α, β and the transposed operands; NVIDIA, *PTX ISA*, on
//! wgmma, mma, ldmatrix, cp.async, cp.async.bulk.tensor and mbarrier; Thakkar et al., CUTLASS, for the terms K-major and MN-major and for warp
//! specialisation with a persistent grid; Osama et al., "Stream-K" (arXiv:2301.03598), on wave quantisation.

mod cut;
pub mod hopper;
pub mod mma;
pub mod pad;
pub mod skinny;
pub mod thin;
