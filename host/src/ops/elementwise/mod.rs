//! Operators that treat every element in the same way, over tensors of any shape whose rows may be padded.

pub mod add;
pub mod bias_mask_scale_add;
pub mod cast;
pub mod copy;
pub mod map;
mod pointwise;
pub mod sin2_cos2;
pub mod zip;

pub use add::{add, add_into};
pub use bias_mask_scale_add::{bias_mask_scale_add, bias_mask_scale_add_into};
pub use cast::{cast, cast_into};
pub use copy::{copy, copy_into};
pub use map::{map, map_into};
pub(super) use pointwise::shape as pointwise_shape;
pub use pointwise::{Accuracy, Formula, Pointwise, PointwiseMany};
pub use sin2_cos2::{Fusion, sin2_cos2, sin2_cos2_into};
pub use zip::{zip, zip_into};

use cuda_std::launch::{DevicePtr, DevicePtrMut, Dim3, Kernel};
use gpu_kernels::map::{BUSY, block, per_block};

use super::model::OpInfo;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;
use crate::runtime::view::{self, View, ViewMut};

/// The maximum number of blocks of a grid along x.
pub(super) const MAX_BLOCKS: usize = (1 << 31) - 1;
/// The maximum number of blocks of a grid along y, and along z.
const MAX_ROWS: usize = 65_535;

/// The number of blocks for `n` items at `per_block` items each; `None` if there is nothing to do.
pub(crate) fn grid(info: &OpInfo, arg: &'static str, n: usize, per_block: usize) -> Result<Option<u32>> {
    match n.div_ceil(per_block) {
        0 => Ok(None),
        blocks if blocks <= MAX_BLOCKS => Ok(Some(blocks as u32)),
        blocks => {
            let reason = format!("{n} items need {blocks} blocks, a grid has at most {MAX_BLOCKS}");
            Err(Error::too_large(info.name, arg, reason))
        }
    }
}

/// A grid for rows of `d` items: blocks of `per_block` items along x, and a row for each y and z; `None` if there is nothing to do.
pub(super) fn grid_of_rows(
    info: &OpInfo,
    arg: &'static str,
    rows: usize,
    d: usize,
    per_block: usize,
) -> Result<Option<Dim3>> {
    let Some(x) = grid(info, arg, if rows == 0 { 0 } else { d }, per_block)? else { return Ok(None) };
    let (y, z) = (rows.min(MAX_ROWS), rows.div_ceil(MAX_ROWS));
    if z > MAX_ROWS {
        let reason = format!("{rows} rows, at most {} are supported", MAX_ROWS * MAX_ROWS);
        return Err(Error::too_large(info.name, arg, reason));
    }
    Ok(Some(Dim3::new(x, y as u32, z as u32)))
}

/// The maximum number of elements of a row that a block of an elementwise kernel covers: cases lie on both sides of it.
pub(super) fn longest_block(dtype: DType, inputs: usize) -> usize {
    let bytes = dtype.size();
    per_block(block(bytes, BUSY), bytes, inputs)
}

/// An operand of an elementwise kernel.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    name: &'static str,
    shape: &'a Shape,
    strides: &'a [usize],
    row_stride: Option<usize>,
    is_contiguous: bool,
}

macro_rules! operand {
    ($name:ident, $view:ident) => {
        pub(super) fn $name<T>(name: &'static str, view: &'a $view<'_, T>) -> Self {
            Self {
                name,
                shape: view.shape(),
                strides: view.strides(),
                row_stride: view.row_stride(),
                is_contiguous: view.is_contiguous(),
            }
        }
    };
}

impl<'a> Operand<'a> {
    operand!(read, View);
    operand!(written, ViewMut);

    fn row_stride(&self, info: &OpInfo) -> Result<u64> {
        self.row_stride.map(|stride| stride as u64).ok_or_else(|| {
            let (strides, shape, expected) = (self.strides, self.shape, view::EQUAL_ROWS);
            Error::layout(info.name, self.name, format!("has strides {strides:?} for shape {shape}: {expected}"))
        })
    }
}

/// How an elementwise kernel sees its operands: as rows, or as a single row where all are contiguous.
pub(super) struct Plan<const N: usize> {
    pub(super) rows: u64,
    pub(super) d: u64,
    pub(super) strides: [u64; N],
    pub(super) grid: Dim3,
}

