//! A linear layer with a fused epilogue.

use cuda_std::float::Half;
use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::gemm::gemm::hopper;
use gpu_kernels::ops::gemm::linear as gk;
use half::{bf16, f16};

pub use super::epilogue::{Activation, Epilogue};
use super::operand::{fits_hopper, store_of_case};
use super::product::{Path, Problem};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = act(x·Wᵀ + bias) + residual in f16 or bf16 with f32 accumulation: `x` is `[rows, in]`, `weight` `[out, in]`, and the result `[rows, out]`.
///
/// `epilogue` holds the bias, activation and residual, each of which is optional. They are applied in f32 to the sums while the
/// next part of the product is fetched: only the result is written, and it is rounded once. Rows of all tensors may be padded;
/// with `in` = 0 the epilogue is applied to zeros. On Hopper, rows of `x` and `weight` at multiples of 16 bytes take the TMA
/// and wgmma path; everything else takes the mma.sync path, which is fastest with the same alignment. The result is a new dense
/// tensor; the work is queued on `stream`.
///
/// For the gradient, without an activation, use [`linear_backward`](fn@crate::ops::linear_backward).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops::{self, Activation, Epilogue}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 2], &[1.0, 2.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [2, 2], &[3.0, 4.0, -5.0, 1.0].map(f16::from_f32))?;
/// let bias = Tensor::from_slice(&stream, [2], &[0.5, 1.0].map(f16::from_f32))?;
/// let after = Epilogue::new().bias(&bias).activation(Activation::Relu).residual(&x);
/// let y = ops::linear(&stream, &x, &weight, after)?;
/// assert_eq!(y.to_vec(&stream)?, [12.5, 2.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn linear<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    epilogue: Epilogue<'a, T>,
) -> Result<Tensor<T>> {
    let (x, weight) = (x.into(), weight.into());
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [out, _]: [usize; 2] = weight.dims(INFO.name, "weight")?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, [rows, out])?;
    linear_into(stream, x, weight, epilogue, &mut y)?;
    Ok(y)
}

/// [`linear`] into `y`, `[rows, out]`, whose rows may be padded.
///
/// # Errors
/// Same as [`linear`].
pub fn linear_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    epilogue: Epilogue<'a, T>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, x.into(), weight.into(), epilogue, y.into(), None)
}

fn launch<T: Float + Half>(
    stream: &Stream,
    x: View<'_, T>,
    weight: View<'_, T>,
    Epilogue { bias, activation, residual }: Epilogue<'_, T>,
    y: ViewMut<'_, T>,
    by: Option<(Path, u32)>,
) -> Result<()> {
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [out, _]: [usize; 2] = weight.dims(INFO.name, "weight")?;
    let problem = Problem::of_rows(&INFO, ["x", "weight", "y"], x, weight, y)?;
    let mut of_bias = DevicePtr::null();
    if let Some(bias) = bias {
        bias.require_shape(INFO.name, "bias", &[out])?;
        bias.require_contiguous(INFO.name, "bias")?;
        bias.require_device(INFO.name, "bias", stream)?;
        of_bias = bias.ptr(stream)?;
    }
    let (mut of_residual, mut stride) = (DevicePtr::null(), 0);
    if let Some(residual) = residual {
        residual.require_shape(INFO.name, "residual", &[rows, out])?;
        stride = residual.require_row_stride(INFO.name, "residual")? as u64;
        residual.require_device(INFO.name, "residual", stream)?;
        of_residual = residual.ptr(stream)?;
    }
    let activation = activation.number();
    let (path, columns) = by.map_or_else(|| problem.choice(stream, &NAMED), Ok)?;
    problem.launch(
        stream,
        path,
        columns,
        |grid, (x_map, weight_map, y_map, y, problem, store)| {
            let args = (x_map, weight_map, y_map, y, problem, store, of_bias, of_residual, stride, activation);
            // SAFETY: the maps and y describe live tensors of these sizes, y is borrowed mutably, and bias and residual have
            // these sizes if present.
            unsafe {
                match (path, columns) {
                    (Path::Swapped, 64) => stream.launch::<gk::LinearSwapped<T, 64>>(grid, args),
                    (Path::Swapped, _) => stream.launch::<gk::LinearSwapped<T, 128>>(grid, args),
                    (_, 64) => stream.launch::<gk::LinearHopper<T, 64>>(grid, args),
                    (_, 128) => stream.launch::<gk::LinearHopper<T, 128>>(grid, args),
                    (_, 192) => stream.launch::<gk::LinearHopper<T, 192>>(grid, args),
                    _ => stream.launch::<gk::LinearHopper<T, { hopper::BLOCK_N }>>(grid, args),
                }
            }
        },
        |grid, packed, (x, weight, y, problem)| {
            let args = (x, weight, y, problem, of_bias, of_residual, stride, activation);
            // SAFETY: the same; only operands that are aligned for packs are read in packs.
            unsafe {
                if packed {
                    stream.launch::<gk::LinearMma<T, 8>>(grid, args)
                } else {
                    stream.launch::<gk::LinearMma<T, 1>>(grid, args)
                }
            }
        },
    )
}

