//! What the gradient says of itself.

use gpu_kernels::ops::gemm::gemm_grouped::{GEMM_GROUPED_HOPPER, GEMM_GROUPED_MMA};
use gpu_kernels::ops::gemm::gemm_grouped_backward as gk;
use half::{bf16, f16};

use super::{GroupedGradientsMut, Inputs, WeightGradient, launch};
use crate::dispatch;
use crate::ops::gemm::gemm_grouped::{self, GEMM_GROUPED, rows_of_groups};
use crate::ops::gemm::operand::{Major, fits_tma};
use crate::ops::gemm::product::Path;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// The operator's entry in the registry.
pub struct GemmGroupedBackward;

/// [`gemm_grouped_backward`](super::gemm_grouped_backward()) in the registry.
pub static GEMM_GROUPED_BACKWARD: GemmGroupedBackward = GemmGroupedBackward;

pub(super) static INFO: OpInfo = OpInfo {
    name: "gemm_grouped_backward",
    bench_name: "gemm.grouped_backward",
    summary: "gradient of gemm_grouped, the weights' in f32 or 16 bits",
    math: "dx[i] = dy[i]·W(g), dW(g) (+)= Σ dy[i]ᵀ·x[i], offsets[g] ≤ i < offsets[g + 1]",
    args: &[
        ArgInfo::input("x", "[rows, in], rows may be padded"),
        ArgInfo::input("weight", "[groups, out, in], any strides"),
        ArgInfo::input("offsets", "[groups + 1], where the groups' rows start and the last ends").of(&[DType::I32]),
        ArgInfo::input("dy", "[rows, out], rows may be padded"),
        ArgInfo::output("dx", "[rows, in], rows may be padded"),
        ArgInfo::in_out("dweight", "[groups, out, in], the last dimension contiguous").of(DType::FLOATS),
    ],
    params: &[
        ParamInfo::bool(ACCUMULATE, false, "whether dweight is added to"),
        ParamInfo::bool(ROUNDED, false, "whether dweight has the type of weight, and not f32"),
    ],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[gk::GEMM_GROUPED_BACKWARD_MMA, gk::GEMM_GROUPED_BACKWARD_HOPPER, GEMM_GROUPED_MMA, GEMM_GROUPED_HOPPER],
    variants: &[
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0: what is picked where rows and matrices lie at multiples of 16 bytes",
            applies: fits_hopper,
            launch: |stream, args, params| run(stream, args, params, Path::Hopper),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, params| run(stream, args, params, Path::Mma),
        },
    ],
};

const ACCUMULATE: &str = "accumulate";
const ROUNDED: &str = "rounded";

/// The type of the weights' gradient.
fn of_dweight(dtype: DType, params: &Params) -> Result<DType> {
    Ok(if params.bool(ROUNDED)? { dtype } else { DType::F32 })
}

fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([groups, rows, depth, out]) = case.dims(DIMS) else { return false };
    let layout = |name, shape: &[usize], turned| fits_tma(case, name, case.dtype, shape, turned);
    let columns = |name, shape: &[usize]| layout(name, shape, true) == Some(Major::Mn);
    let of_rows = [layout("dy", &[rows, out], false), layout("dx", &[rows, depth], false)];
    device.compute_capability == (9, 0)
        && columns("dy", &[rows, out])
        && columns("x", &[rows, depth])
        && gemm_grouped::fits(of_rows, [groups, rows, depth])
        && layout("weight", &[groups, out, depth], true).is_some()
}

