//! Checks of a product's arguments, and its launches.

use cuda_std::float::{Element, Half};
use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::gemm as gk;
use gpu_kernels::ops::gemm::gemm::{hopper, mma};

use super::super::cost::Tiles;
use super::super::operand::{self, Major, Operand, Tiling};
use super::super::plan;
use super::super::{note_work, sizes};
use super::path::{Facts, Path};
use crate::ops::elementwise::grid;
use crate::ops::model::{Bound, OpInfo};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The sizes of a product, or of a batch of them.
#[derive(Clone, Copy)]
pub(super) struct Shapes {
    pub(super) batch: Option<usize>,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl Shapes {
    pub(super) fn of(info: &OpInfo, a: &[usize], b: &[usize]) -> Result<Self> {
        let (a_batch, m, k) = match *a {
            [m, k] => (None, m, k),
            [batch, m, k] => (Some(batch), m, k),
            _ => return Err(info.shape_error("a", a, "[m, k] or [batch, m, k]")),
        };
        let (b_batch, n) = match *b {
            [depth, n] if depth == k => (None, n),
            [batch, depth, n] if depth == k && a_batch.is_none_or(|a| a == batch) => (Some(batch), n),
            _ => {
                let batch = a_batch.map_or("batch".to_owned(), |batch| batch.to_string());
                return Err(info.shape_error("b", b, format!("[{k}, n] or [{batch}, {k}, n]")));
            }
        };
        Ok(Self { batch: a_batch.or(b_batch), m, n, k })
    }

    /// The shape of C.
    pub(super) fn c(&self) -> Vec<usize> {
        self.batch.into_iter().chain([self.m, self.n]).collect()
    }
}

/// A factor that is known on the host, or one that is stored on the device.
///
/// ```
/// # use warpsmith::{Device, Tensor, bf16, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let a = Tensor::from_slice(&stream, [1, 1], &[bf16::from_f32(3.0)])?;
/// let scale = Tensor::from_slice(&stream, [1], &[0.5f32])?; // or the result of a kernel
/// let mut c = Tensor::uninit(&stream, [1, 1])?;
/// ops::gemm_into(&stream, &scale, &a, &a, 0.0, &mut c)?;
/// assert_eq!(c.to_vec(&stream)?, [bf16::from_f32(4.5)]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scalar<'a> {
    pub(super) factor: f32,
    pub(super) on_device: Option<View<'a, f32>>,
}

impl From<f32> for Scalar<'_> {
    fn from(factor: f32) -> Self {
        Self { factor, on_device: None }
    }
}

impl<'a> From<View<'a, f32>> for Scalar<'a> {
    fn from(view: View<'a, f32>) -> Self {
        Self { factor: 1.0, on_device: Some(view) }
    }
}

impl<'a> From<&'a Tensor<f32>> for Scalar<'a> {
    fn from(tensor: &'a Tensor<f32>) -> Self {
        tensor.view().into()
    }
}

