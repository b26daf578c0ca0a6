//! Products of the first rows of each expert's matrix with the expert's weight.

use cuda_std::float::Half;
use gpu_kernels::ops::gemm::gemm::{hopper, mma};
use gpu_kernels::ops::gemm::{self as gk_family, gemm_grouped_masked as gk};
use half::{bf16, f16};

use super::operand::{Major, Operand, OperandLayout, Tiling, fits_tma};
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

/// y(e) = x(e)·W(e)ᵀ in f16 or bf16 with f32 accumulation, for the first `counts[e]` rows of each expert e: a mixture whose
/// tokens are stored in buffers of a fixed size, as in a CUDA graph that is replayed. `x` is `[experts, rows, in]`, `weight` is
/// `[experts, out, in]`, `counts` is `[experts]` and the result is `[experts, rows, out]`.
///
/// Other rows of `x` are ignored, and their results are zeros. The counts stay on the device and are not checked: they are
/// clamped to 0 ..= rows. The time of the products depends on the rows that count. For rows stored one after the other, use
/// [`gemm_grouped`](super::gemm_grouped()).
///
/// Rows of `x` are contiguous; `weight` may have any strides. On Hopper, rows of `x` at multiples of 16 bytes and matrices that
/// are dense in either order, at multiples of 16 bytes, take the TMA and wgmma path; everything else takes the mma.sync path,
/// which is fastest with the same alignment. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows of `x` or `y` or the counts are not
/// contiguous, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [2, 2, 1], &[1.0, 2.0, 3.0, 4.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [2, 1, 1], &[10.0, 100.0].map(f16::from_f32))?;
/// let counts = Tensor::from_slice(&stream, [2], &[2, 1])?;
/// let y = ops::gemm_grouped_masked(&stream, &x, &weight, &counts)?;
/// assert_eq!(y.to_vec(&stream)?, [10.0, 20.0, 300.0, 0.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn gemm_grouped_masked<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    counts: impl Into<View<'a, i32>>,
) -> Result<Tensor<T>> {
    let (x, weight, counts) = (x.into(), weight.into(), counts.into());
    let [experts, rows, _]: [usize; 3] = x.dims(INFO.name, "x")?;
    let [_, out, _]: [usize; 3] = weight.dims(INFO.name, "weight")?;
    let mut y = Tensor::zeros(stream, [experts, rows, out]).map_err(|error| error.of(INFO.name, "y"))?;
    gemm_grouped_masked_into(stream, x, weight, counts, &mut y)?;
    Ok(y)
}

/// [`gemm_grouped_masked`] into `y`, `[experts, rows, out]`, whose rows may be padded. Rows that do not count are left as they are.
///
/// # Errors
/// Same as [`gemm_grouped_masked`].
pub fn gemm_grouped_masked_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    counts: impl Into<View<'a, i32>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, x.into(), weight.into(), counts.into(), y.into(), Path::Fastest)
}

