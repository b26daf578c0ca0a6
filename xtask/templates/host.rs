//! NAME, elementwise.

use gpu_kernels::ops::NAME as gk;
use gpu_kernels::ops::NAME::TYPEDtype;
use half::{bf16, f16};

use super::elementwise;
use crate::any::{AnyView, AnyViewMut};
use crate::dtype::DType;
use crate::error::Result;
use crate::host_tensor::HostTensor;
use crate::operator::*;
use crate::params::Params;
use crate::reference;
use crate::stream::Stream;
use crate::view::{View, ViewMut};
use crate::{dispatch, kernels};

/// y = x, elementwise.
///
/// `x` and `y` have the same shape, both contiguous. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if a view is not
/// contiguous.
pub fn NAME<'a, T: TYPEDtype + crate::Dtype>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    x.require_contiguous(INFO.name, "x")?;
    y.require_contiguous(INFO.name, "y")?;
    y.require_shape(INFO.name, "y", x.shape())?;
    let n = x.len();
    let Some(grid) = elementwise::grid(&INFO, "x", n, gk::BLOCK as usize)? else {
        return Ok(());
    };
    // SAFETY: both tensors are live, contiguous and hold n elements, and y is borrowed mutably.
    unsafe { stream.launch::<gk::TYPE<T>>(grid, (x.ptr(stream)?, y.ptr_mut(stream)?, n as u64)) }
}

/// The operator's entry in the registry.
pub struct TYPE;

static INFO: OpInfo = OpInfo {
    name: "NAME",
    bench_name: "ew.NAME",
    summary: "NAME, elementwise",
    math: "y = x",
    inputs: &[ArgInfo::new("x", "any shape, contiguous")],
    outputs: &[ArgInfo::new("y", "the shape of x")],
    params: &[],
    dtypes: &[DType::F32, DType::F16, DType::BF16],
    kernels: kernels![gk::TYPE<f32>, gk::TYPE<f16>, gk::TYPE<bf16>],
    variants: &[],
};

impl Operator for TYPE {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = vec![
            Case::production(&INFO, "n=2^28 float16", DType::F16, [("n", 1 << 28)]),
            Case::production(&INFO, "n=2^28 float32", DType::F32, [("n", 1 << 28)]),
        ];
        for &dtype in INFO.dtypes {
            cases.extend([
                Case::odd(&INFO, dtype, [("n", 1_000_003)]),
                Case::odd(&INFO, dtype, [("n", 65_537)]).offset(1),
                Case::tiny(&INFO, dtype, [("n", 1)]),
                Case::empty(&INFO, dtype, [("n", 0)]),
                Case::boundary(&INFO, dtype, [("n", gk::BLOCK as usize)]),
                Case::boundary(&INFO, dtype, [("n", 4099)]).fill(Distribution::Specials),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [n] = case.dims(["n"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [n])])
    }

    fn outputs(&self, inputs: &[TensorMeta], _: &Params) -> Result<Vec<TensorMeta>> {
        let [x] = INFO.metas(inputs)?;
        x.has_dtype()?;
        Ok(vec![INFO.output(0, x.dtype(), x.shape())])
    }

    fn launch(
        &self,
        stream: &Stream,
        inputs: &[AnyView<'_>],
        outputs: &mut [AnyViewMut<'_>],
        _: &Params,
    ) -> Result<()> {
        let [x] = INFO.args(inputs)?;
        let [mut y] = INFO.args_mut(outputs)?;
        dispatch!(INFO, x.dtype(), [f32, f16, bf16] => |T| NAME::<T>(stream, x.typed()?, y.typed()?))
    }

    fn reference(&self, inputs: &[HostTensor], _: &Params, _: usize, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::elementwise(&inputs[0], rows, |x| x))
    }

    fn tolerance(&self, _: &Case) -> Result<Tolerance> {
        Ok(Tolerance::new(0.0, 0.0, "a copy is exact"))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        Ok(Cost::memory(2 * (n * case.dtype.size()) as u64))
    }
}
