//! A gated linear layer.

use cuda_std::float::Half;
use gpu_kernels::ops::gemm::gemm::hopper::BLOCK_N;
use gpu_kernels::ops::gemm::gemm::pad::GEMM_PAD;
use gpu_kernels::ops::gemm::linear_glu as gk;
use half::{bf16, f16};

use super::cost::{Shape, Tiles};
use super::gemm::{self, Facts, joined, kernels};
use super::linear::Activation;
use super::operand::{self, Major, Operand, fits_tma};
use super::product::{self, Problem};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = act(x·Wgᵀ) ∘ (x·Wuᵀ) in f16 or bf16 with f32 accumulation, the first half of a SwiGLU or GEGLU network: `x` is `[rows, in]`, `gate` and `up` are
/// `[out, in]`, and the result is `[rows, out]`.
///
/// One thread computes both products of an element, so neither is written to memory, and the result is rounded once. Rows of
/// all tensors may be padded, so `gate` and `up` may be views of the two halves of one tensor. On Hopper, rows of `x`, `gate`
/// and `up` at multiples of 16 bytes take the TMA and wgmma path; for few of them, and for large matrices whose rows lie
/// between such multiples, both products are first stored in f32, in memory of the stream. Everything else takes the mma.sync
/// path. The result is a new dense tensor; the work is queued on `stream`.
///
/// This is for inference: the gradient needs both products, which [`linear`](fn@crate::ops::linear) and
/// [`swiglu`](fn@crate::ops::swiglu) keep.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`] if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops::{self, Activation}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 2], &[1.0, 2.0].map(f16::from_f32))?;
/// let gate = Tensor::from_slice(&stream, [2, 2], &[3.0, 4.0, -5.0, 1.0].map(f16::from_f32))?;
/// let up = Tensor::from_slice(&stream, [2, 2], &[0.5, 0.5, 7.0, 7.0].map(f16::from_f32))?;
/// let y = ops::linear_glu(&stream, &x, &gate, &up, Activation::Relu)?;
/// assert_eq!(y.to_vec(&stream)?, [16.5, 0.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn linear_glu<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    gate: impl Into<View<'a, T>>,
    up: impl Into<View<'a, T>>,
    activation: Activation,
) -> Result<Tensor<T>> {
    let (x, gate, up) = (x.into(), gate.into(), up.into());
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [out, _]: [usize; 2] = gate.dims(INFO.name, "gate")?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, [rows, out])?;
    linear_glu_into(stream, x, gate, up, activation, &mut y)?;
    Ok(y)
}

/// [`linear_glu`] into `y`, `[rows, out]`, whose rows may be padded.
///
/// # Errors
/// Same as [`linear_glu`].
pub fn linear_glu_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    gate: impl Into<View<'a, T>>,
    up: impl Into<View<'a, T>>,
    activation: Activation,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, x.into(), [gate.into(), up.into()], activation, y.into(), None)
}

/// Which kernel computes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    /// One that computes both products.
    Fused(product::Path),
    /// Products in f32, and a launch for the rest.
    Summed,
}

impl Path {
    /// The fastest one for a product with each of two weights of the same sizes, by a model of their time.
    fn planned(stream: &Stream, gate: &Facts, up: &Facts) -> Self {
        let hopper = stream.device().supports_hopper();
        let of = stream.device().info().multiprocessors;
        // Tiles of as many columns, half of each weight.
        let fused = (gate.is_along_k() && up.is_along_k()).then(|| {
            let [batch, m, n, k] = gate.sizes;
            Shape { sizes: [batch, m, n.saturating_mul(2), k], ..gate.shape() }.micros(of, Tiles::Columns(BLOCK_N))
        });
        let summed = gate.micros_of_sums(stream).zip(up.micros_of_sums(stream)).map(|(gate, up)| gate + up);
        match (fused.filter(|_| hopper), summed) {
            (Some(fused), Some(summed)) if summed < fused => Self::Summed,
            (None, Some(_)) => Self::Summed,
            _ => Self::Fused(product::Path::Fastest),
        }
    }
}

