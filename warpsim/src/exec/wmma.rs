//! `wmma`: warp-wide matrices in fragments, whose layout the ISA leaves unspecified.
//!
//! Here, lane `l` holds the elements `l * n .. (l + 1) * n` of the row-major matrix, packed; unused registers are zero.

use super::cx::Cx;
use super::global_check::{Touch, check_init, check_race};
use super::mma::{element, integer, is_int};
use super::origins::{First, Origin};
use super::shared;
use super::shared_check::{self, Near};
use super::state::*;
use super::{mem_ops, undefined, undefined_matrix, warp_ops};
use crate::check::race::WARP_WIDE;
use crate::directed;
use crate::ir::*;
use crate::memory::{space_of, window};
use crate::num::{self, Rnd};
use crate::report::{Fault, Kind};

/// Copies a matrix between memory and fragments.
pub fn transfer(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    t: &WmmaCopy,
    m: u32,
) -> Result<(), Fault> {
    warp_ops::all_lanes(cx, w, s, m)?;
    let (code, watches) = (&cx.prog.funcs[s.func as usize], cx.watches(w, s));
    let list = &code.lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    let wide = |r: Reg| if r.class() == Class::Q { w.regs.q(r)[0] } else { u64::from(w.regs.r(r)[0]) };
    let (base, stride) = (wide(i.a), u64::from(w.regs.r(i.b)[0]));
    let (space, base) = match t.space {
        MemSpace::Generic => (space_of(base), base - window(space_of(base))),
        sp => (sp, base),
    };
    // Elements with fewer than 8 bits are moved in groups of eight or 32.
    let small = if t.elem.bits() < 8 { 32 / u64::from(t.elem.bits()) } else { 1 };
    let (bits, cols) = (t.elem.bits() as usize * small as usize, u64::from(t.cols) / small);
    let stride = if stride % small == 0 {
        stride / small
    } else {
        return cx.fault(
            w,
            s,
            0,
            Kind::Misaligned,
            format!("rows that are {stride} elements apart do not begin at a multiple of 4 bytes"),
            None,
        );
    };
    let n = bits / 8;
    let per = (32 / bits).max(1);
    let count = usize::from(t.rows) * cols as usize / 32;
    let mut words = vec![[0u64; 32]; list.len()];
    let mut unwritten = Unwritten::new(list.len());
    if t.store {
        for (k, r) in list.iter().enumerate() {
            words[k] = if r.class() == Class::Q { *w.regs.q(*r) } else { w.regs.r(*r).map(u64::from) };
        }
    }
    for l in 0..32 {
        for e in 0..count {
            let linear = (l * count + e) as u64;
            let (row, col) = (linear / cols, linear % cols);
            let at = base + n as u64 * if t.by_rows { row * stride + col } else { col * stride + row };
            let (word, shift) = (e / per, bits * (e % per));
            let value = words.get(word).map_or(0, |v| v[l] >> shift);
            let (got, known) = access(cx, cl, w, s, l, space, at, n, t.store.then_some(value))?;
            if let (false, Some(v)) = (t.store, words.get_mut(word)) {
                v[l] |= got << shift;
                unwritten.note(l, word, at, known);
            }
            let undefined = |r: &Reg| undefined::unknown(w, code, *r) >> l & 1 == 1;
            if t.store && watches && space == MemSpace::Shared && list.get(word).is_some_and(undefined) {
                undefined_matrix::stored_element(cl, w, l, shared::split(w.block, at), n);
            }
        }
    }
    if !t.store {
        unwritten.follow(cx, cl, w, s, list, space, n);
        for (k, r) in list.iter().enumerate() {
            match r.class() {
                Class::Q => w.regs.set_q(*r, &words[k], !0),
                _ => w.regs.set_r(*r, &words[k].map(|v| v as u32), !0),
            }
        }
    }
    Ok(())
}

