//! 16-bit matrix product on the tensor cores, of operands that lie either way and batches of them.

use cuda_std::float::Half;
use gpu_kernels::ops::gemm::gemm as gk;
use gpu_kernels::ops::gemm::gemm_bf16::hopper;
use half::{bf16, f16};

use super::{gemm_bf16, sizes};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// C = A·B in f16 or bf16 with f32 accumulation: `a` is `[m, k]`, `b` is `[k, n]`, and the result `[m, n]`; or each of these a batch of
/// matrices, `[batch, …]`. One of the operands may be a single matrix that all products share.
///
/// Operands may have any strides: a [transposed](View::t) matrix is read as it lies. Fastest are those with adjacent elements along one of their
/// dimensions and all else at multiples of 16 bytes; in bf16 on Hopper those with adjacent elements along k, a linear layer's activations and
/// transposed weight, take the path of [`gemm_bf16`](super::gemm_bf16()), more than twice as fast. Any m, n and k work, and k = 0 gives zeros. The result is a new dense tensor;
/// the work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1 or C has more
/// than 2³¹ − 1 tiles, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let values: Vec<f16> = [1.0, 2.0, 3.0, 4.0].map(f16::from_f32).into();
/// let a = Tensor::from_slice(&stream, [2, 2], &values)?;
/// let product = ops::gemm(&stream, &a, a.view().t())?;
/// assert_eq!(product.to_vec(&stream)?, [5.0, 11.0, 11.0, 25.0].map(f16::from_f32));
/// # Ok(())
/// # }
/// ```
pub fn gemm<'a, T: Float + Half>(
    stream: &Stream,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
) -> Result<Tensor<T>> {
    let (a, b) = (a.into(), b.into());
    let mut c = Tensor::uninit(stream, Shapes::of(a.shape(), b.shape())?.c())?;
    gemm_into(stream, 1.0, a, b, 0.0, &mut c)?;
    Ok(c)
}

/// C = α·A·B + β·C, with the shapes of [`gemm`]. Rows of `c` are contiguous and may lie anywhere apart. With β = 0 nothing that `c` holds counts.
///
/// # Errors
/// As of [`gemm`], and [`Error::Layout`](crate::Error::Layout) if the elements of a row of `c` are not adjacent.
pub fn gemm_into<'a, T: Float + Half>(
    stream: &Stream,
    alpha: f32,
    a: impl Into<View<'a, T>>,
    b: impl Into<View<'a, T>>,
    beta: f32,
    c: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    let (a, b, mut c) = (a.into(), b.into(), c.into());
    let shapes = Shapes::of(a.shape(), b.shape())?;
    c.require_shape(INFO.name, "c", &shapes.c())?;
    c.require_inner_contiguous(INFO.name, "c")?;
    let [m, n, k] = sizes(&INFO, [("a", shapes.m), ("b", shapes.n), ("a", shapes.k)])?;
    let tiles = m.div_ceil(gk::BLOCK) as usize * n.div_ceil(gk::BLOCK) as usize;
    let batch = shapes.batch.unwrap_or(1);
    let Some(grid) = grid(&INFO, "c", tiles.saturating_mul(batch), 1)? else { return Ok(()) };
    // A column of B is what a row of A is.
    let (lies_a, lies_b) = (Lies::of(&a), Lies::of(&b.t()));
    let (c_product, ldc) = match *c.strides() {
        [product, row, _] => (product, row),
        [row, ..] => (0, row),
        [] => (0, 0),
    };
    let problem = gk::Problem {
        a: lies_a.strides,
        b: lies_b.strides,
        c: [c_product as u64, ldc as u64],
        m,
        n,
        k,
        // No more than there are tiles.
        batch: batch as u32,
        alpha,
        beta,
    };
    // A linear layer's product has a path of its own, more than twice as fast.
    let along_k = |lies: &Lies| matches!(lies.major, Some(Major::K)) && lies.strides[1] > 0;
    let is_layer = T::DTYPE == DType::BF16 && alpha == 1.0 && beta == 0.0 && shapes.batch.is_none() && k > 0;
    if is_layer && along_k(&lies_a) && along_k(&lies_b) && stream.device().supports_hopper() {
        let (a, b, c) = (View::of(a.part), View::of(b.t().part), ViewMut::of(c.part));
        return gemm_bf16::launch_hopper(stream, a, b, c);
    }
    let args = (a.ptr(stream)?, b.ptr(stream)?, c.ptr_mut(stream)?, problem);
    // SAFETY: the tensors are live, have these sizes at these strides, and c is borrowed mutably; packs are taken only of operands that lie for
    // them.
    unsafe {
        match (lies_a.major, lies_b.major) {
            (Some(Major::K), Some(Major::K)) => stream.launch::<gk::Gemm<T, false, false, 8>>(grid, args),
            (Some(Major::K), Some(Major::Mn)) => stream.launch::<gk::Gemm<T, false, true, 8>>(grid, args),
            (Some(Major::Mn), Some(Major::K)) => stream.launch::<gk::Gemm<T, true, false, 8>>(grid, args),
            (Some(Major::Mn), Some(Major::Mn)) => stream.launch::<gk::Gemm<T, true, true, 8>>(grid, args),
            _ => stream.launch::<gk::Gemm<T, false, false, 1>>(grid, args),
        }
    }
}

