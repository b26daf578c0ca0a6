//! The Hopper path of attention backward: which problems fit it, and its launches.

use cuda_std::float::Half;
use gpu_kernels::ops::attention::backward::delta;
use gpu_kernels::ops::attention::backward::hopper::{self, finish, prepare};
use half::{bf16, f16};

use super::super::hopper::{addressable, tile_map};
use super::call::{Call, Numbers};
use super::{INFO, Saved};
use crate::ops::elementwise::grid;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::View;

impl<T: Float> Call<'_, T> {
    /// Whether a kernel is built for this d, scores are changed by nothing but masks, no key in memory is padding (padding
    /// could hold NaN), and TMA can address the tensors: strides are nonzero multiples of 16 bytes, and there are tokens.
    pub(super) fn fits_hopper(&self) -> bool {
        let Saved { q, k, v, .. } = &self.saved;
        self.fits_tensor_cores()
            && [64, 128].contains(&self.problem.sizes.d)
            && self.problem.sizes.q_len > 0
            && self.problem.sizes.k_len > 0
            && !self.problem.biased()
            && !self.problem.packed()
            && !self.problem.padded()
            && [q, k, v, &self.d_o].into_iter().all(|x| addressable(x.shape(), x.strides()))
    }

    pub(super) fn launch_hopper(self, stream: &Stream) -> Result<()> {
        if !self.fits_hopper() {
            let wanted = "f16 or bf16 with d 64 or 128, rows at multiples of 16 bytes, strides above 0, at least one query and key, \
                          no packed sequences, lengths, soft cap or slopes";
            return Err(INFO.param_error("variant", "hopper", wanted));
        }
        match (T::DTYPE, self.problem.sizes.d) {
            (DType::F16, 64) => self.cast::<f16>().launch_hopper_of::<64>(stream),
            (DType::F16, _) => self.cast::<f16>().launch_hopper_of::<128>(stream),
            (_, 64) => self.cast::<bf16>().launch_hopper_of::<64>(stream),
            _ => self.cast::<bf16>().launch_hopper_of::<128>(stream),
        }
    }
}

impl<T: Float + Half> Call<'_, T> {
    fn launch_hopper_of<const D: u32>(mut self, stream: &Stream) -> Result<()>
    where
        hopper::AttentionBackwardHopper<T, D>: cuda_std::launch::Kernel<Args = MainArgs<T>>,
    {
        if self.dsinks.is_some() {
            let Numbers { delta, .. } = self.numbers::<delta::AttentionDelta<T, 8>>(stream, false)?;
            self.launch_dsinks(stream, &delta)?;
        }
        let (sizes, strides) = (self.problem.sizes, self.strides);
        let heads = sizes.batch as usize * sizes.heads as usize;
        let padded = sizes.q_len.next_multiple_of(hopper::queries(D));
        // Two numbers for every query of every tile, and a row of the sum for dQ.
        let rows = heads * padded as usize;
        let (exponents, deltas) =
            (stream.workspace::<f32>(INFO.name, rows)?, stream.workspace::<f32>(INFO.name, rows)?);
        let sums = stream.workspace::<f32>(INFO.name, rows * D as usize)?;
        let Saved { q, k, v, o, lse } = self.saved;
        let [dq, dk, dv] = &mut self.gradients;
        if let Some(grid) = grid(&INFO, "q", rows, prepare::ROWS as usize)? {
            let (o, d_o, lse) = (o.ptr(stream)?, self.d_o.ptr(stream)?, lse.ptr(stream)?);
            let (exponents, deltas, sums) = (exponents.ptr_mut(), deltas.ptr_mut(), sums.ptr_mut());
            let args = (o, d_o, lse, exponents, deltas, sums, padded, sizes, strides);
            // SAFETY: the tensors are live and have these sizes and strides, with rows at multiples of 16 bytes, and so has the scratch memory.
            unsafe { stream.launch::<prepare::AttentionPrepare<T>>(grid, args)? };
        }
        if let Some(grid) = self.problem.key_blocks(&INFO, hopper::KEYS)? {
            let map =
                |x: View<'_, T>, rows| tile_map(stream, x.ptr(stream)?.addr(), T::DTYPE, x.shape(), x.strides(), rows);
            // As many heads as blocks that run at a time: what these read and add to, all of its head's queries each, should stay in L2.
            let at_once = stream.device().info().multiprocessors / sizes.k_len.div_ceil(hopper::KEYS);
            let args = (
                map(q, hopper::queries(D))?,
                map(k, hopper::KEYS)?,
                map(v, hopper::KEYS)?,
                map(self.d_o, hopper::queries(D))?,
                exponents.ptr_mut().into(),
                deltas.ptr_mut().into(),
                sums.ptr_mut(),
                dk.ptr_mut(stream)?,
                dv.ptr_mut(stream)?,
                at_once.max(1),
                sizes,
                strides,
            );
            self.problem.note_work(T::DTYPE, 5);
            // SAFETY: the maps describe live tensors of these sizes, the outputs are borrowed mutably, and the scratch memory
            // has room for every tile of queries.
            unsafe { stream.launch::<hopper::AttentionBackwardHopper<T, D>>(grid, args)? };
        }
        let pieces = rows * D as usize / hopper::PIECE as usize;
        let Some(grid) = grid(&INFO, "q", pieces, 1)? else { return Ok(()) };
        let args = (sums.ptr_mut().into(), dq.ptr_mut(stream)?, padded, sizes, strides);
        // SAFETY: there is a block for each piece; dq is borrowed mutably and has these sizes and strides.
        unsafe { stream.launch::<finish::AttentionFinish<T>>(grid, args) }
    }
}

type MainArgs<T> = <hopper::AttentionBackwardHopper<T, 64> as cuda_std::launch::Kernel>::Args;
