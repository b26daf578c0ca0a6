//! Values that nobody made: reads of registers and of local memory before they are written, and what is computed from them.
//!
//! A move harms nobody, nor does a sum that is thrown away: every lane of a shuffle hands over its register, and takes what
//! one of them gave. So the mark travels with the value, and is reported where the value decides something: the way that a
//! branch goes, an address, what is stored in global memory. What is stored in shared or local memory counts as not written.
//!
//! Which registers can hold such a value is known before, but for a few: a shuffle may read a lane that takes no part in it, a load shared
//! memory or words of a vector that nobody wrote, a product of matrices has what its factors had, and an integer may be divided by zero. That is
//! seldom, and from then on all registers of the warp are followed.

use super::cx::Cx;
use super::mem_ops::{addresses, lanes};
use super::origins::{First, Origin, report};
use super::shared;
use super::shared_check;
use super::state::*;
use super::undefined_bytes;
use crate::ir::*;
use crate::memory::space_of;

/// Looks at an instruction that is about to be executed by the lanes of `m`.
pub fn watch(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) {
    let code = &cx.prog.funcs[s.func as usize];
    let (at, defs, len) = (i.ext as usize, usize::from(i.defs), usize::from(i.len));
    let list = &code.lists[at..at + len];
    if follows(w, code, i.guard) {
        report(cx, w, s, s.mask & !written(w, i.guard), "whether it is executed");
    }
    if let Op::Alu(_) = i.op {
        by_zero(cx, w, s, i, m);
        let undefined = if i.keeps { 0 } else { carried(cx, w, s, i, &list[defs..]) };
        let parts = undefined_bytes::result(cx, w, s, i, m & undefined);
        define(w, code, std::iter::once(i.d).chain(list[..defs].iter().copied()), m, undefined);
        if let Some(parts) = parts {
            undefined_bytes::keep(w, code, i.d, m & undefined, &parts);
        }
        return;
    }
    // The lanes that the PTX instruction is for; a helper is executed by all.
    let reads = match i.under {
        p if p.is_some() => m & if i.guard_neg { !w.regs.pred(p) } else { w.regs.pred(p) },
        _ => m,
    };
    let values = match &i.op {
        // The metadata alone.
        Op::Wgmma(info) => &list[list.len() - usize::from(info.sparse.is_some())..],
        Op::Mma(info) => &list[list.len() - usize::from(info.sparse.is_some())..],
        _ => &list[defs..],
    };
    let missing =
        |regs: &[Reg]| regs.iter().filter(|r| follows(w, code, **r)).fold(0, |b, r| b | reads & !written(w, *r));
    let (address, given) = match i.op {
        Op::Warp(WarpOp::Shfl(_)) => (missing(&[i.b, i.c]) | missing(values), 0),
        Op::Ld(_) | Op::Atom(_) | Op::AtomWide(_) => (missing(&[i.a]), missing(values)),
        Op::St(a) => {
            let kept = kept(w, i, a.space, m);
            (missing(&[i.a]), undefined_bytes::missing(w, code, a, values, reads & !kept))
        }
        Op::WmmaCopy(ref t) => {
            let kept = if t.store { kept(w, i, t.space, m) } else { !0 };
            (missing(&[i.a, i.b]), missing(values) & !kept)
        }
        Op::Wmma(_) => (0, 0),
        // The first lanes alone name rows. What is stored remembers what is undefined.
        Op::LdMatrix { num, .. } | Op::StMatrix { num, .. } => (missing(&[i.a]) & (!0 >> (32 - 8 * u32::from(num))), 0),
        Op::MovMatrix => (0, 0),
        _ => (0, missing(&[i.a, i.b, i.c]) | missing(values)),
    };
    let what = match i.op {
        Op::Warp(WarpOp::Shfl(_)) => "the lane that it reads",
        _ => "its address",
    };
    report(cx, w, s, address, what);
    report(
        cx,
        w,
        s,
        given,
        if matches!(i.op, Op::St(_) | Op::Atom(_) | Op::AtomWide(_) | Op::WmmaCopy(_)) {
            "what it stores"
        } else {
            "what it does"
        },
    );
    if !takes_from_others(&i.op) {
        define(w, code, std::iter::once(i.d).chain(list[..defs].iter().copied()), m, 0);
    }
}

/// Whether its results come from the registers of other lanes, which are known when all have come.
fn takes_from_others(op: &Op) -> bool {
    match op {
        Op::Warp(WarpOp::Shfl(_)) | Op::MovMatrix | Op::Wgmma(_) | Op::Mma(_) | Op::Wmma(_) => true,
        Op::WmmaCopy(t) => !t.store,
        _ => false,
    }
}

