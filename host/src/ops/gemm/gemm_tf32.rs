//! Product of f32 matrices on the tensor cores, in TF32.

use gpu_kernels::ops::gemm::gemm::hopper;
use gpu_kernels::ops::gemm::gemm_tf32 as gk;

use super::operand::fits_hopper;
use super::product::{Path, Problem};
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// C = A·Bᵀ of f32 matrices whose elements are reduced to 10 bits of mantissa: `a` is `[m, k]`, `b` is `[n, k]`, and the result
/// is `[m, n]` in f32.
///
/// The relative error of a factor is up to 2⁻¹⁰. On Hopper it is always towards zero, so results are about 2⁻¹⁰ too small
/// there; other GPUs round factors. Sums are f32. [`sgemm`](fn@crate::ops::sgemm) keeps all bits, at an eighth of the rate.
///
/// `a` and `b` may have any strides. Rows along k at multiples of 16 bytes are read in packs, and on Hopper take the TMA and
/// wgmma path; others are read one element at a time, many times slower, so a matrix stored in the other order should be
/// [transposed](fn@crate::ops::transpose) first. k = 0 gives zeros. The result is a new dense tensor; the work is queued on
/// `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// let c = ops::gemm_tf32(&stream, &a, &a)?;
/// assert_eq!(c.to_vec(&stream)?, [5.0, 11.0, 11.0, 25.0]);
/// # Ok(())
/// # }
/// ```
pub fn gemm_tf32<'a>(stream: &Stream, a: impl Into<View<'a, f32>>, b: impl Into<View<'a, f32>>) -> Result<Tensor<f32>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_tf32_into(stream, 1.0, a, b, 0.0, &mut c)?;
    Ok(c)
}

/// C = α·A·Bᵀ + β·C, with the shapes of [`gemm_tf32`]. Rows of `c` may be padded. With β = 0 the contents of `c` are ignored;
/// with β = 1 and rows of `c` that are whole multiples of 16 bytes, the Hopper path adds to `c` without reading it.
///
/// # Errors
/// Same as [`gemm_tf32`], and [`Error::Layout`](crate::Error::Layout) if rows of `c` are not contiguous and equally far apart.
pub fn gemm_tf32_into<'a>(
    stream: &Stream,
    alpha: f32,
    a: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, f32>>,
    beta: f32,
    c: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    launch(stream, [alpha, beta], [a.into(), b.into()], c.into(), Path::Fastest)
}

