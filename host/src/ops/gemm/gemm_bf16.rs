//! bf16 matrix product on the tensor cores.

use cuda_std::launch::TensorMap;
use gpu_kernels::ops::gemm::gemm_bf16::{hopper, mma};
use half::bf16;

use super::sizes;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};
use crate::runtime::view::{View, ViewMut};

/// C = A·Bᵀ in bf16 with f32 accumulation: `a` is `[m, k]`, `b` is `[n, k]`, `c` is `[m, n]`, all row-major.
///
/// This is a linear layer: `a` holds activations, `b` the layer's weight. Rows may be padded (a leading dimension above the
/// row length); any m, n and k work, and k = 0 gives zeros. On Hopper, rows of `a` and `b` at multiples of 16 bytes take the TMA
/// and wgmma path; everything else takes the mma.sync path, fastest with the same alignment. The work is queued on `stream`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the inner or outer sizes do not fit, [`Error::Layout`](crate::Error::Layout) if
/// rows are not equally far apart, [`Error::TooLarge`](crate::Error::TooLarge) if a size exceeds 2³¹ − 1.
pub fn gemm_bf16<'a>(
    stream: &Stream,
    a: impl Into<View<'a, bf16>>,
    b: impl Into<View<'a, bf16>>,
) -> Result<Tensor<bf16>> {
    let (a, b) = (a.into(), b.into());
    let [m, _]: [usize; 2] = a.dims(INFO.name, "a")?;
    let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
    let mut c = Tensor::uninit(stream, [m, n])?;
    gemm_bf16_into(stream, a, b, &mut c)?;
    Ok(c)
}

/// [`gemm_bf16`] into `c`, whose rows may be padded.
///
/// # Errors
/// As of [`gemm_bf16`].
pub fn gemm_bf16_into<'a>(
    stream: &Stream,
    a: impl Into<View<'a, bf16>>,
    b: impl Into<View<'a, bf16>>,
    c: impl Into<ViewMut<'a, bf16>>,
) -> Result<()> {
    Problem::new(a.into(), b.into(), c.into())?.launch(stream)
}

/// Launches C = A·Bᵀ by the Hopper path, for operands that it takes, where there is a Hopper GPU.
pub(super) fn launch_hopper(stream: &Stream, a: View<'_, bf16>, b: View<'_, bf16>, c: ViewMut<'_, bf16>) -> Result<()> {
    Problem::new(a, b, c)?.launch_hopper(stream)
}

/// A product whose sizes fit together.
struct Problem<'a> {
    a: View<'a, bf16>,
    b: View<'a, bf16>,
    c: ViewMut<'a, bf16>,
    m: u32,
    n: u32,
    k: u32,
    lda: u64,
    ldb: u64,
    ldc: u64,
}

impl<'a> Problem<'a> {
    fn new(a: View<'a, bf16>, b: View<'a, bf16>, c: ViewMut<'a, bf16>) -> Result<Self> {
        let [m, k]: [usize; 2] = a.dims(INFO.name, "a")?;
        let [n, _]: [usize; 2] = b.dims(INFO.name, "b")?;
        b.require_shape(INFO.name, "b", &[n, k])?;
        c.require_shape(INFO.name, "c", &[m, n])?;
        let lda = a.require_row_stride(INFO.name, "a")? as u64;
        let ldb = b.require_row_stride(INFO.name, "b")? as u64;
        let ldc = c.require_row_stride(INFO.name, "c")? as u64;
        let [m, n, k] = sizes(&INFO, [("a", m), ("b", n), ("a", k)])?;
        Ok(Self { a, b, c, m, n, k, lda, ldb, ldc })
    }

    /// The tensors of a launch whose types are known only now.
    fn of(args: &mut Arguments<'a>) -> Result<Self> {
        Self::new(args.input("a")?, args.input("b")?, args.output("c")?)
    }

    fn launch(self, stream: &Stream) -> Result<()> {
        if stream.device().supports_hopper() && self.fits_tma() {
            self.launch_hopper(stream)
        } else {
            self.launch_mma(stream)
        }
    }

    /// TMA addresses rows in units of 16 bytes and takes no stride of 0, and a tile without depth would never be loaded.
    fn fits_tma(&self) -> bool {
        let strided = self.lda > 0 && self.ldb > 0;
        self.k > 0 && strided && self.a.rows_aligned(16) && self.b.rows_aligned(16)
    }

