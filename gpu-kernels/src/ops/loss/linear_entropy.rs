//! Entropy of the softmax of the logits of a linear layer, by chunks of rows.
//!
//! This operator has no kernel of its own: the chunks are those of
//! [`linear_cross_entropy`](super::linear_cross_entropy), with [`entropy`](super::entropy) in place of its loss.
//!
//! # Math
//! With hidden states H (t × d), a weight W (c × d) and logits X = H·Wᵀ, a row's entropy is that of [`entropy`](super::entropy) of X. With G = ∂(Σ
//! dentropy · entropy)/∂X, ∂H = f·G·W and ∂W = f·Gᵀ·H, f being a factor that all rows share.
//!
//! # Layout
//! As in [`linear_cross_entropy`](super::linear_cross_entropy).
//!
//! # Mapping
//! Four launches a chunk, which follow each other on the stream: X = Hᵢ·Wᵀ, the entropies with G in place of X, ∂Hᵢ = f·G·W, ∂W += f·Gᵀ·Hᵢ.
//!
//! # Shared memory
//! That of the kernels.
//!
//! # Numerics
//! Logits and G are rounded to the type of H; sums are f32. An element of G is about p·ln p: the 1 / t of a mean belongs into f, which
//! products are multiplied by in f32, and not into what is upstream, which f16 would lose.
//!
//! # Cost
//! 6·t·c·d FLOPs with gradients, 2·t·c·d without. Beside the products a chunk costs 10 bytes a logit and two exponentials, or 4 and one.
//!
//! # Limits
//! 2³¹ − 1 rows, classes and dimensions.
//!
//! # Sources
//! Williams and Peng, "Function Optimization Using Connectionist Reinforcement Learning Algorithms" (Connection Science, 1991), for the bonus;
//! Hsu et al., "Liger Kernel" (arXiv:2410.10989), for the chunks.
