//! A copy by many threads with one load each, or by few threads with several.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel};
use gpu_kernels::lessons::packs_in_flight::{self as gk, PacksInFlight};

use super::rows;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// y = x.
pub(super) struct Copies;

/// A variant whose blocks hold this much shared memory, and whose threads load this many packs before they store one.
macro_rules! holding {
    ($kib:literal, $packs:literal, $name:literal) => {
        Variant {
            name: $name,
            doc: concat!("blocks of ", $kib, " KiB of shared memory, threads with ", $packs, " packs in flight"),
            applies: |device, _| rows::fits::<PacksInFlight<$kib, $packs>>(device),
            launch: |stream, args, _| launch::<PacksInFlight<$kib, $packs>>(stream, args),
        }
    };
}

static INFO: OpInfo = OpInfo {
    name: "packs_in_flight",
    bench_name: "lesson.packs_in_flight",
    summary: "a lesson's copy by many threads with a load each, or by few with several",
    math: "y = x",
    args: &[
        ArgInfo::input("x", "[packs, 4], dense, aligned to 16 bytes"),
        ArgInfo::output("y", "the shape of x, likewise"),
    ],
    params: &[],
    dtypes: &[DType::F32],
    kernels: &[gk::PACKS_IN_FLIGHT],
    variants: &[
        holding!(8, 1, "many_1"),
        holding!(98, 1, "few_1"),
        holding!(98, 2, "few_2"),
        holding!(98, 4, "few_4"),
        holding!(98, 8, "few_8"),
        holding!(98, 16, "few_16"),
    ],
};

fn launch<K>(stream: &Stream, args: &mut Arguments<'_>) -> Result<()>
where
    K: Kernel<Args = (DevicePtr<f32>, DevicePtrMut<f32>, u64)>,
{
    // SAFETY: the kernels of this file access only the rows that they are given.
    unsafe { rows::launch::<K>(&INFO, stream, args, gk::PER_BLOCK) }
}

impl Operator for Copies {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |packs| [("packs", packs)];
        vec![
            Case::odd(&INFO, DType::F32, dims(3001)),
            Case::tiny(&INFO, DType::F32, dims(2)),
            Case::empty(&INFO, DType::F32, dims(0)),
            Case::boundary(&INFO, DType::F32, dims(2048)),
            Case::boundary(&INFO, DType::F32, dims(8193)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [packs] = case.dims(["packs"])?;
        Ok(rows::inputs(case, packs))
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        rows::outputs(inputs)
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        launch::<PacksInFlight<8, 1>>(stream, args)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::select(inputs.get("x")?, rows))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [packs] = case.dims(["packs"])?;
        Ok(rows::cost(packs))
    }
}
