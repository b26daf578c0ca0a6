//! Assigns virtual registers to slots: liveness analysis, then a linear scan.
//!
//! PTX names each value anew, which makes thousands of registers in an unrolled loop. Sharing slots keeps a warp's registers in the
//! first-level cache of the CPU. Registers that may be read before they are written, and registers that are computed from them, keep slots of
//! their own, so that a checker can track them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cfg::{self, Blocks};
use crate::ir::*;

pub struct Allocation {
    pub counts: [u32; 3],
    pub maybe_uninit: Vec<Reg>,
    pub followed: [Vec<bool>; 3],
    pub pressure: u32,
}

/// How an operand is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Def,
    Use,
}

fn operands(i: &Inst, lists: &[Reg], mut f: impl FnMut(Reg, Role)) {
    for r in [i.a, i.b, i.c, i.guard, i.under] {
        if r.is_some() {
            f(r, Role::Use);
        }
    }
    let (at, defs, len) = (i.ext as usize, usize::from(i.defs), usize::from(i.len));
    for (k, r) in lists[at..at + len].iter().enumerate() {
        if r.is_some() {
            f(*r, if k < defs { Role::Def } else { Role::Use });
        }
    }
    if i.d.is_some() {
        f(i.d, Role::Def);
    }
}

struct Ids {
    base: [usize; 3],
    total: usize,
}

impl Ids {
    fn of(&self, r: Reg) -> usize {
        self.base[r.class() as usize] + r.slot()
    }
}

type Bits = Vec<u64>;

fn set(b: &mut Bits, k: usize) {
    b[k / 64] |= 1 << (k % 64);
}
fn clear(b: &mut Bits, k: usize) {
    b[k / 64] &= !(1 << (k % 64));
}
fn members(b: &Bits) -> impl Iterator<Item = usize> {
    b.iter().enumerate().flat_map(|(w, bits)| {
        let mut v = *bits;
        std::iter::from_fn(move || {
            (v != 0).then(|| {
                let k = v.trailing_zeros() as usize;
                v &= v - 1;
                w * 64 + k
            })
        })
    })
}

/// Registers that are live at the start or end of a block. Most registers are not, so the bit sets use a compact numbering of those that are.
struct Liveness {
    /// The registers in this numbering.
    crossing: Vec<usize>,
    live_in: Vec<Bits>,
    live_out: Vec<Bits>,
}

impl Liveness {
    fn members<'a>(&'a self, b: &'a Bits) -> impl Iterator<Item = usize> + 'a {
        members(b).map(|k| self.crossing[k])
    }
}

fn liveness(insts: &[Inst], lists: &[Reg], g: &Blocks, ids: &Ids, is_const: &[bool]) -> Result<Liveness, String> {
    const NONE: u32 = u32::MAX;
    let n = g.count();
    // The block that last wrote a register, so far.
    let mut by = vec![usize::MAX; ids.total];
    let mut number = vec![NONE; ids.total];
    let mut crossing = vec![];
    let (mut reads, mut writes) = (vec![vec![]; n], vec![vec![]; n]);
    for b in 0..n {
        for i in &insts[g.start[b]..g.start[b + 1]] {
            operands(i, lists, |r, role| {
                let k = ids.of(r);
                if role == Role::Use && by[k] != b && !is_const[k] {
                    if number[k] == NONE {
                        number[k] = crossing.len() as u32;
                        crossing.push(k);
                    }
                    reads[b].push(number[k] as usize);
                }
            });
            // A guarded write keeps the values of the other lanes live.
            if !i.guard.is_some() {
                operands(i, lists, |r, role| {
                    let k = ids.of(r);
                    if role == Role::Def && std::mem::replace(&mut by[k], b) != b {
                        writes[b].push(k);
                    }
                });
            }
        }
    }
    let words = crossing.len().div_ceil(64);
    if words * n > MAX_WORK {
        return Err("the function is too large".into());
    }
    let mut live_in = vec![vec![0u64; words]; n + 1];
    let mut live_out = vec![vec![0u64; words]; n + 1];
    let mut pred = vec![vec![]; n + 1];
    for (b, ss) in g.succ.iter().enumerate() {
        for s in ss {
            pred[*s].push(b);
        }
    }
    let mut work: Vec<usize> = (0..n).collect();
    let mut queued = vec![true; n + 1];
    while let Some(b) = work.pop() {
        queued[b] = false;
        let mut out = vec![0u64; words];
        for s in &g.succ[b] {
            for (o, i) in out.iter_mut().zip(&live_in[*s]) {
                *o |= i;
            }
        }
        let mut live = out.clone();
        writes[b].iter().filter(|k| number[**k] != NONE).for_each(|k| clear(&mut live, number[*k] as usize));
        reads[b].iter().for_each(|k| set(&mut live, *k));
        live_out[b] = out;
        if live != live_in[b] {
            live_in[b] = live;
            for p in &pred[b] {
                if !queued[*p] {
                    queued[*p] = true;
                    work.push(*p);
                }
            }
        }
    }
    Ok(Liveness { crossing, live_in, live_out })
}

