//! Product of matrices in MXFP8.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::gemm::gemm::hopper::FINE_WIDTHS;
use gpu_kernels::ops::gemm::gemm::pad::GEMM_PAD;
use gpu_kernels::ops::gemm::gemm::split::GEMM_SUM;
use gpu_kernels::ops::gemm::gemm_mxfp8 as gk;
use gpu_kernels::ops::quant::dequantize_mxfp8::DEQUANTIZE_MXFP8;
use half::bf16;

use super::cost::{Shape, Tiles};
use super::gemm::{joined, kernels};
use super::product::{Path, Problem};
use super::scaled::{
    A_TYPE, C_TYPE, How, Kinds, NAMES, OF_PIECES, ScaledProduct, Scaling, of_blocks, pieces, variants,
};
use super::{gemm_into, gemm_to_f32_into};
use crate::ops::dequantize_mxfp8_into;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float, Float8};
use crate::runtime::error::{Error, Result};
use crate::runtime::scratch::Scratch;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};
use crate::{dispatch, f8e4m3, f8e8m0};

/// A·Bᵀ, where `a` is `[m, k]` and `b` is `[n, k]`, both of 8-bit floats, and each group of 32 elements along k of a row has a
/// power of two as its scale.
///
/// `a` is [`f8e4m3`](struct@crate::f8e4m3), or [`f8e5m2`](struct@crate::f8e5m2), which is usual for gradients; `b`, a weight,
/// is f8e4m3. `a_scales` is `[m, ⌈k/32⌉]` and `b_scales` is `[n, ⌈k/32⌉]`, contiguous, as
/// [`quantize_mxfp8_1x32`](crate::ops::quantize_mxfp8_1x32()) makes them for either operand. The sums of groups, times their
/// scales, are added in f32, whatever the scales are; a scale of NaN makes the results that it contributes to NaN. Rows of `a`
/// and `b` may be padded; rows at multiples of 16 bytes are read fastest, and on Hopper take the TMA and wgmma path. k = 0
/// gives zeros. The result, `[m, n]` of any float type, is a new dense tensor; the work is queued on `stream`.
///
/// Hopper has no instruction that takes such scales: [`gemm_fp8_blocks`](super::gemm_fp8_blocks()) is nearly twice as fast
/// there. A large product whose result is not f16 is computed in bf16, which represents these elements times their scales
/// exactly; this takes memory for both operands in bf16 during the call. If a scale is too far from one for that, or there is
/// not enough memory, the product is computed group by group.
///
/// Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`] if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f8e4m3, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 80], &[0.5f32; 80])?;
/// let weight = Tensor::from_slice(&stream, [2, 80], &[3.0f32; 160])?;
/// let (a, a_scales) = ops::quantize_mxfp8_1x32::<f32, f8e4m3>(&stream, &x)?;
/// let (b, b_scales) = ops::quantize_mxfp8_1x32::<f32, f8e4m3>(&stream, &weight)?;
/// let y = ops::gemm_mxfp8::<_, f32>(&stream, &a, &a_scales, &b, &b_scales)?;
/// assert_eq!(y.to_vec(&stream)?, [120.0; 2]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_mxfp8<'a, Q: Float8, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, Q>>,
    a_scales: impl Into<View<'a, f8e8m0>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f8e8m0>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_mxfp8_into(stream, a, a_scales.into(), b, b_scales.into(), &mut c)?;
    Ok(c)
}

/// [`gemm_mxfp8`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_mxfp8`].
pub fn gemm_mxfp8_into<'a, Q: Float8, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, Q>>,
    a_scales: impl Into<View<'a, f8e8m0>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f8e8m0>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let of = Operands { a: a.into(), a_scales: a_scales.into(), b: b.into(), b_scales: b_scales.into() };
    launch(stream, of, c.into(), Way::Fastest)
}

/// A product with operands of matching sizes.
#[derive(Clone, Copy)]
struct Operands<'a, Q> {
    a: View<'a, Q>,
    a_scales: View<'a, f8e8m0>,
    b: View<'a, f8e4m3>,
    b_scales: View<'a, f8e8m0>,
}

