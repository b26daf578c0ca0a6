//! Single-precision matrix product.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel, TensorMap};
use gpu_kernels::ops::gemm::sgemm as gk;
use gpu_kernels::ops::gemm::sgemm::hopper;
use gpu_kernels::ops::gemm::sgemm::ladder::{self, Sizes};

use super::operand::{self, Major, OperandLayout};
use super::{note_work, sizes};
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};
use crate::runtime::view::{View, ViewMut};

/// C = A·B in f32: `a` is `[m, k]`, `b` is `[k, n]`, `c` is `[m, n]`, all row-major.
///
/// Rows may be padded (a leading dimension above the row length); any m, n and k work, and k = 0 gives zeros. 16-byte
/// aligned rows are read fastest. Products and sums are f32 fused multiply-adds. The work is queued on `stream`.
///
/// The level-3 BLAS routine of Dongarra et al., "A set of level 3 basic linear algebra subprograms" (1990), with α = 1
/// and β = 0.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the inner or outer sizes do not fit, [`Error::Layout`](crate::Error::Layout) if the
/// elements of a row are not adjacent, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1.
pub fn sgemm<'a>(stream: &Stream, a: impl Into<View<'a, f32>>, b: impl Into<View<'a, f32>>) -> Result<Tensor<f32>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [_, n]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::result_as(INFO.name, "c", stream, [m, n])?;
    sgemm_into(stream, a, b, &mut c)?;
    Ok(c)
}

/// [`sgemm`] into `c`, `[m, n]`, whose rows may be padded.
///
/// # Errors
/// Same as [`sgemm`].
pub fn sgemm_into<'a>(
    stream: &Stream,
    a: impl Into<View<'a, f32>>,
    b: impl Into<View<'a, f32>>,
    c: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    Problem::new(a.into(), b.into(), c.into())?.launch(stream)
}

/// The tensor map of a matrix whose rows are `ld` elements apart, in boxes of these numbers of rows and columns.
fn map(
    stream: &Stream,
    matrix: &View<'_, f32>,
    ld: u64,
    [rows, columns]: [u32; 2],
    swizzle: Swizzle,
) -> Result<TensorMap> {
    let [all_rows, all_columns] = [0, 1].map(|i| matrix.shape()[i] as u64);
    // The stride of a single row does not matter, but it must be valid.
    let ld = if all_rows < 2 { all_columns.next_multiple_of(4) } else { ld };
    stream.device().tensor_map(&TensorMapDesc {
        address: matrix.ptr(stream)?.addr(),
        dtype: DType::F32,
        dims: &[all_columns, all_rows],
        strides_bytes: &[4 * ld],
        box_dims: &[columns, rows],
        swizzle,
        l2_promotion: L2Promotion::B256,
        oob_fill: OobFill::Zero,
    })
}

/// A product with checked sizes.
struct Problem<'a> {
    a: View<'a, f32>,
    b: View<'a, f32>,
    c: ViewMut<'a, f32>,
    sizes: Sizes,
}

impl<'a> Problem<'a> {
    fn new(a: View<'a, f32>, b: View<'a, f32>, c: ViewMut<'a, f32>) -> Result<Self> {
        let [m, k]: [usize; 2] = a.dims(INFO.name, "a")?;
        let [_, n]: [usize; 2] = b.dims(INFO.name, "b")?;
        b.require_shape(INFO.name, "b", &[k, n])?;
        c.require_shape(INFO.name, "c", &[m, n])?;
        let lda = a.require_row_stride(INFO.name, "a")? as u64;
        let ldb = b.require_row_stride(INFO.name, "b")? as u64;
        let ldc = c.require_row_stride(INFO.name, "c")? as u64;
        let [m, n, k] = sizes(&INFO, [("a", m), ("b", n), ("a", k)])?;
        Ok(Self { a, b, c, sizes: Sizes { lda, ldb, ldc, m, n, k, padding: 0 } })
    }

    /// The product of a launch's tensors, whose types are known only at run time.
    fn of(args: &mut Arguments<'a>) -> Result<Self> {
        Self::new(args.input("a")?, args.input("b")?, args.output("c")?)
    }

