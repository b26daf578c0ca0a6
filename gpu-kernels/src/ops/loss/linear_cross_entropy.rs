//! Cross-entropy of the logits of a linear layer, by chunks of rows: the logits of all rows exist at no time.
//!
//! It has no kernel of its own. A chunk is a product, a pass of [`cross_entropy`](super::cross_entropy) that leaves the gradient in the
//! logits' place, and two products that consume it; what is worth reading is how little that costs.
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
//! The product could do the statistics in its epilogue: a maximum and a sum of exponentials for each row of a tile, which a small kernel
//! merges. What that is worth on a GPU of 750 TFLOP/s and 4.25 TB/s, of t = 8192, d = 4096 and c = 128256, 2.1 GB of logits:
//!
//! - With the gradient nothing. G needs its row's sum, which is complete when the last tile of the row is: the logits have to be somewhere until
//!   then. They are written, and the pass that reads them once, because a row stays in registers, writes G: 1.0 ms beside 34.4 ms of products.
//!   Statistics that are known before do not make it read less. To form G where the products load it would take an exponential of each
//!   logit for every tile that it goes into, on the way to shared memory, which TMA fills without a look at it.
//! - Without the gradient a read of 2.1 GB, 0.5 ms beside 11.5 ms: 4%. The write is under the product, 0.2 of 4.25 TB/s. But an exponential an
//!   element is for the most part not: both consumers of the [Hopper path](crate::ops::gemm::gemm::hopper) share a tile, so that their epilogues
//!   fall together, and 128 × 256 exponentials at 16 a clock are 2048 cycles beside 65 536 of products, 3%, and comparisons, multiply-adds and
//!   the search for the target another 1%. ([`linear`](crate::ops::gemm::linear)'s gelu, two such results an element, was measured to cost 4%.)
//!   What is saved is spent. The memory of a chunk would be saved too, which is a budget that the caller sets.
//!
//! # Limits
//! 2³¹ − 1 rows, classes and dimensions.
//!
//! # Sources
//! Hsu et al., "Liger Kernel" (arXiv:2410.10989), for the chunks of rows; Wijmans et al., "Cut Your Losses" (arXiv:2411.09009), for the
//! opposite choice, to compute the product again.
