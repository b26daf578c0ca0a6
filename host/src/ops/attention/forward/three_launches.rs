//! Attention in three launches, with scores and weights in memory: the baseline that the other kernels are compared with.

use cuda_std::float::Half;
use gpu_kernels::ops::attention::forward::weights;
use half::{bf16, f16};

use super::super::fits_simple;
use super::INFO;
use super::call::Call;
use crate::ops::gemm::{gemm_into, gemm_to_f32_into};
use crate::ops::model::{Arrangement, Case};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

impl<T: Float> Call<'_, T> {
    pub(super) fn launch_three(self, stream: &Stream) -> Result<()> {
        match T::DTYPE {
            DType::F16 => self.cast::<f16>().launch_three_of(stream),
            DType::BF16 => self.cast::<bf16>().launch_three_of(stream),
            _ => Err(INFO.param_error("variant", "three-launches", "f16 or bf16")),
        }
    }
}

impl<T: Float + Half> Call<'_, T> {
    /// A head of K with all its queries is one product, so the tensors must be dense.
    fn launch_three_of(self, stream: &Stream) -> Result<()> {
        let Self { inputs: [q, k, v], o, mut lse, problem } = self;
        for (name, x) in [("q", &q), ("k", &k), ("v", &v)] {
            x.require_contiguous(INFO.name, name)?;
        }
        o.require_contiguous(INFO.name, "o")?;
        if problem.packed() {
            return Err(INFO.param_error("variant", "three-launches", "sequences that are not packed"));
        }
        let [batch, heads, q_len, d]: [usize; 4] = q.dims(INFO.name, "q")?;
        let [_, kv_heads, k_len, _]: [usize; 4] = k.dims(INFO.name, "k")?;
        let (products, rows) = (batch * kv_heads, heads.checked_div(kv_heads).unwrap_or(1) * q_len);
        let Some(blocks) = problem.query_blocks(&INFO, weights::ROWS)? else { return Ok(()) };

        let mut scores = Tensor::<f32>::uninit(stream, [products, rows, k_len])?;
        let keys = k.reshape([products, k_len, d])?.permute([0, 2, 1])?;
        gemm_to_f32_into(stream, problem.sizes.scale, q.reshape([products, rows, d])?, keys, 0.0, &mut scores)?;

        let mut probabilities = Tensor::<T>::uninit(stream, [products, rows, k_len])?;
        let bounds = problem.bounds(stream)?;
        let (from, to) = (scores.view().ptr(stream)?, probabilities.view_mut().ptr_mut(stream)?);
        let args = (from, to, lse.ptr_mut(stream)?, bounds.key_lengths, bounds.slopes, bounds.sinks, problem.sizes);
        // SAFETY: scores and weights are dense and have a row for each query, what is written is borrowed mutably, and lengths are bounded in the
        // kernel.
        unsafe { stream.launch::<weights::AttentionWeights<T>>(blocks, args)? };

        gemm_into(stream, 1.0, &probabilities, v.reshape([products, k_len, d])?, 0.0, o.reshape([products, rows, d])?)
    }
}

/// Whether the variant can run the case, and is not too slow for it.
pub(super) fn fits_case(case: &Case, tensors: &[&str]) -> bool {
    let dense = |name: &&str| {
        let Arrangement { row_pad, order, broadcast, .. } = case.arrangement(name);
        row_pad == 0 && order.is_empty() && broadcast.is_empty()
    };
    case.dtype != DType::F32 && fits_simple(case) && tensors.iter().all(dense) && !case.has("cu_q")
}
