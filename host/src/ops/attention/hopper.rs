//! The Hopper path of attention forward: which problems fit it, and its launch.

use cuda_std::float::Half;
use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel, TensorMap};
use gpu_kernels::ops::attention as gk;
use gpu_kernels::ops::attention::forward::hopper::{self, AttentionHopper};
use half::{bf16, f16};

use super::aligned;
use super::forward::{Call, INFO};
use crate::ops::elementwise::grid;
use crate::ops::model::{Case, Params};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};

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

/// The maximum stride that a tensor map holds, in elements of up to two bytes.
const MAX_STRIDE: usize = 1 << 39;

/// Whether a tensor map can describe such a tensor.
pub(super) fn addressable(shape: &Shape, strides: &[usize]) -> bool {
    shape.iter().zip(strides).take(3).all(|(&len, &stride)| len < 2 || (1..MAX_STRIDE).contains(&stride))
}

/// The tensor map of `[batch, heads, tokens, d]`, copied in boxes of `rows` tokens with the 128-byte swizzle.
pub(super) fn tile_map(
    stream: &Stream,
    address: u64,
    dtype: DType,
    shape: &Shape,
    strides: &[usize],
    rows: u32,
) -> Result<TensorMap> {
    boxes(stream, address, dtype, (shape, strides), [hopper::PANEL, rows], Swizzle::B128)
}

/// The tensor map of four dimensions, the last of them contiguous, copied in boxes of these numbers of columns and rows.
pub(super) fn boxes(
    stream: &Stream,
    address: u64,
    dtype: DType,
    (shape, strides): (&Shape, &[usize]),
    [columns, rows]: [u32; 2],
    swizzle: Swizzle,
) -> Result<TensorMap> {
    // Innermost dimension first, as TMA requires. The stride of a single head or token does not matter, but it must be valid.
    let dim = |i: usize| shape[i] as u64;
    let stride = |i: usize| if shape[i] > 1 { (strides[i] * dtype.size()) as u64 } else { 16 };
    stream.device().tensor_map(&TensorMapDesc {
        address,
        dtype,
        dims: &[dim(3), dim(2), dim(1), dim(0)],
        strides_bytes: &[stride(2), stride(1), stride(0)],
        box_dims: &[columns, rows, 1, 1],
        swizzle,
        l2_promotion: L2Promotion::B256,
        oob_fill: OobFill::Zero,
    })
}

/// Whether the Hopper path can run the case on such a device.
pub(super) fn fits_case(device: &DeviceInfo, case: &Case, tensors: &[&str]) -> bool {
    let Ok([keys, d]) = case.dims(["k", "d"]) else { return false };
    let plain = |params: &Params| params.f32("softcap").is_ok_and(|cap| cap == 0.0);
    let broadcast = tensors.iter().any(|name| !case.arrangement(name).broadcast.is_empty());
    device.compute_capability == (9, 0)
        && aligned(case, tensors)
        && [64, 128].contains(&d)
        && keys > 0
        && plain(&case.params)
        && !["slopes", "cu_q", "cu_k"].into_iter().any(|name| case.has(name))
        && !broadcast
}