fn launch<T: Float + Half>(
    stream: &Stream,
    x: View<'_, T>,
    [gate, up]: [View<'_, T>; 2],
    activation: Activation,
    y: ViewMut<'_, T>,
    path: Option<Path>,
) -> Result<()> {
    x.dims::<2>(INFO.name, "x")?;
    gate.dims::<2>(INFO.name, "gate")?;
    let mut problem = Problem::of_rows(&INFO, ["x", "gate", "y"], x, gate, y)?.paired();
    up.require_shape(INFO.name, "up", gate.shape())?;
    up.require_row_stride(INFO.name, "up")?;
    problem.require_devices(stream)?;
    up.require_device(INFO.name, "up", stream)?;
    let up = Operand::new(up);
    let of_gate = problem.facts().in_f32();
    let facts = [of_gate, Facts { operands: [problem.a.layout, up.layout], ..of_gate }];
    let path = match path.unwrap_or_else(|| Path::planned(stream, &facts[0], &facts[1])) {
        Path::Summed if of_gate.sizes.contains(&0) => {
            return Err(INFO.param_error("variant", "summed", "no size of zero"));
        }
        Path::Summed => match launch_summed(stream, &mut problem, up, facts, activation) {
            // Sums need eight bytes per element of y.
            Err(Error::OutOfMemory { .. }) => product::Path::Fastest,
            result => return result,
        },
        Path::Fused(path) => path,
    };
    let path = match path {
        product::Path::Mma => path,
        _ if up.layout.fits_tma() == Some(Major::K) => path,
        product::Path::Fastest => product::Path::Mma,
        _ => {
            let wanted = "rows of up that are not empty and lie at multiples of 16 bytes";
            return Err(INFO.param_error("variant", "hopper", wanted));
        }
    };
    let activation = activation.number();
    problem.launch(
        stream,
        path,
        gk::BLOCK_N,
        |grid, (x_map, gate_map, y_map, y, problem, store)| {
            let up_map = up.map(stream, Major::K, gk::BLOCK_N)?;
            let args = (x_map, gate_map, up_map, y_map, y, problem, store, activation);
            // SAFETY: the maps and y describe live tensors of these sizes, and y is borrowed mutably.
            unsafe { stream.launch::<gk::LinearGluHopper<T>>(grid, args) }
        },
        |grid, packed, (x, gate, y, problem)| {
            let [_, up_stride, _] = up.layout.strides;
            let args = (x, gate, up.rows.ptr(stream)?, y, problem, up_stride, activation);
            // SAFETY: the same; only operands that are aligned for packs are read in packs.
            unsafe {
                if packed && up.layout.major == Some(Major::K) {
                    stream.launch::<gk::LinearGluMma<T, 8>>(grid, args)
                } else {
                    stream.launch::<gk::LinearGluMma<T, 1>>(grid, args)
                }
            }
        },
    )
}

/// Both products in f32, each by the path that is fastest for it, then the rest.
fn launch_summed<T: Float + Half>(
    stream: &Stream,
    problem: &mut Problem<'_, T, T, T>,
    up: Operand<'_, T>,
    facts: [Facts; 2],
    activation: Activation,
) -> Result<()> {
    let gpu_kernels::ops::gemm::Problem { m, n, k, .. } = problem.sizes;
    let of = |weight, facts: Facts| gemm::pieces(&INFO, stream, [problem.a, weight], [m, n, k], facts.planned(stream));
    let (gate, up) = (of(problem.b, facts[0])?, of(up, facts[1])?);
    let Some(blocks) = gate.blocks(&INFO, "y")? else { return Ok(()) };
    let sums = gate.to(&problem.sizes);
    let (gate, of_up) = (gate.sums.view().ptr(stream)?, up.sums.view().ptr(stream)?);
    let args = (gate, of_up, problem.c.ptr_mut(stream)?, sums, up.count, activation.number());
    // SAFETY: the pieces are live and have these sizes, and y, which has them too, is borrowed mutably.
    unsafe { stream.launch::<gk::LinearGluSum<T>>(blocks, args) }
}

/// The operator's entry in the registry.
pub struct LinearGlu;

/// [`linear_glu`] in the registry.
pub static LINEAR_GLU: LinearGlu = LinearGlu;

const ACTIVATION: &str = "activation";

static INFO: OpInfo = OpInfo {
    name: "linear_glu",
    bench_name: "gemm.glu",
    summary: "16-bit gated linear layer, both products and the gate in one",
    math: "y = act(x·Wgᵀ) ∘ (x·Wuᵀ)",
    args: &[
        ArgInfo::input("x", "[rows, in], rows may be padded"),
        ArgInfo::input("gate", "[out, in], rows may be padded"),
        ArgInfo::input("up", "[out, in], rows may be padded"),
        ArgInfo::output("y", "[rows, out], rows may be padded"),
    ],
    params: &[ParamInfo::choice(ACTIVATION, "silu", Activation::NAMES, "what the gate goes through")],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &joined::<3, 23, 26>(
        [gk::LINEAR_GLU_MMA, gk::LINEAR_GLU_HOPPER, gk::LINEAR_GLU_SUM],
        joined::<22, 1, 23>(joined::<11, 11, 22>(kernels(false, true), kernels(true, true)), [GEMM_PAD]),
    ),
    variants: &[
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0: what is picked where rows of x, gate and up are at multiples of 16 bytes, unless `summed` is",
            applies: fits_hopper,
            launch: |stream, args, params| run(stream, args, params, Some(Path::Fused(product::Path::Hopper))),
        },
        Variant {
            name: "summed",
            doc: "both products in f32 as gemm_to_f32 computes them, and a launch that adds their pieces and does the rest: what is picked for few rows, and for rows that gemm copies",
            applies: |_, case| case.dims(["rows", "in", "out"]).is_ok_and(|sizes| !sizes.contains(&0)),
            launch: |stream, args, params| run(stream, args, params, Some(Path::Summed)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, params| run(stream, args, params, Some(Path::Fused(product::Path::Mma))),
        },
    ],
};

fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([_, depth, out]) = case.dims(["rows", "in", "out"]) else {
        return false;
    };
    operand::fits_hopper(device, case, case.dtype, ["x", "gate"], ["rows", "out", "in"])
        && fits_tma(case, "up", case.dtype, &[out, depth], false) == Some(Major::K)
}

