//! Gradient of the grouped matrix product.

use cuda_std::float::{Element, Half};
use gpu_kernels::ops::gemm::gemm::{hopper, mma};
use gpu_kernels::ops::gemm::gemm_grouped::{GEMM_GROUPED_HOPPER, GEMM_GROUPED_MMA};
use gpu_kernels::ops::gemm::{self as gk_family, gemm_grouped_backward as gk};
use half::{bf16, f16};

use super::gemm_grouped::{self, GEMM_GROUPED, rows_of_groups};
use super::operand::{Major, Operand, Tiling, fits_tma};
use super::product::Path;
use super::{note_work, sizes};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradients of [`gemm_grouped`](fn@crate::ops::gemm_grouped); that of the matrices is in f32.
///
/// `x` is `[rows, in]`, `weight` is `[groups, out, in]`, `offsets` is `[groups + 1]`, as in the forward, and `dy`, the gradient of the result, is
/// `[rows, out]`. In the rows of group g, dx = dy · W(g) and dweight(g) = dyᵀ · x. Rows of no group have a dx of zeros and contribute to no weight,
/// whatever they contain; the weight of a group without rows has a gradient of zeros. Sums are f32 in the order of the rows, the same every time. The
/// results are new dense tensors; the work is queued on `stream`.
///
/// Rows of `x` and `dy` may be padded; `weight` may have any strides. As in the forward, the fast paths need rows at multiples of 16 bytes.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows or the offsets are not contiguous or rows
/// not equally far apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3, 1], &[1.0, 2.0, 3.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [2, 1, 1], &[10.0, 100.0].map(f16::from_f32))?;
/// let offsets = Tensor::from_slice(&stream, [3], &[0, 1, 3])?;
/// let dy = Tensor::from_slice(&stream, [3, 1], &[1.0, 0.5, -1.0].map(f16::from_f32))?;
/// let gradients = ops::gemm_grouped_backward(&stream, &x, &weight, &offsets, &dy)?;
/// assert_eq!(gradients.dx.to_vec(&stream)?, [10.0, 50.0, -100.0].map(f16::from_f32));
/// assert_eq!(gradients.dweight.to_vec(&stream)?, [1.0, -2.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_grouped_backward<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    offsets: impl Into<View<'a, i32>>,
    dy: impl Into<View<'a, T>>,
) -> Result<GroupedGradients<T>> {
    let (x, weight, offsets, dy) = (x.into(), weight.into(), offsets.into(), dy.into());
    let mut dx = Tensor::result(stream, x.shape())?;
    let mut dweight = Tensor::result(stream, weight.shape())?;
    let gradients = GroupedGradientsMut { dx: (&mut dx).into(), dweight: WeightGradient::F32((&mut dweight).into()) };
    gemm_grouped_backward_into(stream, x, weight, offsets, dy, false, gradients)?;
    Ok(GroupedGradients { dx, dweight })
}

/// The gradients of [`gemm_grouped`](fn@crate::ops::gemm_grouped) with respect to its inputs.
#[derive(Debug)]
pub struct GroupedGradients<T> {
    /// The gradient with respect to the rows, `[rows, in]`.
    pub dx: Tensor<T>,
    /// The gradient with respect to the matrices, `[groups, out, in]`, in f32, as it was summed.
    pub dweight: Tensor<f32>,
}

/// Where to write [`GroupedGradients`].
#[derive(Debug)]
pub struct GroupedGradientsMut<'a, T> {
    /// The gradient with respect to the rows, `[rows, in]`; rows may be padded.
    pub dx: ViewMut<'a, T>,
    /// The gradient with respect to the matrices, `[groups, out, in]`, with a contiguous last dimension.
    pub dweight: WeightGradient<'a, T>,
}

/// The gradient of weights, in either of two types.
#[derive(Debug)]
pub enum WeightGradient<'a, T> {
    /// In f32, as it was summed.
    F32(ViewMut<'a, f32>),
    /// Rounded to the type of the weights.
    Rounded(ViewMut<'a, T>),
}

/// [`gemm_grouped_backward`] that writes to `gradients`. With `accumulate`, the gradient of the matrices is added to the present contents;
/// without it, the present contents are ignored.
///
/// # Errors
/// Same as [`gemm_grouped_backward`].
pub fn gemm_grouped_backward_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    offsets: impl Into<View<'a, i32>>,
    dy: impl Into<View<'a, T>>,
    accumulate: bool,
    gradients: GroupedGradientsMut<'a, T>,
) -> Result<()> {
    let of = Inputs { x: x.into(), weight: weight.into(), offsets: offsets.into(), dy: dy.into() };
    launch(stream, of, accumulate, gradients, Path::Fastest)
}

/// The inputs of the gradient.
struct Inputs<'a, T> {
    x: View<'a, T>,
    weight: View<'a, T>,
    offsets: View<'a, i32>,
    dy: View<'a, T>,
}