/// A product of matching sizes: C = α·A·B + β·C with C of type `C`.
pub(super) struct Problem<'a, T, C> {
    pub(super) info: &'static OpInfo,
    pub(super) a: Operand<'a, T>,
    pub(super) b: Operand<'a, T>,
    pub(super) c: ViewMut<'a, C>,
    pub(super) scale: Option<View<'a, f32>>,
    pub(super) sizes: gk::Problem,
    /// The elements of k of each of the products, which then are pieces of one; 0 for all of k.
    pub(super) each: u32,
}

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    pub(super) fn new(
        info: &'static OpInfo,
        alpha: Scalar<'a>,
        beta: f32,
        a: View<'a, T>,
        b: View<'a, T>,
        c: ViewMut<'a, C>,
    ) -> Result<Self> {
        let shapes = Shapes::of(info, a.shape(), b.shape())?;
        c.require_shape(info.name, "c", &shapes.c())?;
        c.require_inner_contiguous(info.name, "c")?;
        if let Some(scale) = &alpha.on_device {
            scale.require_shape(info.name, "scale", &[1])?;
        }
        let [m, n, k] = sizes(info, [("a", shapes.m), ("b", shapes.n), ("a", shapes.k)])?;
        let tiles = m.div_ceil(mma::BLOCK) as usize * n.div_ceil(mma::BLOCK) as usize;
        let batch = shapes.batch.unwrap_or(1);
        let blocks = grid(info, "c", tiles.saturating_mul(batch), 1)?;
        let c_strides = match *c.strides() {
            [product, row, _] => [product as u64, row as u64],
            [row, ..] => [0, row as u64],
            [] => [0, 0],
        };
        // The columns of B take the role of the rows of A.
        let (a, b) = (Operand::new(a), Operand::new(b.t()));
        let sizes = gk::Problem {
            a: a.layout.strides,
            b: b.layout.strides,
            c: c_strides,
            m,
            n,
            k,
            // At most as many as there are tiles.
            batch: if blocks.is_some() { batch as u32 } else { 0 },
            alpha: alpha.factor,
            beta,
        };
        Ok(Self { info, a, b, c, scale: alpha.on_device, sizes, each: 0 })
    }

    /// Launches the named path; if none is named, the best one.
    pub(super) fn launch(self, stream: &Stream, path: Option<Path>) -> Result<()> {
        stream.require_devices(
            self.info.name,
            &[("a", &self.a.rows), ("b", &self.b.rows), ("c", &self.c), ("scale", &self.scale)],
        )?;
        let path = path.map_or_else(|| self.path(stream), Ok)?;
        self.launch_by(stream, path)
    }

    /// Launches this path.
    pub(super) fn launch_by(self, stream: &Stream, path: Path) -> Result<()> {
        if !self.facts().takes(path, true) {
            let name = Path::NAMED.iter().find(|(_, named)| *named == path).map_or("", |(name, _)| name);
            return Err(self.info.param_error("variant", name, path.wants()));
        }
        if self.sizes.batch == 0 {
            return Ok(());
        }
        match path {
            Path::Skinny => self.launch_skinny(stream),
            Path::SkinnyAlone => self.launch_skinny_alone(stream),
            Path::Pairs => self.launch_pairs(stream),
            Path::Thin(rows) => self.launch_thin(stream, rows),
            Path::Tiles(Tiles::Columns(columns)) => self.launch_hopper(stream, columns),
            Path::Tiles(Tiles::Tall) => self.launch_tall(stream),
            Path::Tiles(Tiles::Swapped(rows)) => self.launch_swapped(stream, [rows, hopper::SWAPPED_COLUMNS]),
            Path::Tiles(Tiles::Narrow(rows)) => self.launch_swapped(stream, [rows, hopper::NARROW_COLUMNS]),
            Path::Tiles(tiles @ (Tiles::Pieces(_) | Tiles::SwappedPieces(_))) => self.launch_split(stream, tiles),
            Path::Padded => self.launch_padded(stream),
            Path::Mma => self.launch_mma(stream),
        }
    }

    pub(super) fn facts(&self) -> Facts {
        let gk::Problem { batch, m, n, k, .. } = self.sizes;
        let operands = [self.a.layout, self.b.layout];
        Facts { sizes: [batch, m, n, k], operands, c: C::DTYPE, store: operand::store(&self.c, &self.sizes) }
    }

    /// The path that tuning found fastest, if it takes the product; else the planned one.
    fn path(&self, stream: &Stream) -> Result<Path> {
        let (dtypes, layout) = ([T::DTYPE, T::DTYPE, C::DTYPE], [&self.a.layout, &self.b.layout]);
        let facts = self.facts();
        let tuned = plan::tuned(stream, self.info, dtypes, &self.sizes, layout, Path::NAMED)?;
        let tuned = tuned.filter(|path| facts.takes(*path, stream.device().supports_hopper()));
        Ok(tuned.unwrap_or_else(|| facts.planned(stream)))
    }

    /// Launches tiles with this number of columns.
    fn launch_hopper(self, stream: &Stream, columns: u32) -> Result<()> {
        match columns {
            240 => self.launch_fine::<T, 240>(stream),
            224 => self.launch_fine::<T, 224>(stream),
            208 => self.launch_fine::<T, 208>(stream),
            160 => self.launch_fine::<C, 160>(stream),
            144 => self.launch_fine::<T, 144>(stream),
            96 => self.launch_fine::<C, 96>(stream),
            64 => self.launch_tiles::<64>(stream),
            128 => self.launch_tiles::<128>(stream),
            192 => self.launch_tiles::<192>(stream),
            _ => self.launch_tiles::<{ hopper::BLOCK_N }>(stream),
        }
    }

    /// The order of the operands, which TMA takes.
    fn majors(&self) -> [Major; 2] {
        self.facts().fits_hopper().unwrap_or([Major::K; 2])
    }

    fn launch_tiles<const N: u32>(mut self, stream: &Stream) -> Result<()> {
        let majors = self.majors();
        let Tiling { maps: [a_map, b_map, c_map], store, grid } =
            Tiling::new(stream, (&self.a, &self.b), majors, &mut self.c, &self.sizes, [hopper::BLOCK_M, N])?;
        let (c, scale) = (self.c.ptr_mut(stream)?, self.scale_ptr(stream)?);
        let args = (a_map, b_map, c_map, c, scale, self.sizes, store, self.each);
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably.
        unsafe {
            match majors {
                [Major::K, Major::K] => stream.launch::<hopper::GemmHopper<T, C, false, false, N>>(grid, args),
                [Major::K, Major::Mn] => stream.launch::<hopper::GemmHopper<T, C, false, true, N>>(grid, args),
                [Major::Mn, Major::K] => stream.launch::<hopper::GemmHopper<T, C, true, false, N>>(grid, args),
                [Major::Mn, Major::Mn] => stream.launch::<hopper::GemmHopper<T, C, true, true, N>>(grid, args),
            }
        }
    }

    /// The same with the intermediate widths and a C of type `R`, as which C has to be.
    fn launch_fine<R: Float, const N: u32>(mut self, stream: &Stream) -> Result<()> {
        let majors = self.majors();
        let Tiling { maps: [a_map, b_map, c_map], store, grid } =
            Tiling::new(stream, (&self.a, &self.b), majors, &mut self.c, &self.sizes, [hopper::BLOCK_M, N])?;
        let c = DevicePtrMut::<R>::from_raw(self.c.ptr_mut(stream)?.addr());
        let args = (a_map, b_map, c_map, c, self.scale_ptr(stream)?, self.sizes, store);
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c, whose elements are R, is borrowed mutably.
        unsafe {
            match majors {
                [_, Major::K] => stream.launch::<hopper::GemmFine<T, R, false, N>>(grid, args),
                [_, Major::Mn] => stream.launch::<hopper::GemmFine<T, R, true, N>>(grid, args),
            }
        }
    }

    /// Launches tiles with more rows.
    fn launch_tall(mut self, stream: &Stream) -> Result<()> {
        let majors = self.majors();
        let Tiling { maps: [a_map, b_map, c_map], store, grid } =
            Tiling::new(stream, (&self.a, &self.b), majors, &mut self.c, &self.sizes, hopper::TALL)?;
        let args = (a_map, b_map, c_map, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, self.sizes, store);
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably.
        unsafe {
            match majors {
                [Major::K, Major::K] => stream.launch::<hopper::GemmTall<T, C, false, false>>(grid, args),
                [Major::K, Major::Mn] => stream.launch::<hopper::GemmTall<T, C, false, true>>(grid, args),
                [Major::Mn, Major::K] => stream.launch::<hopper::GemmTall<T, C, true, false>>(grid, args),
                [Major::Mn, Major::Mn] => stream.launch::<hopper::GemmTall<T, C, true, true>>(grid, args),
            }
        }
    }

    /// Launches tiles of this number of rows of C and of its columns, with operands swapped.
    fn launch_swapped(mut self, stream: &Stream, [rows, columns]: [u32; 2]) -> Result<()> {
        let Tiling { maps: [b_map, a_map, c_map], store, grid } =
            Tiling::swapped(stream, (&self.a, &self.b), &mut self.c, &self.sizes, [rows, columns])?;
        let sizes = operand::swapped(&self.sizes);
        let args = (b_map, a_map, c_map, self.c.ptr_mut(stream)?, self.scale_ptr(stream)?, sizes, store, self.each);
        self.note_work();
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably.
        unsafe {
            match (rows, columns == hopper::NARROW_COLUMNS) {
                (208, false) => stream.launch::<hopper::GemmSwapped<T, C, 208, false>>(grid, args),
                (192, false) => stream.launch::<hopper::GemmSwapped<T, C, 192, false>>(grid, args),
                (160, false) => stream.launch::<hopper::GemmSwapped<T, C, 160, false>>(grid, args),
                (144, false) => stream.launch::<hopper::GemmSwapped<T, C, 144, false>>(grid, args),
                (128, false) => stream.launch::<hopper::GemmSwapped<T, C, 128, false>>(grid, args),
                (96, false) => stream.launch::<hopper::GemmSwapped<T, C, 96, false>>(grid, args),
                (_, false) => stream.launch::<hopper::GemmSwapped<T, C, 64, false>>(grid, args),
                (208, true) => stream.launch::<hopper::GemmSwapped<T, C, 208, true>>(grid, args),
                (160, true) => stream.launch::<hopper::GemmSwapped<T, C, 160, true>>(grid, args),
                (128, true) => stream.launch::<hopper::GemmSwapped<T, C, 128, true>>(grid, args),
                (96, true) => stream.launch::<hopper::GemmSwapped<T, C, 96, true>>(grid, args),
                (_, true) => stream.launch::<hopper::GemmSwapped<T, C, 64, true>>(grid, args),
            }
        }
    }

    pub(super) fn note_work(&self) {
        let gk::Problem { batch, m, n, k, .. } = self.sizes;
        let batch = if self.each == 0 { batch } else { 1 };
        note_work(Bound::Tensor(T::DTYPE), [batch, m, n, k]);
    }

    pub(super) fn scale_ptr(&self, stream: &Stream) -> Result<DevicePtr<f32>> {
        self.scale.as_ref().map_or(Ok(DevicePtr::null()), |scale| scale.ptr(stream))
    }

    pub(super) fn launch_mma(mut self, stream: &Stream) -> Result<()> {
        let gk::Problem { m, n, batch, .. } = self.sizes;
        // `new` has checked that there are no more than fit a grid, and set `batch` to 0 if there are none.
        let blocks = m.div_ceil(mma::BLOCK) * n.div_ceil(mma::BLOCK) * batch;
        let (a, b, scale) = (self.a.rows.ptr(stream)?, self.b.rows.ptr(stream)?, self.scale_ptr(stream)?);
        let args = (a, b, self.c.ptr_mut(stream)?, scale, self.sizes);
        self.note_work();
        // SAFETY: the tensors are live and have these sizes at these strides, and c is borrowed mutably; only operands that are
        // aligned for packs are read in packs.
        unsafe {
            match (self.a.layout.major, self.b.layout.major) {
                (Some(Major::K), Some(Major::K)) => stream.launch::<mma::GemmMma<T, C, false, false, 8>>(blocks, args),
                (Some(Major::K), Some(Major::Mn)) => stream.launch::<mma::GemmMma<T, C, false, true, 8>>(blocks, args),
                (Some(Major::Mn), Some(Major::K)) => stream.launch::<mma::GemmMma<T, C, true, false, 8>>(blocks, args),
                (Some(Major::Mn), Some(Major::Mn)) => stream.launch::<mma::GemmMma<T, C, true, true, 8>>(blocks, args),
                _ => stream.launch::<mma::GemmMma<T, C, false, false, 1>>(blocks, args),
            }
        }
    }
}
