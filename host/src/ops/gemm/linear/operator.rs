//! [`linear`](super::linear()) in the registry.

use gpu_kernels::ops::gemm::gemm::pad::GEMM_PAD;
use gpu_kernels::ops::gemm::linear as gk;
use half::{bf16, f16};

use super::super::cost::Tiles::{Columns, Narrow, Swapped};
use super::super::gemm::{Facts, joined, kernels};
use super::super::operand::{layout, store_of_case};
use super::super::sizes;
use super::{Activation, Epilogue, Path, launch};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// The operator's entry in the registry.
pub struct Linear;

/// [`linear`](super::linear()) in the registry.
pub static LINEAR: Linear = Linear;

const ACTIVATION: &str = "activation";

pub(super) static INFO: OpInfo = OpInfo {
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
    kernels: &joined::<4, 23, 27>(
        [gk::LINEAR_MMA, gk::LINEAR_HOPPER, gk::LINEAR_SWAPPED, gk::LINEAR_SUM],
        joined::<22, 1, 23>(joined::<11, 11, 22>(kernels(false, true), kernels(true, true)), [GEMM_PAD]),
    ),
    variants: VARIANTS,
};

/// The paths by name, and the variants.
macro_rules! paths {
    ($($name:literal: $path:expr, $doc:literal;)+) => {
        impl Path {
            /// The variants' names.
            pub(super) const NAMED: &[(&'static str, Self)] = &[$(($name, $path)),+];
        }

        const VARIANTS: &[Variant] = &[$(Variant {
            name: $name,
            doc: $doc,
            applies: |device, case| {
                let hopper = device.compute_capability == (9, 0);
                of_case(case).is_ok_and(|facts| $path.is_taken_by(&facts, hopper))
            },
            launch: |stream, args, params| run(stream, args, params, Some($path)),
        }),+];
    };
}

paths! {
    "hopper": Path::Tiles(Columns(256)), "TMA and wgmma, compute capability 9.0, tiles of 256 columns: what is picked where rows of x and weight are at multiples of 16 bytes, or one of the next up to `summed`, by a model of their time";
    "hopper_192": Path::Tiles(Columns(192)), "the same by tiles of 192 columns";
    "hopper_128": Path::Tiles(Columns(128)), "the same by tiles of 128 columns";
    "hopper_64": Path::Tiles(Columns(64)), "the same by tiles of 64 columns";
    "swapped_208": Path::Tiles(Swapped(208)), "tiles of 208 columns with x and weight swapped, 256 columns of y by 208 rows, if rows of y too are at multiples of 16 bytes";
    "swapped_192": Path::Tiles(Swapped(192)), "the same by 192 rows";
    "swapped_160": Path::Tiles(Swapped(160)), "the same by 160 rows";
    "swapped_144": Path::Tiles(Swapped(144)), "the same by 144 rows";
    "swapped_128": Path::Tiles(Swapped(128)), "the same by 128 rows";
    "swapped_96": Path::Tiles(Swapped(96)), "the same by 96 rows";
    "swapped_64": Path::Tiles(Swapped(64)), "the same by 64 rows";
    "narrow_208": Path::Tiles(Narrow(208)), "pairs of blocks that share 128 columns of y and have half of 208 rows each, with x and weight swapped, if rows of y too are at multiples of 16 bytes";
    "narrow_160": Path::Tiles(Narrow(160)), "the same by 160 rows";
    "narrow_128": Path::Tiles(Narrow(128)), "the same by 128 rows";
    "narrow_96": Path::Tiles(Narrow(96)), "the same by 96 rows";
    "narrow_64": Path::Tiles(Narrow(64)), "the same by 64 rows";
    "summed": Path::Summed, "the product in f32 as gemm_to_f32 computes it, and a second launch that adds its pieces and does the rest: what is picked for few tiles, and for rows that gemm copies";
    "mma": Path::Mma, "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere";
}

/// What decides how a case is computed.
fn of_case(case: &Case) -> Result<Facts> {
    let [rows, depth, out] = case.dims(["rows", "in", "out"])?;
    Ok(Facts {
        sizes: sizes(&INFO, [("x", 1), ("x", rows), ("weight", out), ("x", depth)])?,
        operands: [("x", rows), ("weight", out)]
            .map(|(name, rows)| layout(case, name, case.dtype, &[rows, depth], false)),
        c: case.dtype,
        store: store_of_case(case, "y", case.dtype, &[rows, out], 0.0),
    })
}

fn run(stream: &Stream, args: &mut Arguments<'_>, params: &Params, path: Option<Path>) -> Result<()> {
    let activation = Activation::named(params.choice(ACTIVATION)?);
    dispatch!(INFO, args.dtype("x")?, [f16, bf16] => |T| {
        let (bias, residual) = (args.optional_input("bias")?, args.optional_input("residual")?);
        let epilogue = Epilogue { bias, activation, residual };
        launch::<T>(stream, args.input("x")?, args.input("weight")?, epilogue, args.output("y")?, path)
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
                // With a single k, elements along the rows are adjacent.
                Case::boundary(&INFO, dtype, dims(16, 1, 24)),
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
