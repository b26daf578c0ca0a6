//! GELU with one kernel per operation, and with one element per thread.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::lessons::gelu_by_hand::{self as gk, GeluBinary, GeluNaive, GeluUnary};
use gpu_kernels::map;

use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// y = gelu(x) in eight kernels, or in one that is as simple as possible.
pub(super) struct GeluByHand;

/// The number of operands that each of the eight kernels reads and writes.
pub(in crate::check::lessons) const OPERANDS: [usize; 8] = [2, 3, 2, 3, 2, 2, 2, 3];

static INFO: OpInfo = OpInfo {
    name: "gelu_by_hand",
    bench_name: "lesson.gelu_by_hand",
    summary: "a lesson's gelu, in eight kernels or with an element a thread",
    math: "y = x · (½ + ½·tanh(√(2/π)·(x + 0.044715·x³)))",
    args: &[ArgInfo::input("x", "[n], dense"), ArgInfo::output("y", "[n], dense")],
    params: &[],
    dtypes: &[DType::F32],
    kernels: &[gk::GELU_UNARY, gk::GELU_BINARY, gk::GELU_NAIVE],
    variants: &[
        Variant {
            name: "eight",
            doc: "a kernel for each of eight operations, 19·n elements of traffic",
            applies: |_, _| true,
            launch: |stream, args, _| launch(stream, args, eight),
        },
        Variant {
            name: "naive",
            doc: "one kernel, an element a thread, 2·n elements of traffic: what is picked",
            applies: |_, _| true,
            launch: |stream, args, _| launch(stream, args, naive),
        },
    ],
};

type Launch = fn(&Stream, DevicePtr<f32>, DevicePtrMut<f32>, usize) -> Result<()>;

fn launch(stream: &Stream, args: &mut Arguments<'_>, how: Launch) -> Result<()> {
    let (x, mut y) = (args.input::<f32>("x")?, args.output::<f32>("y")?);
    let [n] = x.dims(INFO.name, "x")?;
    x.require_contiguous(INFO.name, "x")?;
    y.require_shape(INFO.name, "y", &[n])?;
    y.require_contiguous(INFO.name, "y")?;
    if n == 0 { Ok(()) } else { how(stream, x.ptr(stream)?, y.ptr_mut(stream)?, n) }
}

fn blocks(n: usize, per_block: usize) -> Result<u32> {
    Ok(grid(&INFO, "x", n, per_block)?.unwrap_or(0))
}

fn naive(stream: &Stream, x: DevicePtr<f32>, y: DevicePtrMut<f32>, n: usize) -> Result<()> {
    // SAFETY: x and y hold n elements, y is borrowed mutably.
    unsafe { stream.launch::<GeluNaive>(blocks(n, gk::BLOCK as usize)?, (x, y, n as u64)) }
}

fn eight(stream: &Stream, x: DevicePtr<f32>, y: DevicePtrMut<f32>, n: usize) -> Result<()> {
    let (a, b) = (stream.scratch::<f32>(n)?, stream.scratch::<f32>(n)?);
    let (to_a, to_b, count) = (a.ptr_mut(), b.ptr_mut(), n as u64);
    let (from_a, from_b) = (DevicePtr::from(to_a), DevicePtr::from(to_b));
    let threads = map::block(size_of::<f32>(), map::LIGHT);
    let [unary, binary] = [1, 2].map(|inputs| blocks(n, map::per_block(threads, size_of::<f32>(), inputs)));
    let (unary, binary) = (unary?, binary?);
    // SAFETY: all four hold n elements, which is not 0, and no kernel writes what it reads.
    unsafe {
        stream.launch::<GeluUnary<gk::Square>>(unary, (x, to_a, count))?;
        stream.launch::<GeluBinary<gk::Times>>(binary, (from_a, x, to_b, count))?;
        stream.launch::<GeluUnary<gk::ScaleCubic>>(unary, (from_b, to_a, count))?;
        stream.launch::<GeluBinary<gk::Plus>>(binary, (from_a, x, to_b, count))?;
        stream.launch::<GeluUnary<gk::ScaleRoot>>(unary, (from_b, to_a, count))?;
        stream.launch::<GeluUnary<gk::Tanh>>(unary, (from_a, to_b, count))?;
        stream.launch::<GeluUnary<gk::Half>>(unary, (from_b, to_a, count))?;
        stream.launch::<GeluBinary<gk::Times>>(binary, (from_a, x, y, count))
    }
}

impl Operator for GeluByHand {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |n| [("n", n)];
        vec![
            Case::odd(&INFO, DType::F32, dims(1001)),
            Case::tiny(&INFO, DType::F32, dims(1)),
            Case::empty(&INFO, DType::F32, dims(0)),
            Case::boundary(&INFO, DType::F32, dims(4096)),
            Case::boundary(&INFO, DType::F32, dims(4097)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("x", case.dtype, case.dims(["n"])?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let [n] = x.dims()?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        launch(stream, args, naive)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        Ok(reference::elementwise(inputs.get("x")?, rows, |x| x * (0.5 + 0.5 * inner(x).tanh())))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let why = "½ + ½·tanh errs by 3 · 2⁻²⁴: 2 ulp of tanh, four roundings of what it is of, of which at most 0.45 arrives, and its own; \
                   that times x, which is below 5";
        Ok(Tolerance::rounded(case.dtype, 15.0 * f64::powi(2.0, -24), 1e-6, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        Ok(Cost::memory((2 * n * size_of::<f32>()) as u64))
    }
}
