//! Undefined values: reads of registers and of local memory before they are written, and values that are computed from them.
//!
//! Moving an undefined value is harmless, and so is a sum that is not used: in a shuffle, every lane supplies its register, and receives one
//! of these values. So the mark travels with the value, and is reported where the value has an effect: on the direction of a branch, on an
//! address, or on what is stored in global memory. An undefined value that is stored in shared or local memory counts as not written there.
//!
//! The registers that can hold such a value are known statically, with a few exceptions: a shuffle may read a lane that does not take part in
//! it, a load may read unwritten shared memory or unwritten words of a vector, a matrix product inherits undefined values from its operands,
//! and an integer may be divided by zero. These are rare; once one happens, all registers of the warp are tracked.

use super::cx::Cx;
use super::mem_ops::{addresses, lanes};
use super::origins::{First, Origin, report};
use super::shared;
use super::shared_check;
use super::state::*;
use super::undefined_bytes;
use crate::ir::*;
use crate::memory::space_of;

/// Examines an instruction that is about to be executed by the lanes of `m`.
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
    // The lanes that the PTX instruction is executed for; a helper instruction is executed by all lanes.
    let reads = match i.under {
        p if p.is_some() => m & if i.guard_neg { !w.regs.pred(p) } else { w.regs.pred(p) },
        _ => m,
    };
    let values = match &i.op {
        // Only the metadata.
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
        // Only the first lanes supply row addresses. Memory keeps track of which stored values are undefined.
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

/// Whether its results come from registers of other lanes, which are known when all lanes have arrived.
fn takes_from_others(op: &Op) -> bool {
    match op {
        Op::Warp(WarpOp::Shfl(_)) | Op::MovMatrix | Op::Wgmma(_) | Op::Mma(_) | Op::Wmma(_) => true,
        Op::WmmaCopy(t) => !t.store,
        _ => false,
    }
}

/// Lanes whose register holds an undefined value.
pub fn unknown(w: &Warp, code: &Code, r: Reg) -> u32 {
    if follows(w, code, r) { !written(w, r) } else { 0 }
}

/// Whether a lane's register is defined.
pub fn known(w: &Warp, code: &Code, r: Reg, l: usize) -> bool {
    !follows(w, code, r) || written(w, r) >> l & 1 == 1
}

fn follows(w: &Warp, code: &Code, r: Reg) -> bool {
    code.follows(r) || w.follows_all && r.is_some()
}

/// A lane has loaded element `k` of a vector from local memory, where only the bytes in `bytes` were written.
#[cold]
pub fn hole(w: &mut Warp, s: &Split, code: &Code, r: Reg, l: usize, a: Access, k: usize, bytes: u8) {
    w.origins.add(Origin::Local, l, First::new(s, l, 0));
    undefined_bytes::loaded(w, code, r, l, a, k, bytes);
}

/// A mask with one bit for each byte of an element, set if `known` says that the byte was written.
pub fn bytes(n: usize, known: impl Fn(usize) -> bool) -> u8 {
    (0..n).filter(|b| known(*b)).fold(0, |all, b| all | 1 << b)
}

/// Lanes have loaded from shared memory that was partly unwritten.
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

/// A lane has read unwritten shared memory, in a block whose shared memory may have received a value that was `divided` by zero.
pub fn read_hole(w: &mut Warp, s: &Split, l: usize, divided: Option<(u32, u32)>, off: usize) {
    if let Some((func, pc)) = divided {
        w.origins.add(Origin::Division, l, First { func, pc, lane: l, at: 0 });
    }
    w.origins.add(Origin::Shared, l, First::new(s, l, off as u64));
    w.follows_all = true;
}

/// Lanes have loaded vectors from global memory, and some of the words were never written.
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

/// Lanes in which the result of register arithmetic is undefined.
fn carried(cx: &Cx<'_>, w: &Warp, s: &Split, i: &Inst, uses: &[Reg]) -> u32 {
    let code = &cx.prog.funcs[s.func as usize];
    let undefined = |r: Reg| if follows(w, code, r) { !written(w, r) } else { 0 };
    let text = cx.text(s);
    if text.starts_with("selp") && i.c.is_some() && i.c.class() == Class::P {
        let p = w.regs.pred(i.c);
        return undefined(i.c) | p & undefined(i.a) | !p & undefined(i.b);
    }
    // A single operand may determine the result.
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

/// Whether it is an integer division instruction, and not a helper instruction.
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

/// The result of a division by zero differs between GPUs.
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

/// Lanes of a store to shared or local memory, which keeps track of undefined values.
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

/// A lane stores to a block's shared memory a value that may come from a division by zero.
pub fn keep_division(blk: &mut Block, w: &Warp, l: usize) {
    if let (true, Some(first)) = (w.origins.lanes(Origin::Division) >> l & 1 == 1, w.origins.first(Origin::Division)) {
        blk.divided = Some((first.func, first.pc));
    }
}

/// A shuffle by the lanes of `m`, each of which reads the lane in `from`.
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

/// The lanes of `m` have written registers, and those in `undefined` have written undefined values.
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