fn run(stream: &Stream, args: &mut Arguments<'_>, params: &Params, path: Option<Path>) -> Result<()> {
    let activation = Activation::named(params.choice(ACTIVATION)?);
    dispatch!(INFO, args.dtype("x")?, [f16, bf16] => |T| {
        let weights = [args.input("gate")?, args.input("up")?];
        launch::<T>(stream, args.input("x")?, weights, activation, args.output("y")?, path)
    })
}

impl Operator for LinearGlu {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, depth, out| [("rows", rows), ("in", depth), ("out", out)];
        let through = |case: Case, activation| case.param(ACTIVATION, ParamValue::Choice(activation));
        let mut cases = vec![
            Case::production(&INFO, "m=8192 n=14336 k=4096 silu", DType::BF16, dims(8192, 4096, 14336)),
            Case::production(&INFO, "m=4096 n=4096 k=4096 silu", DType::BF16, dims(4096, 4096, 4096)).timed_only(),
        ];
        for &dtype in INFO.dtypes {
            let odd = |rows, depth, out| Case::odd(&INFO, dtype, dims(rows, depth, out));
            cases.extend([
                odd(136, 72, 144),
                through(odd(33, 41, 35), "gelu"),
                through(odd(24, 48, 40), "relu")
                    .arrange("x", Arrangement::DENSE.row_pad(8))
                    .arrange("gate", Arrangement::DENSE.row_pad(16))
                    .arrange("up", Arrangement::DENSE.row_pad(24))
                    .arrange("y", Arrangement::DENSE.row_pad(4)),
                through(odd(24, 20, 30), "none")
                    .arrange("gate", Arrangement::DENSE.row_pad(1))
                    .arrange("y", Arrangement::DENSE.row_pad(1)),
                odd(24, 32, 40).arrange("up", Arrangement::DENSE.row_pad(1)),
                odd(24, 32, 40).offset(1),
                Case::tiny(&INFO, dtype, dims(1, 1, 1)),
                through(Case::tiny(&INFO, dtype, dims(3, 8, 2)), "gelu"),
                Case::empty(&INFO, dtype, dims(0, 8, 8)),
                Case::empty(&INFO, dtype, dims(8, 8, 0)),
                Case::empty(&INFO, dtype, dims(8, 0, 12)),
                Case::boundary(&INFO, dtype, dims(128, 64, 128)),
                Case::boundary(&INFO, dtype, dims(16, 1, 24)),
                Case::boundary(&INFO, dtype, dims(16, 16, 24)).values("x", Values::Specials),
            ]);
        }
        // Blocks of the Hopper path that take several tiles.
        let tiles = Case::odd(&INFO, DType::F16, dims(304, 200, 264));
        cases.push(tiles.clone().arrange("y", Arrangement::DENSE.row_pad(1)));
        cases.push(through(tiles, "gelu"));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, depth, out] = case.dims(["rows", "in", "out"])?;
        // Sums have a size of one, where activations are most curved.
        let high = (3.0 / depth.max(1) as f64).sqrt();
        let weight = |name| InputSpec::new(name, case.dtype, [out, depth], Values::Uniform { low: -high, high });
        let specs = [InputSpec::normal("x", case.dtype, [rows, depth]), weight("gate"), weight("up")];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (x, gate) = (inputs.get("x")?, inputs.get("gate")?);
        let [rows, depth] = x.dims()?;
        let [out, _] = gate.dims()?;
        gate.has_shape(&[out, depth])?;
        inputs.get("up")?.has_shape(&[out, depth])?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [rows, out])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        run(stream, args, params, None)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let value = Activation::named(params.choice(ACTIVATION)?).value();
        let gate = reference::matmul_nt(x, inputs.get("gate")?, rows);
        let up = reference::matmul_nt(x, inputs.get("up")?, rows);
        Ok(gate.into_iter().zip(up).map(|(gate, up)| value(gate) * up).collect())
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [depth] = case.dims(["in"])?;
        // Each sum of size one is truncated towards zero by 2⁻²² for each step of 16 products, as in gemm; the other factor,
        // which scales the error, is below eight, and an activation's slope is below 1.2. The approximation of an activation
        // has a relative error of 2⁻²⁰.
        let sum = (depth as f64 / 16.0).max(1.0) * 4.0 * roundoff(DType::F32);
        Ok(Tolerance::rounded(
            case.dtype,
            (1.2 * 8.0 + 8.0) * sum,
            20.0 * roundoff(DType::F32),
            "one rounding of the result, in/16 truncations of two sums of size one, each times a factor up to eight, and the activation's",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, depth, out] = case.dims(["rows", "in", "out"])?;
        let bytes = case.dtype.size() * (rows * depth + 2 * out * depth + rows * out);
        Ok(Cost::compute(bytes as u64, 4 * (rows * depth * out) as u64, Bound::Tensor(case.dtype)))
    }
}