    fn launch_hopper(mut self, stream: &Stream) -> Result<()> {
        if !self.fits_tma() {
            let wanted = "a and b with k > 0 and rows at multiples of 16 bytes";
            return Err(INFO.param_error("variant", "hopper", wanted));
        }
        if self.m == 0 || self.n == 0 {
            return Ok(());
        }
        let (a, b) = (self.a.ptr(stream)?, self.b.ptr(stream)?);
        let c = self.c.ptr_mut(stream)?;
        let map = |address, rows, columns, ld, box_rows, box_columns| {
            tile_map(stream, address, [rows, columns], ld, [box_rows, box_columns])
        };
        let a_map = map(a.addr(), self.m, self.k, self.lda, hopper::BLOCK_M, hopper::BLOCK_K)?;
        let b_map = map(b.addr(), self.n, self.k, self.ldb, hopper::BLOCK_N / hopper::CLUSTER, hopper::BLOCK_K)?;
        // The copy engine drops what lies outside a tensor in units of 16 bytes.
        let store_tiles = self.c.rows_aligned(16) && self.n.is_multiple_of(8);
        // An unused map still has to be a map.
        let c_map = if store_tiles {
            map(c.addr(), self.m, self.n, self.ldc, hopper::STORE_M, hopper::STORE_N)?
        } else {
            a_map
        };
        let tiles =
            u64::from(self.m.div_ceil(hopper::CLUSTER * hopper::BLOCK_M)) * u64::from(self.n.div_ceil(hopper::BLOCK_N));
        let clusters = u64::from(stream.device().info().multiprocessors / hopper::CLUSTER);
        let grid = hopper::CLUSTER * tiles.min(clusters) as u32;
        let args = (a_map, b_map, c_map, c, self.m, self.n, self.k, self.ldc, u32::from(store_tiles));
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably.
        unsafe { stream.launch::<hopper::GemmBf16Hopper>(grid, args) }
    }

    fn launch_mma(mut self, stream: &Stream) -> Result<()> {
        let tiles = self.m.div_ceil(mma::BLOCK_M) as usize * self.n.div_ceil(mma::BLOCK_N) as usize;
        let Some(grid) = grid(&INFO, "c", tiles, 1)? else {
            return Ok(());
        };
        let aligned = self.a.rows_aligned(16) && self.b.rows_aligned(16);
        let args = (
            self.a.ptr(stream)?,
            self.b.ptr(stream)?,
            self.c.ptr_mut(stream)?,
            self.m,
            self.n,
            self.k,
            self.lda,
            self.ldb,
            self.ldc,
        );
        // SAFETY: the tensors are live and have these sizes and strides, and c is borrowed mutably; the eight-wide
        // kernel is taken only for rows at multiples of 16 bytes.
        unsafe {
            if aligned {
                stream.launch::<mma::GemmBf16Mma<8>>(grid, args)
            } else {
                stream.launch::<mma::GemmBf16Mma<1>>(grid, args)
            }
        }
    }
}

/// The descriptor of a row-major matrix that is moved in boxes with the 128-byte swizzle.
fn tile_map(
    stream: &Stream,
    address: u64,
    [rows, columns]: [u32; 2],
    ld: u64,
    [box_rows, box_columns]: [u32; 2],
) -> Result<TensorMap> {
    stream.device().tensor_map(&TensorMapDesc {
        address,
        dtype: DType::BF16,
        // Innermost first, as the copy engine counts. A single row has no stride to speak of, but it must be valid.
        dims: &[u64::from(columns), u64::from(rows)],
        strides_bytes: &[ld.next_multiple_of(8) * size_of::<bf16>() as u64],
        box_dims: &[box_columns, box_rows],
        swizzle: Swizzle::B128,
        l2_promotion: L2Promotion::B256,
        oob_fill: OobFill::Zero,
    })
}

/// The operator's entry in the registry.
pub struct GemmBf16;

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
    kernels: &[hopper::GEMM_BF16_HOPPER, mma::GEMM_BF16_MMA],
    variants: &[
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0: what is picked where rows of a and b are at multiples of 16 bytes",
            applies: fits_hopper,
            launch: |stream, args, _| Problem::of(args)?.launch_hopper(stream),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, _| Problem::of(args)?.launch_mma(stream),
        },
    ],
};

/// Whether the Hopper path can run the case on such a device.
fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([m, n, k]) = case.dims(["m", "n", "k"]) else {
        return false;
    };
    let aligned = |name, rows: usize| {
        let Arrangement { offset, row_pad, .. } = case.arrangement(name);
        offset % 8 == 0 && (rows < 2 || (k + row_pad) % 8 == 0)
    };
    device.compute_capability == (9, 0) && k > 0 && aligned("a", m) && aligned("b", n)
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
            (64, 8192, 8192),
            (1792, 1792, 1792),
            (1793, 1793, 1793),
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
            Case::boundary(&INFO, bf16, dims(1, 1024, 304)),
            Case::boundary(&INFO, bf16, dims(1024, 1, 304)),
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
        Problem::of(args)?.launch(stream)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::matmul_nt(inputs.get("a")?, inputs.get("b")?, rows))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [k] = case.dims(["k"])?;
        // The tensor core truncates each addend to the largest one's grid, of f32 spacing: up to 2⁻²² of a running sum of size
        // √k for each step of 16 products, all towards zero, so these errors add up instead of cancelling.
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
