//! Divergence of the logits of a student's linear layer from those of its teacher's, in chunks of rows: neither set of
//! logits ever exists as a whole.
//!
//! This operator has no kernel of its own: the chunks are those of
//! [`linear_cross_entropy`](super::linear_cross_entropy), with another loss.
//!
//! # Math
//! With hidden states H (t × d) and a weight W (c × d) of the student, and H′ (t × d′) and W′ (c × d′) of its teacher, the loss is that of
//! [`kl_divergence`](super::kl_divergence) of H·Wᵀ and H′·W′ᵀ. With G = ∂loss/∂(H·Wᵀ), ∂loss/∂H = G·W and ∂loss/∂W = Gᵀ·H.
//!
//! # Layout
//! All four in any strides; ∂H is in their type, ∂W in f32. A chunk's logits are rows of c elements, padded to 16 bytes, and there are as many of
//! the teacher's as of the student's.
//!
//! # Mapping
//! Five launches a chunk, which follow each other on the stream: the teacher's logits, the student's, the loss with G in the student's
//! place, ∂Hᵢ = G·W, ∂W += Gᵀ·Hᵢ.
//!
//! # Shared memory
//! That of the kernels.
//!
//! # Numerics
//! Logits and G are rounded to the type of H; sums are f32. The factor of the mean is applied to the products. ∂W is summed in f32 in the
//! order of the chunks, the same every time.
//!
//! # Cost
//! 6·t·c·d + 2·t·c·d′ FLOPs, the products of forward and backward: nothing is computed twice. Beside the products a chunk costs 14 bytes a logit.
//!
//! # Limits
//! 2³¹ − 1 rows, classes and dimensions.
//!
//! # Sources
//! Hsu et al., "Liger Kernel" (arXiv:2410.10989); Agarwal et al., "On-Policy Distillation of Language Models" (arXiv:2306.13649).
