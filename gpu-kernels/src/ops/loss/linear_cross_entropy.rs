//! Cross-entropy of the logits of a linear layer, in chunks of rows: the logits of all rows never exist at the same
//! time.
//!
//! This operator has no kernel of its own. A chunk is one product, a pass of [`cross_entropy`](super::cross_entropy)
//! that overwrites the logits by the gradient, and two products that consume it; the sections below analyse how little
//! that costs.
//!
//! # Math
//! With hidden states H (t × d), a weight W (c × d) and logits X = H·Wᵀ, the loss is that of [`cross_entropy`](super::cross_entropy) of X. With
//! G = ∂loss/∂X, ∂loss/∂H = G·W and ∂loss/∂W = Gᵀ·H.
//!
//! # Layout
//! `hidden` is t × d, `weight` c × d, in any strides; ∂H is in their type, ∂W in f32. A chunk's logits are rows of c elements, padded to 16 bytes.
//!
//! # Mapping
//! Four launches a chunk, which follow each other on the stream: X = Hᵢ·Wᵀ, the loss in place, ∂Hᵢ = G·W, ∂W += Gᵀ·Hᵢ. Each operand of the
//! products is read as it lies ([`gemm`](crate::ops::gemm::gemm)): W is K-major in the first and MN-major in the second, Gᵀ and H are both
//! MN-major in the third, and nothing is transposed. The factor of the mean is applied to the products in f32, so that G itself keeps
//! numbers of the size of probabilities: 1/t of them would be lost in f16.
//!
//! # Shared memory
//! That of the kernels.
//!
//! # Numerics
//! Logits and G are rounded to the type of H, as they are where a model computes its logits; sums are f32. ∂W is summed in f32 in the order of the
//! chunks, the same every time.
//!
//! # Cost
//! 6·t·c·d FLOPs, the products of forward and backward: nothing is computed twice, because the gradient is formed while the logits are there.
//! Forming it later would take the first product again, 8·t·c·d. Beside the products a chunk is written, read, written and read twice, 10 bytes a
//! logit, and ∂W once a chunk, so that few large chunks are best: as many rows as a budget of memory holds.
//!
//! The product could compute the statistics in its epilogue: a maximum and a sum of exponentials for each row of a
//! tile, which a small kernel merges. The possible gain on a GPU of 750 TFLOP/s and 4.25 TB/s, for t = 8192, d = 4096
//! and c = 128256, 2.1 GB of logits:
//!
//! - With the gradient nothing. G needs its row's sum, which is complete only when the row's last tile is: the logits
//!   have to be stored somewhere until then. They are written, and the pass that reads them once, because a row stays
//!   in registers, writes G: 1.0 ms beside 34.4 ms of products. Knowing the statistics in advance would not reduce its
//!   reads. Forming G where the products load it would take one exponential of each logit for every tile that uses it,
//!   on the way to shared memory, which TMA fills without passing through registers.
//! - Without the gradient a read of 2.1 GB, 0.5 ms beside 11.5 ms: 4%. The write overlaps the product, 0.2 of 4.25
//!   TB/s. But one exponential per element mostly does not overlap: both consumers of the [Hopper
//!   path](crate::ops::gemm::gemm::hopper) share a tile, so that their epilogues coincide, and 128 × 256 exponentials
//!   at 16 per clock are 2048 cycles beside 65 536 of products, 3%; comparisons, multiply-adds and the search for the
//!   target take another 1%. ([`linear`](crate::ops::gemm::linear)'s gelu, with two such results per element, was
//!   measured to cost 4%.) The cost equals the saving. The memory of a chunk would also be saved, but that is a budget
//!   that the caller sets.
//!
//! # Limits
//! 2³¹ − 1 rows, classes and dimensions.
//!
//! # Sources
//! Hsu et al., "Liger Kernel" (arXiv:2410.10989), for the chunks of rows; Wijmans et al., "Cut Your Losses" (arXiv:2411.09009), for the
//! opposite choice, to compute the product again.