impl<Q: Float8> Operands<'_, Q> {
    fn scales(&self, stream: &Stream) -> Result<[DevicePtr<f8e8m0>; 2]> {
        let [m, k]: [usize; 2] = self.a.dims(INFO.name, "a")?;
        let [n, _]: [usize; 2] = self.b.dims(INFO.name, "b")?;
        let groups = k.div_ceil(gk::GROUP as usize);
        of_blocks(&INFO, stream, [self.a_scales, self.b_scales], [[m, groups], [n, groups]])
    }

    /// Launches kernels that take 8-bit operands, in this way or in the fastest. With `needed`, those that do all return at once if the flag is
    /// zero.
    fn multiply<T: Float>(
        &self,
        stream: &Stream,
        c: ViewMut<'_, T>,
        how: Option<How>,
        needed: Option<&Scratch<u32>>,
    ) -> Result<()> {
        let problem = Problem::of_rows(&INFO, NAMES, self.a, self.b, c)?;
        let problem = if needed.is_some() { problem.spare() } else { problem };
        let scales = self.scales(stream)?;
        let [of_a, of_b] = scales;
        let needed = needed.map_or(DevicePtr::null(), |flag| flag.ptr_mut().into());
        let by_pieces = |problem: &mut Problem<'_, Q, f8e4m3, T>, rows| {
            let n = problem.sizes.n;
            problem.launch_pieces(stream, rows, |grid, (b, a, map, pieces, problem, store, each)| {
                let args = (b, a, map, pieces, problem, store, each, of_a, of_b, n);
                // SAFETY: the maps describe live tensors of these sizes, the pieces are this call's, and there is a scale for each group.
                unsafe {
                    match rows {
                        64 => stream.launch::<gk::hopper::GemmMxfp8Pieces<Q, 64>>(grid, args),
                        _ => stream.launch::<gk::hopper::GemmMxfp8Pieces<Q, 32>>(grid, args),
                    }
                }
            })
        };
        let none = |problem: Problem<'_, Q, f8e4m3, T>, _| {
            Err(problem.info.param_error("variant", "swapped", "one of those that there are"))
        };
        problem.launch_how(stream, how, KINDS, by_pieces, none, |problem, path| {
            problem.launch(
                stream,
                path,
                gk::hopper::BLOCK_N,
                |grid, (a, b, c_map, c, problem, store)| {
                    let args = (a, b, c_map, c, problem, store, of_a, of_b, needed);
                    // SAFETY: the maps and c describe live tensors of these sizes, c is borrowed mutably, there is a scale for each group, and the flag is
                    // null or in scratch memory of this stream.
                    unsafe { stream.launch::<gk::hopper::GemmMxfp8Hopper<Q, T>>(grid, args) }
                },
                |grid, packed, (a, b, c, problem)| {
                    let args = (a, b, c, problem, of_a, of_b, needed);
                    // SAFETY: the same; only operands that are aligned for packs are read in packs.
                    unsafe {
                        if packed {
                            stream.launch::<gk::GemmMxfp8Mma<Q, T, 16>>(grid, args)
                        } else {
                            stream.launch::<gk::GemmMxfp8Mma<Q, T, 1>>(grid, args)
                        }
                    }
                },
            )
        })
    }

    /// The fastest of these kernels on Hopper, and its microseconds.
    fn planned<T: Float>(&self, stream: &Stream, c: &mut ViewMut<'_, T>) -> Result<Option<(How, f64)>> {
        Ok(Problem::of_rows(&INFO, NAMES, self.a, self.b, c.reborrow())?.planned(stream, KINDS))
    }

    /// Widens both operands and multiplies them in bf16; if a scale is too far from one for that, [`multiply`](Self::multiply)
    /// replaces the result.
    fn multiply_widened<T: Float>(&self, stream: &Stream, mut c: ViewMut<'_, T>) -> Result<()> {
        // Checks the arguments before anything is queued.
        Problem::of_rows(&INFO, NAMES, self.a, self.b, c.reborrow())?;
        let [of_a, of_b] = self.scales(stream)?;
        let [a, b] = [widened(stream, self.a, self.a_scales)?, widened(stream, self.b, self.b_scales)?];
        let [a, b] = [columns(&a, self.a.cols())?, columns(&b, self.b.cols())?];
        let outside = stream.workspace::<u32>(INFO.name, 1)?;
        outside.clear()?;
        let counts = [self.a_scales.len(), self.b_scales.len()];
        let Some(blocks) = grid(&INFO, "scales", counts[0].max(counts[1]), gk::RANGE as usize)? else { return Ok(()) };
        let args = (of_a, counts[0] as u64, of_b, counts[1] as u64, outside.ptr_mut());
        // SAFETY: the scales are live and have these counts; the flag is in scratch memory of this stream, and was cleared.
        unsafe { stream.launch::<gk::GemmMxfp8Range>((blocks, 2), args)? };
        match T::DTYPE {
            DType::F32 => gemm_to_f32_into(stream, 1.0, a, b.t(), 0.0, ViewMut::of(c.reborrow().part))?,
            _ => gemm_into(stream, 1.0, a, b.t(), 0.0, ViewMut::<bf16>::of(c.reborrow().part))?,
        }
        self.multiply(stream, c, Some(How::Fused(Path::Fastest)), Some(&outside))
    }
}