/// Lanes whose register holds what nobody made.
pub fn unknown(w: &Warp, code: &Code, r: Reg) -> u32 {
    if follows(w, code, r) { !written(w, r) } else { 0 }
}

/// Whether a lane's register holds what somebody made.
pub fn known(w: &Warp, code: &Code, r: Reg, l: usize) -> bool {
    !follows(w, code, r) || written(w, r) >> l & 1 == 1
}

fn follows(w: &Warp, code: &Code, r: Reg) -> bool {
    code.follows(r) || w.follows_all && r.is_some()
}

/// A lane has loaded element `k` of a vector of local memory, of which it had written the bytes in `bytes` alone.
#[cold]
pub fn hole(w: &mut Warp, s: &Split, code: &Code, r: Reg, l: usize, a: Access, k: usize, bytes: u8) {
    w.origins.add(Origin::Local, l, First::new(s, l, 0));
    undefined_bytes::loaded(w, code, r, l, a, k, bytes);
}

/// A bit for each byte of an element that `known` says was written.
pub fn bytes(n: usize, known: impl Fn(usize) -> bool) -> u8 {
    (0..n).filter(|b| known(*b)).fold(0, |all, b| all | 1 << b)
}

/// Lanes have loaded from shared memory, and some of it nobody had written.
#[cold]
pub fn shared_holes(cx: &Cx<'_>, cl: &Cluster, w: &mut Warp, s: &Split, i: &Inst, a: Access, at: &[u32; 32], m: u32) {
    let code = &cx.prog.funcs[s.func as usize];
    let n = usize::from(a.bytes);
    for (k, r) in code.lists[i.ext as usize..][..usize::from(a.count)].iter().enumerate() {
        for l in lanes(m) {
            let (b, off) = shared::split(w.block, at[l].into());
            let (init, off) = (&cl.blocks[b].shared_init, off + k * n);
            if let Some(hole) = shared_check::first_hole(init, off, n) {
                read_hole(w, s, l, cl.blocks[b].divided, hole);
                let bytes = bytes(n, |byte| shared_check::marked(init, off + byte, 1));
                undefined_bytes::loaded(w, code, *r, l, a, k, bytes);
            }
        }
    }
}

/// A lane has read shared memory that nobody had written, in a block where what was written may have been `divided` by zero.
pub fn read_hole(w: &mut Warp, s: &Split, l: usize, divided: Option<(u32, u32)>, off: usize) {
    if let Some((func, pc)) = divided {
        w.origins.add(Origin::Division, l, First { func, pc, lane: l, at: 0 });
    }
    w.origins.add(Origin::Shared, l, First::new(s, l, off as u64));
    w.follows_all = true;
}

/// Lanes have loaded vectors from global memory, and some of their words nobody had written.
#[cold]
pub fn global_holes(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, a: Access, addr: &[u64; 32], m: u32) {
    let code = &cx.prog.funcs[s.func as usize];
    let n = usize::from(a.bytes);
    w.follows_all = true;
    for (k, r) in code.lists[i.ext as usize..][..usize::from(a.count)].iter().enumerate() {
        for l in lanes(m) {
            let at = addr[l] + (k * n) as u64;
            let Ok(al) = cx.mem.find(at, n as u64).map(|k| cx.mem.get(k)) else { continue };
            let bytes = bytes(n, |byte| al.marked((at - al.base) as usize + byte, 1));
            if bytes.count_ones() < n as u32 {
                w.origins.add(Origin::Global, l, First::new(s, l, at + u64::from(bytes.trailing_ones())));
                undefined_bytes::loaded(w, code, *r, l, a, k, bytes);
            }
        }
    }
}

/// Lanes whose result of register arithmetic is undefined.
fn carried(cx: &Cx<'_>, w: &Warp, s: &Split, i: &Inst, uses: &[Reg]) -> u32 {
    let code = &cx.prog.funcs[s.func as usize];
    let undefined = |r: Reg| if follows(w, code, r) { !written(w, r) } else { 0 };
    let text = cx.text(s);
    if text.starts_with("selp") && i.c.is_some() && i.c.class() == Class::P {
        let p = w.regs.pred(i.c);
        return undefined(i.c) | p & undefined(i.a) | !p & undefined(i.b);
    }
    // One operand may settle it.
    let settles = |v: u32, r: Reg| v & !undefined(r);
    match text {
        _ if divides(text, i) => undefined(i.a) | undefined(i.b) | zeros(w, i, text),
        "and.pred" | "or.pred" => {
            let flip = if text == "and.pred" { !0 } else { 0 };
            let (a, b) = (w.regs.pred(i.a) ^ flip, w.regs.pred(i.b) ^ flip);
            (undefined(i.a) | undefined(i.b)) & !settles(a, i.a) & !settles(b, i.b)
        }
        _ => [i.a, i.b, i.c].iter().chain(uses).fold(0, |b, r| b | undefined(*r)),
    }
}

