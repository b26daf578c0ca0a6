//! Copies from global memory to a stage.

use core::mem;

use cuda_std::shared::SharedPtr;
use cuda_std::{cp_async, thread};

use super::THREADS;

/// A thread's part in copying a tile of rows of `CHUNKS` chunks of 16 bytes: the one at its place, and those `PASS` rows further down.
#[derive(Clone, Copy)]
pub(super) struct Copier<U> {
    pub(super) from: *const U,
    /// Elements from a row to the next.
    pub(super) stride: u64,
    pub(super) rows_left: u32,
    pub(super) elements: u32,
}

impl<U: Copy> Copier<U> {
    /// Starts copying the tile of `rows` of `bytes` at element `at` to `to`; missing elements become zero. Without
    /// packs the copy is complete on return.
    #[inline(always)]
    pub(super) unsafe fn copy<const PACKED: bool>(
        &self,
        to: SharedPtr<U>,
        at: u32,
        [rows, bytes]: [u32; 2],
        thread: u32,
    ) {
        let (chunks, lanes) = (bytes / 16, 16 / size_of::<U>() as u32);
        let (row, chunk) = (thread / chunks, thread % chunks);
        let column = at + chunk * lanes;
        let left = self.elements.saturating_sub(column).min(lanes);
        let mut from = self.from.wrapping_add((u64::from(row) * self.stride + u64::from(column)) as usize);
        let mut to = to.byte_add(swizzled(bytes, row, chunk * 16));
        // Most tiles are entirely inside the matrix, and their chunks need no size check.
        let whole = PACKED && rows <= self.rows_left && at + bytes / size_of::<U>() as u32 <= self.elements;
        // For copies element by element the number of threads is opaque to the compiler, so that it does not unroll the
        // loop.
        let threads = if PACKED { THREADS } else { thread::block_dim_x() };
        let pass = threads / chunks;
        // Rows a multiple of 8 apart are swizzled alike.
        let (to_next, from_next) = (pass * bytes, (u64::from(pass) * self.stride) as usize);
        let mut below = 0;
        if whole {
            while below < rows {
                cp_async::copy_16(to, from);
                (below, to, from) = (below + pass, to.byte_add(to_next), from.wrapping_add(from_next));
            }
            return;
        }
        while below < rows {
            let inside = if row + below < self.rows_left { left } else { 0 };
            if PACKED {
                cp_async::copy_16_zero_fill(to, from, inside * size_of::<U>() as u32);
            } else {
                for e in 0..inside {
                    to.add(e).write(*from.wrapping_add(e as usize));
                }
                for e in inside..lanes {
                    // SAFETY: only used for numeric types, for which all-zero bits are a valid value.
                    to.add(e).write(mem::zeroed());
                }
            }
            (below, to, from) = (below + pass, to.byte_add(to_next), from.wrapping_add(from_next));
        }
    }
}

/// Where byte `at` of a row is, of rows of 64, 128 or 256 bytes. Lanes that load together have four neighbouring pieces of 8, 16 or, with gaps of as many, 16
/// bytes of neighbouring rows: an exclusive or with the row spreads them over all banks.
#[inline(always)]
pub(super) fn swizzled(bytes: u32, row: u32, at: u32) -> u32 {
    let key = match bytes {
        64 => row / 2 % 2 * 32,
        128 => row % 2 * 64,
        _ => row % 2 * 16,
    };
    row * bytes + (at ^ key)
}