fn run(stream: &Stream, args: &mut Arguments<'_>, params: &Params, path: Path) -> Result<()> {
    let (dtype, found) = (args.dtype("x")?, args.dtype("dweight")?);
    let wanted = of_dweight(dtype, params)?;
    if found != wanted {
        return Err(INFO.dtype_error("dweight", found, &[wanted]));
    }
    let accumulate = params.bool(ACCUMULATE)?;
    dispatch!(INFO, dtype, [f16, bf16] => |T| {
        let of = Inputs::<T> {
            x: args.input("x")?,
            weight: args.input("weight")?,
            offsets: args.input("offsets")?,
            dy: args.input("dy")?,
        };
        let dx = args.output("dx")?;
        let dweight = match wanted {
            DType::F32 => WeightGradient::F32(args.output("dweight")?),
            _ => WeightGradient::Rounded(args.output("dweight")?),
        };
        launch(stream, of, accumulate, GroupedGradientsMut { dx, dweight }, path)
    })
}

const DIMS: [&str; 4] = ["groups", "rows", "in", "out"];

impl Operator for GemmGroupedBackward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |groups, rows, depth, out| [("groups", groups), ("rows", rows), ("in", depth), ("out", out)];
        let turned = Arrangement::DENSE.order(&[0, 2, 1]);
        let production = |groups, rows, depth, out| {
            let name = format!("groups={groups} m={rows} n={out} k={depth}");
            Case::production(&INFO, name, DType::BF16, dims(groups, rows, depth, out))
        };
        let mut rounded = production(8, 16384, 4096, 4096).param(ROUNDED, true);
        rounded.name += " rounded";
        let mut cases =
            vec![production(8, 16384, 4096, 4096).timed_only(), rounded.timed_only(), production(8, 4096, 2048, 1024)];
        for &dtype in INFO.dtypes {
            let odd = |groups, rows, depth, out| Case::odd(&INFO, dtype, dims(groups, rows, depth, out));
            let ends_at = |case: Case, total| case.values("offsets", Values::Offsets { total });
            cases.extend([
                odd(3, 140, 72, 136),
                ends_at(odd(3, 150, 40, 144), 133).param(ROUNDED, true).param(ACCUMULATE, true),
                odd(4, 37, 41, 35).param(ACCUMULATE, true),
                ends_at(odd(2, 40, 33, 21), 25).param(ROUNDED, true),
                odd(3, 45, 24, 40)
                    .arrange("x", Arrangement::DENSE.row_pad(8))
                    .arrange("dy", Arrangement::DENSE.row_pad(16))
                    .arrange("weight", turned)
                    .arrange("dx", Arrangement::DENSE.row_pad(8))
                    .arrange("dweight", Arrangement::DENSE.order(&[1, 0, 2])),
                odd(2, 24, 32, 40).offset(1).param(ACCUMULATE, true),
                odd(9, 90, 16, 24).values("offsets", Values::Hostile { bound: 91 }),
                Case::tiny(&INFO, dtype, dims(1, 1, 1, 1)),
                Case::tiny(&INFO, dtype, dims(5, 3, 8, 8)),
                Case::empty(&INFO, dtype, dims(2, 0, 8, 8)),
                Case::empty(&INFO, dtype, dims(2, 0, 8, 8)).param(ACCUMULATE, true),
                Case::empty(&INFO, dtype, dims(2, 8, 8, 0)),
                Case::empty(&INFO, dtype, dims(2, 8, 0, 12)),
                Case::empty(&INFO, dtype, dims(0, 8, 8, 12)),
                Case::boundary(&INFO, dtype, dims(1, 64, 256, 128)),
            ]);
        }
        // Rows after the last group need not be finite.
        let specials = |name| Case::boundary(&INFO, DType::F16, dims(2, 24, 8, 16)).values(name, Values::Specials);
        cases.extend(["x", "dy"].map(|name| specials(name).values("offsets", Values::Constant(0.0))));
        // Clusters that take several tiles, from several groups; a group with more rows than all stages hold.
        cases.extend([dims(3, 300, 264, 264), dims(2, 700, 40, 144)].map(|of| Case::odd(&INFO, DType::F16, of)));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [groups, rows, depth, out] = case.dims(DIMS)?;
        let dweight = of_dweight(case.dtype, &case.params)?;
        let offsets = Values::Offsets { total: rows as i64 };
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, depth]),
            InputSpec::normal("weight", case.dtype, [groups, out, depth]),
            InputSpec::new("offsets", DType::I32, [groups + 1], offsets),
            InputSpec::normal("dy", case.dtype, [rows, out]),
            InputSpec::normal("dweight", dweight, [groups, out, depth]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let (x, weight, dweight) = (inputs.get("x")?, inputs.get("weight")?, inputs.get("dweight")?);
        let [rows, depth] = x.dims()?;
        let [groups, out, _] = weight.dims()?;
        weight.has_shape(&[groups, out, depth])?;
        inputs.get("offsets")?.has_shape(&[groups + 1])?;
        inputs.get("dy")?.has_shape(&[rows, out])?;
        dweight.has_shape(&[groups, out, depth])?;
        let wanted = of_dweight(x.dtype(), params)?;
        if dweight.dtype() != wanted {
            return Err(INFO.dtype_error("dweight", dweight.dtype(), &[wanted]));
        }
        Ok(vec![TensorMeta::new("dx", x.dtype(), [rows, depth])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        run(stream, args, params, Path::Fastest)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight, dy) = (inputs.get("x")?, inputs.get("weight")?, inputs.get("dy")?);
        let [out, depth] = [weight.shape()[1], weight.shape()[2]];
        let groups = rows_of_groups(inputs.get("offsets")?, x.shape()[0]);
        let [x, weight, dy] = [x, weight, dy].map(reference::Widened::new);
        let sum = |sums: &mut Vec<f64>, factor: f64, of: &[f64]| {
            sums.iter_mut().zip(of).for_each(|(sum, x)| *sum += factor * x);
        };
        if output == "dx" {
            return Ok(reference::by_row(rows, |row| {
                let mut dx = vec![0.0; depth];
                if let Some(group) = groups.iter().position(|rows| rows.contains(&row)) {
                    let dy = dy.row(row).iter().enumerate();
                    dy.for_each(|(column, dy)| sum(&mut dx, *dy, weight.row(group * out + column)));
                }
                dx
            }));
        }
        let (before, accumulate) = (inputs.get("dweight")?, params.bool(ACCUMULATE)?);
        Ok(reference::by_row(rows, |row| {
            let mut sums = if accumulate { reference::row(before, row) } else { vec![0.0; depth] };
            for i in groups[row / out].clone() {
                sum(&mut sums, dy.row(i)[row % out], x.row(i));
            }
            sums
        }))
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [rows, out] = case.dims(["rows", "out"])?;
        // As in gemm: truncations of a running sum of size √k for each step of 16 products, all towards zero; and what was there is added.
        let dweight = of_dweight(case.dtype, &case.params)?;
        let (k, dtype) = if output == "dx" { (out, case.dtype) } else { (rows, dweight) };
        let ulp = roundoff(DType::F32);
        let abs = ((k as f64).sqrt() * ((k as f64 / 16.0).max(1.0) * 4.0 + 6.0) + 6.0) * ulp;
        let why = "one rounding of the result, and k/16 truncations of sums of size √k";
        Ok(Tolerance::rounded(dtype, abs, 2.0 * ulp, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [groups, rows, depth, out] = case.dims(DIMS)?;
        let passes = 1 + usize::from(case.params.bool(ACCUMULATE)?);
        let dweight = passes * of_dweight(case.dtype, &case.params)?.size() * groups * out * depth;
        let bytes = case.dtype.size() * (2 * rows * depth + groups * out * depth + rows * out) + 4 * (groups + 1);
        Ok(Cost::compute((bytes + dweight) as u64, 4 * (rows * depth * out) as u64, Bound::Tensor(case.dtype)))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient {
            forward: &GEMM_GROUPED,
            of_outputs: &[("dy", "y")],
            of_inputs: &[("dx", "x"), ("dweight", "weight")],
        })
    }
}
