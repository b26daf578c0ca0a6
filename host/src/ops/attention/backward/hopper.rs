//! The Hopper path of attention backward: which problems fit it, and its launches.

use cuda_std::float::Half;
use gpu_kernels::ops::attention::backward::delta;
use gpu_kernels::ops::attention::backward::hopper::{self, finish, prepare};
use half::{bf16, f16};

use super::super::maps::{addressable, tile_map};
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
        finish::AttentionFinish<T, D>: cuda_std::launch::Kernel<Args = FinishArgs<T>>,
    {
        if self.dsinks.is_some() {
            let Numbers { delta, .. } = self.numbers::<delta::AttentionDelta<T, 8>>(stream, false)?;
            self.launch_dsinks(stream, &delta)?;
        }
        let (sizes, strides) = (self.problem.sizes, self.strides);
        let heads = sizes.batch as usize * sizes.heads as usize;
        let padded = sizes.q_len.next_multiple_of(hopper::queries(D));
        // Two numbers for every query of every tile.
        let rows = heads * padded as usize;
        let (exponents, deltas) =
            (stream.workspace::<f32>(INFO.name, rows)?, stream.workspace::<f32>(INFO.name, rows)?);
        // A turn has as many heads of K as blocks run at a time: what these read and add to, all of its heads' queries each, should
        // stay in L2. There is a row of the sums for dQ for every query of the heads of some turns.
        let kv_heads = sizes.batch * (sizes.heads / sizes.group);
        let at_once = (stream.device().info().multiprocessors / sizes.k_len.div_ceil(hopper::KEYS)).max(1);
        let of_turns = |turns| at_once.saturating_mul(turns).min(kv_heads);
        let (places, left) = (of_turns(hopper::TURNS), of_turns(hopper::TURNS - 1));
        let summed = places as usize * sizes.group as usize * padded as usize;
        let sums = stream.workspace::<f32>(INFO.name, summed * D as usize)?;
        let counts = stream.workspace::<u32>(INFO.name, (hopper::COUNTS * kv_heads) as usize)?;
        let Saved { q, k, v, o, lse } = self.saved;
        let [dq, dk, dv] = &mut self.gradients;
        if let Some(grid) = grid(&INFO, "q", rows, prepare::ROWS as usize)? {
            let (o, d_o, lse) = (o.ptr(stream)?, self.d_o.ptr(stream)?, lse.ptr(stream)?);
            let (exponents, deltas) = (exponents.ptr_mut(), deltas.ptr_mut());
            let (sums, counts, summed) = (sums.ptr_mut(), counts.ptr_mut(), summed as u64);
            let args = (o, d_o, lse, exponents, deltas, sums, counts, summed, padded, sizes, strides);
            // SAFETY: the tensors are live and have these sizes and strides, with rows at multiples of 16 bytes, and so has the scratch memory.
            unsafe { stream.launch::<prepare::AttentionPrepare<T>>(grid, args)? };
        }
        if let Some(grid) = self.problem.key_blocks(&INFO, hopper::KEYS)? {
            let map =
                |x: View<'_, T>, rows| tile_map(stream, x.ptr(stream)?.addr(), T::DTYPE, x.shape(), x.strides(), rows);
            let args = (
                map(q, hopper::queries(D))?,
                map(k, hopper::KEYS)?,
                map(v, hopper::KEYS)?,
                map(self.d_o, hopper::queries(D))?,
                exponents.ptr_mut().into(),
                deltas.ptr_mut().into(),
                sums.ptr_mut(),
                counts.ptr_mut(),
                dq.ptr_mut(stream)?,
                dk.ptr_mut(stream)?,
                dv.ptr_mut(stream)?,
                at_once,
                places,
                sizes,
                strides,
            );
            self.problem.note_work(T::DTYPE, 5);
            // SAFETY: the maps describe live tensors of these sizes, the outputs are borrowed mutably, and the scratch memory
            // has room for every tile of queries.
            unsafe { stream.launch::<hopper::AttentionBackwardHopper<T, D>>(grid, args)? };
        }
        let pieces = (left * sizes.group) as usize * (padded as usize * D as usize / hopper::PIECE as usize);
        let Some(grid) = grid(&INFO, "q", pieces, 1)? else { return Ok(()) };
        let args = (sums.ptr_mut(), dq.ptr_mut(stream)?, places, kv_heads - left, sizes, strides);
        // SAFETY: there is a block for each piece; dq is borrowed mutably and has these sizes and strides.
        unsafe { stream.launch::<finish::AttentionFinish<T, D>>(grid, args) }
    }
}

type FinishArgs<T> = <finish::AttentionFinish<T, 64> as cuda_std::launch::Kernel>::Args;
type MainArgs<T> = <hopper::AttentionBackwardHopper<T, 64> as cuda_std::launch::Kernel>::Args;
