//! Grouped matrix product: each group of rows times a matrix of its own.

use std::ops::Range;

use cuda_std::float::Half;
use gpu_kernels::ops::gemm::gemm::{hopper, mma};
use gpu_kernels::ops::gemm::{self as gk_family, gemm_grouped as gk};
use half::{bf16, f16};

use super::operand::{Major, Operand, OperandLayout, Tiling, fits_tma, half};
use super::product::Path;
use super::{note_work, sizes};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::{DType, Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// y = x·W(g)ᵀ in f16 or bf16 with f32 accumulation, where each group g of rows has a matrix of its own: the experts of a
/// mixture, with tokens sorted by expert. `x` is `[rows, in]`, `weight` is `[groups, out, in]`, `offsets` is `[groups + 1]` and
/// the result is `[rows, out]`.
///
/// Group g has the rows `offsets[g]..offsets[g + 1]` and may be empty. Rows before `offsets[0]` and after the last offset
/// belong to no group: their results are zeros and cost no product, so `x` may be larger than its contents. The offsets stay on
/// the device and are not checked: they are clamped to 0 ..= rows, and an offset below the previous one counts as the previous
/// one.
///
/// Rows of `x` and of the result may be padded. `weight` may have any strides: with dy as `x` and the transposed matrices,
/// `weight.view().t()`, this computes the gradient of `x`. On Hopper, rows of `x` at multiples of 16 bytes and matrices that
/// are dense in either order, at multiples of 16 bytes, take the TMA and wgmma path; everything else takes the mma.sync path,
/// which is fastest with the same alignment. The result is a new dense tensor; the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows of `x` or `y` or the offsets are not
/// contiguous, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [3, 1], &[1.0, 2.0, 3.0].map(f16::from_f32))?;
/// let weight = Tensor::from_slice(&stream, [2, 1, 1], &[10.0, 100.0].map(f16::from_f32))?;
/// let offsets = Tensor::from_slice(&stream, [3], &[0, 1, 3])?;
/// let y = ops::gemm_grouped(&stream, &x, &weight, &offsets)?;
/// assert_eq!(y.to_vec(&stream)?, [10.0, 200.0, 300.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn gemm_grouped<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    offsets: impl Into<View<'a, i32>>,
) -> Result<Tensor<T>> {
    let (x, weight, offsets) = (x.into(), weight.into(), offsets.into());
    let [rows, _]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [_, out, _]: [usize; 3] = weight.dims(INFO.name, "weight")?;
    let mut y = Tensor::result_as(INFO.name, "y", stream, [rows, out])?;
    gemm_grouped_into(stream, x, weight, offsets, &mut y)?;
    Ok(y)
}

/// [`gemm_grouped`] into `y`, `[rows, out]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_grouped`].
pub fn gemm_grouped_into<'a, T: Float + Half>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    weight: impl Into<View<'a, T>>,
    offsets: impl Into<View<'a, i32>>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, x.into(), weight.into(), offsets.into(), y.into(), Path::Fastest)
}