/// The sizes of a product, or of a batch of them.
struct Shapes {
    batch: Option<usize>,
    m: usize,
    n: usize,
    k: usize,
}

impl Shapes {
    fn of(a: &[usize], b: &[usize]) -> Result<Self> {
        let (a_batch, m, k) = match *a {
            [m, k] => (None, m, k),
            [batch, m, k] => (Some(batch), m, k),
            _ => return Err(INFO.shape_error("a", a, "[m, k] or [batch, m, k]")),
        };
        let (b_batch, n) = match *b {
            [depth, n] if depth == k => (None, n),
            [batch, depth, n] if depth == k && a_batch.is_none_or(|a| a == batch) => (Some(batch), n),
            _ => {
                let batch = a_batch.map_or("batch".to_owned(), |batch| batch.to_string());
                return Err(INFO.shape_error("b", b, format!("[{k}, n] or [{batch}, {k}, n]")));
            }
        };
        Ok(Self { batch: a_batch.or(b_batch), m, n, k })
    }

    /// The shape of C.
    fn c(&self) -> Vec<usize> {
        self.batch.into_iter().chain([self.m, self.n]).collect()
    }
}

/// Which elements of an operand are adjacent.
#[derive(Clone, Copy)]
enum Major {
    K,
    Mn,
}

/// How an operand lies, seen as rows along k.
struct Lies {
    /// From a matrix to the next, from a row to the next, along k; 0 where there is no next.
    strides: [u64; 3],
    /// `None` if packs of 16 bytes cannot be taken of it.
    major: Option<Major>,
}

impl Lies {
    fn of<T: Float>(rows: &View<'_, T>) -> Self {
        let stride = |i: usize| match rows.shape()[i] {
            0 | 1 => 0,
            _ => rows.strides()[i] as u64,
        };
        let rank = rows.shape().len();
        let strides = [if rank > 2 { stride(0) } else { 0 }, stride(rank - 2), stride(rank - 1)];
        let whole = |stride: u64| stride.is_multiple_of(16 / size_of::<T>() as u64);
        let major = match strides {
            _ if rows.alignment() < 16 || !whole(strides[0]) => None,
            [_, row, 0 | 1] if whole(row) => Some(Major::K),
            [_, 0 | 1, k] if whole(k) => Some(Major::Mn),
            _ => None,
        };
        Self { strides, major }
    }
}

/// The operator's entry in the registry.
pub struct Gemm;

