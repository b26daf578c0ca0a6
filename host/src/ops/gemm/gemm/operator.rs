//! The products in the registry.

use cuda_std::float::Half;
use cuda_std::launch::Instance;
use gpu_kernels::ops::gemm::gemm::hopper::{GEMM_FINE, GEMM_HOPPER, GEMM_SWAPPED, GEMM_TALL};
use gpu_kernels::ops::gemm::gemm::mma::GEMM_MMA;
use gpu_kernels::ops::gemm::gemm::pad::GEMM_PAD;
use gpu_kernels::ops::gemm::gemm::pairs::GEMM_PAIRS;
use gpu_kernels::ops::gemm::gemm::skinny::GEMM_SKINNY;
use gpu_kernels::ops::gemm::gemm::split::GEMM_SUM;
use gpu_kernels::ops::gemm::gemm::thin::GEMM_THIN;
use half::{bf16, f16};

use super::super::operand::{layout, store_of_case};
use super::super::sizes;
use super::path::{Facts, Path};
use super::problem::{Problem, Scalar, Shapes};
use super::variants::{Product, variants};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

const A: ArgInfo = ArgInfo::input("a", "[m, k] or [batch, m, k], any strides");
const B: ArgInfo = ArgInfo::input("b", "[k, n] or [batch, k, n], any strides");
const C: ArgInfo = ArgInfo::in_out("c", "[m, n] or [batch, m, n], rows contiguous");

const PARAMS: &[ParamInfo] = &[
    ParamInfo::float("alpha", 1.0, "factor of the product"),
    ParamInfo::float("beta", 0.0, "factor of what c holds, which is not read if 0"),
];

const SCALE: ArgInfo = ArgInfo::input("scale", "[1], multiplies α").of(&[DType::F32]).optional();

const fn facts(
    [name, bench_name, summary]: [&'static str; 3],
    args: &'static [ArgInfo],
    kernels: &'static [&'static [Instance]],
    variants: &'static [Variant],
) -> OpInfo {
    OpInfo {
        name,
        bench_name,
        summary,
        math: "C = α·A·B + β·C",
        args,
        params: PARAMS,
        dtypes: &[DType::F16, DType::BF16],
        kernels,
        variants,
    }
}

