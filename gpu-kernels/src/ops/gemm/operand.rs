//! Code that the tensor-core products share: a block's loads of operand tiles into shared memory, and its warps' loads
//! of fragments from them.
//!
//! An operand is seen as rows along k: the rows of A, or the columns of B. A stage is [`BLOCK`] of them by 64 bytes of
//! k. It keeps the operand's layout, in rows of 64 bytes along k, or, for an MN-major operand, in rows along its other
//! dimension. Those are cut into chunks of 16 bytes, and an exclusive or of the chunk with the row spreads the eight
//! rows of an ldmatrix over all banks.

use core::mem;

use cuda_std::shared::SharedPtr;
use cuda_std::{cp_async, matrix, thread};

use crate::lanes;

/// Rows of an operand that a block takes.
pub(super) const BLOCK: u32 = 128;
/// Threads of a block.
pub(super) const THREADS: u32 = 256;

/// Bytes of an operand's tile.
pub(super) const TILE_BYTES: u32 = BLOCK * 64;

/// Elements of k in a stage.
pub(super) const fn depth<T>() -> u32 {
    64 / size_of::<T>() as u32
}

/// Elements of a row of a tile in shared memory.
const fn row<T>(mn_major: bool) -> u32 {
    if mn_major { BLOCK } else { depth::<T>() }
}

/// Where the element (`at`, `column`) of a tile is; chunks of columns stay together.
#[inline(always)]
fn swizzle<T>(mn_major: bool, at: u32, column: u32) -> u32 {
    let lanes = lanes::<T>() as u32;
    // Rows of 64 bytes start at one of two bank offsets, longer ones all at the same.
    let key = if mn_major { at % 8 } else { at / 2 % 4 };
    at * row::<T>(mn_major) + ((column / lanes) ^ key) * lanes + column % lanes
}

/// A thread's part in copying an operand: the chunk of `V` elements at its place of every tile, and those
/// [`PASS`](Self::PASS) rows of the tile further down. `V` is a chunk of 16 bytes, or 1.
#[derive(Clone, Copy)]
pub(super) struct Copier<T, const MN: bool, const V: usize> {
    /// The thread's first element of the first tile.
    from: *const T,
    /// From a row to the next, and along k.
    outer: u64,
    along_k: u64,
    /// Rows and elements of k from the thread's first to the end.
    outer_left: u32,
    k_left: u32,
    /// Where the first chunk goes in a tile: row and column.
    to: (u32, u32),
}

impl<T: Copy, const MN: bool, const V: usize> Copier<T, MN, V> {
    /// Rows of the tile that the block copies at a time.
    const PASS: u32 = THREADS / (row::<T>(MN) / V as u32);
    const ROWS: u32 = BLOCK * depth::<T>() / row::<T>(MN);
    const FITS: () = assert!(V == 1 || V == lanes::<T>());

    /// Of an operand of `outers` rows by `k`, those from `outer0` on; its strides are from a row to the next and along k.
    #[inline(always)]
    pub(super) unsafe fn new(data: *const T, [outer, along_k]: [u64; 2], outers: u32, k: u32, outer0: u32) -> Self {
        const { Self::FITS };
        let per_row = row::<T>(MN) / V as u32;
        let (at, column) = (thread::thread_idx_x() / per_row, thread::thread_idx_x() % per_row * V as u32);
        let (first, k0) = if MN { (outer0 + column, at) } else { (outer0 + at, column) };
        Self {
            from: data.wrapping_add((u64::from(first) * outer + u64::from(k0) * along_k) as usize),
            outer,
            along_k,
            outer_left: outers.saturating_sub(first),
            k_left: k.saturating_sub(k0),
            to: (at, column),
        }
    }

    /// Starts copying the tile at `k0` to `tile`; elements outside the matrix become zero. With `V` = 1 the copy is
    /// complete on return.
    #[inline(always)]
    pub(super) unsafe fn copy(self, tile: SharedPtr<T>, k0: u32) {
        let (first, column) = self.to;
        let start = swizzle::<T>(MN, first, column);
        let mut at = 0;
        while at < Self::ROWS {
            let (outer, k) = if MN { (0, k0 + at) } else { (at, k0) };
            let (rows, depth) = (self.outer_left.saturating_sub(outer), self.k_left.saturating_sub(k));
            // The part of the chunk that is inside the matrix; the chunk extends along one of the two dimensions.
            let along = if MN { rows } else { depth };
            let inside = if rows == 0 || depth == 0 { 0 } else { along.min(V as u32) };
            let from = self.from.wrapping_add((u64::from(outer) * self.outer + u64::from(k) * self.along_k) as usize);
            // Rows that are a multiple of 8 apart are swizzled alike.
            let alike = Self::PASS.is_multiple_of(8);
            let to = if alike { start + at * row::<T>(MN) } else { swizzle::<T>(MN, first + at, column) };
            let to = tile.add(to);
            if V == 1 {
                // SAFETY: only used for numeric types, for which all-zero bits are a valid value.
                to.write(if inside > 0 { *from } else { mem::zeroed() });
            } else {
                cp_async::copy_16_zero_fill(to, from, inside * size_of::<T>() as u32);
            }
            at += Self::PASS;
        }
    }
}

/// Four matrices of a tile, each eight rows of the operand by 16 bytes of k: the lane names a row of the one at (`outer`, `k`).
///
/// An MN-major tile, of 16-bit elements, is transposed on the way.
#[inline(always)]
pub(super) unsafe fn fragments<T, const MN: bool>(tile: SharedPtr<T>, outer: u32, k: u32) -> [u32; 4] {
    let row = thread::thread_idx_x() % 8;
    if MN {
        matrix::load_x4_transposed(tile.add(swizzle::<T>(MN, k + row, outer)))
    } else {
        matrix::load_x4(tile.add(swizzle::<T>(MN, outer + row, k)))
    }
}
