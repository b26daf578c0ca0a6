//! Product of matrices of 8-bit floats with block-wise scales.

use gpu_kernels::ops::gemm::gemm::split::GEMM_SUM;
use gpu_kernels::ops::gemm::gemm_fp8_blocks as gk;

use super::cost::Tiles;
use super::product::{Path, Problem};
use super::scaled::{
    C_TYPE, How, Kinds, NAMES, OF_NARROW, OF_PIECES, OF_SWAPPED, ScaledProduct, Scaling, of_blocks, pieces, swapped,
    variants,
};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};
use crate::{dispatch, f8e4m3};

/// A·Bᵀ for `a` of `[m, k]` and `b` of `[n, k]` in [`f8e4m3`](struct@crate::f8e4m3), with a scale for each block: a block is
/// 128 elements along k, of one row of `a` or of 128 rows of `b`.
///
/// `a_scales` is `[m, ⌈k/128⌉]` and `b_scales` is `[⌈n/128⌉, ⌈k/128⌉]`, contiguous.
/// [`quantize_fp8_1x128`](crate::ops::quantize_fp8_1x128()) makes the former from activations and
/// [`quantize_fp8_128x128`](crate::ops::quantize_fp8_128x128()) the latter from a weight. The products of blocks are added in
/// f32. Rows of `a` and `b` may be padded; rows at multiples of 16 bytes are read fastest, and on Hopper take the TMA and wgmma
/// path. k = 0 gives zeros. The result, `[m, n]` of any float type, is a new dense tensor; the work is queued on `stream`.
///
/// DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far
/// apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f8e4m3, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 160], &[0.5f32; 160])?;
/// let weight = Tensor::from_slice(&stream, [2, 160], &[2.0f32; 320])?;
/// let (a, a_scales) = ops::quantize_fp8_1x128::<f32, f8e4m3>(&stream, &x)?;
/// let (b, b_scales) = ops::quantize_fp8_128x128::<f32, f8e4m3>(&stream, &weight)?;
/// let y = ops::gemm_fp8_blocks::<f32>(&stream, &a, &a_scales, &b, &b_scales)?.to_vec(&stream)?;
/// assert!((y[1] - 160.0).abs() < 1e-3);
/// # Ok(())
/// # }
/// ```
pub fn gemm_fp8_blocks<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, f8e4m3>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f32>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_fp8_blocks_into(stream, a, a_scales.into(), b, b_scales.into(), &mut c)?;
    Ok(c)
}

/// [`gemm_fp8_blocks`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_fp8_blocks`].
pub fn gemm_fp8_blocks_into<'a, T: Float>(
    stream: &Stream,
    a: impl Into<View<'a, f8e4m3>>,
    a_scales: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, f8e4m3>>,
    b_scales: impl Into<View<'a, f32>>,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    launch(stream, a.into(), a_scales.into(), b.into(), b_scales.into(), c.into(), None)
}

fn launch<T: Float>(
    stream: &Stream,
    a: View<'_, f8e4m3>,
    a_scales: View<'_, f32>,
    b: View<'_, f8e4m3>,
    b_scales: View<'_, f32>,
    c: ViewMut<'_, T>,
    how: Option<How>,
) -> Result<()> {
    const GROUP: usize = gk::GROUP as usize;
    let [m, k]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let problem = Problem::of_rows(&INFO, NAMES, a, b, c)?;
    let groups = k.div_ceil(GROUP);
    let scales = of_blocks(&INFO, stream, [a_scales, b_scales], [[m, groups], [n.div_ceil(GROUP), groups]])?;
    let [of_a, of_b] = scales;
    let by_pieces = |problem: &mut Problem<'_, f8e4m3, f8e4m3, T>, rows| {
        problem.launch_pieces(stream, rows, |grid, (b, a, map, pieces, problem, store, each)| {
            let args = (b, a, map, pieces, problem, store, each, of_a, of_b);
            // SAFETY: the maps describe live tensors of these sizes, the pieces are this call's, and there is a scale for each block.
            unsafe {
                match rows {
                    128 => stream.launch::<gk::pieces::GemmFp8BlocksPieces<128>>(grid, args),
                    96 => stream.launch::<gk::pieces::GemmFp8BlocksPieces<96>>(grid, args),
                    _ => stream.launch::<gk::pieces::GemmFp8BlocksPieces<64>>(grid, args),
                }
            }
        })
    };
    type Hopper<T> = gk::GemmFp8BlocksHopper<T>;
    // Measured on an H200: a group of 64 and of 96 rows takes 0.28 and 0.36 µs, one of 128, whose products do not overlap, 0.5; one of 128
    // and of 256 columns 0.45 and 0.8.
    let kinds = Kinds {
        rows: &gk::pieces::ROWS,
        swapped: &gk::pieces::ROWS,
        narrow: &gk::pieces::NARROW,
        columns: gk::BLOCK_N,
        fewer_columns: &[gk::columns::COLUMNS],
        scaling: |tiles| match tiles {
            Tiles::Swapped(128) | Tiles::SwappedPieces(128) => 0.18,
            Tiles::Columns(gk::BLOCK_N) => 0.16,
            _ => 0.12,
        },
    };
    let by_tiles = |problem: Problem<'_, f8e4m3, f8e4m3, T>, tiles| {
        problem.launch_tiles(stream, tiles, |grid, (b, a, c_map, c, sizes, store)| {
            // In this order, or swapped.
            let args = (b, a, c_map, c, sizes, store, of_a, of_b);
            // SAFETY: the maps and c describe live tensors of these sizes, c is borrowed mutably, and there is a scale for each block.
            unsafe {
                match tiles {
                    Tiles::Columns(_) => stream.launch::<gk::columns::GemmFp8BlocksColumns<T>>(grid, args),
                    Tiles::Narrow(160) => stream.launch::<gk::pieces::GemmFp8BlocksSwapped<T, 160, true>>(grid, args),
                    Tiles::Narrow(_) => stream.launch::<gk::pieces::GemmFp8BlocksSwapped<T, 64, true>>(grid, args),
                    Tiles::Swapped(128) => stream.launch::<gk::pieces::GemmFp8BlocksSwapped<T, 128, false>>(grid, args),
                    Tiles::Swapped(96) => stream.launch::<gk::pieces::GemmFp8BlocksSwapped<T, 96, false>>(grid, args),
                    _ => stream.launch::<gk::pieces::GemmFp8BlocksSwapped<T, 64, false>>(grid, args),
                }
            }
        })
    };
    problem.launch_how(stream, how, kinds, by_pieces, by_tiles, |problem, path| {
        problem.launch_blocks::<Hopper<T>, gk::GemmFp8BlocksMma<T, 16>, gk::GemmFp8BlocksMma<T, 1>, _>(
            stream,
            path,
            gk::BLOCK_N,
            scales,
        )
    })
}