/// The instances of each kernel of a product, by the types of A and B (f16, bf16) and of C (f32, or the type of A and B).
type Kernels<const N: usize> = [&'static [Instance]; N];

/// The kernels of products with one type of A and B and one of C, except [`GEMM_PAD`], which has no types.
pub(in super::super) const fn kernels(of_bf16: bool, to_f32: bool) -> Kernels<11> {
    // C is listed within A, in the order f32, f16, bf16; each type of A has two of these.
    const fn of_c(all: &'static [Instance], of_bf16: bool, to_f32: bool) -> &'static [Instance] {
        let each = all.len() / 4;
        let at = each * (2 * of_bf16 as usize + !to_f32 as usize);
        all.split_at(at).1.split_at(each).0
    }
    // Of C in f32 there are two widths, of the other types there are six.
    let (f16, bf16) = GEMM_FINE.split_at(GEMM_FINE.len() / 2);
    let (into_f32, alike) = if of_bf16 { bf16 } else { f16 }.split_at(GEMM_FINE.len() / 8);
    let fine = if to_f32 { into_f32 } else { alike };
    let sum = if to_f32 { 0 } else { 1 + of_bf16 as usize };
    [
        of_c(GEMM_MMA, of_bf16, to_f32),
        of_c(GEMM_HOPPER, of_bf16, to_f32),
        fine,
        of_c(GEMM_TALL, of_bf16, to_f32),
        of_c(GEMM_SWAPPED, of_bf16, to_f32),
        of_c(GEMM_SKINNY, of_bf16, to_f32),
        of_c(GEMM_PAIRS, of_bf16, to_f32),
        of_c(GEMM_THIN, of_bf16, to_f32),
        // Pieces are f32, and listed already where C is.
        if to_f32 { &[] } else { of_c(GEMM_HOPPER, of_bf16, true) },
        if to_f32 { &[] } else { of_c(GEMM_SWAPPED, of_bf16, true) },
        GEMM_SUM.split_at(sum).1.split_at(1).0,
    ]
}

/// The elements of `first`, then those of `rest`.
pub(in super::super) const fn joined<const A: usize, const B: usize, const N: usize>(
    first: Kernels<A>,
    rest: Kernels<B>,
) -> Kernels<N> {
    const { assert!(A + B == N) };
    let mut all: Kernels<N> = [&[]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < A { first[i] } else { rest[i - A] };
        i += 1;
    }
    all
}

/// The kernels for both types of A and B.
const fn kernels_into(f32: bool) -> Kernels<23> {
    joined(joined::<11, 11, 22>(kernels(false, f32), kernels(true, f32)), [GEMM_PAD])
}

pub(super) static INFO: OpInfo = facts(
    ["gemm", "gemm", "16-bit matrix product, any strides, batched"],
    &[A, B, SCALE, C],
    &kernels_into(false),
    variants::<Gemm>(),
);

pub(super) static TO_F32: OpInfo = facts(
    ["gemm_to_f32", "gemm.to_f32", "16-bit matrix product into f32, any strides, batched"],
    &[A, B, SCALE, C.of(&[DType::F32])],
    &kernels_into(true),
    variants::<Gemm>(),
);

/// A form of the product in the registry.
pub struct Gemm {
    info: &'static OpInfo,
}

/// [`gemm`](super::gemm()) in the registry.
pub static GEMM: Gemm = Gemm { info: &INFO };
/// [`gemm_to_f32`](super::gemm_to_f32) in the registry.
pub static GEMM_TO_F32: Gemm = Gemm { info: &TO_F32 };

/// The type of C in the case.
fn of_c(case: &Case) -> DType {
    if case.params.info().name == TO_F32.name { DType::F32 } else { case.dtype }
}

impl Product for Gemm {
    fn of_case(case: &Case) -> Result<Facts> {
        let [batch, m, n, k] = case.dims(["batch", "m", "n", "k"])?;
        let (a, b, c) = (shape(batch, [m, k]), shape(batch, [k, n]), shape(batch, [m, n]));
        Ok(Facts {
            sizes: sizes(case.params.info(), [("a", batch), ("a", m), ("b", n), ("a", k)])?,
            operands: [layout(case, "a", case.dtype, &a, false), layout(case, "b", case.dtype, &b, true)],
            c: of_c(case),
            store: store_of_case(case, "c", of_c(case), &c, case.params.f32("beta")?),
        })
    }

    /// Launches the form of the operator that takes these arguments.
    fn launch(stream: &Stream, args: &mut Arguments<'_>, params: &Params, path: Option<Path>) -> Result<()> {
        let (info, a, c) = (params.info(), args.dtype("a")?, args.dtype("c")?);
        dispatch!(info, a, [f16, bf16] => |T| match c {
            DType::F32 => launch_typed::<T, f32>(info, stream, args, params, path),
            _ => launch_typed::<T, T>(info, stream, args, params, path),
        })
    }
}

fn launch_typed<T: Float + Half, C: Float>(
    info: &'static OpInfo,
    stream: &Stream,
    args: &mut Arguments<'_>,
    params: &Params,
    path: Option<Path>,
) -> Result<()> {
    let alpha = Scalar { factor: params.f32("alpha")?, on_device: args.optional_input("scale")? };
    let (a, b, c) = (args.input("a")?, args.input("b")?, args.output("c")?);
    Problem::<T, C>::new(info, alpha, params.f32("beta")?, a, b, c)?.launch(stream, path)
}

/// The shape of a batch of matrices; a batch of one is a matrix.
fn shape(batch: usize, matrix: [usize; 2]) -> Vec<usize> {
    (batch != 1).then_some(batch).into_iter().chain(matrix).collect()
}

/// Variants whose blocks take several tiles.
const TILES: [&str; 13] = [
    "hopper",
    "hopper_240",
    "hopper_192",
    "hopper_128",
    "hopper_96",
    "hopper_64",
    "hopper_tall",
    "split_swapped_208",
    "split_swapped_192",
    "split_swapped_160",
    "split_swapped_128",
    "split_swapped_96",
    "split_swapped_64",
];

/// Transposed operands, single and in batches.
const T: Arrangement = Arrangement::DENSE.order(&[1, 0]);
const BATCHED_T: Arrangement = Arrangement::DENSE.order(&[0, 2, 1]);

impl Operator for Gemm {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let info = self.info;
        let dims = |batch, m, n, k| [("batch", batch), ("m", m), ("n", n), ("k", k)];
        // Transposed operands, by the letters of BLAS.
        let arranged = |case: Case, letters: &str, transposed: Arrangement| {
            let operands = ["a", "b"].into_iter().zip(letters.chars()).filter(|(_, letter)| *letter == 'T');
            operands.fold(case, |case, (name, _)| case.arrange(name, transposed))
        };
        let mut cases = Vec::new();
        for letters in ["NN", "NT", "TN", "TT"] {
            let name = |n| format!("m={n} n={n} k={n} {letters} bf16");
            let case = |n| arranged(Case::production(info, name(n), DType::BF16, dims(1, n, n, n)), letters, T);
            cases.extend([case(4096), case(8192).timed_only()]);
        }
        // Sizes between whole waves of the widest tiles.
        for n in [1216, 1440, 1792, 2112] {
            let name = format!("m={n} n={n} k={n} NN bf16");
            cases.push(Case::production(info, name, DType::BF16, dims(1, n, n, n)));
        }
        // The size of GPT-2's vocabulary, which is odd.
        let vocabulary = "m=4096 n=1024 k=50257 NN bf16";
        cases.push(Case::production(info, vocabulary, DType::BF16, dims(1, 4096, 1024, 50257)).timed_only());
        let batch = "batch=64 m=1024 n=1024 k=1024 NN bf16";
        cases.push(Case::production(info, batch, DType::BF16, dims(64, 1024, 1024, 1024)));
        cases.push(Case::production(info, "m=4096 n=4096 k=4096 NN f16", DType::F16, dims(1, 4096, 4096, 4096)));
        for &dtype in info.dtypes {
            for letters in ["NN", "NT", "TN", "TT"] {
                cases.extend([
                    arranged(Case::odd(info, dtype, dims(1, 136, 144, 168)), letters, T).param("beta", 1.0),
                    arranged(Case::odd(info, dtype, dims(2, 24, 40, 48)), letters, BATCHED_T).param("alpha", -0.5),
                ]);
            }
            cases.extend([
                Case::odd(info, dtype, dims(1, 133, 141, 59)).param("alpha", 0.75).param("beta", -1.5),
                arranged(Case::odd(info, dtype, dims(1, 33, 35, 37)), "TT", T),
                // Operands that end between packs.
                arranged(Case::odd(info, dtype, dims(1, 21, 19, 37)), "TN", T.row_pad(3))
                    .arrange("b", Arrangement::DENSE.row_pad(5)),
                Case::odd(info, dtype, dims(1, 21, 19, 37))
                    .arrange("a", Arrangement::DENSE.row_pad(3))
                    .arrange("b", T.row_pad(3))
                    .arrange("c", Arrangement::DENSE.row_pad(1))
                    .param("beta", 2.0),
                Case::odd(info, dtype, dims(3, 30, 20, 10)).row_pad(1),
                Case::odd(info, dtype, dims(2, 16, 24, 32)).arrange("a", Arrangement::DENSE.broadcast(&[0])),
                // A single element per row of A, or per column of B: nothing is contiguous along k.
                Case::odd(info, dtype, dims(1, 16, 24, 32)).arrange("a", Arrangement::DENSE.broadcast(&[1])),
                Case::odd(info, dtype, dims(1, 24, 16, 32)).arrange("b", Arrangement::DENSE.broadcast(&[0])),
                Case::odd(info, dtype, dims(1, 40, 24, 32)).offset(1),
                Case::odd(info, dtype, dims(1, 16, 16, 16)).values("c", Values::Specials),
                // More stages than the rings of the path for few rows or columns.
                arranged(Case::odd(info, dtype, dims(1, 11, 136, 1544)), "NT", T)
                    .param("alpha", -0.5)
                    .param("beta", 1.5),
                arranged(Case::odd(info, dtype, dims(1, 140, 40, 1288)), "NT", T).param("beta", 1.0),
                arranged(Case::odd(info, dtype, dims(1, 136, 120, 1032)), "NT", T),
                // All of k, or of the last piece of it, is a quarter of a stage.
                arranged(Case::odd(info, dtype, dims(1, 72, 40, 16)), "TT", T),
                arranged(Case::odd(info, dtype, dims(1, 40, 72, 16)), "NT", T),
                arranged(Case::odd(info, dtype, dims(1, 40, 72, 136)), "NT", T),
                // More tall tiles than the simulated GPU has clusters.
                arranged(Case::odd(info, dtype, dims(1, 8, 1000, 72)), "NT", T),
                arranged(Case::odd(info, dtype, dims(1, 8, 997, 72)), "NT", T),
                arranged(Case::odd(info, dtype, dims(1, 40, 219, 1096)), "NT", T).param("beta", 0.5),
                arranged(Case::odd(info, dtype, dims(1, 217, 53, 1288)), "NT", T).param("alpha", -0.5),
                arranged(Case::odd(info, dtype, dims(1, 37, 40, 2632)), "NT", T),
                Case::tiny(info, dtype, dims(1, 1, 1, 1)),
                Case::tiny(info, dtype, dims(2, 3, 2, 5)),
                Case::empty(info, dtype, dims(1, 0, 8, 8)),
                Case::empty(info, dtype, dims(1, 8, 0, 8)),
                Case::empty(info, dtype, dims(0, 8, 8, 8)),
                // Large enough that misaligned operands would be copied first, but the batch is empty.
                Case::empty(info, dtype, dims(0, 16_384, 16_384, 17)),
                Case::empty(info, dtype, dims(1, 8, 12, 0)).param("beta", 0.5),
                Case::boundary(info, dtype, dims(1, 128, 128, 32)),
                Case::boundary(info, dtype, dims(1, 1, 136, 40)),
                Case::boundary(info, dtype, dims(1, 136, 1, 40)),
                Case::boundary(info, dtype, dims(1, 16, 8, 1)),
            ]);
        }
        // The last tile of a row has columns of whole slabs and of a remainder, ends within either, and is one of several tiles
        // of a block.
        for (letters, n, beta) in
            [("NT", 440, 0.0), ("NN", 440, 0.0), ("NT", 424, -0.5), ("NN", 203, 0.0), ("NT", 301, 1.0)]
        {
            let case = |dtype| arranged(Case::odd(info, dtype, dims(1, 264, n, 200)), letters, T).param("beta", beta);
            let whole = n.next_multiple_of(8) - n;
            let columns =
                |case: Case| if letters == "NN" { case.arrange("b", Arrangement::DENSE.row_pad(whole)) } else { case };
            cases.extend(info.dtypes.iter().map(|dtype| columns(case(*dtype))));
        }
        // Blocks of the Hopper path that take several tiles, from several products.
        for letters in ["NN", "NT", "TN", "TT"] {
            cases.push(arranged(Case::odd(info, DType::F16, dims(1, 304, 520, 200)), letters, T));
        }
        cases.push(arranged(Case::odd(info, DType::F16, dims(2, 264, 272, 72)), "TN", BATCHED_T));
        // Likewise, after tiles without rows for a block, whose stages are all of the ring, and into rows that start anywhere.
        for (letters, k) in [("NT", 456), ("NN", 200), ("TN", 200), ("TT", 200)] {
            let case = Case::odd(info, DType::F16, dims(1, 520, 600, k)).arrange("c", Arrangement::DENSE.row_pad(1));
            cases.push(arranged(case, letters, T).by(&TILES));
        }
        // Pairs of blocks that take rows in two waves, with more stages than their rings have.
        for m in [12, 24, 44, 60] {
            let case = Case::odd(info, DType::F16, dims(1, m, 680, 1416)).param("beta", -1.0);
            cases.push(arranged(case, "NT", T).by(&["skinny_pairs"]));
        }
        let scaled = |dtype| Case::odd(info, dtype, dims(1, 40, 48, 40)).param("alpha", 3.0);
        let scaled = info.dtypes.iter().map(|dtype| scaled(*dtype));
        cases.into_iter().map(|case| case.only(&[])).chain(scaled).collect()
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [batch, m, n, k] = case.dims(["batch", "m", "n", "k"])?;
        let specs = [("a", case.dtype, [m, k]), ("b", case.dtype, [k, n]), ("c", of_c(case), [m, n])];
        let mut specs: Vec<_> =
            specs.map(|(name, dtype, matrix)| InputSpec::normal(name, dtype, shape(batch, matrix))).into();
        if case.has("scale") {
            let values = Values::Uniform { low: 0.25, high: 1.0 };
            specs.insert(2, InputSpec::new("scale", DType::F32, [1], values));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let shapes = Shapes::of(self.info, inputs.get("a")?.shape(), inputs.get("b")?.shape())?;
        inputs.get("c")?.has_shape(&shapes.c())?;
        Ok(vec![])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        <Self as Product>::launch(stream, args, params, None)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (a, b, c) = (inputs.get("a")?, inputs.get("b")?, inputs.get("c")?);
        let shapes = Shapes::of(self.info, a.shape(), b.shape())?;
        // The result is a product with f32 factors.
        let (alpha, beta) = (f64::from(params.f32("alpha")?), f64::from(params.f32("beta")?));
        let alpha = alpha * inputs.optional("scale").map_or(1.0, |scale| scale.to_f64()[0]);
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
        // The tensor core truncates each addend to the grid of the largest one, with f32 spacing: up to 2⁻²² of a running sum
        // of size √k for each step of 16 products, always towards zero, so these errors add up instead of cancelling. The
        // factor rounds once more, at six times √k.
        let abs = alpha * (k as f64).sqrt() * ((k as f64 / 16.0).max(1.0) * 4.0 + 6.0) * roundoff(DType::F32);
        Ok(Tolerance::rounded(
            of_c(case),
            abs,
            2.0 * roundoff(DType::F32),
            "one rounding of the result, k/16 truncations of sums of size √k, and those of the factors",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [batch, m, n, k] = case.dims(["batch", "m", "n", "k"])?;
        let of_c = of_c(case).size() * if case.params.f64("beta")? == 0.0 { 1 } else { 2 };
        let bytes = batch * (case.dtype.size() * (m * k + k * n) + of_c * m * n);
        Ok(Cost::compute(bytes as u64, 2 * (batch * m * n * k) as u64, Bound::Tensor(case.dtype)))
    }
}
