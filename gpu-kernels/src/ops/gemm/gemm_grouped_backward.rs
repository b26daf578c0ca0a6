//! Weight gradient of the products of groups of rows with one matrix per group. The gradient of the rows is such a
//! product again, [`gemm_grouped`](super::gemm_grouped) of dy with the transposed matrices.
//!
//! # Math
//! dw(g)ⱼₖ = Σᵢ dyᵢⱼ·xᵢₖ over the rows i of group g, offsets\[g\] ≤ i < offsets\[g + 1\], + β·dw(g)ⱼₖ. Without rows the sum is zero.
//!
//! # Layout
//! `dy` is rows × m and `x` rows × n, of the same 16-bit type: operands of the product that are MN-major, with the rows along k. `dw` is
//! groups × m × n, in that type or in f32. `offsets` as of [`gemm_grouped`](super::gemm_grouped).
//!
//! # Mapping
//! As a batched [`gemm`](super::gemm) with one product per group, each of which covers a range of k. Stages start at
//! the beginning of the range, whatever its alignment: an MN-major operand has its rows along k. On Hopper the last
//! stage may extend into the next group, whose values need not be finite: consumers overwrite them by zeros in shared
//! memory, their own part of A and half of B each.
//!
//! # Shared memory
//! As [`gemm`](super::gemm).
//!
//! # Numerics
//! As [`gemm`](super::gemm); each element is summed by one block in the order of the rows, so that the result is the
//! same every time.
//!
//! # Cost
//! 2·rows·m·n FLOPs, where a group's last stage of 64 rows counts in full. Uneven group sizes do not matter: the tiles
//! of each group are spread over all clusters.
//!
//! # Limits
//! As [`gemm`](super::gemm).
//!
//! # Sources
//! Gale et al., "MegaBlocks" (arXiv:2211.15841).

use cuda_std::float::{Element, Half};
use cuda_std::kernel;
use cuda_std::launch::TensorMap;

use super::Problem;
use super::epilogue::Factor;
use super::groups::{Offsets, Rows};
use super::hopper::{self, BLOCK_N, CLUSTER, Halves, Matrices, Tile, Tiles, Walk, Wide};
use super::mma::{self, Shared};

/// Computes each of the problem's products, whose k is the total over all groups.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), both operands MN-major, one matrix that all products share; `offsets` is valid for reads of one
/// number more than there are products.
#[kernel(
    dtypes(T: half, C: float), values(V: 8, 1), where(C == T || C == f32), block = mma::THREADS, shared = Shared, no_spills
)]
pub unsafe fn gemm_grouped_backward_mma<T: Half, C: Element, const V: usize>(
    dy: *const T,
    x: *const T,
    dw: *mut C,
    mut problem: Problem,
    offsets: *const i32,
) {
    let (at, group) = mma::own_tile(&problem);
    let mut range = Range::new(Offsets { offsets, groups: problem.batch, rows: problem.k });
    range.go_to(group);
    let first = u64::from(range.start);
    let (dy, x) = (dy.add((first * problem.a[2]) as usize), x.add((first * problem.b[2]) as usize));
    let dw = dw.add((u64::from(group) * problem.c[0]) as usize);
    problem.k = range.end - range.start;
    // Which elements are adjacent shows in the strides alone where they are copied one by one.
    if V == 1 {
        mma::tile::<mma::Halves<T>, C, _, false, false, V>(dy, x, dw, problem, at, Factor::ONE, |_, _, _| ());
    } else {
        mma::tile::<mma::Halves<T>, C, _, true, true, V>(dy, x, dw, problem, at, Factor::ONE, |_, _, _| ());
    }
}

/// The rows of a group.
#[derive(Clone, Copy)]
struct Range {
    offsets: Offsets,
    /// Groups that have been entered.
    entered: u32,
    start: u32,
    end: u32,
}

impl Range {
    #[inline(always)]
    unsafe fn new(offsets: Offsets) -> Self {
        Self { offsets, entered: 0, start: 0, end: offsets.first() }
    }

    /// Advances to that group, which must not be an earlier one.
    #[inline(always)]
    unsafe fn go_to(&mut self, group: u32) {
        while self.entered <= group {
            [self.start, self.end] = self.offsets.of(self.entered, self.end);
            self.entered += 1;
        }
    }
}

/// The tiles of all products, each with the range of its group.
#[derive(Clone, Copy)]
struct Ranges {
    tiles: Tiles,
    range: Range,
}

impl Walk for Ranges {
    const TOLD: bool = true;
    const ALONG_K: bool = true;

    #[inline(always)]
    unsafe fn find(&mut self) -> bool {
        if !self.tiles.find() {
            return false;
        }
        self.range.go_to(self.tiles.product());
        true
    }

    #[inline(always)]
    fn tile(&self) -> Tile {
        Tile { k: Some([self.range.start, self.range.end]), ..self.tiles.tile() }
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.tiles.advance();
    }
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), both operands MN-major, one matrix that all products share; `offsets` as for
/// [`gemm_grouped_backward_mma`].
#[kernel(
    dtypes(T: half, C: float), where(C == T || C == f32), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Wide,
    arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_grouped_backward_hopper<T: Half, C: Element>(
    dy_map: &TensorMap,
    x_map: &TensorMap,
    dw_map: &TensorMap,
    dw: *mut C,
    problem: Problem,
    store: u32,
    offsets: *const i32,
) {
    let range = Range::new(Offsets { offsets, groups: problem.batch, rows: problem.k });
    let tiles = Ranges { tiles: Tiles::of(&problem, [hopper::BLOCK_M, BLOCK_N]), range };
    let of = Matrices { a: dy_map, b: x_map, c_map: dw_map, c: dw, problem, store };
    hopper::walk::<Halves<T, true, true>, C, _>(of, Factor::ONE, tiles);
}
