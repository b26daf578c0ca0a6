//! C = A·Bᵀ of operands with contiguous k, on either path: shared by products with epilogues of their own.

use cuda_std::launch::{DevicePtr, DevicePtrMut, TensorMap};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::{hopper, mma};

use super::operand::{self, Major, Operand, Tiling};
use super::{note_work, plan, sizes};
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
    /// The same with operands swapped.
    Swapped,
    /// mma.sync.
    Mma,
}

/// A product with checked sizes.
pub(super) struct Problem<'a, A, B, C> {
    info: &'static OpInfo,
    names: [&'static str; 3],
    a: Operand<'a, A>,
    b: Operand<'a, B>,
    c: ViewMut<'a, C>,
    sizes: gk::Problem,
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

    /// Whether operands can be swapped on the Hopper path: TMA stores C.
    fn fits_swapped(&self) -> bool {
        self.fits_hopper() && operand::store(&self.c, &self.sizes) != hopper::DIRECT
    }

    /// The path and the columns of its tiles (or rows, with operands swapped): the one among `named` that tuning found fastest,
    /// if it takes the operands; else a path that takes them, with tiles that best fill waves of the device's multiprocessors.
    pub(super) fn choice(&self, stream: &Stream, named: &[(&str, (Path, u32))]) -> Result<(Path, u32)> {
        let (dtypes, layout) = ([A::DTYPE, B::DTYPE, C::DTYPE], [&self.a.layout, &self.b.layout]);
        let is_hopper = stream.device().supports_hopper();
        let takes = |path| match path {
            Path::Mma => true,
            Path::Swapped => is_hopper && self.fits_swapped(),
            _ => is_hopper && self.fits_hopper(),
        };
        let tuned =
            plan::tuned(stream, self.info, dtypes, &self.sizes, layout, named)?.filter(|(path, _)| takes(*path));
        Ok(tuned.unwrap_or_else(|| {
            let [m, n] = [self.sizes.m, self.sizes.n].map(|size| size as usize);
            let of = stream.device().info().multiprocessors;
            // Independent of the number of tiles: nothing here cuts k, and without swapping most of a tile of 256 rows would
            // stay empty.
            let swapped = plan::of_few_rows(of, [m, n]).filter(|_| takes(Path::Swapped));
            let planned = || (Path::Fastest, plan::columns(of, [1, m, n], &hopper::WIDTHS));
            swapped.map_or_else(planned, |(rows, _)| (Path::Swapped, rows))
        }))
    }

    /// Launches one of the kernels: `hopper`, whose tiles have `block_n` columns, and which takes swapped operands as well, or
    /// `mma`, with a flag that tells whether operands can be read in packs.
    pub(super) fn launch(
        mut self,
        stream: &Stream,
        path: Path,
        block_n: u32,
        hopper: impl FnOnce(u32, HopperArgs<C>) -> Result<()>,
        mma: impl FnOnce(u32, bool, MmaArgs<A, B, C>) -> Result<()>,
    ) -> Result<()> {
        let [of_a, of_b, of_c] = self.names;
        stream.require_devices(self.info.name, &[(of_a, &self.a.rows), (of_b, &self.b.rows), (of_c, &self.c)])?;
        let fits = self.fits_hopper();
        if path == Path::Hopper && !fits {
            let [a, b, _] = self.names;
            let wanted = format!("rows of {a} and {b} that are not empty and lie at multiples of 16 bytes");
            return Err(self.info.param_error("variant", "hopper", wanted));
        }
        if path == Path::Swapped && !self.fits_swapped() {
            let [a, b, c] = self.names;
            let wanted = format!("rows of {a}, {b} and {c} that are not empty and lie at multiples of 16 bytes");
            return Err(self.info.param_error("variant", "swapped", wanted));
        }
        let Some(blocks) = self.blocks else { return Ok(()) };
        let gk::Problem { m, n, k, .. } = self.sizes;
        let work = [self.count, m, n, k];
        if path == Path::Swapped {
            let Tiling { maps: [b, a, c_map], store, grid } =
                Tiling::swapped(stream, (&self.a, &self.b), &mut self.c, &self.sizes, block_n)?;
            let c = self.c.ptr_mut(stream)?;
            note_work(Bound::Tensor(A::DTYPE), work);
            return hopper(grid, (b, a, c_map, c, operand::swapped(&self.sizes), store));
        }
        if path == Path::Hopper || path == Path::Fastest && fits && stream.device().supports_hopper() {
            // The blocks of a pair load half of the columns of one matrix each, or all of one of two.
            let columns = if self.count == 2 { block_n } else { operand::half(block_n, Major::K) };
            let (majors, loaded) = ([Major::K; 2], [hopper::BLOCK_M, columns]);
            let tiles = operand::tiles([m, n], self.sizes.batch, [hopper::BLOCK_M, block_n]);
            let Tiling { maps: [a, b, c_map], store, grid } =
                Tiling::of(stream, (&self.a, &self.b), majors, &mut self.c, &self.sizes, loaded, tiles)?;
            let c = self.c.ptr_mut(stream)?;
            note_work(Bound::Tensor(A::DTYPE), work);
            return hopper(grid, (a, b, c_map, c, self.sizes, store));
        }
        let (a, b, c) = (self.a.rows.ptr(stream)?, self.b.rows.ptr(stream)?, self.c.ptr_mut(stream)?);
        note_work(Bound::Tensor(A::DTYPE), work);
        mma(blocks, self.is_packed(), (a, b, c, self.sizes))
    }
}
