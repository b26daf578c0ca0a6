//! A block's piece of the keys: its queries, which it loads into shared memory, and the new tokens that it writes to the cache.

use cuda_std::float::Half;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{cp_async, thread};

use super::stored::{Stored, interleave};
use super::{Positions, Rows, TILE};
use crate::div_rem;
use crate::ops::attention::{Problem, Sequence, fragments};

/// Threads of a block: four warps.
pub(super) const THREADS: u32 = 128;
pub(super) const WARPS: u32 = THREADS / 32;

/// A block's work: some rows of a head of K and V, and tiles `first .. end` of its keys.
pub(super) struct Piece {
    pub(super) sequence: Sequence,
    pub(super) kv_head: u32,
    pub(super) first_row: u32,
    pub(super) first: u32,
    pub(super) end: u32,
}

impl Piece {
    /// The query and head of a row, which may be out of range.
    #[inline(always)]
    pub(super) unsafe fn row(&self, row: u32, problem: &Problem) -> (u32, u32) {
        let (query, head) = div_rem(self.first_row + row, problem.group);
        (query, self.kv_head * problem.group + head)
    }
}

/// Writes those of the new tokens whose positions are in this piece.
#[inline(always)]
pub(super) unsafe fn append<C>(piece: &Piece, positions: &Positions, rows: &Rows<C>, problem: &Problem) {
    let chunks = problem.d / 8;
    let mut at = thread::thread_idx_x();
    while at < problem.q_len * chunks {
        let (token, chunk) = div_rem(at, chunks);
        let to = positions.new_place(rows, token, piece.first * TILE, piece.end * TILE);
        if !to.is_null() {
            let from = positions.new_row(rows, token).add(chunk as usize * 8);
            Pack::<u32, 4>::load_nc(from.cast()).store(to.add(chunk as usize * 8).cast());
        }
        at += THREADS;
    }
}

/// Loads a block's rows of Q into `tile`, with zeros for missing rows: by cp.async, or in the order that the cache's
/// widened keys have.
#[inline(always)]
pub(super) unsafe fn queries<T: Half, C: Stored, const DT: usize>(
    q: *const T,
    tile: SharedPtr<T>,
    rows: u32,
    piece: &Piece,
    problem: &Problem,
) {
    let total = problem.group * problem.q_len;
    let groups = if C::SCALED { DT as u32 / 2 } else { DT as u32 };
    let width = DT as u32 * 8 / groups;
    let mut at = thread::thread_idx_x();
    while at < rows * groups {
        let (row, group) = (at / groups, at % groups);
        let (query, head) = piece.row(row, problem);
        let inside = piece.first_row + row < total && group * width < problem.d;
        let from = Problem::at(problem.q, piece.sequence.batch, head, query) + (group * width) as usize;
        let from = q.wrapping_add(from);
        if C::SCALED {
            let load = |chunk: usize| Pack::<u32, 4>::load_nc(from.add(chunk * 8).cast()).0;
            let words = interleave(if inside { [load(0), load(1)] } else { [[0; 4]; 2] });
            for chunk in 0..2 {
                let to = tile.add(fragments::place::<DT>(row, group * 2 + chunk));
                Pack(words[chunk as usize]).store(to.as_ptr().cast());
            }
        } else {
            let bytes = if inside { 16 } else { 0 };
            cp_async::copy_16_zero_fill(tile.add(fragments::place::<DT>(row, group)), from, bytes);
        }
        at += THREADS;
    }
}
