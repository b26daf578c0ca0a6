//! The variant of attention backward that computes all gradients in one kernel on mma.sync: which problems fit it,
//! and its launches.

use cuda_std::float::Half;
use cuda_std::launch::Kernel;
use gpu_kernels::ops::attention::backward::delta;
use gpu_kernels::ops::attention::backward::fused::{self, AttentionBackwardFused, finish};
use half::{bf16, f16};

use super::super::problem::Bounds;
use super::INFO;
use super::call::{Call, Numbers};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

impl<T: Float> Call<'_, T> {
    /// Whether a kernel is built for this d, and the device has enough shared memory for it.
    pub(super) fn fits_fused(&self, stream: &Stream) -> bool {
        self.fits_tensor_cores() && self.problem.sizes.d <= 128 && fits(stream.device().info().shared_bytes_per_block)
    }

    /// Whether tiles of queries are on average more than half full: each packed sequence starts a new tile.
    pub(super) fn worth_fusing(&self) -> bool {
        let sizes = &self.problem.sizes;
        !self.problem.packed() || u64::from(sizes.batch) * 64 <= u64::from(sizes.q_len)
    }

    pub(super) fn launch_fused(self, stream: &Stream) -> Result<()> {
        if !self.fits_fused(stream) {
            let wanted = "f16 or bf16 with d a multiple of 8 up to 128, rows at multiples of 16 bytes, and a device with \
                          162 KiB of shared memory for a block";
            return Err(INFO.param_error("variant", "fused", wanted));
        }
        match (T::DTYPE, self.problem.sizes.d, self.problem.biased()) {
            (DType::F16, ..=64, false) => self.cast::<f16>().launch_fused_of::<64, false>(stream),
            (DType::F16, ..=64, true) => self.cast::<f16>().launch_fused_of::<64, true>(stream),
            (DType::F16, _, false) => self.cast::<f16>().launch_fused_of::<128, false>(stream),
            (DType::F16, _, true) => self.cast::<f16>().launch_fused_of::<128, true>(stream),
            (_, ..=64, false) => self.cast::<bf16>().launch_fused_of::<64, false>(stream),
            (_, ..=64, true) => self.cast::<bf16>().launch_fused_of::<64, true>(stream),
            (_, _, false) => self.cast::<bf16>().launch_fused_of::<128, false>(stream),
            (_, _, true) => self.cast::<bf16>().launch_fused_of::<128, true>(stream),
        }
    }
}

/// Whether a block with this much shared memory can hold either kernel.
pub(super) fn fits(shared_bytes_per_block: u32) -> bool {
    fused::shared_bytes(64).max(fused::shared_bytes(128)) <= shared_bytes_per_block as usize
}

impl<T: Float + Half> Call<'_, T> {
    fn launch_fused_of<const D: u32, const BIASED: bool>(mut self, stream: &Stream) -> Result<()>
    where
        AttentionBackwardFused<T, D, BIASED>: Kernel<Args = MainArgs<T>>,
        finish::AttentionFinishFused<T, D>: Kernel<Args = FinishArgs<T>>,
    {
        let Numbers { exponents, delta } = self.numbers::<delta::AttentionDelta<T, 8>>(stream, true)?;
        self.launch_dsinks(stream, &delta)?;
        let (sizes, strides) = (self.problem.sizes, self.strides);
        let queries = fused::queries(D);
        // Every sequence starts a new tile.
        let pieces = match self.problem.packed() {
            true => u64::from(sizes.q_len / queries) + u64::from(sizes.batch),
            false => u64::from(sizes.q_len.div_ceil(queries)),
        };
        let heads = self.problem.batch() * sizes.heads as usize;
        let sums =
            stream.workspace::<f32>(INFO.name, (pieces as usize).saturating_mul(heads * (queries * D) as usize))?;
        sums.clear()?;
        let pieces = pieces as u32;
        let Bounds { cu_q, cu_k, key_lengths, slopes, .. } = self.problem.bounds(stream)?;
        if let Some(grid) = self.problem.key_blocks(&INFO, fused::KEYS)? {
            // As many heads as blocks that run at a time: what these read and add to, all of its head's queries each, should stay in L2.
            let at_once = stream.device().info().multiprocessors / sizes.k_len.div_ceil(fused::KEYS);
            let [q, k, v, d_o] = self.inputs(stream)?;
            let [_, dk, dv] = &mut self.gradients;
            let args = (
                q,
                k,
                v,
                d_o,
                exponents.ptr_mut().into(),
                delta.ptr_mut().into(),
                sums.ptr_mut(),
                dk.ptr_mut(stream)?,
                dv.ptr_mut(stream)?,
                cu_q,
                cu_k,
                key_lengths,
                slopes,
                pieces,
                at_once.max(1),
                sizes,
                strides,
            );
            self.problem.note_work(T::DTYPE, 5);
            // SAFETY: the tensors are live and have these sizes and strides with rows that fit, outputs are borrowed mutably,
            // the kernel bounds the lengths and offsets that it reads, and the zeroed sum has the tiles that every sequence
            // needs.
            unsafe { stream.launch::<AttentionBackwardFused<T, D, BIASED>>(grid, args)? };
        }
        let Some(grid) = self.problem.query_blocks(&INFO, queries)? else { return Ok(()) };
        let [dq, _, _] = &mut self.gradients;
        let args = (sums.ptr_mut().into(), dq.ptr_mut(stream)?, cu_q, cu_k, pieces, sizes, strides);
        // SAFETY: there is a block for each tile; dq is borrowed mutably and has these sizes and strides.
        unsafe { stream.launch::<finish::AttentionFinishFused<T, D>>(grid, args) }
    }
}

type MainArgs<T> = <AttentionBackwardFused<T, 64, false> as Kernel>::Args;
type FinishArgs<T> = <finish::AttentionFinishFused<T, 64> as Kernel>::Args;
