//! Shared by the experiments that move rows of 16 bytes from one tensor to another, in blocks whose shared memory is set by the
//! types of their kernels.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel};
use gpu_kernels::lessons::reverse_blocks::ROW;

use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;

/// Whether a block fits on the device.
pub(super) fn fits<K: Kernel>(device: &DeviceInfo) -> bool {
    K::SHARED_BYTES <= device.shared_bytes_per_block as usize
}

/// Launches a kernel, each of whose blocks moves `per_block` rows of x to y.
///
/// # Safety
/// The kernel must access at most as many rows of both tensors as its last argument states.
pub(super) unsafe fn launch<K>(info: &OpInfo, stream: &Stream, args: &mut Arguments<'_>, per_block: u32) -> Result<()>
where
    K: Kernel<Args = (DevicePtr<f32>, DevicePtrMut<f32>, u64)>,
{
    let (x, mut y) = (args.input::<f32>("x")?, args.output::<f32>("y")?);
    let [rows, _]: [usize; 2] = x.dims(info.name, "x")?;
    x.require_shape(info.name, "x", &[rows, ROW])?;
    x.require_contiguous(info.name, "x")?;
    y.require_shape(info.name, "y", x.shape())?;
    y.require_contiguous(info.name, "y")?;
    if !(x.rows_aligned(16) && y.rows_aligned(16)) {
        return Err(Error::layout(info.name, "x", "or y does not start at a multiple of 16 bytes"));
    }
    let Some(grid) = grid(info, "x", rows, per_block as usize)? else { return Ok(()) };
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, rows as u64);
    // SAFETY: x and y are aligned and hold that many rows, y is borrowed mutably, and there is a block for every `per_block` of them.
    unsafe { stream.launch::<K>(grid, args) }
}

pub(super) fn inputs(case: &Case, rows: usize) -> Vec<InputSpec> {
    vec![InputSpec::normal("x", case.dtype, [rows, ROW]).in_case(case)]
}

pub(super) fn outputs(inputs: &Metas<'_>) -> Result<Vec<TensorMeta>> {
    let x = inputs.get("x")?;
    let [rows, _] = x.dims()?;
    x.has_shape(&[rows, ROW])?;
    Ok(vec![TensorMeta::new("y", x.dtype(), [rows, ROW])])
}

pub(super) fn cost(rows: usize) -> Cost {
    Cost::memory((2 * rows * ROW * DType::F32.size()) as u64)
}
