//! The Hopper path of attention forward: which problems fit it, and its launch.

use cuda_std::float::Half;
use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel, TensorMap};
use gpu_kernels::ops::attention as gk;
use gpu_kernels::ops::attention::forward::hopper::{self, AttentionHopper};
use half::{bf16, f16};

use super::super::maps::{addressable, tile_map};
use super::INFO;
use super::call::Call;
use crate::ops::elementwise::grid;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;

type Args<T> = (
    TensorMap,
    TensorMap,
    TensorMap,
    TensorMap,
    DevicePtrMut<T>,
    DevicePtrMut<f32>,
    DevicePtr<i32>,
    DevicePtr<f32>,
    gk::Problem,
);

/// The tile that a kernel computes at a time.
#[derive(Clone, Copy)]
struct Tile {
    keys: u32,
    consumers: u32,
}

impl<T: Float> Call<'_, T> {
    /// Whether a kernel is built for this d, scores are changed by nothing but masks, and TMA can address the tensors: strides
    /// are nonzero multiples of 16 bytes, and there are keys.
    pub(super) fn fits_hopper(&self) -> bool {
        let sizes = &self.problem.sizes;
        self.fits_tensor_cores()
            && [64, 128].contains(&sizes.d)
            && sizes.k_len > 0
            && !self.problem.biased()
            && !self.problem.packed()
            && self.inputs.iter().all(|x| addressable(x.shape(), x.strides()))
            && addressable(self.o.shape(), self.o.strides())
    }

    pub(super) fn launch_hopper(self, stream: &Stream) -> Result<()> {
        self.require_hopper()?;
        match T::DTYPE {
            DType::F16 => self.cast::<f16>().launch_hopper_of(stream),
            _ => self.cast::<bf16>().launch_hopper_of(stream),
        }
    }

    fn require_hopper(&self) -> Result<()> {
        if !self.fits_hopper() {
            let wanted = "f16 or bf16 with d 64 or 128, rows at multiples of 16 bytes, strides above 0, at least one key, \
                          no packed sequences, soft cap or slopes";
            return Err(INFO.param_error("variant", "hopper", wanted));
        }
        Ok(())
    }

    fn launch_tma<K: Kernel<Args = Args<T>>>(mut self, stream: &Stream, tile: Tile) -> Result<()> {
        let sizes = self.problem.sizes;
        let rows = hopper::block_m(tile.consumers);
        let pairs = sizes.batch as usize * sizes.heads as usize * sizes.q_len.div_ceil(hopper::CLUSTER * rows) as usize;
        let Some(pairs) = grid(&INFO, "q", pairs, 1)? else { return Ok(()) };
        let clusters = stream.device().info().multiprocessors / hopper::CLUSTER;
        let [q, k, v] = self.inputs;
        let map =
            |address, shape: &Shape, strides: &[usize], rows| tile_map(stream, address, T::DTYPE, shape, strides, rows);
        let keys = tile.keys / hopper::CLUSTER;
        let bounds = self.problem.bounds(stream)?;
        let o = self.o.ptr_mut(stream)?;
        let args = (
            map(q.ptr(stream)?.addr(), q.shape(), q.strides(), hopper::WG_M)?,
            map(k.ptr(stream)?.addr(), k.shape(), k.strides(), keys)?,
            map(v.ptr(stream)?.addr(), v.shape(), v.strides(), keys)?,
            map(o.addr(), self.o.shape(), self.o.strides(), hopper::WG_M)?,
            o,
            self.lse.ptr_mut(stream)?,
            bounds.key_lengths,
            bounds.sinks,
            sizes,
        );
        self.problem.note_work(T::DTYPE, 2);
        // SAFETY: the maps describe live tensors of these sizes, the outputs are borrowed mutably, and lengths are bounded in the kernel.
        unsafe { stream.launch::<K>(hopper::CLUSTER * pairs.min(clusters), args) }
    }
}

impl<T: Float + Half> Call<'_, T> {
    fn launch_hopper_of(self, stream: &Stream) -> Result<()> {
        match self.problem.sizes.d {
            64 => self.launch_tma::<AttentionHopper<T, 64, 128, 3>>(stream, Tile { keys: 128, consumers: 3 }),
            _ => self.launch_tma::<AttentionHopper<T, 128, 128, 2>>(stream, Tile { keys: 128, consumers: 2 }),
        }
    }
}
