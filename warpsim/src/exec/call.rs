//! Calls, direct and through pointers, and returns.

use super::cx::Cx;
use super::mem_ops::lanes;
use super::misc::enter;
use super::state::*;
use crate::ir::Inst;
use crate::report::{Fault, Kind};

const MAX_DEPTH: usize = 256;

pub fn call(cx: &Cx<'_>, w: &mut Warp, s: &mut Split, func: u32, copies: u32) -> Result<(), Fault> {
    let here = &cx.prog.funcs[s.func as usize];
    let Some(target) = cx.prog.funcs.get(func as usize) else {
        return cx.fault(w, s, 0, Kind::IllegalInstruction, "a call through a pointer that is not a function", None);
    };
    if s.stack.len() >= MAX_DEPTH {
        return cx.fault(
            w,
            s,
            s.mask.trailing_zeros(),
            Kind::OutOfBounds,
            "calls nested more than 256 deep: a recursion whose stack would overflow",
            None,
        );
    }
    let b = s.bases;
    let next = Bases {
        rb: b.rb + here.nr as usize,
        qb: b.qb + here.nq as usize,
        pb: b.pb + here.np as usize,
        lb: super::stack::frame_end(cx, w, s),
    };
    let rank = w.block as u32;
    let args = here.copies[copies as usize].args.clone();
    if let Err((kind, message)) = enter(cx, w, rank, func, next, s.mask) {
        return cx.fault(w, s, s.mask.trailing_zeros(), kind, message, None);
    }
    for ((from, n), (to, room)) in args.iter().zip(&target.params) {
        copy_local(w, s.mask, b.lb + *from as usize, next.lb + *to as usize, (*n).min(*room) as usize);
    }
    let places = args.iter().zip(&target.params);
    let moved = places.map(|((from, _), (to, _))| (b.lb + *from as usize, next.lb + *to as usize));
    w.offsets.passed.call(s.mask, moved);
    s.stack.push(Frame { func: s.func, pc: s.pc + 1, bases: b, join: s.join, copies });
    (s.func, s.pc, s.bases, s.join) = (func, 0, next, NO_JOIN);
    Ok(())
}

fn copy_local(w: &mut Warp, mask: u32, from: usize, to: usize, n: usize) {
    for l in (0..32).filter(|l| mask >> l & 1 == 1) {
        let base = l * w.local_stride;
        w.local.copy_within(base + from..base + from + n, base + to);
        if !w.local_init.is_empty() {
            w.local_init.copy_within(base + from..base + from + n, base + to);
        }
    }
}

pub fn ret(cx: &Cx<'_>, w: &mut Warp, s: &mut Split) {
    let Some(f) = s.stack.pop() else { return };
    let callee = &cx.prog.funcs[s.func as usize];
    let copies = &cx.prog.funcs[f.func as usize].copies[f.copies as usize];
    for ((to, room), (from, n)) in copies.rets.iter().zip(&callee.rets) {
        copy_local(w, s.mask, s.bases.lb + *from as usize, f.bases.lb + *to as usize, (*n).min(*room) as usize);
    }
    let places = callee.rets.iter().zip(&copies.rets);
    let moved = places.map(|((from, _), (to, _))| (s.bases.lb + *from as usize, f.bases.lb + *to as usize));
    w.offsets.passed.ret(s.mask, s.bases.lb, moved);
    (s.func, s.pc, s.bases, s.join) = (f.func, f.pc, f.bases, f.join);
    w.set_bases(s.bases);
}

/// Lanes with different targets continue as separate splits, and reconverge after the call.
pub fn indirect(cx: &Cx<'_>, w: &mut Warp, s: &mut Split, i: &Inst, copies: u32) -> Result<(), Fault> {
    let groups = targets(cx, w, s, i)?;
    if groups.len() > 1 {
        s.join = w.join_at(s.pc + 1, s);
    }
    for &(func, mask) in &groups[1..] {
        let mut other = Split { mask, ..s.clone() };
        call(cx, w, &mut other, func, copies)?;
        w.ready.push(other);
        w.set_bases(s.bases);
    }
    s.mask = groups[0].1;
    call(cx, w, s, groups[0].0, copies)
}

/// The functions that the lanes of a split call, with the lanes that call each of them.
fn targets(cx: &Cx<'_>, w: &Warp, s: &Split, i: &Inst) -> Result<Vec<(u32, u32)>, Fault> {
    let q = w.regs.q(i.a);
    let mut groups: Vec<(u32, u32)> = vec![];
    for l in lanes(s.mask) {
        let place = q[l].checked_sub(1).and_then(|v| usize::try_from(v).ok());
        let f = match place.and_then(|p| cx.prog.places.get(p)) {
            Some(&f) if f != u32::MAX => f,
            found => {
                let what = match found {
                    Some(_) => "a call through a pointer to a function that the kernel does not name",
                    None => "a call through a pointer that is not a function",
                };
                return cx.fault(w, s, l as u32, Kind::IllegalInstruction, what, Some(q[l]));
            }
        };
        match groups.iter_mut().find(|g| g.0 == f) {
            Some(g) => g.1 |= 1 << l,
            None => groups.push((f, 1 << l)),
        }
    }
    Ok(groups)
}
