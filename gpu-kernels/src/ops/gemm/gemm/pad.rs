//! Copies of matrices that are not aligned to packs of 16 bytes into aligned memory, as TMA and cp.async require it.
//!
//! # Math
//! None: elements of 16 bits are moved as they are.
//!
//! # Layout
//! A matrix consists of lines of adjacent elements, at any distance from each other; lines of its copy start at
//! multiples of 16 bytes or more. Up to seven elements after a line of the copy become zeros.
//!
//! # Mapping
//! A warp writes two packs per lane, of a line of either matrix: one launch copies both.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! Bit by bit.
//!
//! # Cost
//! Every element is read and written once: 6.4 MB each way for a matrix of 1793², 3 µs at 4.2 TB/s. A pack of the copy
//! combines parts of two aligned packs of the source, shifted by the line's misalignment, so that both sides move 16
//! bytes at a time. The second of these packs is the first one of the neighbouring lane, and comes from L1. Packs that
//! cross the ends of a line are moved element by element, one per lane of the line's first warp: nothing outside of a
//! line is accessed.
//!
//! # Limits
//! (2³¹ − 1) · 8 warps.
//!
//! # Sources
//! None.

use core::array;
use core::num::NonZeroU64;

use cuda_std::launch::Fields;
use cuda_std::vector::Pack;
use cuda_std::{grid, kernel, thread, warp};

use super::super::shifted;

/// Warps of a block.
pub const WARPS: u32 = 8;
/// Packs of a lane.
const PACKS: u32 = 2;
/// Elements of a pack.
const LANES: u32 = 8;
/// Elements of a line that a warp moves.
const SPAN: u64 = (32 * PACKS * LANES) as u64;

/// The layout of a matrix and of its copy, in elements.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Lines {
    /// Lines.
    pub lines: u64,
    /// Elements of a line.
    pub length: u64,
    /// The line stride of the matrix.
    pub from: u64,
    /// The line stride of the copy.
    pub to: u64,
}

// SAFETY: 4 u64: no padding, alignment 8.
unsafe impl Fields for Lines {}

impl Lines {
    /// The number of warps that the copy takes.
    pub fn warps(&self) -> u64 {
        self.lines.saturating_mul(self.length.div_ceil(SPAN))
    }
}

/// Copies two matrices, of which either may have no lines.
///
/// # Safety
/// The matrices are valid for reads and the copies for writes of their lines, those of the copies up to a multiple of 16 bytes, where they start; there is a
/// warp for each that [`Lines::warps`] says.
#[kernel(block = WARPS * 32, no_spills)]
pub unsafe fn gemm_pad(from_a: *const u16, to_a: *mut u16, a: Lines, from_b: *const u16, to_b: *mut u16, b: Lines) {
    grid::launch_dependents();
    let index = u64::from(thread::block_idx_x()) * u64::from(WARPS) + u64::from(warp::warp_id());
    let of_a = a.warps();
    let is_a = index < of_a;
    let (from, to, of) = if is_a { (from_a, to_a, a) } else { (from_b, to_b, b) };
    let index = if is_a { index } else { index - of_a };
    if index < of.warps() {
        copy(from, to, of, index);
    }
}

/// Copies part `index` of a matrix. Run by a whole warp.
#[inline(always)]
unsafe fn copy(from: *const u16, to: *mut u16, of: Lines, index: u64) {
    // A matrix without elements has no parts.
    let spans = NonZeroU64::MIN.saturating_add(of.length.div_ceil(SPAN) - 1);
    let (line, span) = (index / spans, index % spans);
    let (from, to) = (from.add((line * of.from) as usize), to.add((line * of.to) as usize));
    let (length, lanes) = (of.length, u64::from(LANES));
    let off = from as u64 / 2 % lanes;
    // Packs of the copy from `head` to `tail` are made of source packs that are entirely in the line.
    let head = if off == 0 { 0 } else { lanes };
    let whole = if off == 0 { length } else { (length + off).saturating_sub(lanes) };
    let tail = whole / lanes * lanes;
    let lane = u64::from(warp::lane_id());
    // The pack ahead of them, if any, and what exists of the two packs after them, are copied one element per lane.
    let end = if lane < lanes { lane } else { tail + lane - lanes };
    let is_end = span == 0 && end < if lane < lanes { head.min(tail) } else { length.next_multiple_of(lanes) };
    let value = if is_end && end < length { *from.add(end as usize) } else { 0 };
    let at = |i: usize| span * SPAN + lane * lanes + i as u64 * u64::from(32 * LANES);
    let is_whole = |i: usize| (head..tail).contains(&at(i));
    let packs: [_; PACKS as usize] = array::from_fn(|i| {
        let low = from.wrapping_add(at(i) as usize).wrapping_sub(off as usize).cast::<u32>();
        let load = |is_needed: bool, from| if is_needed { Pack::<u32, 4>::load(from).0 } else { [0; 4] };
        [load(is_whole(i), low), load(is_whole(i) && off != 0, low.wrapping_add(4))]
    });
    for i in 0..PACKS as usize {
        if is_whole(i) {
            Pack(shifted(packs[i], off as u32)).store(to.add(at(i) as usize).cast());
        }
    }
    if is_end {
        *to.add(end as usize) = value;
    }
}
