//! Checks of a product's arguments, and its launches.

use cuda_std::float::{Element, Half};
use cuda_std::launch::{DevicePtr, TensorMap};
use gpu_kernels::ops::gemm::gemm::{self as gk, hopper, mma};

use super::super::sizes;
use crate::ops::elementwise::grid;
use crate::ops::model::{Case, OpInfo};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};
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

/// Which elements of an operand are adjacent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Major {
    K,
    Mn,
}

/// How an operand lies, seen as rows along k: those of A, the columns of B.
#[derive(Clone, Copy)]
pub(super) struct Lies {
    /// From a matrix to the next, from a row to the next, along k; 0 where there is no next.
    strides: [u64; 3],
    /// `None` if packs of 16 bytes cannot be taken of it.
    major: Option<Major>,
    rows: u64,
    k: u64,
}

impl Lies {
    /// Of rows whose first element's address is a multiple of `alignment` bytes, in elements of `size` bytes.
    pub(super) fn of(shape: &[usize], strides: &[usize], alignment: usize, size: usize) -> Self {
        let stride = |i: usize| match shape[i] {
            0 | 1 => 0,
            _ => strides[i] as u64,
        };
        let rank = shape.len();
        let strides = [if rank > 2 { stride(0) } else { 0 }, stride(rank - 2), stride(rank - 1)];
        let whole = |stride: u64| (stride * size as u64).is_multiple_of(16);
        let major = match strides {
            // Nothing is read.
            _ if shape[rank - 1] == 0 => Some(Major::K),
            _ if !alignment.is_multiple_of(16) || !whole(strides[0]) => None,
            [_, row, 0 | 1] if whole(row) => Some(Major::K),
            [_, 0 | 1, k] if whole(k) => Some(Major::Mn),
            _ => None,
        };
        Self { strides, major, rows: shape[rank - 2] as u64, k: shape[rank - 1] as u64 }
    }

    /// Its major if TMA can load it: as packs, of rows or columns that do not overlap.
    pub(super) fn fits_tma(&self) -> Option<Major> {
        let Self { strides: [_, row, along_k], rows, k, .. } = *self;
        self.major.filter(|major| match major {
            _ if k == 0 => false,
            Major::K => (k < 2 || along_k == 1) && (rows < 2 || row >= k),
            Major::Mn => (rows < 2 || row == 1) && (k < 2 || along_k >= rows),
        })
    }
}

/// Whether TMA can load an operand of the case, of that shape with rows along k, or as columns if `turned`.
pub(super) fn fits_tma(case: &Case, name: &str, shape: &[usize], turned: bool) -> bool {
    let arrangement = case.arrangement(name);
    let (mut shape, mut strides) = (shape.to_vec(), arrangement.strides(shape));
    if turned {
        let rank = shape.len();
        shape.swap(rank - 2, rank - 1);
        strides.swap(rank - 2, rank - 1);
    }
    let size = case.dtype.size();
    // An allocation starts at a multiple of 256 bytes.
    Lies::of(&shape, &strides, 256 + arrangement.offset * size, size).fits_tma().is_some()
}

/// An operand.
struct Operand<'a, T> {
    rows: View<'a, T>,
    lies: Lies,
}

impl<'a, T: Float> Operand<'a, T> {
    fn new(rows: View<'a, T>) -> Self {
        let lies = Lies::of(rows.shape(), rows.strides(), rows.alignment(), size_of::<T>());
        Self { rows, lies }
    }

    /// The descriptor of its boxes of `rows` by a stage's depth; MN-major they are cut into panels.
    fn map(&self, stream: &Stream, major: Major, rows: u32) -> Result<TensorMap> {
        let Lies { strides: [product, row, along_k], rows: all, k, .. } = self.lies;
        let products = if product == 0 { 1 } else { self.rows.shape()[0] as u64 };
        let (inner, outer, stride, boxed) = match major {
            Major::K => (k, all, row, [hopper::BLOCK_K, rows]),
            Major::Mn => (all, k, along_k, [hopper::PANEL, hopper::BLOCK_K]),
        };
        tile_map::<T>(stream, self.rows.ptr(stream)?.addr(), [inner, outer, products], [stride, product], boxed)
    }
}

/// A factor that the host knows, or one that lies on the device.
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

