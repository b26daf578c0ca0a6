//! GELU in its tanh form, elementwise.

use gpu_kernels::ops::gelu as gk;
use gpu_kernels::ops::gelu::GeluDtype;
use half::{bf16, f16};

use super::elementwise;
use crate::dispatch;
use crate::kernels;
use crate::ops::model::params::Params;
use crate::ops::model::reference;
use crate::ops::model::*;
use crate::runtime::any::{AnyView, AnyViewMut};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// y = gelu(x) = x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))), elementwise.
///
/// `x` and `y` have the same shape, of any number of dimensions and elements, both contiguous; 16-byte aligned views are
/// fastest, any other works. The work is queued on `stream`.
///
/// The tanh form is the one of Hendrycks and Gimpel, "Gaussian Error Linear Units" (arXiv:1606.08415), and of GPT-2.
///
/// # Errors
/// [`Error::Shape`](crate::runtime::error::Error::Shape) if the shapes differ, [`Error::Layout`](crate::runtime::error::Error::Layout) if a view is not
/// contiguous.
pub fn gelu<'a, T: GeluDtype + crate::runtime::dtype::Dtype>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (x, mut y) = (x.into(), y.into());
    x.require_contiguous(INFO.name, "x")?;
    y.require_contiguous(INFO.name, "y")?;
    y.require_shape(INFO.name, "y", x.shape())?;
    let n = x.len();
    let Some(grid) = elementwise::grid(&INFO, "x", n, gk::PER_BLOCK_BYTES / size_of::<T>())? else {
        return Ok(());
    };
    // SAFETY: both tensors are live, contiguous and hold n elements, and y is borrowed mutably.
    unsafe { stream.launch::<gk::Gelu<T>>(grid, (x.ptr(stream), y.ptr_mut(stream), n as u64)) }
}

/// The operator's entry in the registry.
pub struct Gelu;

static INFO: OpInfo = OpInfo {
    name: "gelu",
    bench_name: "ew.gelu_tanh",
    summary: "GELU activation, tanh form",
    math: "y = x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))",
    inputs: &[ArgInfo::new("x", "any shape, contiguous")],
    outputs: &[ArgInfo::new("y", "the shape of x")],
    params: &[],
    dtypes: &[DType::F32, DType::F16, DType::BF16],
    kernels: kernels![gk::Gelu<f32>, gk::Gelu<f16>, gk::Gelu<bf16>],
    variants: &[],
};

impl Operator for Gelu {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = vec![
            Case::production(&INFO, "n=2^28 float16", DType::F16, [("n", 1 << 28)]),
            Case::production(&INFO, "n=2^28 float32", DType::F32, [("n", 1 << 28)]),
            Case::production(&INFO, "n=2^28 bfloat16", DType::BF16, [("n", 1 << 28)]),
            Case::boundary(&INFO, DType::BF16, [("n", (1 << 32) + 9)]).huge(),
        ];
        for &dtype in INFO.dtypes {
            let block = gk::PER_BLOCK_BYTES / dtype.size();
            cases.extend([
                Case::odd(&INFO, dtype, [("n", 1_000_003)]),
                Case::odd(&INFO, dtype, [("n", 65_537)]).offset(1),
                Case::tiny(&INFO, dtype, [("n", 1)]),
                Case::tiny(&INFO, dtype, [("n", 17)]),
                Case::empty(&INFO, dtype, [("n", 0)]),
                Case::boundary(&INFO, dtype, [("n", block)]),
                Case::boundary(&INFO, dtype, [("n", block + 1)]),
                Case::boundary(&INFO, dtype, [("n", 4099)]).fill(Distribution::Specials),
            ]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [n] = case.dims(["n"])?;
        let wide = Distribution::Normal { std: 3.0 };
        Ok(vec![InputSpec::new("x", case.dtype, [n], wide)])
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
        dispatch!(INFO, x.dtype(), [f32, f16, bf16] => |T| gelu::<T>(stream, x.typed()?, y.typed()?))
    }

    fn reference(&self, inputs: &[HostTensor], _: &Params, _: usize, rows: &[usize]) -> Result<Vec<f64>> {
        let c = (2.0 / std::f64::consts::PI).sqrt();
        Ok(reference::elementwise(&inputs[0], rows, |x| 0.5 * x * (1.0 + (c * (x + 0.044715 * x * x * x)).tanh())))
    }

    fn tolerance(&self, case: &Case) -> Result<Tolerance> {
        Ok(elementwise::tolerance(
            case.dtype,
            1e-6,
            "storage rounding, plus 2⁻²² of the approximate exponential and reciprocal, which the \
             exponent's size multiplies where the result is tiny",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        Ok(Cost::memory(2 * (n * case.dtype.size()) as u64))
    }
}
