//! `mma.sync`: gathers fragments, multiplies, scatters.
//!
//! Products are exact and summed in f32 in the order of k (the hardware's order and internal width are not
//! documented; results agree within the usual error of a dot product). Integers are exact.

use std::sync::LazyLock;

use super::cx::Cx;
use super::state::*;
use super::{mma_quads, sparse, undefined_matrix, warp_ops};
use crate::directed;
use crate::ir::*;
use crate::num::{self, Rnd};
use crate::report::Fault;

/// The value of each 8-bit pattern.
static E4M3: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|bits| num::E4M3.decode(bits as u32) as f32));
static E5M2: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|bits| num::E5M2.decode(bits as u32) as f32));

/// Element `e` of a packed register as f32.
#[inline(always)]
pub fn element(t: Elem, word: u32, e: usize) -> f32 {
    match t {
        Elem::F16 => num::f16_to_f32(word >> (16 * e) & 0xffff),
        Elem::BF16 => num::bf16_to_f32(word >> (16 * e) & 0xffff),
        // The hardware reads only the upper 19 bits.
        Elem::TF32 => f32::from_bits(word & !0x1fff),
        Elem::E4M3 => E4M3[(word >> (8 * e) & 0xff) as usize],
        Elem::E5M2 => E5M2[(word >> (8 * e) & 0xff) as usize],
        _ => f32::from_bits(word),
    }
}

/// Element `e` of a packed register as an integer.
#[inline(always)]
pub fn integer(t: Elem, word: u32, e: usize) -> i32 {
    match t {
        Elem::S8 => i32::from((word >> (8 * e)) as i8),
        Elem::U8 => i32::from((word >> (8 * e)) as u8),
        Elem::S4 => ((word >> (4 * e)) as i32) << 28 >> 28,
        Elem::U4 => (word >> (4 * e) & 15) as i32,
        _ => (word >> e & 1) as i32,
    }
}

pub fn is_int(t: Elem) -> bool {
    matches!(t, Elem::S8 | Elem::U8 | Elem::S4 | Elem::U4 | Elem::B1)
}

/// Row and column, in matrix A, of element `e` of register `r` in lane `l`.
pub fn place_a(m: usize, per: usize, l: usize, r: usize, e: usize) -> (usize, usize) {
    let (g, t) = (l / 4, l % 4);
    if m == 8 { (g, per * (t + 4 * r) + e) } else { (g + 8 * (r & 1), per * (t + 4 * (r >> 1)) + e) }
}

/// Row and column of accumulator `c` in lane `l`.
pub fn place_c(l: usize, c: usize) -> (usize, usize) {
    (l / 4 + 8 * (c / 2), 2 * (l % 4) + c % 2)
}

pub fn run(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, info: &Mma, m: u32) -> Result<(), Fault> {
    warp_ops::all_lanes(cx, w, s, m)?;
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    let (mm, nn, kk) = (usize::from(info.m), usize::from(info.n), usize::from(info.k));
    let defs = usize::from(i.defs);
    if cx.watches(w, s) {
        undefined_matrix::mma(cx, w, s, i, info);
    }
    if info.a == Elem::F64 {
        double(w, list, defs, [mm, nn, kk], info.rnd);
        return Ok(());
    }
    if info.quads() {
        mma_quads::run(w, list, defs, info);
        return Ok(());
    }
    let per_a = 32 / info.a.bits() as usize;
    let per_b = 32 / info.b.bits() as usize;
    // Number of elements that A stores per row: half of k if it is sparse.
    let held = if info.sparse.is_some() { kk / 2 } else { kk };
    let na = mm * held / 32 / per_a;
    let nb = nn * kk / 32 / per_b;
    let (ra, rb, rest) = (&list[defs..defs + na], &list[defs + na..defs + na + nb], &list[defs + na + nb..]);
    let (rc, columns) = match (info.sparse, rest) {
        (Some(sparse), [rc @ .., metadata]) => (rc, Some(sparse::columns(cx, w, s, info, sparse, *metadata)?)),
        _ => (rest, None),
    };
    let place_of_a = |l: usize, r: usize, e: usize| place_a(mm, per_a, l, r, e);
    if is_int(info.a) {
        let mut a = vec![0i32; mm * held];
        let mut b = vec![0i32; nn * kk];
        fill(words(w, ra), per_a, held, &mut a, place_of_a, |v, e| integer(info.a, v, e));
        let place_b = |l: usize, r: usize, e: usize| (l / 4, per_b * (l % 4 + 4 * r) + e);
        fill(words(w, rb), per_b, kk, &mut b, place_b, |v, e| integer(info.b, v, e));
        for (c, r) in rc.iter().enumerate() {
            let src = *w.regs.r(*r);
            let d = &mut w.regs.r[w.regs.rb + list[c].slot()];
            for l in 0..32 {
                let (row, col) = place_c(l, c);
                let (x, y) = (&a[row * held..][..held], &b[col * kk..][..kk]);
                let sum: i64 = if let Some(at) = &columns {
                    x.iter().zip(&at[row * held..]).map(|(p, k)| i64::from(p * y[usize::from(*k)])).sum()
                } else if info.a == Elem::B1 {
                    x.iter().zip(y).map(|(p, q)| i64::from(if info.and { p & q } else { p ^ q })).sum()
                } else {
                    x.iter().zip(y).map(|(p, q)| i64::from(p * q)).sum()
                };
                let v = i64::from(src[l] as i32) + sum;
                d[l] = if info.sat { v.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32 } else { v as u32 };
            }
        }
        return Ok(());
    }
    let mut a = [0f32; 16 * 32];
    let mut b = [[0f32; 8]; 64];
    fill(words(w, ra), per_a, held, &mut a, place_of_a, |v, e| element(info.a, v, e));
    let place_b = |l: usize, r: usize, e: usize| (per_b * (l % 4 + 4 * r) + e, l / 4);
    fill(words(w, rb), per_b, nn, b.as_flattened_mut(), place_b, |v, e| element(info.b, v, e));
    // Groups of products are summed before they are added to the accumulator, as in wide adder trees.
    let mut sums = [-0f32; 8 * 16];
    match &columns {
        None => product(&a, b.as_flattened(), &mut sums[..mm * 8], kk, 8),
        // Elements that a sparse A does not store are not multiplied: an infinity at their place in B has no effect.
        Some(at) => {
            for (row, out) in sums.as_chunks_mut::<8>().0.iter_mut().enumerate().take(mm) {
                for e in row * held..(row + 1) * held {
                    out.iter_mut().zip(&b[usize::from(at[e])]).for_each(|(sum, y)| *sum += a[e] * y);
                }
            }
        }
    }
    let mut acc = [[0f32; 32]; 4];
    let halves = info.c == Elem::F16;
    for c in 0..mm * nn / 32 {
        for l in 0..32 {
            let start = if halves {
                num::f16_to_f32(w.regs.r(rc[c / 2])[l] >> (16 * (c % 2)) & 0xffff)
            } else {
                f32::from_bits(w.regs.r(rc[c])[l])
            };
            let (row, col) = place_c(l, c);
            acc[c][l] = start + sums[8 * row + col];
        }
    }
    for (c, lanes) in acc.iter().enumerate().take(mm * nn / 32) {
        if info.d == Elem::F16 {
            let d = &mut w.regs.r[w.regs.rb + list[c / 2].slot()];
            for l in 0..32 {
                let sh = 16 * (c % 2);
                d[l] = d[l] & !(0xffff << sh) | num::f32_to_f16(lanes[l]) << sh;
            }
        } else {
            w.regs.r[w.regs.rb + list[c].slot()] = lanes.map(num::canon);
        }
    }
    Ok(())
}