/// A product whose sizes fit together: C = α·A·B + β·C in type `C`.
pub(super) struct Problem<'a, T, C> {
    info: &'static OpInfo,
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    c: ViewMut<'a, C>,
    scale: Option<View<'a, f32>>,
    sizes: gk::Problem,
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
        // A column of B is what a row of A is.
        let (a, b) = (Operand::new(a), Operand::new(b.t()));
        let sizes = gk::Problem {
            a: a.lies.strides,
            b: b.lies.strides,
            c: c_strides,
            m,
            n,
            k,
            // No more than there are tiles.
            batch: if blocks.is_some() { batch as u32 } else { 0 },
            alpha: alpha.factor,
            beta,
        };
        Ok(Self { info, a, b, c, scale: alpha.on_device, sizes })
    }

    /// By the fastest path that takes the problem: the Hopper path reaches twice what the other does.
    pub(super) fn launch(self, stream: &Stream) -> Result<()> {
        if stream.device().supports_hopper() && self.fits_hopper().is_some() {
            self.launch_hopper(stream)
        } else {
            self.launch_mma(stream)
        }
    }

    /// How the operands lie if TMA takes them. A tile without depth would never be loaded.
    fn fits_hopper(&self) -> Option<(Major, Major)> {
        self.a.lies.fits_tma().zip(self.b.lies.fits_tma())
    }

    pub(super) fn launch_hopper(mut self, stream: &Stream) -> Result<()> {
        let Some((a_major, b_major)) = self.fits_hopper() else {
            let wanted =
                "k > 0, and a and b with adjacent elements along one dimension and all else at multiples of 16 bytes";
            return Err(self.info.param_error("variant", "hopper", wanted));
        };
        let gk::Problem { m, n, batch, beta, c: [c_product, ldc], .. } = self.sizes;
        if batch == 0 {
            return Ok(());
        }
        let a_map = self.a.map(stream, a_major, hopper::BLOCK_M)?;
        let b_map = self.b.map(stream, b_major, hopper::BLOCK_N / hopper::CLUSTER)?;
        // The copy engine drops what lies outside a tensor in units of 16 bytes.
        let whole = |stride: u64| stride.is_multiple_of(16 / size_of::<C>() as u64);
        let tiled = self.c.alignment() >= 16 && whole(u64::from(n)) && (m < 2 || whole(ldc)) && whole(c_product);
        let store = match beta {
            0.0 if tiled => hopper::TILES,
            1.0 if tiled && size_of::<C>() == 4 => hopper::ADD,
            _ => hopper::DIRECT,
        };
        let c = self.c.ptr_mut(stream)?;
        // An unused map still has to be a map.
        let c_map = if store == hopper::DIRECT {
            a_map
        } else {
            let dims = [n, m, batch].map(u64::from);
            tile_map::<C>(stream, c.addr(), dims, [ldc, c_product], [hopper::slab_columns::<C>(), hopper::STORE_M])?
        };
        let tiles = u64::from(m.div_ceil(hopper::CLUSTER * hopper::BLOCK_M)) * u64::from(n.div_ceil(hopper::BLOCK_N));
        let clusters = u64::from(stream.device().info().multiprocessors / hopper::CLUSTER);
        let grid = hopper::CLUSTER * (tiles * u64::from(batch)).min(clusters) as u32;
        let args = (a_map, b_map, c_map, c, self.scale(stream)?, self.sizes, store);
        // SAFETY: the maps and c describe live tensors of these sizes, and c is borrowed mutably.
        unsafe {
            match (a_major, b_major) {
                (Major::K, Major::K) => stream.launch::<hopper::GemmHopper<T, C, false, false>>(grid, args),
                (Major::K, Major::Mn) => stream.launch::<hopper::GemmHopper<T, C, false, true>>(grid, args),
                (Major::Mn, Major::K) => stream.launch::<hopper::GemmHopper<T, C, true, false>>(grid, args),
                (Major::Mn, Major::Mn) => stream.launch::<hopper::GemmHopper<T, C, true, true>>(grid, args),
            }
        }
    }

    fn scale(&self, stream: &Stream) -> Result<DevicePtr<f32>> {
        self.scale.as_ref().map_or(Ok(DevicePtr::null()), |scale| scale.ptr(stream))
    }

    pub(super) fn launch_mma(mut self, stream: &Stream) -> Result<()> {
        let gk::Problem { m, n, batch, .. } = self.sizes;
        // `new` has checked that there are no more than a grid has.
        let blocks = m.div_ceil(mma::BLOCK) * n.div_ceil(mma::BLOCK) * batch;
        if blocks == 0 {
            return Ok(());
        }
        let (a, b, scale) = (self.a.rows.ptr(stream)?, self.b.rows.ptr(stream)?, self.scale(stream)?);
        let args = (a, b, self.c.ptr_mut(stream)?, scale, self.sizes);
        // SAFETY: the tensors are live, have these sizes at these strides, and c is borrowed mutably; packs are taken only of operands that lie
        // for them.
        unsafe {
            match (self.a.lies.major, self.b.lies.major) {
                (Some(Major::K), Some(Major::K)) => stream.launch::<mma::GemmMma<T, C, false, false, 8>>(blocks, args),
                (Some(Major::K), Some(Major::Mn)) => stream.launch::<mma::GemmMma<T, C, false, true, 8>>(blocks, args),
                (Some(Major::Mn), Some(Major::K)) => stream.launch::<mma::GemmMma<T, C, true, false, 8>>(blocks, args),
                (Some(Major::Mn), Some(Major::Mn)) => stream.launch::<mma::GemmMma<T, C, true, true, 8>>(blocks, args),
                _ => stream.launch::<mma::GemmMma<T, C, false, false, 1>>(blocks, args),
            }
        }
    }
}

/// The descriptor of matrices that are moved in boxes with the 128-byte swizzle. Sizes and distances are in elements, the innermost dimension,
/// whose elements are adjacent, first; the last is the product.
fn tile_map<T: Float>(
    stream: &Stream,
    address: u64,
    dims: [u64; 3],
    [outer, product]: [u64; 2],
    [inner_box, outer_box]: [u32; 2],
) -> Result<TensorMap> {
    // A dimension of one has no stride to speak of, but it must be valid.
    let bytes = |stride: u64, inner: u64| {
        let stride = if stride == 0 { inner } else { stride };
        (stride * size_of::<T>() as u64).next_multiple_of(16)
    };
    let outer_bytes = bytes(outer, dims[0]);
    let product_bytes = if product == 0 { outer_bytes * dims[1] } else { bytes(product, 0) };
    stream.device().tensor_map(&TensorMapDesc {
        address,
        dtype: T::DTYPE,
        dims: &dims,
        strides_bytes: &[outer_bytes, product_bytes],
        box_dims: &[inner_box, outer_box, 1],
        swizzle: Swizzle::B128,
        l2_promotion: L2Promotion::B256,
        oob_fill: OobFill::Zero,
    })
}