    fn require_device(&self, stream: &Stream) -> Result<()> {
        stream.require_devices(INFO.name, &[("a", &self.a), ("b", &self.b), ("c", &self.c)])
    }

    fn note_work(&self) {
        let Sizes { m, n, k, .. } = self.sizes;
        note_work(Bound::Fp32, [1, m, n, k]);
    }

    /// The number of blocks for tiles of C of that size; `None` if there is nothing to do.
    fn grid(&self, rows: u32, columns: u32) -> Result<Option<u32>> {
        let tiles = self.sizes.m.div_ceil(rows) as usize * self.sizes.n.div_ceil(columns) as usize;
        grid(&INFO, "c", tiles, 1)
    }

    /// Whether TMA reads the operands.
    fn fits_hopper(&self) -> bool {
        let fits = |matrix: &View<'_, f32>| {
            OperandLayout::of(matrix.shape(), matrix.strides(), matrix.alignment(), size_of::<f32>()).fits_tma()
                == Some(Major::K)
        };
        // Rows of B are along n.
        self.sizes.k > 0 && fits(&self.a) && fits(&self.b)
    }

    /// Launches the fastest kernel that takes the operands.
    fn launch(self, stream: &Stream) -> Result<()> {
        match stream.device().supports_hopper() && self.fits_hopper() {
            true => self.launch_hopper(stream),
            false => self.launch_staged(stream),
        }
    }

    fn launch_hopper(mut self, stream: &Stream) -> Result<()> {
        self.require_device(stream)?;
        if !self.fits_hopper() {
            return Err(INFO.param_error("variant", "hopper", "k > 0, and rows of a and b at multiples of 16 bytes"));
        }
        let Some(grid) = self.grid(gk::BLOCK_M, gk::BLOCK_N)? else { return Ok(()) };
        let Sizes { lda, ldb, ldc, m, n, k, .. } = self.sizes;
        let a = map(stream, &self.a, lda, [gk::BLOCK_M, hopper::DEPTH], Swizzle::B128)?;
        let b = map(stream, &self.b, ldb, [hopper::DEPTH, gk::BLOCK_N], Swizzle::None)?;
        let c = self.c.ptr_mut(stream)?;
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably; k is not 0, as otherwise
        // there would be no map.
        unsafe { stream.launch::<hopper::SgemmHopper>(grid, (a, b, c, m, n, k, ldc)) }
    }

    fn launch_staged(mut self, stream: &Stream) -> Result<()> {
        self.require_device(stream)?;
        let Some(grid) = self.grid(gk::BLOCK_M, gk::BLOCK_N)? else { return Ok(()) };
        let Sizes { lda, ldb, ldc, m, n, k, .. } = self.sizes;
        let args = (self.a.ptr(stream)?, self.b.ptr(stream)?, self.c.ptr_mut(stream)?, m, n, k, lda, ldb, ldc);
        let aligned = k % 4 == 0 && n % 4 == 0 && self.a.rows_aligned(16) && self.b.rows_aligned(16);
        self.note_work();
        // SAFETY: the tensors are live, hold m, k and n elements at the strides passed, and c is borrowed mutably; the
        // four-wide kernel is taken only for sizes that 4 divides and rows at multiples of 16 bytes.
        unsafe {
            if aligned { stream.launch::<gk::Sgemm<4>>(grid, args) } else { stream.launch::<gk::Sgemm<1>>(grid, args) }
        }
    }

    /// Launches a step of the ladder, whose blocks compute `tile` × `tile` elements.
    fn launch_step<K>(mut self, stream: &Stream, tile: u32) -> Result<()>
    where
        K: Kernel<Args = (DevicePtr<f32>, DevicePtr<f32>, DevicePtrMut<f32>, Sizes)>,
    {
        self.require_device(stream)?;
        let Some(grid) = self.grid(tile, tile)? else { return Ok(()) };
        let args = (self.a.ptr(stream)?, self.b.ptr(stream)?, self.c.ptr_mut(stream)?, self.sizes);
        self.note_work();
        // SAFETY: the tensors are live and hold these sizes at these strides, and c is borrowed mutably; there is a block for every tile.
        unsafe { stream.launch::<K>(grid, args) }
    }
}

