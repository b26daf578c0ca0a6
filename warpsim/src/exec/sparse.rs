//! `mma.sp` and `wgmma.mma_async.sp`: the columns of the elements that A stores. Each warp of a `wgmma` finds the metadata of its 16 rows as
//! `mma.sp` does.
//!
//! Four bits of metadata select half of a chunk: two of four elements by two bits each; for 4-bit types, two of four pairs; for tf32, one of
//! two elements, as the two 16-bit halves of the element.

use super::cx::Cx;
use super::state::*;
use crate::ir::*;
use crate::report::{Fault, Kind};

/// The lane and the bit where the metadata of chunk `c` of a row begins.
///
/// Eight groups of four lanes correspond to rows `g` and `g + 8`. The selector names the lanes of a group that hold metadata: one, two or
/// all. Rows of 16 bits share a word. For 16- and 32-bit types, wider rows continue in the next lane; for narrower types, each row has a word
/// of its own.
fn place(info: &Mma, selector: usize, row: usize, c: usize) -> (usize, usize) {
    let (group, high) = (row % 8, row / 8);
    let chunks = usize::from(info.k / info.a.sparse_chunk());
    let (lane, bit) = match chunks {
        8 if info.a.bits() < 16 => (2 * selector + high, 4 * c),
        4 | 8 => (chunks / 4 * selector + c / 4, 16 * high + 4 * (c % 4)),
        _ => (high + 2 * (c / 8), 4 * (c % 8)),
    };
    (4 * group + lane, bit)
}

/// The column of every element that A stores, row by row.
pub fn columns(cx: &Cx<'_>, w: &Warp, s: &Split, info: &Mma, sparse: Sparse, metadata: Reg) -> Result<Vec<u8>, Fault> {
    let words = *w.regs.r(metadata);
    let chunk = usize::from(info.a.sparse_chunk());
    let mut out = Vec::with_capacity(16 * usize::from(info.k) / 2);
    for row in 0..16 {
        for c in 0..usize::from(info.k) / chunk {
            let (lane, bit) = place(info, sparse.selector.into(), row, c);
            let bits = words[lane] >> bit & 15;
            let (first, second) = (bits & 3, bits >> 2);
            let wrong = match chunk {
                2 => !matches!(bits, 0b0100 | 0b1110),
                _ => first == second || sparse.ordered && first > second,
            };
            if wrong {
                let rule = match (chunk, sparse.ordered) {
                    (2, _) => "has to be 0b0100 or 0b1110",
                    (_, true) => "has to name two places, the lower one in its low bits",
                    (_, false) => "has to name two different places",
                };
                let what = format!("the sparse metadata {bits:#06b} (row {row}, bit {bit} of this lane) {rule}");
                return cx.fault(w, s, lane as u32, Kind::IllegalInstruction, what, None);
            }
            let start = (c * chunk) as u8;
            match chunk {
                2 => out.push(start + (first >> 1) as u8),
                4 => out.extend([start + first as u8, start + second as u8]),
                _ => out.extend([first, second].iter().flat_map(|p| [start + 2 * *p as u8, start + 2 * *p as u8 + 1])),
            }
        }
    }
    Ok(out)
}
