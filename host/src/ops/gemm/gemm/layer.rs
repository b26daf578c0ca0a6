//! The product of a linear layer in bf16, C = A·Bᵀ: one instance of [`gemm`](super::gemm()).

use gpu_kernels::ops::gemm::gemm::hopper::{DIRECT, TALL};
use gpu_kernels::ops::gemm::gemm::pad::GEMM_PAD;
use gpu_kernels::ops::gemm::gemm::skinny::Cut;
use gpu_kernels::ops::gemm::gemm::thin;
use half::bf16;

use super::super::operand::{self, fits_tma, gains_from_copies, layout, store_of_case};
use super::operator::{joined, kernels};
use super::path::Path;
use super::problem::{Problem, widths};
use super::skinny;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
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
    let mut c = Tensor::result(stream, [m, n])?;
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

/// The product of a launch's tensors, whose types are known only at run time.
fn of<'a>(args: &mut Arguments<'a>) -> Result<Problem<'a, bf16, bf16>> {
    problem(args.input("a")?, args.input("b")?, args.output("c")?)
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
    kernels: &joined::<7, 1, 8>(kernels(true, false), [GEMM_PAD]),
    variants: &[
        Variant {
            name: "skinny",
            doc: "TMA and wgmma, k split, compute capability 9.0: what is picked where hopper fits, for up to 128 rows or columns, unless one of the next does or more than 16 rows or 32 columns fill tiles",
            applies: |device, case| fits_few(device, case, Cut::FOUR.most()),
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Skinny(Cut::FOUR))),
        },
        Variant {
            name: "skinny_alone",
            doc: "the same, each block with a multiprocessor to itself: what is picked for 17 to 64 if these leave half of them empty",
            applies: |device, case| fits_few(device, case, Cut::FOUR_ALONE.most()),
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Skinny(Cut::FOUR_ALONE))),
        },
        Variant {
            name: "skinny_pairs",
            doc: "the same by two blocks that share k in place of four: what is picked if these fill the multiprocessors once, unless one of the next does",
            applies: |device, case| fits_few(device, case, Cut::PAIR.most()),
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Skinny(Cut::PAIR))),
        },
        Variant {
            name: "thin",
            doc: "TMA and wgmma, 64 rows by 32 columns, or the reverse, along all of k: what is picked for 49 to 64 if these fill the multiprocessors once",
            applies: |device, case| fits_few(device, case, thin::most(32)),
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Thin(32))),
        },
        Variant {
            name: "thin_64",
            doc: "the same, 128 rows by 64 columns: what is picked for 65 to 128 if these do",
            applies: |device, case| fits_few(device, case, thin::most(64)),
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Thin(64))),
        },
        tiles::<256>(
            "hopper",
            "TMA and wgmma, compute capability 9.0, tiles of 256 columns: what is picked where rows of a and b are at multiples of 16 bytes, or one of the next seven",
        ),
        tiles::<208>("hopper_208", "the same by tiles of 208 columns"),
        tiles::<192>(
            "hopper_192",
            "the same by tiles of 192: what is picked where these fill rounds of the multiprocessors better",
        ),
        tiles::<160>("hopper_160", "the same by tiles of 160 columns"),
        tiles::<128>("hopper_128", "the same by tiles of 128 columns"),
        tiles::<64>("hopper_64", "the same by tiles of 64 columns"),
        Variant {
            name: "hopper_tall",
            doc: "the same by tiles of 384 rows and 192 columns: what is picked where these take one round and others two",
            applies: fits_tiles::<{ TALL[1] }>,
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Tall)),
        },
        Variant {
            name: "swapped_128",
            doc: "hopper's tiles of 128 columns with a and b swapped, 256 columns of c by 128 rows: what is picked for 65 to 128 rows of many columns, if rows of c too are at multiples of 16 bytes",
            applies: fits_swapped,
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Swapped(128))),
        },
        Variant {
            name: "swapped_64",
            doc: "the same by 64 rows: what is picked for 17 to 64, or where tiles of 128 are too few",
            applies: fits_swapped,
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Swapped(64))),
        },
        Variant {
            name: "padded",
            doc: "one of these after copies of operands whose rows lie between packs of 16 bytes: what is picked for these from 2²⁸ multiply-adds on",
            applies: fits_padded,
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Padded)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Mma)),
        },
    ],
};

/// The variant with tiles of `N` columns.
const fn tiles<const N: u32>(name: &'static str, doc: &'static str) -> Variant {
    Variant {
        name,
        doc,
        applies: fits_tiles::<N>,
        launch: |stream, args, _| of(args)?.launch(stream, Some(Path::Hopper(N))),
    }
}

/// Whether the Hopper path with tiles of `N` columns can run the case on such a device.
fn fits_tiles<const N: u32>(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([m, n, k]) = case.dims(["m", "n", "k"]) else {
        return false;
    };
    let major = |name, rows| fits_tma(case, name, case.dtype, &[rows, k], false);
    let has_width = |a| widths(a, case.dtype).contains(&N);
    device.compute_capability == (9, 0)
        && m > 0
        && n > 0
        && major("a", m).is_some_and(has_width)
        && major("b", n).is_some()
}

/// Whether the Hopper path can run the case with operands swapped.
fn fits_swapped(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([m, n, _]) = case.dims(["m", "n", "k"]) else {
        return false;
    };
    operand::fits_hopper(device, case, case.dtype, ["a", "b"], ["m", "n", "k"])
        && store_of_case(case, "c", case.dtype, &[m, n], 0.0) != DIRECT
}

/// Whether the case has operands that would be copied.
fn fits_padded(_: &DeviceInfo, case: &Case) -> bool {
    let Ok([m, n, k]) = case.dims(["m", "n", "k"]) else {
        return false;
    };
    let layout = |name, rows| layout(case, name, case.dtype, &[rows, k], false);
    // A tensor without elements has no known layout.
    [m, n, k].iter().all(|size| *size > 0) && gains_from_copies([&layout("a", m), &layout("b", n)])
}

/// Whether the path for at most `most` rows or columns can run the case.
fn fits_few(device: &DeviceInfo, case: &Case, most: u32) -> bool {
    let Ok([m, n, k]) = case.dims(["m", "n", "k"]) else {
        return false;
    };
    let major = |name, rows| fits_tma(case, name, case.dtype, &[rows, k], false);
    skinny::fits(device, 1, [m, n], [major("a", m), major("b", n)], most)
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
            (512, 4096, 4096),
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

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        of(args)?.launch(stream, None)
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
