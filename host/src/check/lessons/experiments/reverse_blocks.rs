//! Rows reversed within blocks, by blocks that hold more shared memory than they need.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel};
use gpu_kernels::lessons::reverse_blocks as gk;

use super::rows;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// y = x with its rows in reverse order, 128 at a time.
pub(super) struct ReverseBlocks;

/// A variant whose blocks hold this much shared memory.
macro_rules! holding {
    ($kib:literal, $name:literal) => {
        Variant {
            name: $name,
            doc: concat!("blocks of ", $name, " of shared memory"),
            applies: |device, _| rows::fits::<gk::ReverseBlocks<$kib>>(device),
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

fn launch<K>(stream: &Stream, args: &mut Arguments<'_>) -> Result<()>
where
    K: Kernel<Args = (DevicePtr<f32>, DevicePtrMut<f32>, u64)>,
{
    // SAFETY: the kernels of this file access only the rows that they are given.
    unsafe { rows::launch::<K>(&INFO, stream, args, gk::BLOCK) }
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
        Ok(rows::inputs(case, rows))
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        rows::outputs(inputs)
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
        Ok(rows::cost(rows))
    }
}
