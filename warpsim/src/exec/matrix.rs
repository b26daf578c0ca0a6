//! ldmatrix, stmatrix, movmatrix: 8×8 matrices of 16-bit elements spread over a warp.

use super::cx::Cx;
use super::mbarrier::smem_address;
use super::shared;
use super::shared_check::{self, Near};
use super::state::*;
use super::{undefined_matrix, warp_ops};
use crate::check::race::WARP_WIDE;
use crate::ir::*;
use crate::report::Fault;

/// Row addresses: lane `8 j + r` gives the address of row `r` of matrix `j`; `written` gives the bytes that a store writes there. Also returns whether all data that is read was written before.
fn rows(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    num: usize,
    written: Option<&dyn Fn(usize) -> [u8; 16]>,
) -> Result<(Vec<(usize, usize)>, bool), Fault> {
    warp_ops::all_lanes(cx, w, s, m)?;
    let (mut out, mut known) = (vec![], true);
    let mut addrs = [0u64; 32];
    for l in 0..8 * num {
        let addr = smem_address(cx, w, s, i.a, l)?;
        addrs[l] = addr;
        let (b, off) = shared::locate(cx, cl, w, s, l, addr, 16, 16)?;
        let a = if written.is_some() {
            Near::write(l, (b, off), 16)
        } else {
            Near { who: !0, lane: WARP_WIDE, ..Near::read(l, (b, off), 16) }
        };
        let bytes = written.map_or([0; 16], |of| of(l));
        known &= shared_check::visit(cx, cl, w, s, a, &bytes);
        out.push((b, off));
    }
    if let Some(mx) = &mut cx.metrics {
        for j in 0..num {
            mx.shared(s.func, s.pc, &addrs, 0xff << (8 * j), 16, written.is_some());
        }
    }
    Ok((out, known))
}

/// Rows and columns of the two elements of a matrix that a lane holds.
pub fn places(l: usize, trans: bool) -> [(usize, usize); 2] {
    let (g, t) = (l / 4, 2 * (l % 4));
    if trans { [(t, g), (t + 1, g)] } else { [(g, t), (g, t + 1)] }
}

pub fn ldmatrix(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    num: u8,
    trans: bool,
) -> Result<(), Fault> {
    let num = usize::from(num);
    let (at, known) = rows(cx, cl, w, s, i, m, num, None)?;
    let code = &cx.prog.funcs[s.func as usize];
    let list = &code.lists[i.ext as usize..][..num];
    if !known {
        undefined_matrix::loaded(cl, w, s, code, list, &at, trans);
    }
    for j in 0..num {
        let half = |r: usize, c: usize| {
            let (b, off) = at[8 * j + r];
            shared::read(&cl.blocks[b].shared, off + 2 * c, 2) as u32
        };
        let d = &mut w.regs.r[w.regs.rb + list[j].slot()];
        for (l, v) in d.iter_mut().enumerate() {
            let (g, t) = (l / 4, 2 * (l % 4));
            *v = if trans { half(t, g) | half(t + 1, g) << 16 } else { half(g, t) | half(g, t + 1) << 16 };
        }
    }
    Ok(())
}

pub fn stmatrix(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    num: u8,
    trans: bool,
) -> Result<(), Fault> {
    let num = usize::from(num);
    let code = &cx.prog.funcs[s.func as usize];
    let list = &code.lists[i.ext as usize..][..num];
    let row = |k: usize| {
        let (src, r, mut bytes) = (w.regs.r(list[k / 8]), k % 8, [0; 16]);
        for (c, pair) in bytes.chunks_exact_mut(2).enumerate() {
            let (lane, half) = if trans { (4 * c + r / 2, r % 2) } else { (4 * r + c / 2, c % 2) };
            pair.copy_from_slice(&((src[lane] >> (16 * half)) as u16).to_le_bytes());
        }
        bytes
    };
    let (at, _) = rows(cx, cl, w, s, i, m, num, Some(&row))?;
    if cx.watches(w, s) {
        undefined_matrix::stored(cl, w, code, list, &at, trans);
    }
    for (k, (b, off)) in at.iter().enumerate() {
        cl.blocks[*b].shared[*off..off + 16].copy_from_slice(&row(k));
    }
    Ok(())
}

/// Transposes an 8×8 matrix, which is held in one register per lane.
pub fn movmatrix(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) -> Result<(), Fault> {
    warp_ops::all_lanes(cx, w, s, m)?;
    if cx.watches(w, s) {
        undefined_matrix::transposed(w, &cx.prog.funcs[s.func as usize], i);
    }
    let a = *w.regs.r(i.a);
    let half = |r: usize, c: usize| a[4 * r + c / 2] >> (16 * (c % 2)) & 0xffff;
    let out = std::array::from_fn(|l| {
        let (g, t) = (l / 4, 2 * (l % 4));
        half(t, g) | half(t + 1, g) << 16
    });
    w.regs.set_r(i.d, &out, m);
    Ok(())
}