fn launch(
    stream: &Stream,
    [alpha, beta]: [f32; 2],
    [a, b]: [View<'_, f32>; 2],
    c: ViewMut<'_, f32>,
    path: Path,
) -> Result<()> {
    Problem::new(&INFO, ["a", "b", "c"], a, b, c)?.with_factors(alpha, beta).launch(
        stream,
        path,
        hopper::BLOCK_N,
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably.
        |grid, args| unsafe { stream.launch::<gk::GemmTf32Hopper>(grid, args) },
        // SAFETY: the same; only operands that are aligned for packs are read in packs.
        |grid, packed, args| unsafe {
            if packed {
                stream.launch::<gk::GemmTf32Mma<4>>(grid, args)
            } else {
                stream.launch::<gk::GemmTf32Mma<1>>(grid, args)
            }
        },
    )
}

/// The operator's entry in the registry.
pub struct GemmTf32;

static INFO: OpInfo = OpInfo {
    name: "gemm_tf32",
    bench_name: "gemm.tf32",
    summary: "f32 matrix product on the tensor cores, in TF32",
    math: "C = α·A·Bᵀ + β·C",
    args: &[
        ArgInfo::input("a", "[m, k], any strides"),
        ArgInfo::input("b", "[n, k], any strides"),
        ArgInfo::in_out("c", "[m, n], rows may be padded"),
    ],
    params: &[
        ParamInfo::float("alpha", 1.0, "factor of the product"),
        ParamInfo::float("beta", 0.0, "factor of what c holds, which is not read if 0"),
    ],
    dtypes: &[DType::F32],
    kernels: &[gk::GEMM_TF32_MMA, gk::GEMM_TF32_HOPPER],
    variants: &[
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0: what is picked where rows of a and b are at multiples of 16 bytes",
            applies: |device, case| fits_hopper(device, case, case.dtype, ["a", "b"], ["m", "n", "k"]),
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

fn run(stream: &Stream, args: &mut Arguments<'_>, params: &Params, path: Path) -> Result<()> {
    let factors = [params.f32("alpha")?, params.f32("beta")?];
    launch(stream, factors, [args.input("a")?, args.input("b")?], args.output("c")?, path)
}

impl Operator for GemmTf32 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        const T: Arrangement = Arrangement::DENSE.order(&[1, 0]);
        let f32 = DType::F32;
        let dims = |m, n, k| [("m", m), ("n", n), ("k", k)];
        let odd = |m, n, k| Case::odd(&INFO, f32, dims(m, n, k));
        vec![
            Case::production(&INFO, "4096^3", f32, dims(4096, 4096, 4096)),
            Case::production(&INFO, "8192^3", f32, dims(8192, 8192, 8192)).timed_only(),
            Case::production(&INFO, "m=8192 n=14336 k=4096", f32, dims(8192, 14336, 4096)).timed_only(),
            odd(136, 144, 84),
            odd(133, 141, 59).param("alpha", 0.75).param("beta", -1.5),
            odd(40, 36, 28).param("beta", 1.0),
            odd(21, 19, 37).arrange("a", T).arrange("b", T.row_pad(3)),
            odd(24, 20, 36).arrange("b", T).arrange("c", Arrangement::DENSE.row_pad(1)).param("beta", 2.0),
            odd(24, 20, 36)
                .arrange("a", Arrangement::DENSE.row_pad(4))
                .arrange("b", Arrangement::DENSE.row_pad(8))
                .arrange("c", Arrangement::DENSE.row_pad(12)),
            odd(40, 24, 32).offset(1),
            // Blocks of the Hopper path that take several tiles.
            odd(304, 520, 100),
            Case::tiny(&INFO, f32, dims(1, 1, 1)),
            Case::tiny(&INFO, f32, dims(3, 2, 5)),
            Case::empty(&INFO, f32, dims(0, 8, 8)),
            Case::empty(&INFO, f32, dims(8, 0, 8)),
            Case::empty(&INFO, f32, dims(8, 12, 0)).param("beta", 0.5),
            Case::boundary(&INFO, f32, dims(128, 256, 32)),
            Case::boundary(&INFO, f32, dims(1, 136, 40)),
            Case::boundary(&INFO, f32, dims(136, 1, 40)),
            Case::boundary(&INFO, f32, dims(16, 8, 8)).values("c", Values::Specials),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let specs = [("a", [m, k]), ("b", [n, k]), ("c", [m, n])];
        Ok(specs.into_iter().map(|(name, shape)| InputSpec::normal(name, case.dtype, shape).in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (a, b) = (inputs.get("a")?, inputs.get("b")?);
        let [m, k] = a.dims()?;
        let [n, _] = b.dims()?;
        b.has_shape(&[n, k])?;
        inputs.get("c")?.has_shape(&[m, n])?;
        Ok(vec![])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        run(stream, args, params, Path::Fastest)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (alpha, beta) = (f64::from(params.f32("alpha")?), f64::from(params.f32("beta")?));
        let products = reference::matmul_nt(inputs.get("a")?, inputs.get("b")?, rows);
        let products = products.into_iter().map(|product| alpha * product);
        if beta == 0.0 {
            return Ok(products.collect());
        }
        let old = reference::by_row(rows, |row| inputs.get("c").map_or(vec![], |c| reference::row(c, row)));
        Ok(products.zip(old).map(|(product, old)| product + beta * old).collect())
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [k] = case.dims(["k"])?;
        let (alpha, beta) = (case.params.f64("alpha")?.abs(), case.params.f64("beta")?.abs());
        // A factor truncated to 10 bits of mantissa is up to 2⁻¹⁰ too small, uniformly distributed, and a product up to twice
        // that. The mean error of a product is below 2⁻¹⁰, by which the sum is too small; its standard deviation is below 2⁻¹¹,
        // and for products of size one these errors add up as a random walk. Six deviations are never seen. The error is
        // relative to the sum alone: c, of size six, may cancel it.
        let (k, cut) = (k.max(1) as f64, f64::powi(2.0, -10));
        let walk = alpha * 3.0 * k.sqrt() * cut;
        let abs = walk + if beta == 0.0 { 0.0 } else { beta * 6.0 * 2.0 * cut };
        Ok(Tolerance::new(
            abs,
            2.0 * cut,
            "factors cut to 10 bits: a mean of 2⁻¹⁰ of the sum, and six standard deviations of √k · 2⁻¹¹",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let of_c = if case.params.f64("beta")? == 0.0 { 1 } else { 2 };
        let bytes = 4 * (m * k + n * k + of_c * m * n);
        Ok(Cost::compute(bytes as u64, 2 * (m * n * k) as u64, Bound::Tensor(case.dtype)))
    }
}
