//! C = A·Bᵀ of operands with contiguous k, on either path: shared by products with epilogues of their own.

use cuda_std::launch::{DevicePtr, DevicePtrMut, TensorMap};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::{hopper, mma};

use super::cost::Tiles;
use super::gemm::Facts;
use super::operand::{self, Major, Operand, Tiling};
use super::{note_work, sizes};
use crate::ops::elementwise::grid;
use crate::ops::model::{Bound, OpInfo};
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Which kernel computes a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// The fastest kernel that takes the operands.
    Fastest,
    /// TMA and wgmma.
    Hopper,
    /// mma.sync.
    Mma,
}

/// A product with checked sizes.
pub(super) struct Problem<'a, A, B, C> {
    pub(super) info: &'static OpInfo,
    names: [&'static str; 3],
    pub(super) a: Operand<'a, A>,
    pub(super) b: Operand<'a, B>,
    pub(super) c: ViewMut<'a, C>,
    pub(super) sizes: gk::Problem,
    /// The number of products that a launch computes.
    count: u32,
    /// The number of tiles of the path for every GPU.
    blocks: Option<u32>,
}

/// Arguments of a kernel of the Hopper path, besides its grid.
pub(super) type HopperArgs<C> = (TensorMap, TensorMap, TensorMap, DevicePtrMut<C>, gk::Problem, u32);
/// Arguments of a kernel of the path for every GPU.
pub(super) type MmaArgs<A, B, C> = (DevicePtr<A>, DevicePtr<B>, DevicePtrMut<C>, gk::Problem);