fn launch<T: Float + Half>(
    stream: &Stream,
    of: Inputs<'_, T>,
    accumulate: bool,
    GroupedGradientsMut { dx, dweight }: GroupedGradientsMut<'_, T>,
    path: Path,
) -> Result<()> {
    let Inputs { x, weight, offsets, dy } = of;
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("offsets", &offsets)])?;
    stream.require_devices(INFO.name, &[("dy", &dy), ("dx", &dx)])?;
    let [rows, depth]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [groups, out, _]: [usize; 3] = weight.dims(INFO.name, "weight")?;
    weight.require_shape(INFO.name, "weight", &[groups, out, depth])?;
    offsets.require_shape(INFO.name, "offsets", &[groups.saturating_add(1)])?;
    offsets.require_contiguous(INFO.name, "offsets")?;
    dy.require_shape(INFO.name, "dy", &[rows, out])?;
    dx.require_shape(INFO.name, "dx", &[rows, depth])?;
    x.require_row_stride(INFO.name, "x")?;
    dy.require_row_stride(INFO.name, "dy")?;
    dx.require_row_stride(INFO.name, "dx")?;
    let beta = if accumulate { 1.0 } else { 0.0 };
    match dweight {
        WeightGradient::F32(dweight) => of_weight(stream, dy, x, offsets, beta, dweight, path)?,
        WeightGradient::Rounded(dweight) => of_weight(stream, dy, x, offsets, beta, dweight, path)?,
    }
    gemm_grouped::launch(stream, dy, weight.t(), offsets, dx, path)
}

/// dweight(g) = dyᵀ · x over the rows of group g, + β · dweight(g).
fn of_weight<T: Float + Half, C: Float + Element>(
    stream: &Stream,
    dy: View<'_, T>,
    x: View<'_, T>,
    offsets: View<'_, i32>,
    beta: f32,
    mut dweight: ViewMut<'_, C>,
    path: Path,
) -> Result<()> {
    let ([rows, out], [_, depth]) = (dy.dims::<2>(INFO.name, "dy")?, x.dims::<2>(INFO.name, "x")?);
    // There is one offset more than groups, as was checked.
    let groups = offsets.shape()[0] - 1;
    dweight.require_device(INFO.name, "dweight", stream)?;
    dweight.require_shape(INFO.name, "dweight", &[groups, out, depth])?;
    dweight.require_inner_contiguous(INFO.name, "dweight")?;
    let [m, n, k, batch] = sizes(&INFO, [("dy", out), ("x", depth), ("x", rows), ("weight", groups)])?;
    let tiles = m.div_ceil(mma::BLOCK) as usize * n.div_ceil(mma::BLOCK) as usize;
    let blocks = grid(&INFO, "dweight", tiles.saturating_mul(groups), 1)?;
    // A column of an operand is a row of the product.
    let (a, b) = (Operand::new(dy.t()), Operand::new(x.t()));
    let fits = [&a, &b].iter().all(|operand| operand.layout.fits_tma() == Some(Major::Mn));
    if path == Path::Hopper && !fits {
        let wanted = "rows of x and dy, of which there are some, at multiples of 16 bytes";
        return Err(INFO.param_error("variant", "hopper", wanted));
    }
    let Some(blocks) = blocks else { return Ok(()) };
    let problem = gk_family::Problem {
        a: a.layout.strides,
        b: b.layout.strides,
        c: [dweight.strides()[0], dweight.strides()[1]].map(|stride| stride as u64),
        m,
        n,
        k,
        batch,
        alpha: 1.0,
        beta,
    };
    note_work(Bound::Tensor(T::DTYPE), [1, m, n, k]);
    if path == Path::Hopper || path == Path::Fastest && fits && stream.device().supports_hopper() {
        let Tiling { maps: [a_map, b_map, c_map], store, grid } =
            Tiling::new(stream, (&a, &b), [Major::Mn; 2], &mut dweight, &problem, hopper::TILE)?;
        let args = (a_map, b_map, c_map, dweight.ptr_mut(stream)?, problem, store, offsets.ptr(stream)?);
        // SAFETY: the maps and dweight describe live tensors of these sizes, dweight is borrowed mutably, and there are groups + 1 offsets.
        return unsafe { stream.launch::<gk::GemmGroupedBackwardHopper<T, C>>(grid, args) };
    }
    let (dy, x) = (a.rows.ptr(stream)?, b.rows.ptr(stream)?);
    let args = (dy, x, dweight.ptr_mut(stream)?, problem, offsets.ptr(stream)?);
    // SAFETY: the tensors are live and have these sizes at these strides, and dweight is borrowed mutably; packs are read only where operands are
    // aligned.
    unsafe {
        if [&a, &b].iter().all(|operand| operand.layout.major == Some(Major::Mn)) {
            stream.launch::<gk::GemmGroupedBackwardMma<T, C, 8>>(blocks, args)
        } else {
            stream.launch::<gk::GemmGroupedBackwardMma<T, C, 1>>(blocks, args)
        }
    }
}

/// The operator's entry in the registry.
pub struct GemmGroupedBackward;

/// [`gemm_grouped_backward`] in the registry.
pub static GEMM_GROUPED_BACKWARD: GemmGroupedBackward = GemmGroupedBackward;

static INFO: OpInfo = OpInfo {
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