/// An operand widened to bf16, with rows at multiples of 16 bytes.
fn widened<Q: Float8>(stream: &Stream, q: View<'_, Q>, scales: View<'_, f8e8m0>) -> Result<Tensor<bf16>> {
    let [rows, k]: [usize; 2] = q.dims(INFO.name, "q")?;
    let mut wide = Tensor::uninit(stream, [rows, k.next_multiple_of(8)])?;
    dequantize_mxfp8_into(stream, q, scales, wide.view_mut().strided(0, [rows, k], &[k.next_multiple_of(8), 1])?)?;
    Ok(wide)
}

/// The first `k` columns.
fn columns(wide: &Tensor<bf16>, k: usize) -> Result<View<'_, bf16>> {
    let [rows, stride]: [usize; 2] = wide.view().dims(INFO.name, "wide")?;
    wide.view().strided(0, [rows, k], &[stride, 1])
}

/// What widening both operands and looking at their scales takes, in microseconds beside their traffic, and the bytes that it moves in one.
const WIDENING: f64 = 6.0;
const WIDENED: f64 = 3.6e6;

/// FLOPs a microsecond of products of 8 bits and of bf16 where no model says more.
const RATES: [f64; 2] = [370e6, 640e6];

/// Whether the bf16 product of widened operands takes less time than that of 8 bits, of `narrow` microseconds by the model: widening reads a byte and
/// writes two an element.
fn pays(stream: &Stream, sizes: [usize; 3], narrow: Option<f64>) -> bool {
    let [m, n, k] = sizes.map(|size| size as f64);
    let [narrow, product] = match narrow {
        Some(narrow) => {
            let [m, n, k] = sizes.map(|size| size as u32);
            let shape = Shape { sizes: [1, m, n, k], bytes: 2, scaling: 0.0, in_sectors: [true; 2] };
            let whole = FINE_WIDTHS.map(Tiles::Columns).into_iter().chain(Tiles::of_swapped());
            let multiprocessors = stream.device().info().multiprocessors;
            let micros = whole.chain(Tiles::of_pieces()).map(|tiles| shape.micros(multiprocessors, tiles));
            [narrow, micros.fold(f64::INFINITY, f64::min)]
        }
        None => RATES.map(|rate| 2.0 * m * n * k / rate),
    };
    WIDENING + 3.0 * (m + n) * k / WIDENED + product < narrow
}

/// The way to compute a product.
#[derive(Clone, Copy)]
enum Way {
    /// The fastest way.
    Fastest,
    /// A bf16 product of both operands, widened.
    Widened,
    /// The kernels of this operator.
    By(How),
}

fn launch<Q: Float8, T: Float>(stream: &Stream, of: Operands<'_, Q>, mut c: ViewMut<'_, T>, way: Way) -> Result<()> {
    let [m, k]: [usize; 2] = of.a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = of.b.dims(INFO.name, "b")?;
    let widens = widens(T::DTYPE, [m, n, k]);
    match way {
        Way::By(how) => return of.multiply(stream, c, Some(how), None),
        Way::Widened if !widens => return Err(INFO.param_error("variant", "widened", WIDENS)),
        Way::Widened => return of.multiply_widened(stream, c),
        Way::Fastest => {}
    }
    let planned = of.planned(stream, &mut c)?;
    if widens && pays(stream, [m, n, k], planned.map(|(_, micros)| micros)) {
        match of.multiply_widened(stream, c.reborrow()) {
            // Widening needs two bytes per element of both operands.
            Err(Error::OutOfMemory { .. }) => {}
            result => return result,
        }
    }
    of.multiply(stream, c, planned.map(|(how, _)| how), None)
}

