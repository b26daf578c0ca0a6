//! The second stage of a gradient that is summed over all rows.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::columns::{COLUMNS, ColumnSums};

use crate::ops::elementwise::grid;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::scratch::Scratch;
use crate::runtime::stream::Stream;

/// Sums the columns of `partials`: `count` rows of d for the first result, followed by as many for the second, if there is one.
pub(in crate::ops) fn sum<T: Float>(
    info: &OpInfo,
    stream: &Stream,
    partials: &Scratch<f32>,
    results: [Option<DevicePtrMut<T>>; 2],
    count: usize,
    d: usize,
) -> Result<()> {
    let Some(x) = grid(info, "x", d, COLUMNS as usize)? else { return Ok(()) };
    let y = results.iter().flatten().count() as u32;
    let [first, second] = results.map(|result| result.unwrap_or(DevicePtrMut::null()));
    let args = (DevicePtr::from(partials.ptr_mut()), first, second, count as u64, d as u64);
    // SAFETY: the partial results are count rows of d for each result, and the results are d elements that the caller writes.
    unsafe { stream.launch::<ColumnSums<T>>((x, y), args) }
}