/// The operator's entry in the registry.
pub static GEMM_FP8_BLOCKS: ScaledProduct = ScaledProduct {
    info: &INFO,
    scaling: Scaling::Blocks(gk::GROUP as usize),
    b: DType::F8E4M3,
    production: &[(4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 7168)],
    launch: |stream, args, path| run(stream, args, (path != Path::Fastest).then_some(How::Fused(path))),
};

static INFO: OpInfo = OpInfo {
    name: "gemm_fp8_blocks",
    bench_name: "gemm.fp8_blocks",
    summary: "product of 8-bit floats with a scale for each 1×128 of A and 128×128 of B",
    math: "cᵢⱼ = Σ_g a_scales[i, g]·b_scales[⌊j/128⌋, g]·Σ_{k in g} aᵢₖ·bⱼₖ",
    args: &[
        ArgInfo::input("a", "[m, k], rows may be padded").of(&[DType::F8E4M3]),
        ArgInfo::input("a_scales", "[m, ⌈k/128⌉], contiguous").of(&[DType::F32]),
        ArgInfo::input("b", "[n, k], rows may be padded").of(&[DType::F8E4M3]),
        ArgInfo::input("b_scales", "[⌈n/128⌉, ⌈k/128⌉], contiguous").of(&[DType::F32]),
        ArgInfo::output("c", "[m, n], of the type `to`, rows may be padded").of(DType::FLOATS),
    ],
    params: &[C_TYPE],
    dtypes: DType::FLOATS,
    kernels: &[
        gk::GEMM_FP8_BLOCKS_MMA,
        gk::GEMM_FP8_BLOCKS_HOPPER,
        gk::columns::GEMM_FP8_BLOCKS_COLUMNS,
        gk::pieces::GEMM_FP8_BLOCKS_SWAPPED,
        gk::pieces::GEMM_FP8_BLOCKS_PIECES,
        GEMM_SUM,
    ],
    variants: variants!(
        |stream, args, path| run(stream, args, Some(How::Fused(path))),
        Variant {
            name: "columns_128",
            doc: "tiles of 128 columns: what is picked where those of 256 leave multiprocessors empty",
            applies: ScaledProduct::fits_hopper,
            launch: |stream, args, _| run(stream, args, Some(How::Tiled(Tiles::Columns(gk::columns::COLUMNS)))),
        },
        swapped!(run, "swapped_128", Swapped(128), OF_SWAPPED),
        swapped!(run, "swapped_96", Swapped(96), "the same by 96 rows"),
        swapped!(run, "swapped_64", Swapped(64), "the same by 64 rows"),
        swapped!(run, "narrow_160", Narrow(160), OF_NARROW),
        swapped!(run, "narrow_64", Narrow(64), "the same by 64 rows"),
        pieces!(run, "pieces_128", 128, OF_PIECES),
        pieces!(run, "pieces_96", 96, "the same by 96 rows"),
        pieces!(run, "pieces_64", 64, "the same by 64 rows")
    ),
};

fn run(stream: &Stream, args: &mut Arguments<'_>, how: Option<How>) -> Result<()> {
    dispatch!(INFO, args.dtype("c")?, float => |T| {
        let (a, a_scales) = (args.input("a")?, args.input("a_scales")?);
        let (b, b_scales) = (args.input("b")?, args.input("b_scales")?);
        launch::<T>(stream, a, a_scales, b, b_scales, args.output("c")?, how)
    })
}