/// Whether operands can be widened for a result of this type: the bf16 product can write bf16 and f32.
fn widens(c: DType, sizes: [usize; 3]) -> bool {
    c != DType::F16 && !sizes.contains(&0)
}

const WIDENS: &str = "c in bfloat16 or float32, and no size of zero";

/// What the scales of four groups add to a stage was measured on an H200.
const KINDS: Kinds = Kinds {
    rows: &gk::hopper::ROWS,
    swapped: &[],
    narrow: &[],
    columns: gk::hopper::BLOCK_N,
    fewer_columns: &[],
    scaling: |tiles| if let Tiles::Columns(_) = tiles { 1.07 } else { 0.8 },
};

/// The operator's entry in the registry.
pub static GEMM_MXFP8: ScaledProduct = ScaledProduct {
    info: &INFO,
    scaling: Scaling::Powers(gk::GROUP as usize),
    b: DType::F8E4M3,
    production: &[(4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 7168)],
    launch: |stream, args, _| run(stream, args, Way::Fastest),
};

static INFO: OpInfo = OpInfo {
    name: "gemm_mxfp8",
    bench_name: "gemm.mxfp8",
    summary: "product of MXFP8: 8-bit floats with a power of two for each 32 along k",
    math: "cᵢⱼ = Σ_g a_scales[i, g]·b_scales[j, g]·Σ_{k in g} aᵢₖ·bⱼₖ",
    args: &[
        ArgInfo::input("a", "[m, k], of the type `from`, rows may be padded").of(DType::FLOAT8S),
        ArgInfo::input("a_scales", "[m, ⌈k/32⌉], contiguous").of(&[DType::F8E8M0]),
        ArgInfo::input("b", "[n, k], rows may be padded").of(&[DType::F8E4M3]),
        ArgInfo::input("b_scales", "[n, ⌈k/32⌉], contiguous").of(&[DType::F8E8M0]),
        ArgInfo::output("c", "[m, n], of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[A_TYPE, C_TYPE],
    dtypes: DType::FLOATS,
    kernels: &joined::<7, 22, 29>(
        [
            // That of results in f16; the others are listed with bf16's products.
            GEMM_SUM.split_at(1).1.split_at(1).0,
            gk::GEMM_MXFP8_MMA,
            gk::hopper::GEMM_MXFP8_HOPPER,
            gk::hopper::GEMM_MXFP8_PIECES,
            gk::GEMM_MXFP8_RANGE,
            DEQUANTIZE_MXFP8,
            GEMM_PAD,
        ],
        joined::<11, 11, 22>(kernels(true, false), kernels(true, true)),
    ),
    variants: variants!(
        |stream, args, path| run(stream, args, Way::By(How::Fused(path))),
        Variant {
            name: "widened",
            doc: "both operands to bf16, and a product of these: what is picked where it saves more than that takes",
            applies: |_, case| case.dims(["m", "n", "k"]).is_ok_and(|sizes| widens(case.dtype, sizes)),
            launch: |stream, args, _| run(stream, args, Way::Widened),
        },
        pieces!(run_how, "pieces_64", 64, OF_PIECES),
        pieces!(run_how, "pieces_32", 32, "the same by 32 rows")
    ),
};

fn run(stream: &Stream, args: &mut Arguments<'_>, way: Way) -> Result<()> {
    dispatch!(INFO, args.dtype("a")?, [crate::f8e4m3, crate::f8e5m2] => |Q| {
        dispatch!(INFO, args.dtype("c")?, float => |T| {
            let (a, a_scales) = (args.input("a")?, args.input("a_scales")?);
            let (b, b_scales) = (args.input("b")?, args.input("b_scales")?);
            launch::<Q, T>(stream, Operands { a, a_scales, b, b_scales }, args.output("c")?, way)
        })
    })
}

fn run_how(stream: &Stream, args: &mut Arguments<'_>, how: Option<How>) -> Result<()> {
    run(stream, args, how.map_or(Way::Fastest, Way::By))
}
