//! The readable kernel: one warp per query, key by key, as
//! [`attention_simple`](crate::ops::attention::forward::simple::attention_simple) derives it.

use cuda_std::float::Half;
use cuda_std::{f8e4m3, kernel};

use super::Scales;
use crate::ops::attention::forward::simple::Simple;
pub use crate::ops::attention::forward::simple::{MAX_D, ROWS};
use crate::ops::attention::{Bounds, LIMIT_E4M3, Problem};

/// O and its logsumexp.
///
/// # Safety
/// As for [`attention_simple`](crate::ops::attention::forward::simple::attention_simple); the scales are valid for every head of K of a sequence,
/// or for one where a step is 0.
#[kernel(dtypes(T: half), block = ROWS * 32, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_fp8_simple<T: Half>(
    q: *const f8e4m3,
    k: *const f8e4m3,
    v: *const f8e4m3,
    o: *mut T,
    lse: *mut f32,
    cu_q: *const i32,
    cu_k: *const i32,
    key_lengths: *const i32,
    slopes: *const f32,
    sinks: *const f32,
    q_scales: *const f32,
    k_scales: *const f32,
    v_scales: *const f32,
    q_step: u32,
    k_step: u32,
    v_step: u32,
    problem: Problem,
) {
    let scales = Scales { of: [q_scales, k_scales, v_scales], steps: [q_step, k_step, v_step] };
    let bounds = Bounds { cu_q, cu_k, key_lengths };
    let simple = Simple { inputs: [q, k, v], o, lse, bounds, slopes, sinks, limit: LIMIT_E4M3 };
    simple.run(&problem, f8e4m3::to_f32, |head| scales.of_scores(head), |head| scales.of_values(head));
}