fn launch<T: Float + Half>(
    stream: &Stream,
    x: View<'_, T>,
    weight: View<'_, T>,
    counts: View<'_, i32>,
    mut y: ViewMut<'_, T>,
    path: Path,
) -> Result<()> {
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("counts", &counts), ("y", &y)])?;
    let [experts, rows, depth]: [usize; 3] = x.dims(INFO.name, "x")?;
    let [_, out, _]: [usize; 3] = weight.dims(INFO.name, "weight")?;
    weight.require_shape(INFO.name, "weight", &[experts, out, depth])?;
    counts.require_shape(INFO.name, "counts", &[experts])?;
    counts.require_contiguous(INFO.name, "counts")?;
    y.require_shape(INFO.name, "y", &[experts, rows, out])?;
    x.require_inner_contiguous(INFO.name, "x")?;
    y.require_inner_contiguous(INFO.name, "y")?;
    let [m, n, k, batch] = sizes(&INFO, [("x", rows), ("weight", out), ("x", depth), ("x", experts)])?;
    let columns = n.div_ceil(mma::BLOCK) as usize;
    let blocks = (m.div_ceil(mma::BLOCK) as usize * columns).saturating_mul(experts);
    let Some(blocks) = grid(&INFO, "y", blocks, 1)? else { return Ok(()) };
    let (x, weight) = (Operand::new(x), Operand::new(weight));
    let c = [y.strides()[0], y.strides()[1]].map(|stride| stride as u64);
    let (a, b) = (x.layout.strides, weight.layout.strides);
    let problem = gk_family::Problem { a, b, c, m, n, k, batch, alpha: 1.0, beta: 0.0 };
    let of_y = OperandLayout::of(y.shape(), y.strides(), y.alignment(), size_of::<T>()).fits_tma();
    let fits = weight.layout.fits_tma().filter(|_| fits([x.layout.fits_tma(), of_y], out));
    if path == Path::Hopper && fits.is_none() {
        let wanted = "in > 0, rows of x and y at multiples of 16 bytes and those of y of whole ones, and matrices with adjacent elements in one order and all else at such multiples";
        return Err(INFO.param_error("variant", "hopper", wanted));
    }
    note_work(Bound::Tensor(T::DTYPE), [batch, m, n, k]);
    match fits {
        Some(major) if path == Path::Hopper || path == Path::Fastest && stream.device().supports_hopper() => {
            let Tiling { maps: [x_map, weight_map, y_map], store, grid } =
                Tiling::new(stream, (&x, &weight), [Major::K, major], &mut y, &problem, hopper::TILE)?;
            let args = (x_map, weight_map, y_map, y.ptr_mut(stream)?, problem, store, counts.ptr(stream)?);
            // SAFETY: the maps and y describe live tensors of these sizes, y is borrowed mutably, and there is a count for each expert.
            unsafe {
                match major {
                    Major::K => stream.launch::<gk::GemmGroupedMaskedHopper<T, false>>(grid, args),
                    Major::Mn => stream.launch::<gk::GemmGroupedMaskedHopper<T, true>>(grid, args),
                }
            }
        }
        _ => {
            let (x_ptr, weight_ptr) = (x.rows.ptr(stream)?, weight.rows.ptr(stream)?);
            let args = (x_ptr, weight_ptr, y.ptr_mut(stream)?, problem, counts.ptr(stream)?);
            // SAFETY: the tensors are live and have these sizes at these strides, and y is borrowed mutably; only operands that
            // are aligned for packs are read in packs.
            unsafe {
                match (x.layout.major, weight.layout.major) {
                    (Some(Major::K), Some(Major::K)) => {
                        stream.launch::<gk::GemmGroupedMaskedMma<T, false, 8>>(blocks, args)
                    }
                    (Some(Major::K), Some(Major::Mn)) => {
                        stream.launch::<gk::GemmGroupedMaskedMma<T, true, 8>>(blocks, args)
                    }
                    _ => stream.launch::<gk::GemmGroupedMaskedMma<T, false, 1>>(blocks, args),
                }
            }
        }
    }
}

/// The operator's entry in the registry.
pub struct GemmGroupedMasked;

/// [`gemm_grouped_masked`] in the registry.
pub static GEMM_GROUPED_MASKED: GemmGroupedMasked = GemmGroupedMasked;

static INFO: OpInfo = OpInfo {
    name: "gemm_grouped_masked",
    bench_name: "gemm.grouped_masked",
    summary: "products of the first rows of each expert with a matrix each",
    math: "y[e, i] = x[e, i]·W(e)ᵀ, i < counts[e]",
    args: &[
        ArgInfo::input("x", "[experts, rows, in], the last dimension contiguous"),
        ArgInfo::input("weight", "[experts, out, in], any strides"),
        ArgInfo::input("counts", "[experts], contiguous: rows of each that count").of(&[DType::I32]),
        ArgInfo::in_out("y", "[experts, rows, out], the last dimension contiguous"),
    ],
    params: &[],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[gk::GEMM_GROUPED_MASKED_MMA, gk::GEMM_GROUPED_MASKED_HOPPER],
    variants: &[
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0: what is picked where x and the matrices lie at multiples of 16 bytes",
            applies: fits_hopper,
            launch: |stream, args, _| run(stream, args, Path::Hopper),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, _| run(stream, args, Path::Mma),
        },
    ],
};

/// Whether TMA takes operands in these layouts, `x` and `y`, with this number of columns.
fn fits(layouts: [Option<Major>; 2], out: usize) -> bool {
    layouts == [Some(Major::K); 2] && out.is_multiple_of(8)
}

fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([experts, rows, depth, out]) = case.dims(DIMS) else {
        return false;
    };
    let layout = |name, shape: &[usize]| fits_tma(case, name, case.dtype, shape, false);
    device.compute_capability == (9, 0)
        && [experts, rows, out].iter().all(|size| *size > 0)
        && fits([layout("x", &[experts, rows, depth]), layout("y", &[experts, rows, out])], out)
        && layout("weight", &[experts, out, depth]).is_some()
}

fn run(stream: &Stream, args: &mut Arguments<'_>, path: Path) -> Result<()> {
    dispatch!(INFO, args.dtype("x")?, [f16, bf16] => |T| {
        let (x, weight, counts) = (args.input::<T>("x")?, args.input("weight")?, args.input("counts")?);
        launch(stream, x, weight, counts, args.output("y")?, path)
    })
}

const DIMS: [&str; 4] = ["experts", "rows", "in", "out"];