impl<const N: usize> Plan<N> {
    /// The plan for `K` over operands of one shape, the widest of whose elements has `bytes` bytes; `None` if there is
    /// nothing to do.
    pub(super) fn new<K: Kernel>(info: &OpInfo, bytes: usize, operands: [Operand<'_>; N]) -> Result<Option<Self>> {
        Self::with_outputs::<K>(info, bytes, operands, 1)
    }

    /// The same with this number of outputs among the operands.
    pub(super) fn with_outputs<K: Kernel>(
        info: &OpInfo,
        bytes: usize,
        operands: [Operand<'_>; N],
        outputs: usize,
    ) -> Result<Option<Self>> {
        Self::of(info, per_block(K::BLOCK.x, bytes, N - outputs), operands, true)
    }

    /// The same for a kernel with another operand, a single row that all rows share.
    pub(super) fn by_rows<K: Kernel>(info: &OpInfo, bytes: usize, operands: [Operand<'_>; N]) -> Result<Option<Self>> {
        Self::of(info, per_block(K::BLOCK.x, bytes, N), operands, false)
    }

    /// The same for blocks of `per_block` elements of a row. Rows are never merged into a single one unless they are `alike`.
    pub(super) fn of(info: &OpInfo, per_block: usize, operands: [Operand<'_>; N], alike: bool) -> Result<Option<Self>> {
        let single = alike && operands.iter().all(|operand| operand.is_contiguous);
        let Operand { name, shape, .. } = operands[0];
        for other in &operands[1..] {
            if other.shape != shape {
                return Err(info.shape_error(other.name, other.shape, format!("{shape} as `{name}`")));
            }
        }
        let (rows, d) = match shape.split_last() {
            Some((d, outer)) if !single => (outer.iter().product(), *d),
            _ => (1, shape.elements()),
        };
        let mut strides = [0; N];
        for (stride, operand) in strides.iter_mut().zip(&operands).filter(|_| !single) {
            *stride = operand.row_stride(info)?;
        }
        let grid = grid_of_rows(info, name, rows, d, per_block)?;
        Ok(grid.map(|grid| Self { rows: rows as u64, d: d as u64, strides, grid }))
    }
}

/// Launches `K`, which computes `y` from `x`.
pub(super) fn launch_map<'a, T: Float, K>(
    info: &OpInfo,
    stream: &Stream,
    x: View<'a, T>,
    mut y: ViewMut<'a, T>,
) -> Result<()>
where
    K: Kernel<Args = (DevicePtr<T>, DevicePtrMut<T>, u64, u64, u64, u64)>,
{
    let [input, output] = [info.args[0].name, info.args[1].name];
    stream.require_devices(info.name, &[(input, &x), (output, &y)])?;
    let operands = [Operand::read(input, &x), Operand::written(output, &y)];
    let Some(plan) = Plan::new::<K>(info, size_of::<T>(), operands)? else { return Ok(()) };
    let [x_stride, y_stride] = plan.strides;
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, plan.rows, plan.d, x_stride, y_stride);
    // SAFETY: both tensors are live and have these rows at these strides, and y is borrowed mutably.
    unsafe { stream.launch::<K>(plan.grid, args) }
}

/// Launches `K`, which computes `z` from `x` and `y`.
pub(super) fn launch_zip<'a, T: Float, K>(
    info: &OpInfo,
    stream: &Stream,
    [x, y]: [View<'a, T>; 2],
    mut z: ViewMut<'a, T>,
) -> Result<()>
where
    K: Kernel<Args = (DevicePtr<T>, DevicePtr<T>, DevicePtrMut<T>, u64, u64, u64, u64, u64)>,
{
    let [first, second, output] = [info.args[0].name, info.args[1].name, info.args[2].name];
    stream.require_devices(info.name, &[(first, &x), (second, &y), (output, &z)])?;
    let operands = [Operand::read(first, &x), Operand::read(second, &y), Operand::written(output, &z)];
    let Some(plan) = Plan::new::<K>(info, size_of::<T>(), operands)? else { return Ok(()) };
    let [x_stride, y_stride, z_stride] = plan.strides;
    let args = (x.ptr(stream)?, y.ptr(stream)?, z.ptr_mut(stream)?, plan.rows, plan.d, x_stride, y_stride, z_stride);
    // SAFETY: the tensors are live and have these rows at these strides, and z is borrowed mutably.
    unsafe { stream.launch::<K>(plan.grid, args) }
}

/// The arguments of a kernel with three inputs and two outputs.
type Zip3Args<T> =
    (DevicePtr<T>, DevicePtr<T>, DevicePtr<T>, DevicePtrMut<T>, DevicePtrMut<T>, u64, u64, u64, u64, u64, u64, u64);

/// Launches `K`, which computes two results from three inputs.
pub(super) fn launch_zip3<'a, T: Float, K>(
    info: &OpInfo,
    stream: &Stream,
    [x, y, z]: [View<'a, T>; 3],
    [mut u, mut v]: [ViewMut<'a, T>; 2],
) -> Result<()>
where
    K: Kernel<Args = Zip3Args<T>>,
{
    let name = |i: usize| info.args[i].name;
    stream.require_devices(info.name, &[(name(0), &x), (name(1), &y), (name(2), &z), (name(3), &u), (name(4), &v)])?;
    let inputs = [Operand::read(name(0), &x), Operand::read(name(1), &y), Operand::read(name(2), &z)];
    let [first, second, third] = inputs;
    let operands = [first, second, third, Operand::written(name(3), &u), Operand::written(name(4), &v)];
    let Some(plan) = Plan::with_outputs::<K>(info, size_of::<T>(), operands, 2)? else { return Ok(()) };
    let [a, b, c, d, e] = plan.strides;
    let (x, y, z) = (x.ptr(stream)?, y.ptr(stream)?, z.ptr(stream)?);
    let args = (x, y, z, u.ptr_mut(stream)?, v.ptr_mut(stream)?, plan.rows, plan.d, a, b, c, d, e);
    // SAFETY: the tensors are live and have these rows at these strides, and u and v are borrowed mutably.
    unsafe { stream.launch::<K>(plan.grid, args) }
}