/// A variant for a step of the ladder, from its kernel in the step's module.
macro_rules! step {
    ($name:literal, $doc:literal, $module:ident::$kernel:ident) => {
        Variant {
            name: $name,
            doc: concat!("step ", $name, " of the ladder: ", $doc),
            applies: |_, case| in_time(case),
            launch: |stream, args, _| {
                Problem::of(args)?.launch_step::<ladder::$module::$kernel>(stream, ladder::$module::TILE)
            },
        }
    };
}

/// The operator's entry in the registry.
pub struct Sgemm;

static INFO: OpInfo = OpInfo {
    name: "sgemm",
    bench_name: "gemm.f32",
    summary: "f32 matrix product on the CUDA cores",
    math: "C = A·B",
    args: &[
        ArgInfo::input("a", "[m, k], row-major, rows may be padded"),
        ArgInfo::input("b", "[k, n], row-major, rows may be padded"),
        ArgInfo::output("c", "[m, n], row-major, rows may be padded"),
    ],
    params: &[],
    dtypes: &[DType::F32],
    kernels: &[
        gk::SGEMM,
        hopper::SGEMM_HOPPER,
        ladder::v0_naive::SGEMM_NAIVE,
        ladder::v1_strips::SGEMM_STRIPS,
        ladder::v2_window::SGEMM_WINDOW,
        ladder::v3_strided::SGEMM_STRIDED,
        ladder::v4_vectorised::SGEMM_VECTORISED,
        ladder::v5_conflicts::SGEMM_CONFLICTS,
        ladder::v6_outer_product::SGEMM_OUTER_PRODUCT,
        ladder::v7_wide_columns::SGEMM_WIDE_COLUMNS,
        ladder::v8_transposed::SGEMM_TRANSPOSED,
        ladder::v9_double_buffered::SGEMM_DOUBLE_BUFFERED,
    ],
    variants: &[
        Variant {
            name: "hopper",
            doc: "TMA, compute capability 9.0: what is picked where rows of a and b are at multiples of 16 bytes",
            applies: fits_hopper,
            launch: |stream, args, _| Problem::of(args)?.launch_hopper(stream),
        },
        Variant {
            name: "staged",
            doc: "through registers, any GPU: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, _| Problem::of(args)?.launch_staged(stream),
        },
        step!("v0", "a thread an element, uncoalesced", v0_naive::SgemmNaive),
        step!("v1", "coalesced, strips of A and B in shared memory", v1_strips::SgemmStrips),
        step!("v2", "a window of the strips that slides along k", v2_window::SgemmWindow),
        step!("v3", "several results a thread, a stride apart", v3_strided::SgemmStrided),
        step!("v4", "global memory 16 bytes at a time", v4_vectorised::SgemmVectorised),
        step!("v5", "shared memory 16 bytes at a time along k: bank conflicts", v5_conflicts::SgemmConflicts),
        step!("v6", "outer products, registers as the second cache", v6_outer_product::SgemmOuterProduct),
        step!("v7", "16 bytes at a time along n", v7_wide_columns::SgemmWideColumns),
        step!("v8", "A transposed through registers", v8_transposed::SgemmTransposed),
        step!("v9", "double buffering", v9_double_buffered::SgemmDoubleBuffered),
    ],
};

/// Whether TMA takes the operands of the case.
fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([m, n, k]) = case.dims(["m", "n", "k"]) else { return false };
    let fits = |name, shape: [usize; 2]| operand::fits_tma(case, name, case.dtype, &shape, false) == Some(Major::K);
    device.compute_capability == (9, 0) && m > 0 && n > 0 && fits("a", [m, k]) && fits("b", [k, n])
}