/// Adds products to `sums` (rows × `n`, where `n` is a multiple of eight): those of `a` (rows × `k`) and `b` (`k` × `n`), each sum in the
/// order of k.
pub fn product(a: &[f32], b: &[f32], sums: &mut [f32], k: usize, n: usize) {
    // Processes as many rows at a time as have their sums in registers.
    const ROWS: usize = 4;
    for (a, sums) in a.chunks_exact(ROWS * k).zip(sums.chunks_exact_mut(ROWS * n)) {
        let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &a[row * k..][..k]);
        for col in (0..n).step_by(8) {
            let mut tile: [[f32; 8]; ROWS] =
                std::array::from_fn(|row| std::array::from_fn(|c| sums[row * n + col + c]));
            for (e, y) in b.chunks_exact(n).enumerate().take(k) {
                let y: [f32; 8] = std::array::from_fn(|c| y[col + c]);
                for (row, sums) in rows.iter().zip(&mut tile) {
                    let x = row[e];
                    sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += x * y);
                }
            }
            for (row, tile) in tile.iter().enumerate() {
                sums[row * n + col..][..8].copy_from_slice(tile);
            }
        }
    }
}

/// The elements in the registers of a fragment.
fn words<'a>(w: &'a Warp, registers: &'a [Reg]) -> impl Iterator<Item = &'a [u32; 32]> {
    registers.iter().map(|r| w.regs.r(*r))
}

/// Fills a row-major matrix with `k` columns from a fragment with `per` elements in each register; `place` maps lane, register and element to
/// row and column.
pub fn fill<'a, T>(
    registers: impl Iterator<Item = &'a [u32; 32]>,
    per: usize,
    k: usize,
    out: &mut [T],
    place: impl Fn(usize, usize, usize) -> (usize, usize),
    get: impl Fn(u32, usize) -> T,
) {
    for (r, words) in registers.enumerate() {
        for (l, word) in words.iter().enumerate() {
            for e in 0..per {
                let (row, col) = place(l, r, e);
                out[row * k + col] = get(*word, e);
            }
        }
    }
}

fn double(w: &mut Warp, list: &[Reg], defs: usize, [mm, nn, kk]: [usize; 3], rnd: Rnd) {
    let (na, nb) = (mm * kk / 32, nn * kk / 32);
    let get = |r: Reg, l: usize| f64::from_bits(w.regs.q(r)[l]);
    let mut a = vec![0f64; mm * kk];
    let mut b = vec![0f64; nn * kk];
    for l in 0..32 {
        for r in 0..na {
            let (row, col) = place_a(mm, 1, l, r, 0);
            a[row * kk + col] = get(list[defs + r], l);
        }
        for r in 0..nb {
            b[l / 4 * kk + l % 4 + 4 * r] = get(list[defs + na + r], l);
        }
    }
    let mut out = vec![[0u64; 32]; mm * nn / 32];
    for (c, lanes) in out.iter_mut().enumerate() {
        for (l, v) in lanes.iter_mut().enumerate() {
            let (row, col) = place_c(l, c);
            let start = get(list[defs + na + nb + c], l);
            *v = (0..kk).fold(start, |s, k| directed::fma(a[row * kk + k], b[col * kk + k], s, rnd)).to_bits();
        }
    }
    for (c, lanes) in out.iter().enumerate() {
        w.regs.set_q(list[c], lanes, !0);
    }
}