const MAX_WORK: usize = 1 << 28;

/// `stack`: the function's generic loads may access local memory.
pub fn allocate(
    insts: &mut [Inst],
    lists: &mut [Reg],
    tables: &[Vec<u32>],
    consts: &mut [(Reg, Init)],
    next: [u32; 3],
    stack: bool,
) -> Result<Allocation, String> {
    let mut used = Compact::new(next);
    for (r, _) in consts.iter_mut() {
        *r = used.map(*r);
    }
    for i in insts.iter_mut() {
        for r in [&mut i.a, &mut i.b, &mut i.c, &mut i.guard, &mut i.under, &mut i.d] {
            *r = used.map(*r);
        }
    }
    for r in lists.iter_mut() {
        *r = used.map(*r);
    }
    let next = used.next;
    let n = next.map(|v| v as usize);
    let ids = Ids { base: [0, n[0], n[0] + n[1]], total: n.iter().sum() };
    let g = cfg::blocks(insts, tables);
    let mut is_const = vec![false; ids.total];
    for (r, _) in consts.iter() {
        is_const[ids.of(*r)] = true;
    }
    let live = liveness(insts, lists, &g, &ids, &is_const)?;
    let mut span = vec![(usize::MAX, 0usize); ids.total];
    let mut touch = |k: usize, at: usize| {
        let s = &mut span[k];
        *s = (s.0.min(at), s.1.max(at));
    };
    for b in 0..g.count() {
        live.members(&live.live_in[b]).for_each(|k| touch(k, g.start[b] * 2));
        live.members(&live.live_out[b]).for_each(|k| touch(k, g.start[b + 1] * 2));
    }
    let mut pinned = vec![false; ids.total];
    for (k, i) in insts.iter().enumerate() {
        let alu = matches!(i.op, Op::Alu(_));
        operands(i, lists, |r, role| {
            let at = 2 * k + usize::from(role == Role::Def || !alu);
            touch(ids.of(r), at);
            if matches!(i.op, Op::Wgmma(_)) {
                pinned[ids.of(r)] = true;
            }
        });
    }
    // A register that is moved into a register of a wgmma is tracked like it.
    let mut grown = pinned.contains(&true);
    while std::mem::take(&mut grown) {
        for i in insts.iter().rev() {
            for r in i.copied().filter(|r| !is_const[ids.of(*r)]) {
                grown |= pinned[ids.of(i.d)] && !std::mem::replace(&mut pinned[ids.of(r)], true);
            }
        }
    }
    let mut uninit = vec![false; ids.total];
    live.members(&live.live_in[0]).for_each(|k| uninit[k] = true);
    let mut followed = uninit.clone();
    for i in insts.iter().filter(|i| is_local(i, stack)) {
        operands(i, lists, |r, role| followed[ids.of(r)] |= role == Role::Def && !is_const[ids.of(r)]);
    }
    let mut grown = true;
    while std::mem::take(&mut grown) {
        for i in insts.iter() {
            grown |= follow(i, lists, &ids, &is_const, &mut followed);
        }
    }
    let mut slot = vec![0u32; ids.total];
    let mut counts = [0u32; 3];
    let mut pressure = vec![(0usize, 0i64); 0];
    for (class, count) in counts.iter_mut().enumerate() {
        let range = ids.base[class]..ids.base[class] + n[class];
        let mut order = vec![];
        for k in range {
            if is_const[k] || followed[k] || pinned[k] {
                slot[k] = *count;
                *count += 1;
            } else if span[k].0 != usize::MAX {
                order.push(k);
            }
            if span[k].0 != usize::MAX && class < 2 && !is_const[k] {
                pressure.push((span[k].0, 1 + class as i64));
                pressure.push((span[k].1 + 1, -1 - class as i64));
            }
        }
        order.sort_by_key(|k| span[*k].0);
        let mut active: BinaryHeap<Reverse<(usize, u32)>> = BinaryHeap::new();
        let mut free: Vec<u32> = vec![];
        for k in order {
            while let Some(Reverse((end, s))) = active.peek().copied() {
                if end >= span[k].0 {
                    break;
                }
                active.pop();
                free.push(s);
            }
            let s = free.pop().unwrap_or_else(|| {
                *count += 1;
                *count - 1
            });
            slot[k] = s;
            active.push(Reverse((span[k].1, s)));
        }
    }
    pressure.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, d) in pressure {
        now += d;
        most = most.max(now);
    }
    let rename = |r: &mut Reg| {
        if r.is_some() {
            *r = Reg::new(r.class(), slot[ids.of(*r)]);
        }
    };
    let mut maybe_uninit = vec![];
    let mut by_slot = counts.map(|n| vec![false; n as usize]);
    for (class, c) in [Class::R, Class::Q, Class::P].into_iter().enumerate() {
        for k in 0..n[class] {
            if followed[ids.base[class] + k] {
                by_slot[class][slot[ids.base[class] + k] as usize] = true;
            }
            if uninit[ids.base[class] + k] {
                maybe_uninit.push(Reg::new(c, slot[ids.base[class] + k]));
            }
        }
    }
    for i in insts.iter_mut() {
        for r in [&mut i.a, &mut i.b, &mut i.c, &mut i.guard, &mut i.under, &mut i.d] {
            rename(r);
        }
    }
    lists.iter_mut().for_each(rename);
    consts.iter_mut().for_each(|(r, _)| rename(r));
    Ok(Allocation { counts, maybe_uninit, followed: by_slot, pressure: most as u32 })
}