/// Whether the first steps of the ladder finish the case in less than a second.
fn in_time(case: &Case) -> bool {
    case.dims(["m", "n", "k"]).is_ok_and(|sizes| sizes.iter().product::<usize>() <= 1 << 36)
}

impl Operator for Sgemm {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let f32 = DType::F32;
        let dims = |m, n, k| [("m", m), ("n", n), ("k", k)];
        vec![
            Case::production(&INFO, "4096^3", f32, dims(4096, 4096, 4096)),
            Case::production(&INFO, "8192^3", f32, dims(8192, 8192, 8192)),
            // The ladder runs these as well: a few tiles of each step are enough.
            Case::odd(&INFO, f32, dims(129, 141, 29)),
            Case::odd(&INFO, f32, dims(129, 140, 24)),
            Case::odd(&INFO, f32, dims(130, 140, 20)).row_pad(4),
            Case::odd(&INFO, f32, dims(130, 140, 20)).row_pad(1),
            // Rows of c at multiples of 16 bytes that end between them, in each quarter of a tile's columns.
            Case::odd(&INFO, f32, dims(130, 139, 20)).arrange("c", Arrangement::DENSE.row_pad(1)),
            Case::odd(&INFO, f32, dims(40, 103, 20)).arrange("c", Arrangement::DENSE.row_pad(1)),
            Case::odd(&INFO, f32, dims(70, 71, 20)).arrange("c", Arrangement::DENSE.row_pad(1)),
            Case::odd(&INFO, f32, dims(20, 39, 20)).arrange("c", Arrangement::DENSE.row_pad(1)),
            Case::odd(&INFO, f32, dims(96, 72, 24)).offset(1),
            Case::tiny(&INFO, f32, dims(1, 1, 1)),
            Case::tiny(&INFO, f32, dims(3, 2, 5)),
            Case::empty(&INFO, f32, dims(0, 8, 8)),
            Case::empty(&INFO, f32, dims(8, 0, 8)),
            Case::empty(&INFO, f32, dims(8, 12, 0)),
            Case::boundary(&INFO, f32, dims(128, 128, 16)),
            Case::boundary(&INFO, f32, dims(128, 128, 17)),
            Case::boundary(&INFO, f32, dims(1, 300, 30)),
            Case::boundary(&INFO, f32, dims(300, 1, 30)),
            // More stages of the Hopper path than a block holds at a time.
            Case::boundary(&INFO, f32, dims(20, 24, 300)),
            // More than one strip in shared memory for the ladder's first step.
            Case::boundary(&INFO, f32, dims(20, 17, 376)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let specs = [InputSpec::normal("a", case.dtype, [m, k]), InputSpec::normal("b", case.dtype, [k, n])];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (a, b) = (inputs.get("a")?, inputs.get("b")?);
        let [m, k] = a.dims()?;
        let [_, n] = b.dims()?;
        b.has_shape(&[k, n])?;
        Ok(vec![TensorMeta::new("c", a.dtype(), [m, n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        sgemm_into(stream, args.input::<f32>("a")?, args.input::<f32>("b")?, args.output::<f32>("c")?)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::matmul_nn(inputs.get("a")?, inputs.get("b")?, rows))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [k] = case.dims(["k"])?;
        // Each of k fused multiply-adds rounds the running sum, whose size is about √i after i of them plus, where the result c
        // is large, i/k of c. Rounding errors add up as a random walk, each with a standard deviation of 0.4·2⁻²⁴ of the sum:
        // together 0.3·k·2⁻²⁴ and 0.25·√k·2⁻²⁴·|c|. Six deviations are never seen in 10⁸ outputs.
        let (k, ulp) = (k as f64, roundoff(DType::F32));
        Ok(Tolerance::new(
            2.0 * k * ulp,
            1.5 * k.sqrt() * ulp + ulp,
            "k roundings of a growing sum, walking at random: 6 standard deviations",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [m, n, k] = case.dims(["m", "n", "k"])?;
        let bytes = 4 * (m * k + k * n + m * n);
        Ok(Cost::compute(bytes as u64, 2 * (m * n * k) as u64, Bound::Fp32))
    }
}