static INFO: OpInfo = OpInfo {
    name: "gemm",
    bench_name: "gemm",
    summary: "16-bit matrix product, any strides, batched",
    math: "C = α·A·B + β·C",
    args: &[
        ArgInfo::input("a", "[m, k] or [batch, m, k], any strides"),
        ArgInfo::input("b", "[k, n] or [batch, k, n], any strides"),
        ArgInfo::in_out("c", "[m, n] or [batch, m, n], rows contiguous"),
    ],
    params: &[
        ParamInfo::float("alpha", 1.0, "factor of the product"),
        ParamInfo::float("beta", 0.0, "factor of what c holds, which is not read if 0"),
    ],
    dtypes: &[DType::F16, DType::BF16],
    kernels: &[gk::GEMM, hopper::GEMM_BF16_HOPPER],
    variants: &[],
};

/// Operands that lie transposed, single and in batches.
const T: Arrangement = Arrangement::DENSE.order(&[1, 0]);
const BATCHED_T: Arrangement = Arrangement::DENSE.order(&[0, 2, 1]);

impl Operator for Gemm {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |batch, m, n, k| [("batch", batch), ("m", m), ("n", n), ("k", k)];
        // The operands that lie transposed, by BLAS's letters.
        let lie = |case: Case, letters: &str, transposed: Arrangement| {
            let operands = ["a", "b"].into_iter().zip(letters.chars()).filter(|(_, letter)| *letter == 'T');
            operands.fold(case, |case, (name, _)| case.arrange(name, transposed))
        };
        let mut cases = Vec::new();
        for &dtype in INFO.dtypes {
            for letters in ["NN", "NT", "TN", "TT"] {
                let name = format!("m=4096 n=4096 k=4096 {letters} {dtype}");
                cases.push(lie(Case::production(&INFO, name, dtype, dims(1, 4096, 4096, 4096)), letters, T));
            }
            let name = format!("batch=64 m=1024 n=1024 k=1024 NN {dtype}");
            cases.push(Case::production(&INFO, name, dtype, dims(64, 1024, 1024, 1024)));
        }
        for &dtype in INFO.dtypes {
            for letters in ["NN", "NT", "TN", "TT"] {
                cases.extend([
                    lie(Case::odd(&INFO, dtype, dims(1, 136, 144, 168)), letters, T),
                    lie(Case::odd(&INFO, dtype, dims(2, 24, 40, 48)), letters, BATCHED_T).param("alpha", -0.5),
                ]);
            }
            cases.extend([
                Case::odd(&INFO, dtype, dims(1, 133, 141, 59)).param("alpha", 0.75).param("beta", -1.5),
                lie(Case::odd(&INFO, dtype, dims(1, 33, 35, 37)), "TT", T),
                // Ends of the operands between packs.
                lie(Case::odd(&INFO, dtype, dims(1, 21, 19, 37)), "TN", T.row_pad(3))
                    .arrange("b", Arrangement::DENSE.row_pad(5)),
                Case::odd(&INFO, dtype, dims(1, 21, 19, 37))
                    .arrange("a", Arrangement::DENSE.row_pad(3))
                    .arrange("b", T.row_pad(3))
                    .arrange("c", Arrangement::DENSE.row_pad(1))
                    .param("beta", 2.0),
                Case::odd(&INFO, dtype, dims(3, 30, 20, 10)).row_pad(1),
                Case::odd(&INFO, dtype, dims(2, 16, 24, 32)).arrange("a", Arrangement::DENSE.broadcast(&[0])),
                Case::odd(&INFO, dtype, dims(1, 40, 24, 32)).offset(1),
                Case::odd(&INFO, dtype, dims(1, 16, 16, 16)).values("c", Values::Specials),
                Case::tiny(&INFO, dtype, dims(1, 1, 1, 1)),
                Case::tiny(&INFO, dtype, dims(2, 3, 2, 5)),
                Case::empty(&INFO, dtype, dims(1, 0, 8, 8)),
                Case::empty(&INFO, dtype, dims(1, 8, 0, 8)),
                Case::empty(&INFO, dtype, dims(0, 8, 8, 8)),
                Case::empty(&INFO, dtype, dims(1, 8, 12, 0)).param("beta", 0.5),
                Case::boundary(&INFO, dtype, dims(1, 128, 128, 32)),
                Case::boundary(&INFO, dtype, dims(1, 1, 136, 40)),
                Case::boundary(&INFO, dtype, dims(1, 136, 1, 40)),
                Case::boundary(&INFO, dtype, dims(1, 16, 8, 1)),
            ]);
        }
        // Blocks of the Hopper path that take several tiles.
        cases.push(lie(Case::odd(&INFO, DType::BF16, dims(1, 300, 520, 200)), "NT", T));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, m, n, k] = case.dims(["batch", "m", "n", "k"])?;
        // A batch of one is a matrix.
        let shape = |matrix: [usize; 2]| (batch != 1).then_some(batch).into_iter().chain(matrix).collect::<Vec<_>>();
        let specs = [("a", [m, k]), ("b", [k, n]), ("c", [m, n])];
        let spec = |(name, matrix)| InputSpec::normal(name, case.dtype, shape(matrix)).in_case(case);
        Ok(specs.map(spec).into())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let shapes = Shapes::of(inputs.get("a")?.shape(), inputs.get("b")?.shape())?;
        inputs.get("c")?.has_shape(&shapes.c())?;
        Ok(vec![])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (alpha, beta) = (params.f32("alpha")?, params.f32("beta")?);
        dispatch!(INFO, args.dtype("a")?, [f16, bf16] => |T| {
            gemm_into::<T>(stream, alpha, args.input("a")?, args.input("b")?, beta, args.output("c")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (a, b, c) = (inputs.get("a")?, inputs.get("b")?, inputs.get("c")?);
        let shapes = Shapes::of(a.shape(), b.shape())?;
        // What is written is the product of f32 factors.
        let (alpha, beta) = (f64::from(params.f32("alpha")?), f64::from(params.f32("beta")?));
        let mut results = Vec::new();
        // Consecutive rows of one product share its B.
        for rows in rows.chunk_by(|x, y| x / shapes.m == y / shapes.m) {
            let product = rows[0] / shapes.m;
            let first = |rank: usize, rows: usize| if rank > 2 { product * rows } else { 0 };
            let (a0, b0) = (first(a.shape().len(), shapes.m), first(b.shape().len(), shapes.k));
            let b: Vec<_> = (0..shapes.k).map(|k| reference::row(b, b0 + k)).collect();
            results.extend(reference::by_row(rows, |r| {
                let mut sums = vec![0.0; shapes.n];
                for (a, b) in reference::row(a, a0 + r % shapes.m).into_iter().zip(&b) {
                    sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
                }
                let old = if beta == 0.0 { vec![0.0; shapes.n] } else { reference::row(c, r) };
                sums.iter().zip(old).map(|(sum, old)| alpha * sum + beta * old).collect()
            }));
        }
        Ok(results)
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [k] = case.dims(["k"])?;
        let alpha = case.params.f64("alpha")?.abs();
        // The tensor core truncates each addend to the largest one's grid, of f32 spacing: up to 2⁻²² of a running sum of size √k for each
        // step of 16 products, all towards zero, so these errors add up instead of cancelling. The factor rounds once more, at six times √k.
        let abs = alpha * (k as f64).sqrt() * ((k as f64 / 16.0).max(1.0) * 4.0 + 6.0) * roundoff(DType::F32);
        Ok(Tolerance::rounded(
            case.dtype,
            abs,
            2.0 * roundoff(DType::F32),
            "one rounding of the result, k/16 truncations of sums of size √k, and those of the factors",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [batch, m, n, k] = case.dims(["batch", "m", "n", "k"])?;
        let bytes = case.dtype.size() * batch * (m * k + k * n + m * n);
        Ok(Cost::compute(bytes as u64, 2 * (batch * m * n * k) as u64, Bound::Tensor(case.dtype)))
    }
}