/// Whether an instruction loads from memory that may be uninitialised local memory.
fn is_local(i: &Inst, stack: bool) -> bool {
    matches!(i.op, Op::Ld(a) if a.space == MemSpace::Local || stack && a.space == MemSpace::Generic)
}

/// Tracks the results that an instruction computes from tracked registers; returns true if that adds a register.
fn follow(i: &Inst, lists: &[Reg], ids: &Ids, is_const: &[bool], followed: &mut [bool]) -> bool {
    if !matches!(i.op, Op::Alu(_) | Op::Warp(WarpOp::Shfl(_))) {
        return false;
    }
    let (mut reads, mut adds) = (false, false);
    operands(i, lists, |r, role| reads |= role == Role::Use && followed[ids.of(r)]);
    if reads {
        operands(i, lists, |r, role| {
            let k = ids.of(r);
            if role == Role::Def && !followed[k] && !is_const[k] {
                (followed[k], adds) = (true, true);
            }
        });
    }
    adds
}

/// Renumbers the registers that are used, so that unused declarations cost nothing.
struct Compact {
    ids: [Vec<u32>; 3],
    next: [u32; 3],
}

impl Compact {
    fn new(next: [u32; 3]) -> Self {
        Compact { ids: next.map(|n| vec![u32::MAX; n as usize]), next: [0; 3] }
    }
    fn map(&mut self, r: Reg) -> Reg {
        if !r.is_some() {
            return r;
        }
        let c = r.class();
        let id = &mut self.ids[c as usize][r.slot()];
        if *id == u32::MAX {
            *id = self.next[c as usize];
            self.next[c as usize] += 1;
        }
        Reg::new(c, *id)
    }
}