impl Operator for GemmGroupedMasked {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |experts, rows, depth, out| [("experts", experts), ("rows", rows), ("in", depth), ("out", out)];
        let turned = Arrangement::DENSE.order(&[0, 2, 1]);
        let counted = |case: Case, count: f64| case.values("counts", Values::Constant(count));
        let production = |experts, rows, depth, out, count: usize| {
            let name = format!("experts={experts} m={count} of {rows} n={out} k={depth} NT");
            counted(Case::production(&INFO, name, DType::BF16, dims(experts, rows, depth, out)), count as f64)
        };
        let mut cases = vec![production(32, 1024, 4096, 4096, 600), production(64, 512, 4096, 2048, 96).timed_only()];
        for &dtype in INFO.dtypes {
            let odd = |experts, rows, depth, out| Case::odd(&INFO, dtype, dims(experts, rows, depth, out));
            cases.extend([
                odd(3, 140, 72, 144),
                odd(2, 140, 40, 136).arrange("weight", turned),
                odd(4, 37, 41, 35),
                odd(2, 40, 24, 33).arrange("weight", turned),
                // All of k is a quarter of a stage.
                odd(3, 20, 16, 24).arrange("weight", turned),
                odd(3, 45, 24, 40)
                    .arrange("x", Arrangement::DENSE.row_pad(8))
                    .arrange("weight", Arrangement::DENSE.row_pad(16))
                    .arrange("y", Arrangement::DENSE.order(&[1, 0, 2])),
                odd(2, 24, 32, 40).arrange("x", Arrangement::DENSE.broadcast(&[0])),
                odd(2, 24, 32, 40).offset(1),
                odd(9, 20, 16, 24).values("counts", Values::Hostile { bound: 21 }),
                counted(odd(2, 300, 64, 264), 290.0),
                Case::tiny(&INFO, dtype, dims(1, 1, 1, 1)),
                Case::tiny(&INFO, dtype, dims(5, 3, 8, 8)),
                Case::empty(&INFO, dtype, dims(2, 0, 8, 8)),
                Case::empty(&INFO, dtype, dims(2, 8, 8, 0)),
                Case::empty(&INFO, dtype, dims(2, 8, 0, 12)),
                Case::empty(&INFO, dtype, dims(0, 8, 8, 12)),
                counted(Case::boundary(&INFO, dtype, dims(2, 16, 8, 8)), 0.0),
                counted(Case::boundary(&INFO, dtype, dims(1, 256, 64, 256)), 256.0),
            ]);
        }
        // Clusters that take several tiles, and tiles of which one consumer has nothing to do, with more stages than the ring has.
        let several = |experts, rows, depth, out| Case::odd(&INFO, DType::F16, dims(experts, rows, depth, out));
        for case in [several(4, 300, 200, 520), several(12, 40, 520, 264)] {
            cases.extend([case.clone(), case.arrange("weight", turned)]);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [experts, rows, depth, out] = case.dims(DIMS)?;
        let counts = Values::Integers { low: 0, high: rows as i64 };
        let specs = [
            InputSpec::normal("x", case.dtype, [experts, rows, depth]),
            InputSpec::normal("weight", case.dtype, [experts, out, depth]),
            InputSpec::new("counts", DType::I32, [experts], counts),
            InputSpec::normal("y", case.dtype, [experts, rows, out]),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
        let [experts, rows, depth] = x.dims()?;
        let [_, out, _] = weight.dims()?;
        weight.has_shape(&[experts, out, depth])?;
        inputs.get("counts")?.has_shape(&[experts])?;
        inputs.get("y")?.has_shape(&[experts, rows, out])?;
        Ok(Vec::new())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        run(stream, args, Path::Fastest)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight, y) = (inputs.get("x")?, inputs.get("weight")?, inputs.get("y")?);
        let ([m, out], counts) = ([x.shape()[1], weight.shape()[1]], inputs.get("counts")?.to_f64());
        let weight = reference::Widened::new(weight);
        Ok(reference::by_row(rows, |row| {
            let expert = row / m;
            if (row % m) as f64 >= counts[expert] {
                return reference::row(y, row);
            }
            let x = reference::row(x, row);
            (expert * out..(expert + 1) * out).map(|column| reference::dot(&x, weight.row(column))).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [depth] = case.dims(["in"])?;
        // As in gemm: a truncation by 2⁻²² of a running sum of size √k for each step of 16 products, all towards zero.
        let abs = (depth as f64).sqrt() * (depth as f64 / 16.0).max(1.0) * 4.0 * roundoff(DType::F32);
        let why = "one rounding of the result, and k/16 truncations of sums of size √k";
        Ok(Tolerance::rounded(case.dtype, abs, 2.0 * roundoff(DType::F32), why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [experts, rows, depth, out] = case.dims(DIMS)?;
        let rows = match case.values_of("counts") {
            Some(Values::Constant(count)) => count as usize,
            _ => rows,
        };
        let bytes = case.dtype.size() * experts * (rows * depth + out * depth + rows * out) + 4 * experts;
        Ok(Cost::compute(bytes as u64, 2 * (experts * rows * depth * out) as u64, Bound::Tensor(case.dtype)))
    }
}
