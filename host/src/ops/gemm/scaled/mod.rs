//! What products of 8-bit elements share: C = A·Bᵀ, with scales for the rows of A and of B.

mod operator;

pub use operator::ScaledProduct;
pub(super) use operator::{A_TYPE, C_TYPE, Scaling, variants};

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel, TensorMap};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::{hopper, mma};

use super::operand::{Major, Operand, Tiling};
use super::sizes;
use crate::ops::elementwise::grid;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Which kernel computes a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// What takes the operands, and is fastest.
    Fastest,
    /// TMA and wgmma.
    Hopper,
    /// mma.sync.
    Mma,
}

/// A product whose sizes fit together.
pub(super) struct Problem<'a, A, B, C> {
    info: &'static OpInfo,
    a: Operand<'a, A>,
    b: Operand<'a, B>,
    c: ViewMut<'a, C>,
    sizes: gk::Problem,
    /// Tiles of the path for every GPU.
    blocks: Option<u32>,
}

/// How a kernel of the Hopper path is launched: with its grid, and
pub(super) type HopperArgs<C> = (TensorMap, TensorMap, TensorMap, DevicePtrMut<C>, gk::Problem, u32);
/// How one of the path for every GPU is.
pub(super) type MmaArgs<A, B, C> = (DevicePtr<A>, DevicePtr<B>, DevicePtrMut<C>, gk::Problem);

impl<'a, A: Dtype, B: Dtype, C: Float> Problem<'a, A, B, C> {
    pub(super) fn new(info: &'static OpInfo, a: View<'a, A>, b: View<'a, B>, c: ViewMut<'a, C>) -> Result<Self> {
        let [m, k]: [usize; 2] = a.dims(info.name, "a")?;
        let [n, _]: [usize; 2] = b.dims(info.name, "b")?;
        b.require_shape(info.name, "b", &[n, k])?;
        c.require_shape(info.name, "c", &[m, n])?;
        a.require_row_stride(info.name, "a")?;
        b.require_row_stride(info.name, "b")?;
        let ldc = c.require_row_stride(info.name, "c")? as u64;
        let [m, n, k] = sizes(info, [("a", m), ("b", n), ("a", k)])?;
        let blocks = grid(info, "c", m.div_ceil(mma::BLOCK) as usize * n.div_ceil(mma::BLOCK) as usize, 1)?;
        let (a, b) = (Operand::new(a), Operand::new(b));
        let (a_strides, b_strides, c_strides) = (a.lies.strides, b.lies.strides, [0, ldc]);
        let sizes = gk::Problem { a: a_strides, b: b_strides, c: c_strides, m, n, k, batch: 1, alpha: 1.0, beta: 0.0 };
        Ok(Self { info, a, b, c, sizes, blocks })
    }

    /// Whether packs of 16 bytes can be taken of both operands, which lie along k.
    fn is_packed(&self) -> bool {
        [&self.a.lies, &self.b.lies].iter().all(|lies| lies.major == Some(Major::K))
    }

    /// Whether TMA takes both operands.
    fn fits_hopper(&self) -> bool {
        [&self.a.lies, &self.b.lies].iter().all(|lies| lies.fits_tma() == Some(Major::K))
    }

    /// Launches one of the kernels: `hopper`, whose tiles have `block_n` columns, or `mma`, told whether operands are packed.
    pub(super) fn launch(
        mut self,
        stream: &Stream,
        path: Path,
        block_n: u32,
        hopper: impl FnOnce(u32, HopperArgs<C>) -> Result<()>,
        mma: impl FnOnce(u32, bool, MmaArgs<A, B, C>) -> Result<()>,
    ) -> Result<()> {
        let fits = self.fits_hopper();
        if path == Path::Hopper && !fits {
            let wanted = "k > 0, and rows of a and b at multiples of 16 bytes";
            return Err(self.info.param_error("variant", "hopper", wanted));
        }
        let Some(blocks) = self.blocks else { return Ok(()) };
        if path == Path::Hopper || path == Path::Fastest && fits && stream.device().supports_hopper() {
            let majors = [Major::K; 2];
            let Tiling { maps: [a, b, c_map], store, grid } =
                Tiling::new(stream, (&self.a, &self.b), majors, &mut self.c, &self.sizes, block_n)?;
            return hopper(grid, (a, b, c_map, self.c.ptr_mut(stream)?, self.sizes, store));
        }
        let (a, b) = (self.a.rows.ptr(stream)?, self.b.rows.ptr(stream)?);
        mma(blocks, self.is_packed(), (a, b, self.c.ptr_mut(stream)?, self.sizes))
    }
}

/// A scale for each row of a matrix, or one for all.
pub(super) struct Scales {
    values: DevicePtr<f32>,
    /// From a scale to the next.
    step: u32,
}

impl Scales {
    /// Those of a matrix of `rows`.
    pub(super) fn of(
        info: &'static OpInfo,
        stream: &Stream,
        arg: &'static str,
        scales: View<'_, f32>,
        rows: usize,
    ) -> Result<Self> {
        let shared = *scales.shape().dims() == [1];
        if !shared {
            scales.require_shape(info.name, arg, &[rows])?;
            scales.require_contiguous(info.name, arg)?;
        }
        Ok(Self { values: scales.ptr(stream)?, step: u32::from(!shared) })
    }
}

/// The arguments of a kernel of the Hopper path that takes [`Scales`].
type HopperScaled<C> =
    (TensorMap, TensorMap, TensorMap, DevicePtrMut<C>, gk::Problem, u32, DevicePtr<f32>, DevicePtr<f32>, u32, u32);
/// Those of one of the path for every GPU.
type MmaScaled<A, B, C> =
    (DevicePtr<A>, DevicePtr<B>, DevicePtrMut<C>, gk::Problem, DevicePtr<f32>, DevicePtr<f32>, u32, u32);

impl<A: Dtype, B: Dtype, C: Float> Problem<'_, A, B, C> {
    /// Launches `H`, or `P`, which takes packs, or `N`, with scales for the rows of both operands.
    pub(super) fn launch_scaled<H, P, N>(self, stream: &Stream, path: Path, [a, b]: [Scales; 2]) -> Result<()>
    where
        H: Kernel<Args = HopperScaled<C>>,
        P: Kernel<Args = MmaScaled<A, B, C>>,
        N: Kernel<Args = MmaScaled<A, B, C>>,
    {
        self.launch(
            stream,
            path,
            hopper::BLOCK_N,
            |grid, (a_map, b_map, c_map, c, problem, store)| {
                let args = (a_map, b_map, c_map, c, problem, store, a.values, b.values, a.step, b.step);
                // SAFETY: the maps and c describe live tensors of these sizes, c is borrowed mutably, and there is a scale for each row or one for all.
                unsafe { stream.launch::<H>(grid, args) }
            },
            |grid, packed, (x, y, c, problem)| {
                let args = (x, y, c, problem, a.values, b.values, a.step, b.step);
                // SAFETY: the same; packs are taken only of operands that lie for them.
                unsafe { if packed { stream.launch::<P>(grid, args) } else { stream.launch::<N>(grid, args) } }
            },
        )
    }
}