/// The names of the variants, and the number of columns of their tiles.
const NAMED: [(&str, (Path, u32)); 7] = [
    ("hopper", (Path::Hopper, 256)),
    ("hopper_192", (Path::Hopper, 192)),
    ("hopper_128", (Path::Hopper, 128)),
    ("hopper_64", (Path::Hopper, 64)),
    ("swapped_128", (Path::Swapped, 128)),
    ("swapped_64", (Path::Swapped, 64)),
    ("mma", (Path::Mma, 0)),
];

/// The operator's entry in the registry.
pub struct Linear;

/// [`linear`] in the registry.
pub static LINEAR: Linear = Linear;

const ACTIVATION: &str = "activation";

static INFO: OpInfo = OpInfo {
    name: "linear",
    bench_name: "gemm.bf16_bias_gelu",
    summary: "16-bit linear layer with bias, activation and residual",
    math: "y = act(x·Wᵀ + bias) + residual",
    args: &[
        ArgInfo::input("x", "[rows, in], rows may be padded"),
        ArgInfo::input("weight", "[out, in], rows may be padded"),
        ArgInfo::input("bias", "[out], contiguous").optional(),
        ArgInfo::input("residual", "[rows, out], rows may be padded").optional(),
        ArgInfo::output("y", "[rows, out], rows may be padded"),
    ],
    params: &[ParamInfo::choice(ACTIVATION, "none", Activation::NAMES, "what the sums go through")],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[gk::LINEAR_MMA, gk::LINEAR_HOPPER, gk::LINEAR_SWAPPED],
    variants: &[
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0, tiles of 256 columns: what is picked where rows of x and weight are at multiples of 16 bytes, or one of the next three",
            applies: fits,
            launch: |stream, args, params| run(stream, args, params, Some(NAMED[0].1)),
        },
        Variant {
            name: "hopper_192",
            doc: "the same by tiles of 192 columns: what is picked where these fill waves of blocks better",
            applies: fits,
            launch: |stream, args, params| run(stream, args, params, Some(NAMED[1].1)),
        },
        Variant {
            name: "hopper_128",
            doc: "the same by tiles of 128 columns",
            applies: fits,
            launch: |stream, args, params| run(stream, args, params, Some(NAMED[2].1)),
        },
        Variant {
            name: "hopper_64",
            doc: "the same by tiles of 64 columns",
            applies: fits,
            launch: |stream, args, params| run(stream, args, params, Some(NAMED[3].1)),
        },
        Variant {
            name: "swapped_128",
            doc: "tiles of 128 columns with x and weight swapped, 256 columns of y by 128 rows: what is picked for 65 to 128 rows of many columns, if rows of y too are at multiples of 16 bytes",
            applies: fits_swapped,
            launch: |stream, args, params| run(stream, args, params, Some(NAMED[4].1)),
        },
        Variant {
            name: "swapped_64",
            doc: "the same by 64 rows: what is picked for up to 64, or where tiles of 128 are too few",
            applies: fits_swapped,
            launch: |stream, args, params| run(stream, args, params, Some(NAMED[5].1)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, params| run(stream, args, params, Some(NAMED[6].1)),
        },
    ],
};

