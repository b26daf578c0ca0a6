//! Instructions that a warp's lanes execute together: shuffles, votes, matches, reductions.

use super::cx::Cx;
use super::mem_ops::lanes;
use super::run::Flow;
use super::state::*;
use super::{offsets, undefined};
use crate::check::clocks::Clocks;
use crate::ir::*;
use crate::report::{Fault, Kind};

/// Releases splits that wait for each other at a warp-wide instruction, once all its lanes have arrived.
pub fn gather(clocks: &mut Option<Box<Clocks>>, w: &mut Warp) {
    let mut k = 0;
    while k < w.blocked.len() {
        let Wait::Lanes { need, sync } = w.blocked[k].1 else {
            k += 1;
            continue;
        };
        let lead = w.blocked[k].0.clone();
        let together = |s: &Split, wait: &Wait| match wait {
            Wait::Lanes { need: n, sync: y } => {
                *n == need && *y == sync && (sync || s.pc == lead.pc && s.func == lead.func && s.bases == lead.bases)
            }
            _ => false,
        };
        let all = w.blocked.iter().filter(|(s, x)| together(s, x)).fold(0, |m, (s, _)| m | s.mask);
        if all & need & w.alive != need & w.alive {
            k += 1;
            continue;
        }
        let mut rest = vec![];
        for (mut s, wait) in std::mem::take(&mut w.blocked) {
            if together(&s, &wait) {
                if sync || s.mask != lead.mask {
                    s.pc += 1;
                    w.ready.push(s);
                }
            } else {
                rest.push((s, wait));
            }
        }
        if sync {
            if let Some(c) = clocks {
                c.sync_lanes(w.party(all));
            }
        } else {
            w.group = Some(all);
            w.ready.push(lead);
        }
        w.blocked = rest;
        return;
    }
}

/// The lanes that execute an instruction: all lanes of the warp if it needs all of them; otherwise returns what has to happen first.
pub fn meet(w: &mut Warp, op: &Op, m: u32) -> Result<u32, Wait> {
    match op {
        Op::LdMatrix { .. }
        | Op::StMatrix { .. }
        | Op::MovMatrix
        | Op::Mma(_)
        | Op::Wmma(_)
        | Op::WmmaCopy(_)
        | Op::WgFence
        | Op::WgCommit
        | Op::Wgmma(_)
        | Op::SetMaxNReg => {}
        _ => return Ok(m),
    }
    match w.group.take() {
        Some(all) => Ok(all),
        // Lanes that took another path may still arrive.
        None if m != w.alive => Err(Wait::Lanes { need: !0, sync: false }),
        None => Ok(m),
    }
}

/// Faults if a warp with fewer than 32 lanes executes an instruction that needs the registers of all 32.
pub fn all_lanes(cx: &Cx<'_>, w: &Warp, s: &Split, m: u32) -> Result<(), Fault> {
    if m == !0 {
        return Ok(());
    }
    let message = format!(
        "only lanes {m:#010x} of the warp are left to execute it, and all 32 are needed: guard what the others must not do, \
         instead of letting them exit"
    );
    cx.fault(w, s, m.trailing_zeros(), Kind::DivergentBarrier, message, None)
}

pub fn run(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    op: WarpOp,
    m: u32,
) -> Result<Flow, Fault> {
    let m = w.group.take().unwrap_or(m);
    // Lanes with different member masks form separate groups, which happen to run together.
    let members = *w.regs.r(i.c);
    let (mut need, mut outside) = (0, 0);
    for l in lanes(m) {
        need |= members[l];
        outside |= u32::from(members[l] >> l & 1 == 0) << l;
    }
    if outside != 0 {
        cx.report(w, s, outside.trailing_zeros(), Kind::BarrierMisuse, None, None, |_| {
            format!("lanes {outside:#010x} execute it but are not in the member mask that they name")
        });
    }
    let mut groups = vec![];
    let mut left = m;
    while left != 0 {
        let member = members[left.trailing_zeros() as usize];
        let group = lanes(left).filter(|l| members[*l] == member).fold(0, |g, l| g | 1 << l);
        groups.push((group, member));
        left &= !group;
    }
    if need & w.alive & !m != 0 {
        if groups.len() > 1 {
            return Ok(Flow::Apart(groups.into_iter().map(|(group, _)| group).collect()));
        }
        return Ok(Flow::Retry(Wait::Lanes { need, sync: matches!(op, WarpOp::SyncWarp) }));
    }
    for (group, member) in groups {
        let others = member & w.alive & !group;
        if others != 0 {
            cx.report(w, s, group.trailing_zeros(), Kind::BarrierMisuse, None, None, |_| {
                format!(
                    "lanes {group:#010x} name the member mask {member:#010x}, of which lanes {others:#010x} name another: all of a mask \
                     have to name the same"
                )
            });
        }
        together(cx, cl, w, s, i, op, group, member);
    }
    Ok(Flow::Next)
}