pub(super) fn launch<T: Float + Half>(
    stream: &Stream,
    x: View<'_, T>,
    weight: View<'_, T>,
    offsets: View<'_, i32>,
    mut y: ViewMut<'_, T>,
    path: Path,
) -> Result<()> {
    stream.require_devices(INFO.name, &[("x", &x), ("weight", &weight), ("offsets", &offsets), ("y", &y)])?;
    let [rows, depth]: [usize; 2] = x.dims(INFO.name, "x")?;
    let [groups, out, _]: [usize; 3] = weight.dims(INFO.name, "weight")?;
    weight.require_shape(INFO.name, "weight", &[groups, out, depth])?;
    offsets.require_shape(INFO.name, "offsets", &[groups.saturating_add(1)])?;
    offsets.require_contiguous(INFO.name, "offsets")?;
    y.require_shape(INFO.name, "y", &[rows, out])?;
    x.require_row_stride(INFO.name, "x")?;
    let ldc = y.require_row_stride(INFO.name, "y")? as u64;
    let [m, n, k, count] = sizes(&INFO, [("x", rows), ("weight", out), ("x", depth), ("weight", groups)])?;
    // Every group may end in a partial tile.
    let most = |tile: u32| (rows.div_ceil(tile as usize)).saturating_add(groups);
    let blocks = grid(&INFO, "y", most(mma::BLOCK).saturating_mul(n.div_ceil(mma::BLOCK) as usize), 1)?;
    let (x, weight) = (Operand::new(x), Operand::new(weight));
    let problem = gk_family::Problem {
        a: x.layout.strides,
        b: weight.layout.strides,
        c: [0, ldc],
        m,
        n,
        k,
        batch: 1,
        alpha: 1.0,
        beta: 0.0,
    };
    let fits = by_tma(&x, &weight, &y, [groups, rows, out]);
    if path == Path::Hopper && fits.is_none() {
        let wanted = "groups and in > 0, rows of x and y at multiples of 16 bytes and those of y of whole ones, and matrices with adjacent elements in one order and all else at such multiples";
        return Err(INFO.param_error("variant", "hopper", wanted));
    }
    let Some(blocks) = blocks.filter(|_| m > 0) else { return Ok(()) };
    note_work(Bound::Tensor(T::DTYPE), [1, m, n, k]);
    match fits {
        Some(major) if path == Path::Hopper || path == Path::Fastest && stream.device().supports_hopper() => {
            let tiles = most(hopper::CLUSTER * hopper::BLOCK_M) * n.div_ceil(hopper::BLOCK_N) as usize;
            let loaded = [hopper::BLOCK_M, half(hopper::BLOCK_N, major)];
            let Tiling { maps: [x_map, weight_map, y_map], store, grid } =
                Tiling::of(stream, (&x, &weight), [Major::K, major], &mut y, &problem, loaded, tiles)?;
            let (y, offsets) = (y.ptr_mut(stream)?, offsets.ptr(stream)?);
            let args = (x_map, weight_map, y_map, y, problem, store, offsets, count);
            // SAFETY: the maps and y describe live tensors of these sizes, y is borrowed mutably, and there are groups + 1 offsets.
            unsafe {
                match major {
                    Major::K => stream.launch::<gk::GemmGroupedHopper<T, false>>(grid, args),
                    Major::Mn => stream.launch::<gk::GemmGroupedHopper<T, true>>(grid, args),
                }
            }
        }
        _ => {
            let (x_ptr, weight_ptr) = (x.rows.ptr(stream)?, weight.rows.ptr(stream)?);
            let args = (x_ptr, weight_ptr, y.ptr_mut(stream)?, problem, offsets.ptr(stream)?, count);
            // SAFETY: the tensors are live and have these sizes at these strides, and y is borrowed mutably; only operands that
            // are aligned for packs are read in packs.
            unsafe {
                match (x.layout.major, weight.layout.major) {
                    (Some(Major::K), Some(Major::K)) => stream.launch::<gk::GemmGroupedMma<T, false, 8>>(blocks, args),
                    (Some(Major::K), Some(Major::Mn)) => stream.launch::<gk::GemmGroupedMma<T, true, 8>>(blocks, args),
                    _ => stream.launch::<gk::GemmGroupedMma<T, false, 1>>(blocks, args),
                }
            }
        }
    }
}

/// How the matrices lie, if TMA takes them, the rows and the result, of these sizes.
pub(super) fn by_tma<T: Dtype>(
    x: &Operand<'_, T>,
    weight: &Operand<'_, T>,
    y: &ViewMut<'_, T>,
    sizes: [usize; 3],
) -> Option<Major> {
    let of_y = OperandLayout::of(y.shape(), y.strides(), y.alignment(), size_of::<T>()).fits_tma();
    weight.layout.fits_tma().filter(|_| fits([x.layout.fits_tma(), of_y], sizes))
}

/// The operator's entry in the registry.
pub struct GemmGrouped;

/// [`gemm_grouped`] in the registry.
pub static GEMM_GROUPED: GemmGrouped = GemmGrouped;

static INFO: OpInfo = OpInfo {
    name: "gemm_grouped",
    bench_name: "gemm.grouped",
    summary: "products of groups of rows with a matrix each",
    math: "y[i] = x[i]·W(g)ᵀ, offsets[g] ≤ i < offsets[g + 1]",
    args: &[
        ArgInfo::input("x", "[rows, in], rows may be padded"),
        ArgInfo::input("weight", "[groups, out, in], any strides"),
        ArgInfo::input("offsets", "[groups + 1], where the groups' rows start and the last ends").of(&[DType::I32]),
        ArgInfo::output("y", "[rows, out], rows may be padded"),
    ],
    params: &[],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[gk::GEMM_GROUPED_MMA, gk::GEMM_GROUPED_HOPPER],
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

/// Whether TMA takes operands in these layouts, `x` and `y`, of these sizes.
pub(super) fn fits(layouts: [Option<Major>; 2], [groups, rows, out]: [usize; 3]) -> bool {
    layouts == [Some(Major::K); 2] && groups > 0 && rows > 0 && out > 0 && out.is_multiple_of(8)
}

fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([groups, rows, depth, out]) = case.dims(DIMS) else {
        return false;
    };
    let layout = |name, shape: &[usize]| fits_tma(case, name, case.dtype, shape, false);
    device.compute_capability == (9, 0)
        && fits([layout("x", &[rows, depth]), layout("y", &[rows, out])], [groups, rows, out])
        && layout("weight", &[groups, out, depth]).is_some()
}

fn run(stream: &Stream, args: &mut Arguments<'_>, path: Path) -> Result<()> {
    dispatch!(INFO, args.dtype("x")?, [f16, bf16] => |T| {
        let (x, weight, offsets) = (args.input::<T>("x")?, args.input("weight")?, args.input("offsets")?);
        launch(stream, x, weight, offsets, args.output("y")?, path)
    })
}

const DIMS: [&str; 4] = ["groups", "rows", "in", "out"];

