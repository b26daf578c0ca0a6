//! Direct preference optimisation of the logits of a linear layer, by chunks of rows.
//!
//! This operator has no kernel of its own: it runs [`linear_cross_entropy`](super::linear_cross_entropy) forward,
//! [`dpo`](super::dpo), and the backward of the former.
//!
//! # Math
//! With hidden states H (t × d), a weight W (c × d) and a target a token, ℓ = −cross_entropy(H·Wᵀ) is a token's log-probability, and the loss is
//! that of [`dpo`](super::dpo) of ℓ. Its derivative by ℓ, negated, is what the backward of the cross-entropy multiplies rows by.
//!
//! # Layout
//! As in [`linear_cross_entropy`](super::linear_cross_entropy); the tokens are [sequences](super::grpo::sequences).
//!
//! # Mapping
//! All chunks forward, two launches of some microseconds, and all chunks again, with two products more.
//!
//! # Shared memory
//! That of the kernels.
//!
//! # Numerics
//! As of the parts: log-probabilities are f32, of logits that are rounded to the type of H. The factor of the mean is applied to the products.
//!
//! # Cost
//! 8·t·c·d FLOPs with gradients. The factor of a row's gradient depends on the sums over both sequences of its pair,
//! which may be in other chunks: no chunk's gradient can be formed before all chunks have run forward, so the first
//! product is computed twice. The alternative, to form G unscaled and to scale products by sequence, would need a ∂W
//! for each pair. Chunks of whole pairs would avoid the repeated product if a pair's logits fit.
//!
//! # Limits
//! 2³¹ − 1 tokens, classes and dimensions.
//!
//! # Sources
//! Rafailov et al., "Direct Preference Optimization" (arXiv:2305.18290); Hsu et al., "Liger Kernel" (arXiv:2410.10989), for the chunks.
