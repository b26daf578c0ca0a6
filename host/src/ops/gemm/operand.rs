//! Shared by the products: the layouts of operands, and what a launch of the Hopper path needs.

use cuda_std::launch::TensorMap;
use gpu_kernels::ops::gemm::{self as gk, gemm::hopper};

use crate::ops::model::Case;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};
use crate::runtime::view::{View, ViewMut};

/// The dimension along which the elements of an operand are contiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Major {
    K,
    Mn,
}

/// The layout of an operand, seen as rows along k: the rows of A, the columns of B.
#[derive(Clone, Copy)]
pub(super) struct OperandLayout {
    /// Strides from one matrix to the next, from one row to the next, and along k; 0 where there is no next one.
    pub(super) strides: [u64; 3],
    /// `None` if the operand cannot be read in packs of 16 bytes.
    pub(super) major: Option<Major>,
    /// The number of rows along k, and of elements in a row.
    pub(super) rows: u64,
    pub(super) k: u64,
}

impl OperandLayout {
    /// The layout of rows whose first element's address is a multiple of `alignment` bytes, with elements of `size` bytes.
    pub(super) fn of(shape: &[usize], strides: &[usize], alignment: usize, size: usize) -> Self {
        let stride = |i: usize| match shape[i] {
            0 | 1 => 0,
            _ => strides[i] as u64,
        };
        let rank = shape.len();
        let strides = [if rank > 2 { stride(0) } else { 0 }, stride(rank - 2), stride(rank - 1)];
        let whole = |stride: u64| (stride * size as u64).is_multiple_of(16);
        // A stride of 0 means that the dimension is never stepped along, or that the view repeats one element.
        let adjacent = |i: usize| stride(i) == 1 || shape[i] < 2;
        let major = match strides {
            // Nothing is read.
            _ if shape[rank - 1] == 0 => Some(Major::K),
            _ if !alignment.is_multiple_of(16) || !whole(strides[0]) => None,
            [_, row, _] if adjacent(rank - 1) && whole(row) => Some(Major::K),
            [_, _, k] if adjacent(rank - 2) && whole(k) => Some(Major::Mn),
            _ => None,
        };
        Self { strides, major, rows: shape[rank - 2] as u64, k: shape[rank - 1] as u64 }
    }

    /// The contiguous dimension, whatever the alignment of rows or columns, if all matrices are evenly spaced: such an operand
    /// can be copied so that it can be read in packs.
    pub(super) fn adjacent(&self) -> Option<Major> {
        let Self { strides: [product, row, along_k], rows, k, .. } = *self;
        let evenly = |lines: u64, apart: u64| product == 0 || product == lines * apart;
        match [row, along_k] {
            _ if rows == 0 || k == 0 => None,
            [row, along_k] if (k < 2 || along_k == 1) && evenly(rows, row) => Some(Major::K),
            [row, along_k] if (rows < 2 || row == 1) && evenly(k, along_k) => Some(Major::Mn),
            _ => None,
        }
    }

    /// The contiguous dimension if TMA can load the operand: aligned to packs, with rows or columns that do not overlap.
    pub(super) fn fits_tma(&self) -> Option<Major> {
        let Self { strides: [_, row, along_k], rows, k, .. } = *self;
        self.major.filter(|major| match major {
            _ if k == 0 => false,
            Major::K => (k < 2 || along_k == 1) && (rows < 2 || row >= k),
            Major::Mn => (rows < 2 || row == 1) && (k < 2 || along_k >= rows),
        })
    }
}

/// Whether copies of operands in these layouts could be read in packs, which they themselves cannot.
pub(super) fn gains_from_copies(operands: [&OperandLayout; 2]) -> bool {
    operands.iter().any(|layout| layout.major.is_none())
        && operands.iter().all(|layout| layout.major.is_some() || layout.adjacent().is_some())
}

/// How TMA can load an operand of the case with this type and shape, with rows along k, or columns if `turned`.
pub(super) fn fits_tma(case: &Case, name: &str, dtype: DType, shape: &[usize], turned: bool) -> Option<Major> {
    layout(case, name, dtype, shape, turned).fits_tma()
}

/// The layout of an operand of the case.
pub(super) fn layout(case: &Case, name: &str, dtype: DType, shape: &[usize], turned: bool) -> OperandLayout {
    let arrangement = case.arrangement(name);
    let (mut shape, mut strides) = (shape.to_vec(), arrangement.strides(shape));
    if turned {
        let rank = shape.len();
        shape.swap(rank - 2, rank - 1);
        strides.swap(rank - 2, rank - 1);
    }
    let size = dtype.size();
    // An allocation starts at a multiple of 256 bytes.
    OperandLayout::of(&shape, &strides, 256 + arrangement.offset * size, size)
}