impl Operator for GemmGrouped {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |groups, rows, depth, out| [("groups", groups), ("rows", rows), ("in", depth), ("out", out)];
        let turned = Arrangement::DENSE.order(&[0, 2, 1]);
        let production = |groups, rows, depth, out, how: &str| {
            let name = format!("groups={groups} m={rows} n={out} k={depth} {how}");
            Case::production(&INFO, name, DType::BF16, dims(groups, rows, depth, out))
        };
        let mut cases = vec![
            production(8, 16384, 4096, 4096, "NT"),
            production(8, 16384, 4096, 4096, "NN").arrange("weight", turned).timed_only(),
            production(64, 16384, 4096, 2048, "NT").timed_only(),
        ];
        for &dtype in INFO.dtypes {
            let odd = |groups, rows, depth, out| Case::odd(&INFO, dtype, dims(groups, rows, depth, out));
            let ends_at = |case: Case, total| case.values("offsets", Values::Offsets { total });
            cases.extend([
                odd(3, 140, 72, 144),
                ends_at(odd(3, 140, 40, 136), 133).arrange("weight", turned),
                odd(4, 37, 41, 35),
                ends_at(odd(2, 40, 24, 33), 21).arrange("weight", turned),
                odd(3, 45, 24, 40)
                    .arrange("x", Arrangement::DENSE.row_pad(8))
                    .arrange("weight", Arrangement::DENSE.row_pad(16))
                    .arrange("y", Arrangement::DENSE.row_pad(4)),
                odd(2, 24, 32, 40).arrange("weight", Arrangement::DENSE.broadcast(&[0])),
                odd(2, 24, 32, 40).offset(1),
                odd(9, 90, 16, 24).values("offsets", Values::Hostile { bound: 91 }),
                Case::tiny(&INFO, dtype, dims(1, 1, 1, 1)),
                Case::tiny(&INFO, dtype, dims(5, 3, 8, 8)),
                Case::empty(&INFO, dtype, dims(2, 0, 8, 8)),
                Case::empty(&INFO, dtype, dims(2, 8, 8, 0)),
                Case::empty(&INFO, dtype, dims(2, 8, 0, 12)),
                Case::empty(&INFO, dtype, dims(0, 8, 8, 12)),
                Case::boundary(&INFO, dtype, dims(1, 256, 64, 256)),
            ]);
        }
        // Clusters that take several tiles, from several groups, and several whole tiles.
        let several = |groups, rows, depth| Case::odd(&INFO, DType::F16, dims(groups, rows, depth, 520));
        cases.extend([
            several(4, 400, 72),
            several(6, 900, 200),
            several(1, 304, 200),
            several(1, 304, 200).arrange("weight", turned),
        ]);
        // Tiles of which one consumer has nothing to do, with more stages than the ring has.
        let few = Case::odd(&INFO, DType::F16, dims(12, 240, 520, 264));
        cases.extend([few.clone(), few.arrange("weight", turned)]);
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [groups, rows, depth, out] = case.dims(DIMS)?;
        let offsets = Values::Offsets { total: rows as i64 };
        let specs = [
            InputSpec::normal("x", case.dtype, [rows, depth]),
            InputSpec::normal("weight", case.dtype, [groups, out, depth]),
            InputSpec::new("offsets", DType::I32, [groups + 1], offsets),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
        let [rows, depth] = x.dims()?;
        let [groups, out, _] = weight.dims()?;
        weight.has_shape(&[groups, out, depth])?;
        inputs.get("offsets")?.has_shape(&[groups + 1])?;
        Ok(vec![TensorMeta::new("y", x.dtype(), [rows, out])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        run(stream, args, Path::Fastest)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
        let out = weight.shape()[1];
        let groups = rows_of_groups(inputs.get("offsets")?, x.shape()[0]);
        let weight = reference::Widened::new(weight);
        Ok(reference::by_row(rows, |row| {
            let group = groups.iter().position(|rows| rows.contains(&row));
            let Some(group) = group else { return vec![0.0; out] };
            let x = reference::row(x, row);
            (group * out..(group + 1) * out).map(|column| reference::dot(&x, weight.row(column))).collect()
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
        let [groups, rows, depth, out] = case.dims(DIMS)?;
        let bytes = case.dtype.size() * (rows * depth + groups * out * depth + rows * out) + 4 * (groups + 1);
        Ok(Cost::compute(bytes as u64, 2 * (rows * depth * out) as u64, Bound::Tensor(case.dtype)))
    }
}

/// The number of rows of each group, of `rows` in all: an offset below the running maximum counts as the maximum.
pub(super) fn rows_of_groups(offsets: &HostTensor, rows: usize) -> Vec<Range<usize>> {
    let offsets = offsets.to_f64().into_iter().scan(0, |reached, offset| {
        *reached = (offset.max(0.0) as usize).min(rows).max(*reached);
        Some(*reached)
    });
    let offsets: Vec<_> = offsets.collect();
    offsets.windows(2).map(|ends| ends[0]..ends[1]).collect()
}
