//! The product of a linear layer in bf16, C = A·Bᵀ: one instance of [`gemm`](super::gemm()).

use gpu_kernels::ops::gemm::gemm::pad::GEMM_PAD;
use half::bf16;

use super::super::operand::{layout, store_of_case};
use super::super::sizes;
use super::operator::{joined, kernels};
use super::path::{Facts, Path};
use super::problem::Problem;
use super::variants::{Product, variants};
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// C = A·Bᵀ in bf16 with f32 accumulation: `a` is `[m, k]`, `b` is `[n, k]`, `c` is `[m, n]`, all row-major.
///
/// This is a linear layer: `a` holds activations, `b` the layer's weight. Rows may be padded (a leading dimension above the row
/// length); any m, n and k work, and k = 0 gives zeros. On Hopper, rows of `a` and `b` at multiples of 16 bytes take the TMA
/// and wgmma path; for up to 128 rows or columns they take a path whose time is about that of reading the weight. Everything
/// else takes the mma.sync path, which is fastest with the same alignment. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the inner or outer sizes do not fit, [`Error::Layout`](crate::Error::Layout) if
/// rows are not contiguous and equally far apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1.
pub fn gemm_bf16<'a>(
    stream: &Stream,
    a: impl Into<View<'a, bf16>>,
    b: impl Into<View<'a, bf16>>,
) -> Result<Tensor<bf16>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    gemm_bf16_into(stream, a, b, &mut c)?;
    Ok(c)
}

/// [`gemm_bf16`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`gemm_bf16`].
pub fn gemm_bf16_into<'a>(
    stream: &Stream,
    a: impl Into<View<'a, bf16>>,
    b: impl Into<View<'a, bf16>>,
    c: impl Into<ViewMut<'a, bf16>>,
) -> Result<()> {
    problem(a.into(), b.into(), c.into())?.launch(stream, None)
}

/// The product with the transposed weight.
fn problem<'a>(a: View<'a, bf16>, b: View<'a, bf16>, c: ViewMut<'a, bf16>) -> Result<Problem<'a, bf16, bf16>> {
    let [_, k]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    b.require_shape(INFO.name, "b", &[n, k])?;
    for (name, view) in [("a", &a), ("b", &b)] {
        view.require_row_stride(INFO.name, name)?;
    }
    Problem::new(&INFO, 1.0.into(), 0.0, a, b.t(), c)
}

/// The operator's entry in the registry.
pub struct GemmBf16;

/// [`gemm_bf16`](super::gemm_bf16()) in the registry.
pub static GEMM_BF16: GemmBf16 = GemmBf16;

static INFO: OpInfo = OpInfo {
    name: "gemm_bf16",
    bench_name: "gemm.bf16",
    summary: "bf16 matrix product on the tensor cores",
    math: "C = A·Bᵀ",
    args: &[
        ArgInfo::input("a", "[m, k], row-major, rows may be padded"),
        ArgInfo::input("b", "[n, k], row-major, rows may be padded"),
        ArgInfo::output("c", "[m, n], row-major, rows may be padded"),
    ],
    params: &[],
    dtypes: &[DType::BF16],
    // A column with a single k is contiguous along m or n as well.
    kernels: &joined::<11, 1, 12>(kernels(true, false), [GEMM_PAD]),
    variants: variants::<GemmBf16>(),
};

impl Product for GemmBf16 {
    fn of_case(case: &Case) -> Result<Facts> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        Ok(Facts {
            sizes: sizes(&INFO, [("a", 1), ("a", m), ("b", n), ("a", k)])?,
            operands: [("a", m), ("b", n)].map(|(name, rows)| layout(case, name, case.dtype, &[rows, k], false)),
            c: case.dtype,
            store: store_of_case(case, "c", case.dtype, &[m, n], 0.0),
        })
    }

    fn launch(stream: &Stream, args: &mut Arguments<'_>, _: &Params, path: Option<Path>) -> Result<()> {
        problem(args.input("a")?, args.input("b")?, args.output("c")?)?.launch(stream, path)
    }
}