/// Executes the instruction for the lanes of `m`, which all have the member mask `member`.
fn together(cx: &Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, op: WarpOp, m: u32, member: u32) {
    let first = m.trailing_zeros() as usize;
    let code = &cx.prog.funcs[s.func as usize];
    let (ext, defs) = (i.ext as usize, usize::from(i.defs));
    let second = if defs > 0 { code.lists[ext] } else { Reg::NONE };
    if let Some(c) = cl.clocks.as_mut().filter(|c| !c.agree(w.agent) && !matches!(op, WarpOp::SyncWarp | WarpOp::Elect))
    {
        c.exchange(w.party(m));
    }
    match op {
        WarpOp::SyncWarp => {
            if let Some(c) = &mut cl.clocks {
                c.sync_lanes(w.party(m));
            }
        }
        WarpOp::Shfl(mode) => {
            let (a, b, c) = (*w.regs.r(i.a), *w.regs.r(i.b), *w.regs.r(code.lists[ext + defs]));
            let (from, ok) = sources(mode, &b, &c);
            w.regs.set_r(i.d, &from.map(|l| a[l as usize]), m);
            if second.is_some() {
                w.regs.set_pred(second, ok, m);
            }
            if cx.opts.checks.init && m != !0 || cx.watches(w, s) {
                undefined::shuffled(cx, w, s, i, second, &from, m);
            }
            offsets::shuffled(cx, w, s, i, &from, m);
        }
        WarpOp::Vote(mode) => {
            let p = w.regs.pred(i.a) & m & member;
            let all = m & member;
            match mode {
                VoteMode::Ballot => w.regs.set_r(i.d, &[p; 32], m),
                VoteMode::All => w.regs.set_pred(i.d, if p == all { !0 } else { 0 }, m),
                VoteMode::Any => w.regs.set_pred(i.d, if p != 0 { !0 } else { 0 }, m),
                VoteMode::Uni => w.regs.set_pred(i.d, if p == all || p == 0 { !0 } else { 0 }, m),
            }
        }
        WarpOp::MatchAny(wide) => {
            let v = values(w, i.a, wide);
            let mut out = [0; 32];
            for k in 0..32 {
                out[k] = (0..32).fold(0, |b, l| b | u32::from(m & member & 1 << l != 0 && v[l] == v[k]) << l);
            }
            w.regs.set_r(i.d, &out, m);
        }
        WarpOp::MatchAll(wide) => {
            let v = values(w, i.a, wide);
            let same = (0..32).all(|l| m & member & 1 << l == 0 || v[l] == v[first]);
            w.regs.set_r(i.d, &[if same { m & member } else { 0 }; 32], m);
            if second.is_some() {
                w.regs.set_pred(second, if same { !0 } else { 0 }, m);
            }
        }
        WarpOp::Redux(op) => {
            let a = w.regs.r(i.a);
            let mut values = lanes(m & member).map(|l| a[l]);
            let start = values.next().unwrap_or(0);
            let v = values.fold(start, |x, y| match op {
                ReduxOp::Add => x.wrapping_add(y),
                ReduxOp::MinU => x.min(y),
                ReduxOp::MaxU => x.max(y),
                ReduxOp::MinS => (x as i32).min(y as i32) as u32,
                ReduxOp::MaxS => (x as i32).max(y as i32) as u32,
                ReduxOp::And => x & y,
                ReduxOp::Or => x | y,
                ReduxOp::Xor => x ^ y,
            });
            w.regs.set_r(i.d, &[v; 32], m);
        }
        WarpOp::Elect => {
            let leader = (m & member).trailing_zeros();
            w.regs.set_r(i.d, &[leader; 32], m);
            if second.is_some() {
                w.regs.set_pred(second, 1u32.checked_shl(leader).unwrap_or(0), m);
            }
        }
    }
}

fn values(w: &Warp, r: Reg, wide: bool) -> [u64; 32] {
    if wide { *w.regs.q(r) } else { w.regs.r(r).map(u64::from) }
}

/// The source lanes of a shuffle, and the lanes whose source is valid. `c` holds the segment mask in bits 8-12 and the clamp in bits 0-4.
fn sources(mode: ShflMode, b: &[u32; 32], c: &[u32; 32]) -> ([u32; 32], u32) {
    let mut out = [0; 32];
    let mut ok = 0;
    for l in 0..32u32 {
        let (bv, cv) = (b[l as usize] & 31, c[l as usize]);
        let seg = cv >> 8 & 31;
        let clamp = cv & 31;
        let max = l & seg | clamp & !seg;
        let min = l & seg;
        let (src, good) = match mode {
            ShflMode::Up => {
                let j = i64::from(l) - i64::from(bv);
                (j as u32, j >= i64::from(max))
            }
            ShflMode::Down => (l + bv, l + bv <= max),
            ShflMode::Bfly => (l ^ bv, (l ^ bv) <= max),
            ShflMode::Idx => (min | bv & !seg, (min | bv & !seg) <= max),
        };
        out[l as usize] = if good { src & 31 } else { l };
        ok |= u32::from(good) << l;
    }
    (out, ok)
}