/// One element of a lane, and whether it was written before.
fn access(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    space: MemSpace,
    at: u64,
    n: usize,
    write: Option<u64>,
) -> Result<(u64, bool), Fault> {
    if space == MemSpace::Shared {
        let (b, off) = shared::locate(cx, cl, w, s, l, at, n, n)?;
        let a = Near { who: !0, lane: WARP_WIDE, block: b, off, n, write: write.is_some(), marks: 0 };
        let known = shared_check::visit(cx, cl, w, s, a, &write.unwrap_or(0).to_le_bytes()[..n]);
        let sh = &mut cl.blocks[b].shared;
        if let Some(v) = write {
            sh[off..off + n].copy_from_slice(&v.to_le_bytes()[..n]);
        }
        return Ok((shared::read(sh, off, n), known));
    }
    let k = match write {
        Some(_) => mem_ops::locate_written(cx, w, s, l, at, n as u64, "a wmma store")?,
        None => mem_ops::locate(cx, w, s, l, at, n as u64, "a wmma load")?,
    };
    let t = Touch { lane: l, alloc: k, addr: at, bytes: n as u64, write: write.is_some(), marks: 0 };
    let there = |cx: &Cx<'_>| {
        let mut now = [0u8; 8];
        cx.mem.read(at, &mut now[..n]).is_ok() && write.is_some_and(|v| now[..n] == v.to_le_bytes()[..n])
    };
    check_race(cx, cl, w, s, t, there);
    let mut b = [0u8; 8];
    if let Some(v) = write {
        let _ = cx.mem.write(at, &v.to_le_bytes()[..n]);
    }
    let _ = cx.mem.read(at, &mut b[..n]);
    let al = cx.mem.get(k);
    let known = write.is_some() || !cx.opts.checks.init || al.marked((at - al.base) as usize, n);
    Ok((u64::from_le_bytes(b), known))
}

/// The unwritten elements of a matrix that is loaded.
struct Unwritten {
    /// By register: the lanes that have loaded unwritten elements.
    lanes: Vec<u32>,
    /// The first unwritten element: lane and address.
    first: Option<(usize, u64)>,
    /// Whether some element was written.
    some: bool,
}

impl Unwritten {
    fn new(registers: usize) -> Self {
        Unwritten { lanes: vec![0; registers], first: None, some: false }
    }

    fn note(&mut self, l: usize, word: usize, at: u64, known: bool) {
        self.some |= known;
        if !known {
            self.lanes[word] |= 1 << l;
            self.first.get_or_insert((l, at));
        }
    }

    /// Tracks the unwritten elements. If no element of a matrix in global memory was written, reports that at once, as for other loads.
    fn follow(&self, cx: &mut Cx<'_>, cl: &Cluster, w: &mut Warp, s: &Split, list: &[Reg], space: MemSpace, n: usize) {
        let code = &cx.prog.funcs[s.func as usize];
        let Some((lane, at)) = self.first.filter(|_| space == MemSpace::Shared || self.some) else {
            if let Some((lane, addr)) = self.first
                && let Ok(alloc) = cx.mem.find(addr, n as u64)
            {
                check_init(cx, w, s, Touch { lane, alloc, addr, bytes: n as u64, write: false, marks: 0 });
            }
            return undefined::define(w, code, list.iter().copied(), !0, 0);
        };
        for l in mem_ops::lanes(self.lanes.iter().fold(0, |all, lanes| all | lanes)) {
            match space {
                MemSpace::Shared => {
                    let (b, off) = shared::split(w.block, at);
                    undefined::read_hole(w, s, l, cl.blocks[b].divided, off);
                }
                _ => w.origins.add(Origin::Global, l, First::new(s, lane, at)),
            }
        }
        w.follows_all = true;
        for (r, lanes) in list.iter().zip(&self.lanes) {
            undefined::define(w, code, std::iter::once(*r), !0, *lanes);
        }
    }
}

/// Converts fragments to a row-major matrix.
fn unpack<T>(w: &Warp, regs: &[Reg], bits: usize, total: usize, get: impl Fn(u32, usize) -> T) -> Vec<T> {
    let (count, per) = (total / 32, 32 / bits);
    (0..total).map(|k| get(w.regs.r(regs[k % count / per])[k / count], k % count % per)).collect()
}

