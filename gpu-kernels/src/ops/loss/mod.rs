//! Losses over rows of logits, and over the log-probabilities of tokens.

pub mod cross_entropy;
pub mod dpo;
pub mod entropy;
pub mod grpo;
pub mod kl_divergence;
pub mod linear_cross_entropy;
pub mod linear_dpo;
pub mod linear_entropy;
pub mod linear_grpo;
pub mod linear_kl_divergence;
pub mod linear_log_probs;

/// The factor of a row's gradient: the upstream gradient of the row times the factor that all rows share, where these
/// are not null. A row that does not count gets nothing, not even a NaN from upstream.
#[inline(always)]
unsafe fn factor_of(counts: bool, row: usize, [dlosses, share]: [*const f32; 2]) -> f32 {
    let mut factor = 1.0;
    if !dlosses.is_null() {
        factor *= *dlosses.add(row);
    }
    if !share.is_null() {
        factor *= *share;
    }
    if counts { factor } else { 0.0 }
}