impl<'a, A: Dtype, B: Dtype, C: Float> Problem<'a, A, B, C> {
    /// The product of `a`, `[m, k]`, `b`, `[n, k]`, and `c`, `[m, n]`, under these names in errors. Rows are contiguous and
    /// equally far apart.
    pub(super) fn of_rows(
        info: &'static OpInfo,
        names: [&'static str; 3],
        a: View<'a, A>,
        b: View<'a, B>,
        c: ViewMut<'a, C>,
    ) -> Result<Self> {
        a.require_row_stride(info.name, names[0])?;
        b.require_row_stride(info.name, names[1])?;
        Self::new(info, names, a, b, c)
    }

    /// The same for `a` and `b` with any strides.
    pub(super) fn new(
        info: &'static OpInfo,
        names: [&'static str; 3],
        a: View<'a, A>,
        b: View<'a, B>,
        c: ViewMut<'a, C>,
    ) -> Result<Self> {
        let [of_a, of_b, of_c] = names;
        let [m, k]: [usize; 2] = a.dims(info.name, of_a)?;
        let [n, _]: [usize; 2] = b.dims(info.name, of_b)?;
        b.require_shape(info.name, of_b, &[n, k])?;
        c.require_shape(info.name, of_c, &[m, n])?;
        let ldc = c.require_row_stride(info.name, of_c)? as u64;
        let [m, n, k] = sizes(info, [(of_a, m), (of_b, n), (of_a, k)])?;
        let blocks = grid(info, of_c, m.div_ceil(mma::BLOCK) as usize * n.div_ceil(mma::BLOCK) as usize, 1)?;
        let (a, b) = (Operand::new(a), Operand::new(b));
        let (a_strides, b_strides, c_strides) = (a.layout.strides, b.layout.strides, [0, ldc]);
        let sizes = gk::Problem { a: a_strides, b: b_strides, c: c_strides, m, n, k, batch: 1, alpha: 1.0, beta: 0.0 };
        Ok(Self { info, names, a, b, c, sizes, count: 1, blocks })
    }

    /// C = α·A·Bᵀ + β·C.
    pub(super) fn with_factors(mut self, alpha: f32, beta: f32) -> Self {
        (self.sizes.alpha, self.sizes.beta) = (alpha, beta);
        self
    }

    /// Adds a second product of the same sizes to the launch.
    pub(super) fn paired(self) -> Self {
        Self { count: 2, ..self }
    }

    /// Marks a product that is launched but seldom computed: its work does not count.
    pub(super) fn spare(self) -> Self {
        Self { count: 0, ..self }
    }

    /// Whether both operands, which are contiguous along k, can be read in packs of 16 bytes.
    fn is_packed(&self) -> bool {
        [&self.a.layout, &self.b.layout].iter().all(|layout| layout.major == Some(Major::K))
    }

    /// Whether TMA takes both operands.
    fn fits_hopper(&self) -> bool {
        [&self.a.layout, &self.b.layout].iter().all(|layout| layout.fits_tma() == Some(Major::K))
    }

    /// What decides how it is computed.
    pub(super) fn facts(&self) -> Facts {
        let gk::Problem { batch, m, n, k, .. } = self.sizes;
        let operands = [self.a.layout, self.b.layout];
        Facts { sizes: [batch, m, n, k], operands, c: C::DTYPE, store: operand::store(&self.c, &self.sizes) }
    }

    /// Whether all tensors are on the stream's device.
    pub(super) fn require_devices(&self, stream: &Stream) -> Result<()> {
        let [of_a, of_b, of_c] = self.names;
        stream.require_devices(self.info.name, &[(of_a, &self.a.rows), (of_b, &self.b.rows), (of_c, &self.c)])
    }

    /// Launches one of the kernels: `hopper`, whose tiles have `block_n` columns, or `mma`, with a flag that tells whether operands
    /// can be read in packs.
    pub(super) fn launch(
        self,
        stream: &Stream,
        path: Path,
        block_n: u32,
        hopper: impl FnOnce(u32, HopperArgs<C>) -> Result<()>,
        mma: impl FnOnce(u32, bool, MmaArgs<A, B, C>) -> Result<()>,
    ) -> Result<()> {
        let fits = self.fits_hopper();
        match path {
            Path::Hopper if !fits => {
                let [a, b, _] = self.names;
                let wanted = format!("rows of {a} and {b} that are not empty and lie at multiples of 16 bytes");
                Err(self.info.param_error("variant", "hopper", wanted))
            }
            Path::Hopper => self.launch_tiles(stream, Tiles::Columns(block_n), hopper),
            Path::Fastest if fits && stream.device().supports_hopper() => {
                self.launch_tiles(stream, Tiles::Columns(block_n), hopper)
            }
            _ => self.launch_mma(stream, mma),
        }
    }

    /// Launches the kernel of such tiles, of whole products.
    pub(super) fn launch_tiles(
        mut self,
        stream: &Stream,
        tiles: Tiles,
        hopper: impl FnOnce(u32, HopperArgs<C>) -> Result<()>,
    ) -> Result<()> {
        self.require_devices(stream)?;
        if self.blocks.is_none() {
            return Ok(());
        }
        let gk::Problem { m, n, k, batch, .. } = self.sizes;
        let operands = (&self.a, &self.b);
        let (Tiling { maps: [a, b, c_map], store, grid }, sizes) = match tiles {
            Tiles::Swapped(rows) | Tiles::Narrow(rows) => {
                let is_narrow = tiles == Tiles::Narrow(rows);
                let columns = if is_narrow { hopper::NARROW_COLUMNS } else { hopper::SWAPPED_COLUMNS };
                let tiling = Tiling::swapped(stream, operands, &mut self.c, &self.sizes, [rows, columns])?;
                (tiling, operand::swapped(&self.sizes))
            }
            _ => {
                let block_n = if let Tiles::Columns(columns) = tiles { columns } else { hopper::BLOCK_N };
                // The blocks of a pair load half of the columns of one matrix each, or all of one of two.
                let columns = if self.count == 2 { block_n } else { operand::half(block_n, Major::K) };
                let (majors, loaded) = ([Major::K; 2], [hopper::BLOCK_M, columns]);
                let tiles = operand::tiles([m, n], batch, [hopper::BLOCK_M, block_n]);
                (Tiling::of(stream, operands, majors, &mut self.c, &self.sizes, loaded, tiles)?, self.sizes)
            }
        };
        let c = self.c.ptr_mut(stream)?;
        note_work(Bound::Tensor(A::DTYPE), [self.count, m, n, k]);
        hopper(grid, (a, b, c_map, c, sizes, store))
    }

    /// Launches the kernel for every GPU.
    pub(super) fn launch_mma(
        mut self,
        stream: &Stream,
        mma: impl FnOnce(u32, bool, MmaArgs<A, B, C>) -> Result<()>,
    ) -> Result<()> {
        self.require_devices(stream)?;
        let Some(blocks) = self.blocks else { return Ok(()) };
        let (a, b, c) = (self.a.rows.ptr(stream)?, self.b.rows.ptr(stream)?, self.c.ptr_mut(stream)?);
        let gk::Problem { m, n, k, .. } = self.sizes;
        note_work(Bound::Tensor(A::DTYPE), [self.count, m, n, k]);
        mma(blocks, self.is_packed(), (a, b, c, self.sizes))
    }
}