/// Whether the Hopper path can run a case of C = A·Bᵀ on such a device: the operands have this type and these names, and their
/// numbers of rows and depth are these dimensions.
pub(super) fn fits_hopper(device: &DeviceInfo, case: &Case, dtype: DType, names: [&str; 2], dims: [&str; 3]) -> bool {
    let Ok([m, n, k]) = case.dims(dims) else {
        return false;
    };
    let fits = |name, rows| fits_tma(case, name, dtype, &[rows, k], false) == Some(Major::K);
    device.compute_capability == (9, 0) && m > 0 && n > 0 && fits(names[0], m) && fits(names[1], n)
}

/// An operand: a view with its layout.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a, T> {
    pub(super) rows: View<'a, T>,
    pub(super) layout: OperandLayout,
}

impl<'a, T: Dtype> Operand<'a, T> {
    pub(super) fn new(rows: View<'a, T>) -> Self {
        let layout = OperandLayout::of(rows.shape(), rows.strides(), rows.alignment(), size_of::<T>());
        Self { rows, layout }
    }

    /// The tensor map of its boxes of `rows` by the depth of a stage. Boxes of an MN-major operand are cut into panels or, if
    /// these are not whole, into halves of panels along k.
    pub(super) fn map(&self, stream: &Stream, major: Major, rows: u32) -> Result<TensorMap> {
        let OperandLayout { strides: [product, row, along_k], rows: all, k, .. } = self.layout;
        let products = if product == 0 { 1 } else { self.rows.shape()[0] as u64 };
        let depth = (hopper::STAGE_BYTES as usize / size_of::<T>()) as u32;
        let (inner, outer, stride, boxed) = match major {
            Major::K => (k, all, row, [depth, rows]),
            Major::Mn if rows.is_multiple_of(hopper::PANEL) => (all, k, along_k, [hopper::PANEL, depth]),
            Major::Mn => (all, k, along_k, [hopper::PANEL, depth / 2]),
        };
        tile_map::<T>(stream, self.rows.ptr(stream)?.addr(), [inner, outer, products], [stride, product], boxed)
    }
}

/// What a launch of the Hopper path takes besides its operands.
pub(super) struct Tiling {
    pub(super) maps: [TensorMap; 3],
    pub(super) store: u32,
    pub(super) grid: u32,
}

impl Tiling {
    /// For products whose blocks compute tiles of this many rows and columns, with operands whose layouts are `majors`; of the
    /// columns each loads its [`half`].
    pub(super) fn new<A: Dtype, B: Dtype, C: Dtype>(
        stream: &Stream,
        operands: (&Operand<'_, A>, &Operand<'_, B>),
        majors: [Major; 2],
        c: &mut ViewMut<'_, C>,
        sizes: &gk::Problem,
        tile: [u32; 2],
    ) -> Result<Self> {
        let tiles = tiles([sizes.m, sizes.n], sizes.batch, tile);
        Self::of(stream, operands, majors, c, sizes, [tile[0], half(tile[1], majors[1])], tiles)
    }

    /// The same for that many tiles, of which each block loads these rows of A and columns of B.
    pub(super) fn of<A: Dtype, B: Dtype, C: Dtype>(
        stream: &Stream,
        (a, b): (&Operand<'_, A>, &Operand<'_, B>),
        [a_major, b_major]: [Major; 2],
        c: &mut ViewMut<'_, C>,
        sizes: &gk::Problem,
        [rows, columns]: [u32; 2],
        tiles: usize,
    ) -> Result<Self> {
        let (a_map, b_map) = (a.map(stream, a_major, rows)?, b.map(stream, b_major, columns)?);
        let grid = grid(stream, tiles);
        let is_one_wave = tiles <= (grid / hopper::CLUSTER) as usize;
        let store = match store(c, sizes) {
            hopper::TILES if is_one_wave => hopper::UNITS,
            store => store,
        };
        // An unused map still has to be a map.
        let c_map = if store >= hopper::TILES { map_of_c(stream, c, sizes, hopper::WARP_ROWS)? } else { a_map };
        Ok(Self { maps: [a_map, b_map, c_map], store, grid })
    }

