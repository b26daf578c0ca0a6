//! Group relative policy optimisation of the logits of a linear layer, by chunks of rows.
//!
//! This operator has no kernel of its own: a chunk is one product, [`cross_entropy`](super::cross_entropy),
//! [`grpo`](super::grpo), cross-entropy again, and two products.
//!
//! # Math
//! With hidden states H (t × d), a weight W (c × d) and a target a token, ℓ = −cross_entropy(H·Wᵀ) is a token's log-probability, and the loss is
//! that of [`grpo`](super::grpo) of ℓ. Its derivative by ℓ, negated, is what the gradient of the cross-entropy multiplies rows by.
//!
//! # Layout
//! As in [`linear_cross_entropy`](super::linear_cross_entropy); the tokens are [sequences](super::grpo::sequences).
//!
//! # Mapping
//! Six launches a chunk, which follow each other on the stream: X = Hᵢ·Wᵀ, the losses of X, the objective of these, G in place of X, ∂Hᵢ = G·W,
//! ∂W += Gᵀ·Hᵢ. What tokens weigh is known before: it depends on the targets alone.
//!
//! # Shared memory
//! That of the kernels.
//!
//! # Numerics
//! As of the parts: log-probabilities are f32, of logits that are rounded to the type of H. G is formed of weights times a power of two, about as
//! many as there are tokens, by which the products are divided in f32: 1 / t of a probability would be lost in f16.
//!
//! # Cost
//! 6·t·c·d FLOPs with gradients: a token's loss depends on no other token's logits, so that G is formed while the chunk is there, and no product
//! is computed twice. A chunk's logits are read once more than in the cross-entropy, 2 bytes a logit.
//!
//! # Limits
//! 2³¹ − 1 tokens, classes and dimensions.
//!
//! # Sources
//! Shao et al., "DeepSeekMath" (arXiv:2402.03300); Hsu et al., "Liger Kernel" (arXiv:2410.10989), for the chunks.