/// D = A·B + C.
pub fn multiply(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, info: &Mma, m: u32) -> Result<(), Fault> {
    warp_ops::all_lanes(cx, w, s, m)?;
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    let defs = usize::from(i.defs);
    let [na, nb] = [i.imm as usize & 0xff, i.imm as usize >> 8 & 0xff];
    let (ra, rb, rc) = (&list[defs..defs + na], &list[defs + na..defs + na + nb], &list[defs + na + nb..]);
    let (mm, nn, kk) = (usize::from(info.m), usize::from(info.n), usize::from(info.k));
    if cx.watches(w, s) {
        undefined_matrix::wmma(cx, w, s, [&list[..defs], ra, rb, rc], info);
    }
    if info.a == Elem::F64 {
        double(w, &list[..defs], [ra, rb, rc], [mm, nn, kk], info.rnd);
        return Ok(());
    }
    let (ba, bb) = (info.a.bits() as usize, info.b.bits() as usize);
    let (dw, cw) = (info.d.bits() as usize, info.c.bits() as usize);
    let mut out = vec![0u32; mm * nn];
    let (row, col) = (|k: usize| k / nn, |k: usize| k % nn);
    if is_int(info.a) {
        let a = unpack(w, ra, ba, mm * kk, |v, e| integer(info.a, v, e));
        let b = unpack(w, rb, bb, kk * nn, |v, e| integer(info.b, v, e));
        let c = unpack(w, rc, cw, mm * nn, |v, _| v as i32);
        for (k, o) in out.iter_mut().enumerate() {
            // For elements with fewer than 8 bits, B is stored by columns.
            let second = |x: usize| if bb < 8 { b[col(k) * kk + x] } else { b[x * nn + col(k)] };
            let product = |x: i32, y: i32| match info.a {
                Elem::B1 if !info.and => x ^ y,
                _ => x * y,
            };
            let products = (0..kk).map(|x| i64::from(product(a[row(k) * kk + x], second(x))));
            let sum = products.sum::<i64>() + i64::from(c[k]);
            *o = if info.sat { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32 } else { sum as u32 };
        }
    } else {
        let a = unpack(w, ra, ba, mm * kk, |v, e| element(info.a, v, e));
        let b = unpack(w, rb, bb, kk * nn, |v, e| element(info.b, v, e));
        let c = unpack(w, rc, cw, mm * nn, |v, e| element(info.c, v, e));
        for (k, o) in out.iter_mut().enumerate() {
            let sum: f32 = (0..kk).map(|x| a[row(k) * kk + x] * b[x * nn + col(k)]).sum::<f32>() + c[k];
            *o = if info.d == Elem::F16 { num::f32_to_f16(sum) } else { num::canon(sum) };
        }
    }
    let (count, per) = (mm * nn / 32, 32 / dw);
    for (r, reg) in list[..defs].iter().enumerate() {
        let words = std::array::from_fn(|l| {
            (0..per).fold(0, |v, e| if r * per + e < count { v | out[l * count + r * per + e] << (dw * e) } else { v })
        });
        w.regs.set_r(*reg, &words, !0);
    }
    Ok(())
}

/// The same in f64, with one register per element.
fn double(w: &mut Warp, rd: &[Reg], [ra, rb, rc]: [&[Reg]; 3], [mm, nn, kk]: [usize; 3], rnd: Rnd) {
    let get = |regs: &[Reg], total: usize, k: usize| {
        let count = total / 32;
        f64::from_bits(w.regs.q(regs[k % count])[k / count])
    };
    let sum = |k: usize| {
        let (row, col) = (k / nn, k % nn);
        let term = |x| (get(ra, mm * kk, row * kk + x), get(rb, kk * nn, x * nn + col));
        (0..kk).map(term).fold(get(rc, mm * nn, k), |sum, (a, b)| directed::fma(a, b, sum, rnd))
    };
    let out: Vec<u64> = (0..mm * nn).map(|k| sum(k).to_bits()).collect();
    let count = mm * nn / 32;
    for (r, reg) in rd.iter().enumerate().take(count) {
        w.regs.set_q(*reg, &std::array::from_fn(|l| out[l * count + r]), !0);
    }
}