    /// For the products of swapped operands, both K-major, whose tiles have these `[rows, columns]` of C: the maps are those of B, of A
    /// and of C, which TMA must be able to store.
    pub(super) fn swapped<A: Dtype, B: Dtype, C: Dtype>(
        stream: &Stream,
        (a, b): (&Operand<'_, A>, &Operand<'_, B>),
        c: &mut ViewMut<'_, C>,
        sizes: &gk::Problem,
        [rows, columns]: [u32; 2],
    ) -> Result<Self> {
        // Of both a block loads half.
        let b_map = b.map(stream, Major::K, columns / hopper::CLUSTER)?;
        let a_map = a.map(stream, Major::K, rows / hopper::CLUSTER)?;
        let store = store(c, sizes);
        let grid = grid(stream, tiles([sizes.n, sizes.m], sizes.batch, [columns / hopper::CLUSTER, rows]));
        Ok(Self { maps: [b_map, a_map, map_of_c(stream, c, sizes, hopper::SWAPPED_ROWS)?], store, grid })
    }
}

/// The columns of a tile that each block of a pair loads, of a B in this layout.
pub(super) fn half(columns: u32, b: Major) -> u32 {
    hopper::loaded(columns, b == Major::Mn) / hopper::CLUSTER
}

/// The product of the swapped operands.
pub(super) fn swapped(sizes: &gk::Problem) -> gk::Problem {
    gk::Problem { a: sizes.b, b: sizes.a, m: sizes.n, n: sizes.m, ..*sizes }
}

/// How C is stored.
pub(super) fn store<C: Dtype>(c: &ViewMut<'_, C>, sizes: &gk::Problem) -> u32 {
    let gk::Problem { m, n, beta, c: strides, .. } = *sizes;
    store_of(size_of::<C>(), c.alignment(), [m, n].map(u64::from), strides, beta)
}

/// The same for a case, whose C of that type is called `name`.
pub(super) fn store_of_case(case: &Case, name: &str, dtype: DType, shape: &[usize], beta: f32) -> u32 {
    let arrangement = case.arrangement(name);
    let strides = arrangement.strides(shape);
    let rank = shape.len();
    let apart = [if rank > 2 { strides[0] as u64 } else { 0 }, strides[rank - 2] as u64];
    let alignment = 256 + arrangement.offset * dtype.size();
    store_of(dtype.size(), alignment, [shape[rank - 2] as u64, shape[rank - 1] as u64], apart, beta)
}

/// The same for m rows of n elements of `size` bytes, given the distances between products and between rows.
fn store_of(size: usize, alignment: usize, [m, n]: [u64; 2], [product, row]: [u64; 2], beta: f32) -> u32 {
    // The copy engine drops what lies outside a tensor in units of 16 bytes.
    let whole = |stride: u64| stride.is_multiple_of(16 / size as u64);
    let tiled = alignment.is_multiple_of(16) && whole(n) && (m < 2 || whole(row)) && whole(product);
    match beta {
        0.0 if tiled => hopper::TILES,
        1.0 if tiled && size == 4 => hopper::ADD,
        _ => hopper::DIRECT,
    }
}

/// The tensor map of a C that TMA stores, so many rows at a time.
fn map_of_c<C: Dtype>(stream: &Stream, c: &mut ViewMut<'_, C>, sizes: &gk::Problem, rows: u32) -> Result<TensorMap> {
    let gk::Problem { m, n, batch, c: [product, row], .. } = *sizes;
    let boxed = [hopper::slab_columns::<C>(), rows];
    tile_map::<C>(stream, c.ptr_mut(stream)?.addr(), [n, m, batch].map(u64::from), [row, product], boxed)
}

/// The number of tiles of a cluster for this number of products.
pub(super) fn tiles([m, n]: [u32; 2], batch: u32, [block_m, block_n]: [u32; 2]) -> usize {
    let of_one = m.div_ceil(hopper::CLUSTER * block_m) as usize * n.div_ceil(block_n) as usize;
    of_one.saturating_mul(batch as usize)
}

/// The number of blocks for this number of tiles of a cluster: as many as run at a time, or fewer.
pub(super) fn grid(stream: &Stream, tiles: usize) -> u32 {
    let clusters = (stream.device().info().multiprocessors / hopper::CLUSTER) as usize;
    hopper::CLUSTER * tiles.min(clusters) as u32
}

/// The tensor map of matrices that are copied in boxes with the 128-byte swizzle. Sizes and distances are in elements; the
/// innermost dimension, which is contiguous, comes first, and the last is the index of the product.
fn tile_map<T: Dtype>(
    stream: &Stream,
    address: u64,
    dims: [u64; 3],
    [outer, product]: [u64; 2],
    [inner_box, outer_box]: [u32; 2],
) -> Result<TensorMap> {
    // The stride of a dimension of one does not matter, but it must be valid.
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
