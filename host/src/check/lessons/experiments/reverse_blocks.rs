//! Rows reversed within blocks, by blocks that hold more shared memory than they need.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel};
use gpu_kernels::lessons::reverse_blocks as gk;

use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;

/// y = x with its rows in reverse, 128 at a time.
pub(super) struct ReverseBlocks;

/// A variant whose blocks hold that much shared memory.
macro_rules! holding {
    ($kib:literal, $name:literal) => {
        Variant {
            name: $name,
            doc: concat!("blocks of ", $name, " of shared memory"),
            applies: |device, _| fits::<gk::ReverseBlocks<$kib>>(device),
            launch: |stream, args, _| launch::<gk::ReverseBlocks<$kib>>(stream, args),
        }
    };
}

static INFO: OpInfo = OpInfo {
    name: "reverse_blocks",
    bench_name: "lesson.reverse_blocks",
    summary: "a lesson's rows reversed within blocks that hold more shared memory than they need",
    math: "y[128·b + i] = the i-th last row of x from 128·b on, of 128 or what there is",
    args: &[
        ArgInfo::input("x", "[rows, 4], dense, aligned to 16 bytes"),
        ArgInfo::output("y", "the shape of x, likewise"),
    ],
    params: &[],
    dtypes: &[DType::F32],
    kernels: &[gk::REVERSE_BLOCKS],
    variants: &[holding!(8, "8KiB"), holding!(27, "27KiB"), holding!(56, "56KiB"), holding!(98, "98KiB")],
};

fn fits<K: Kernel>(device: &DeviceInfo) -> bool {
    K::SHARED_BYTES <= device.shared_bytes_per_block as usize
}

/// Launches the kernel that holds as much shared memory as its type says.
fn launch<K>(stream: &Stream, args: &mut Arguments<'_>) -> Result<()>
where
    K: Kernel<Args = (DevicePtr<f32>, DevicePtrMut<f32>, u64)>,
{
    let (x, mut y) = (args.input::<f32>("x")?, args.output::<f32>("y")?);
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    x.require_shape(INFO.name, "x", &[rows, gk::ROW])?;
    x.require_contiguous(INFO.name, "x")?;
    y.require_shape(INFO.name, "y", x.shape())?;
    y.require_contiguous(INFO.name, "y")?;
    if !(x.rows_aligned(16) && y.rows_aligned(16)) {
        return Err(Error::layout(INFO.name, "x", "or y does not start at a multiple of 16 bytes"));
    }
    let Some(grid) = grid(&INFO, "x", rows, gk::BLOCK as usize)? else { return Ok(()) };
    let args = (x.ptr(stream)?, y.ptr_mut(stream)?, rows as u64);
    // SAFETY: x and y are aligned and hold that many rows, y is borrowed mutably, and there is a block for each 128 of them.
    unsafe { stream.launch::<K>(grid, args) }
}

impl Operator for ReverseBlocks {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows| [("rows", rows)];
        vec![
            Case::odd(&INFO, DType::F32, dims(300)),
            Case::tiny(&INFO, DType::F32, dims(2)),
            Case::empty(&INFO, DType::F32, dims(0)),
            Case::boundary(&INFO, DType::F32, dims(128)),
            Case::boundary(&INFO, DType::F32, dims(257)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows] = case.dims(["rows"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, gk::ROW]).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [rows, _] = x.dims()?;
        x.has_shape(&[rows, gk::ROW])?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [rows, gk::ROW])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        launch::<gk::ReverseBlocks<8>>(stream, args)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let (count, block) = (reference::row_count(x.shape()), gk::BLOCK as usize);
        Ok(reference::by_row(rows, |r| {
            let first = r / block * block;
            reference::row(x, first + (first + block).min(count) - 1 - r)
        }))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows] = case.dims(["rows"])?;
        Ok(Cost::memory((2 * rows * gk::ROW * size_of::<f32>()) as u64))
    }
}