/// Whether it is the division of one for integers, and not a helper.
pub fn divides(text: &str, i: &Inst) -> bool {
    i.b.is_some() && ["div.u", "div.s", "rem.u", "rem.s"].iter().any(|t| text.starts_with(t))
}

/// Lanes whose divisor is zero.
fn zeros(w: &Warp, i: &Inst, text: &str) -> u32 {
    let zero = |l: &usize| match i.b.class() {
        Class::Q => w.regs.q(i.b)[*l] == 0,
        _ if text.ends_with("16") => w.regs.r(i.b)[*l] & 0xffff == 0,
        _ => w.regs.r(i.b)[*l] == 0,
    };
    (0..32).filter(zero).fold(0, |b, l| b | 1 << l)
}

/// What divides by zero gives something else on every GPU.
fn by_zero(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) {
    let text = cx.text(s);
    if !divides(text, i) {
        return;
    }
    let zero = m & zeros(w, i, text);
    if zero != 0 {
        lanes(zero).for_each(|l| w.origins.add(Origin::Division, l, First::new(s, l, 0)));
        w.follows_all = true;
    }
}

/// Lanes that a store writes to shared or local memory, which remember what is undefined.
fn kept(w: &Warp, i: &Inst, space: MemSpace, m: u32) -> u32 {
    match space {
        MemSpace::Shared | MemSpace::Local => m,
        MemSpace::Generic => {
            let addr = addresses(w, i);
            let remembers = |l: &usize| matches!(space_of(addr[*l]), MemSpace::Shared | MemSpace::Local);
            lanes(m).filter(remembers).fold(0, |b, l| b | 1 << l)
        }
        _ => 0,
    }
}

/// A lane stores to a block's shared memory what may have been divided by zero.
pub fn keep_division(blk: &mut Block, w: &Warp, l: usize) {
    if let (true, Some(first)) = (w.origins.lanes(Origin::Division) >> l & 1 == 1, w.origins.first(Origin::Division)) {
        blk.divided = Some((first.func, first.pc));
    }
}

/// A shuffle by the lanes of `m`, each from the lane of `from`.
pub fn shuffled(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, second: Reg, from: &[u32; 32], m: u32) {
    let code = &cx.prog.funcs[s.func as usize];
    let source = unknown(w, code, i.a);
    let (before, parts) = (w.origins, undefined_bytes::parts(w, i.a));
    let mut undefined = 0;
    for l in lanes(m) {
        let from = 1 << from[l];
        if m & from == 0 {
            w.origins.add(Origin::Absent, l, First::new(s, l, 0));
            w.follows_all = true;
        }
        if source & from != 0 {
            w.origins.pass(&before, from, l);
        }
        undefined |= u32::from(m & from == 0 || source & from != 0) << l;
    }
    define(w, code, std::iter::once(i.d), m, undefined);
    if let Some(parts) = parts {
        let there = lanes(undefined).filter(|l| m >> from[*l] & 1 == 1).fold(0, |all, l| all | 1 << l);
        undefined_bytes::keep(w, code, i.d, there, &from.map(|l| parts[l as usize]));
    }
    define(w, code, std::iter::once(second), m, 0);
}

/// The lanes of `m` have written registers, and those of `undefined` what nobody made.
pub fn define(w: &mut Warp, code: &Code, regs: impl Iterator<Item = Reg>, m: u32, undefined: u32) {
    let all = w.follows_all;
    for r in regs.filter(|r| code.follows(*r) || all && r.is_some()) {
        let mark = written_mut(w, r);
        *mark = *mark & !m | m & !undefined;
        w.forget_parts(r, m);
    }
}

fn written(w: &Warp, r: Reg) -> u32 {
    let g = &w.regs;
    match r.class() {
        Class::R => g.ri[g.rb + r.slot()],
        Class::Q => g.qi[g.qb + r.slot()],
        Class::P => g.pi[g.pb + r.slot()],
    }
}

fn written_mut(w: &mut Warp, r: Reg) -> &mut u32 {
    let g = &mut w.regs;
    match r.class() {
        Class::R => &mut g.ri[g.rb + r.slot()],
        Class::Q => &mut g.qi[g.qb + r.slot()],
        Class::P => &mut g.pi[g.pb + r.slot()],
    }
}
