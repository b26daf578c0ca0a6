//! `mma.sync.m8n8k4` of f16: four multiplications at once. Lanes 4q to 4q + 3, and the lanes 16 higher, perform one of them.

use super::mma::element;
use super::state::Warp;
use crate::ir::*;
use crate::num;

/// Row, or column, of a matrix that is split between the four lower and the four upper lanes.
fn split(l: usize) -> usize {
    l % 4 + if l < 16 { 0 } else { 4 }
}

/// Row and column of accumulator `i` in lane `l`, of f16 or f32.
fn place(l: usize, i: usize, halves: bool) -> (usize, usize) {
    if halves {
        return (split(l), i);
    }
    ((l & 1) + (i & 2) + if l < 16 { 0 } else { 4 }, (i & 4) + (l & 2) + (i & 1))
}

/// The same, with the rows (and columns) of all four matrices numbered consecutively.
pub fn place_in_all(l: usize, i: usize, halves: bool) -> (usize, usize) {
    let (row, col) = place(l, i, halves);
    (8 * (l % 16 / 4) + row, 8 * (l % 16 / 4) + col)
}

/// The rows of A (numbered over all four matrices), or the columns of B, of which register `k` of lane `l` holds elements.
pub fn lines(l: usize, k: usize, trans: bool) -> std::ops::Range<usize> {
    let first = 8 * (l % 16 / 4);
    if !trans {
        return first + split(l)..first + split(l) + 1;
    }
    let line = first + 2 * k + if l < 16 { 0 } else { 4 };
    line..line + 2
}

pub fn run(w: &mut Warp, list: &[Reg], defs: usize, info: &Mma) {
    let (ra, rb, rc) = (&list[defs..defs + 2], &list[defs + 2..defs + 4], &list[defs + 4..]);
    // In each multiplication, A is row-major and B column-major.
    let (mut a, mut b) = ([[[0f32; 4]; 8]; 4], [[[0f32; 4]; 8]; 4]);
    for l in 0..32 {
        let q = l % 16 / 4;
        let upper = if l < 16 { 0 } else { 4 };
        for i in 0..4 {
            let x = element(Elem::F16, w.regs.r(ra[i / 2])[l], i % 2);
            let y = element(Elem::F16, w.regs.r(rb[i / 2])[l], i % 2);
            match info.trans_a {
                false => a[q][split(l)][i] = x,
                true => a[q][i + upper][l % 4] = x,
            }
            match info.trans_b {
                false => b[q][split(l)][i] = y,
                true => b[q][i + upper][l % 4] = y,
            }
        }
    }
    let (from_halves, to_halves) = (info.c == Elem::F16, info.d == Elem::F16);
    let mut sums = [[[0f32; 8]; 8]; 4];
    for l in 0..32 {
        for i in 0..8 {
            let start = match from_halves {
                true => element(Elem::F16, w.regs.r(rc[i / 2])[l], i % 2),
                false => f32::from_bits(w.regs.r(rc[i])[l]),
            };
            let (row, col) = place(l, i, from_halves);
            let (x, y) = (&a[l % 16 / 4][row], &b[l % 16 / 4][col]);
            sums[l % 16 / 4][row][col] = start + x.iter().zip(y).fold(-0.0, |sum, (x, y)| sum + x * y);
        }
    }
    let at = |l: usize, i: usize| {
        let (row, col) = place(l, i, to_halves);
        sums[l % 16 / 4][row][col]
    };
    for (k, r) in list[..defs].iter().enumerate() {
        let words = std::array::from_fn(|l| match to_halves {
            true => num::f32_to_f16(at(l, 2 * k)) | num::f32_to_f16(at(l, 2 * k + 1)) << 16,
            false => num::canon(at(l, k)),
        });
        w.regs.set_r(*r, &words, !0);
    }
}