/// Whether the Hopper path can run the case on such a device.
fn fits(device: &DeviceInfo, case: &Case) -> bool {
    fits_hopper(device, case, case.dtype, ["x", "weight"], ["rows", "out", "in"])
}

/// Whether the Hopper path can run the case with operands swapped.
fn fits_swapped(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([rows, out]) = case.dims(["rows", "out"]) else {
        return false;
    };
    fits(device, case) && store_of_case(case, "y", case.dtype, &[rows, out], 0.0) != hopper::DIRECT
}

fn run(stream: &Stream, args: &mut Arguments<'_>, params: &Params, by: Option<(Path, u32)>) -> Result<()> {
    let activation = Activation::named(params.choice(ACTIVATION)?);
    dispatch!(INFO, args.dtype("x")?, [f16, bf16] => |T| {
        let (bias, residual) = (args.optional_input("bias")?, args.optional_input("residual")?);
        let epilogue = Epilogue { bias, activation, residual };
        launch::<T>(stream, args.input("x")?, args.input("weight")?, epilogue, args.output("y")?, by)
    })
}

impl Operator for Linear {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, depth, out| [("rows", rows), ("in", depth), ("out", out)];
        let production = |rows, depth, out, after: &str| {
            let name = format!("m={rows} n={out} k={depth}{after}");
            Case::production(&INFO, name, DType::BF16, dims(rows, depth, out))
        };
        let through = |case: Case, activation| case.param(ACTIVATION, ParamValue::Choice(activation));
        let mut cases = vec![
            through(production(8192, 4096, 14336, " bias silu residual"), "silu"),
            through(production(8192, 4096, 14336, "").only(&["bias"]), "gelu"),
            production(8192, 4096, 14336, " nothing").only(&[]).timed_only(),
            through(production(8192, 4096, 14336, " relu").only(&[]), "relu").timed_only(),
            production(8192, 14336, 4096, " bias residual").timed_only(),
            through(production(512, 4096, 4096, " bias gelu").only(&["bias"]), "gelu").timed_only(),
            through(production(64, 8192, 8192, " bias gelu").only(&["bias"]), "gelu"),
            through(production(2432, 2432, 2432, " bias gelu").only(&["bias"]), "gelu").timed_only(),
        ];
        for &dtype in INFO.dtypes {
            let odd = |rows, depth, out| Case::odd(&INFO, dtype, dims(rows, depth, out));
            cases.extend([
                through(odd(136, 72, 144), "gelu"),
                through(odd(33, 41, 35), "silu"),
                through(odd(24, 48, 40), "relu").only(&["bias"]),
                odd(24, 48, 40).only(&["residual"]).arrange("residual", Arrangement::DENSE.row_pad(3)),
                through(odd(40, 24, 70), "gelu")
                    .arrange("x", Arrangement::DENSE.row_pad(8))
                    .arrange("weight", Arrangement::DENSE.row_pad(16))
                    .arrange("residual", Arrangement::DENSE.row_pad(2))
                    .arrange("y", Arrangement::DENSE.row_pad(4)),
                through(odd(24, 20, 30), "silu").only(&["residual"]).arrange("y", Arrangement::DENSE.row_pad(1)),
                through(odd(24, 32, 40), "relu").offset(1),
                odd(24, 32, 40).arrange("bias", Arrangement::DENSE.offset(1)),
                odd(16, 16, 16).only(&[]),
                Case::tiny(&INFO, dtype, dims(1, 1, 1)),
                through(Case::tiny(&INFO, dtype, dims(3, 5, 2)), "gelu"),
                Case::empty(&INFO, dtype, dims(0, 8, 8)),
                Case::empty(&INFO, dtype, dims(8, 8, 0)),
                through(Case::empty(&INFO, dtype, dims(8, 0, 12)), "gelu"),
                Case::boundary(&INFO, dtype, dims(128, 64, 128)).only(&["bias"]),
                through(Case::boundary(&INFO, dtype, dims(136, 40, 384)), "gelu"),
                through(Case::boundary(&INFO, dtype, dims(1, 40, 136)), "silu"),
                through(Case::boundary(&INFO, dtype, dims(16, 16, 24)), "relu").values("bias", Values::Specials),
            ]);
        }
        // More tiles of swapped operands than the simulated GPU has clusters.
        cases.push(through(Case::odd(&INFO, DType::BF16, dims(72, 136, 1288)), "silu"));
        // Blocks of the Hopper path that take several tiles.
        cases.push(through(Case::odd(&INFO, DType::F16, dims(304, 200, 520)), "gelu"));
        cases.push(Case::odd(&INFO, DType::F16, dims(8, 72, 1029)).only(&["bias"]));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, depth, out] = case.dims(["rows", "in", "out"])?;
        // Sums have a size of one, where activations are most curved.
        let high = (3.0 / depth.max(1) as f64).sqrt();
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, depth]),
            InputSpec::new("weight", case.dtype, [out, depth], Values::Uniform { low: -high, high }),
            InputSpec::normal("bias", case.dtype, [out]),
            InputSpec::normal("residual", case.dtype, [rows, out]),
        ];
        Ok(specs.into_iter().filter(|spec| case.has(spec.name)).map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
        let [rows, depth] = x.dims()?;
        let [out, _] = weight.dims()?;
        weight.has_shape(&[out, depth])?;
        if let Some(bias) = inputs.optional("bias") {
            bias.has_shape(&[out])?;
        }
        if let Some(residual) = inputs.optional("residual") {
            residual.has_shape(&[rows, out])?;
        }
        Ok(vec![TensorMeta::new("y", x.dtype(), [rows, out])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        run(stream, args, params, None)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
        let (bias, residual) = (inputs.optional("bias").map(|bias| bias.to_f64()), inputs.optional("residual"));
        let value = Activation::named(params.choice(ACTIVATION)?).value();
        let out = weight.shape()[0];
        let mut y = reference::matmul_nt(x, weight, rows);
        for (y, row) in y.chunks_mut(out.max(1)).zip(rows) {
            let residual = residual.map(|residual| reference::row(residual, *row));
            for (column, y) in y.iter_mut().enumerate() {
                let of = |values: &Option<Vec<f64>>| values.as_ref().map_or(0.0, |values| values[column]);
                *y = value(*y + of(&bias)) + of(&residual);
            }
        }
        Ok(y)
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [depth] = case.dims(["in"])?;
        // A sum of size one is truncated towards zero by 2⁻²² for each step of 16 products, as in gemm. Adding the bias, of
        // size four, and the residual rounds; the approximation of an activation has a relative error of 2⁻²⁰; and its slope is
        // below 1.2.
        let sum = (depth as f64 / 16.0).max(1.0) * 4.0 * roundoff(DType::F32);
        let abs = 1.2 * sum + 8.0 * 16.0 * roundoff(DType::F32);
        Ok(Tolerance::rounded(
            case.dtype,
            abs,
            2.0 * roundoff(DType::F32),
            "one rounding of the result, in/16 truncations of sums of size one, and f32 arithmetic on numbers up to eight",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, depth, out] = case.dims(["rows", "in", "out"])?;
        let elements = |name, of: usize| if case.has(name) { of } else { 0 };
        let read = rows * depth + out * depth + elements("bias", out) + elements("residual", rows * out);
        let bytes = case.dtype.size() * (read + rows * out);
        Ok(Cost::compute(bytes as u64, 2 * (rows * depth * out) as u64, Bound::Tensor(case.dtype)))
    }
}