impl Operator for GemmBf16 {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let bf16 = DType::BF16;
        let dims = |m, n, k| [("m", m), ("n", n), ("k", k)];
        let mut cases: Vec<_> = [
            (1024, 1024, 1024),
            (2048, 2048, 2048),
            (4096, 4096, 4096),
            (8192, 8192, 8192),
            (16384, 16384, 16384),
            (8192, 28672, 8192),
            (4096, 4096, 14336),
            (1, 8192, 8192),
            (8, 8192, 8192),
            (16, 8192, 8192),
            (32, 8192, 8192),
            (48, 8192, 8192),
            (64, 8192, 8192),
            (96, 8192, 8192),
            (128, 8192, 8192),
            (64, 28672, 8192),
            (64, 2048, 8192),
            (64, 4096, 4096),
            (48, 4096, 4096),
            (16, 28672, 8192),
            (16, 8192, 28672),
            (16, 4096, 4096),
            (8192, 64, 8192),
            (1792, 1792, 1792),
            (1793, 1793, 1793),
            // Sizes between whole waves of the widest tiles.
            (1216, 1216, 1216),
            (1440, 1440, 1440),
            (2112, 2112, 2112),
            (2432, 2432, 2432),
            (2912, 2912, 2912),
            (256, 8192, 8192),
            (384, 5120, 5120),
            (512, 4096, 4096),
            // Few tiles of a long k.
            (64, 64, 65536),
            (512, 512, 16384),
            (1024, 1024, 16384),
            (1024, 4096, 4096),
        ]
        .map(|(m, n, k)| Case::production(&INFO, format!("m={m} n={n} k={k} NT"), bf16, dims(m, n, k)))
        .into();
        cases.extend([
            Case::odd(&INFO, bf16, dims(300, 520, 200)),
            Case::odd(&INFO, bf16, dims(257, 391, 123)),
            Case::odd(&INFO, bf16, dims(130, 141, 72)),
            Case::odd(&INFO, bf16, dims(130, 140, 36)).row_pad(4),
            Case::odd(&INFO, bf16, dims(130, 140, 36)).row_pad(1),
            Case::odd(&INFO, bf16, dims(130, 141, 72)).arrange("c", Arrangement::DENSE.row_pad(3)),
            Case::odd(&INFO, bf16, dims(96, 72, 40)).offset(1),
            Case::odd(&INFO, bf16, dims(200, 264, 136)).offset(8),
            Case::tiny(&INFO, bf16, dims(1, 1, 1)),
            Case::tiny(&INFO, bf16, dims(1, 1, 8)),
            Case::tiny(&INFO, bf16, dims(3, 2, 5)),
            Case::empty(&INFO, bf16, dims(0, 8, 8)),
            Case::empty(&INFO, bf16, dims(8, 0, 8)),
            Case::empty(&INFO, bf16, dims(8, 12, 0)),
            Case::boundary(&INFO, bf16, dims(256, 256, 64)),
            Case::boundary(&INFO, bf16, dims(257, 257, 72)),
            Case::boundary(&INFO, bf16, dims(128, 256, 320)),
            // Tiles of all widths that end with whole slabs, with the remainder of one, and within either.
            Case::boundary(&INFO, bf16, dims(264, 208, 264)),
            Case::boundary(&INFO, bf16, dims(40, 456, 136)).arrange("c", Arrangement::DENSE.row_pad(8)),
            Case::boundary(&INFO, bf16, dims(136, 347, 72)),
            Case::boundary(&INFO, bf16, dims(1, 1024, 304)),
            Case::boundary(&INFO, bf16, dims(1024, 1, 304)),
            // A second row of tall tiles, in which most consumers have nothing to do.
            Case::boundary(&INFO, bf16, dims(392, 200, 136)),
            // More stages than the rings of the path for few rows or columns.
            Case::boundary(&INFO, bf16, dims(16, 72, 2056)),
            Case::boundary(&INFO, bf16, dims(40, 17, 2048)),
            Case::boundary(&INFO, bf16, dims(64, 136, 1544)),
            Case::boundary(&INFO, bf16, dims(128, 264, 1544)),
            // Long enough for pieces along k, of which the last one is shorter.
            Case::boundary(&INFO, bf16, dims(72, 83, 8200)),
            // More tiles of swapped operands than the simulated GPU has clusters, with stages of the next begun while one is stored.
            Case::boundary(&INFO, bf16, dims(72, 1288, 136)),
        ]);
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let specs = [InputSpec::normal("a", case.dtype, [m, k]), InputSpec::normal("b", case.dtype, [n, k])];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (a, b) = (inputs.get("a")?, inputs.get("b")?);
        let [m, k] = a.dims()?;
        let [n, _] = b.dims()?;
        b.has_shape(&[n, k])?;
        Ok(vec![TensorMeta::new("c", a.dtype(), [m, n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        <Self as Product>::launch(stream, args, params, None)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::matmul_nt(inputs.get("a")?, inputs.get("b")?, rows))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [k] = case.dims(["k"])?;
        // The tensor core truncates each addend to the grid of the largest one, with f32 spacing: up to 2⁻²² of a running sum
        // of size √k for each step of 16 products, always towards zero, so these errors add up instead of cancelling.
        let abs = (k as f64).sqrt() * (k as f64 / 16.0).max(1.0) * 4.0 * roundoff(DType::F32);
        Ok(Tolerance::new(
            abs,
            roundoff(DType::BF16),
            "bf16 rounding of the result, and k/16 truncations of sums of size √k",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let bytes = 2 * (m * k + n * k + m * n);
        Ok(Cost::compute(bytes as u64, 2 * (m * n * k) as u64, Bound::Tensor(DType::BF16)))
    }
}
