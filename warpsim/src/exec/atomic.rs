//! Atomic read-modify-write on global and shared memory.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::cx::Cx;
use super::global_check::{Touch, check_init, check_race, strength};
use super::mem_ops::{addresses, by_space, lanes, locate_written, register_value};
use super::state::*;
use super::{coop, order, shared, shared_check};
use crate::ir::*;
use crate::memory::Alloc;
use crate::num;
use crate::report::{Fault, Kind};

/// The new value.
pub fn apply(op: AtomOp, ty: NumTy, old: u64, x: u64, y: u64) -> u64 {
    use AtomOp::*;
    match (op, ty) {
        (Exch, _) => x,
        (Cas, _) => {
            if old == x {
                y
            } else {
                old
            }
        }
        (And, _) => old & x,
        (Or, _) => old | x,
        (Xor, _) => old ^ x,
        (Inc, _) => {
            if old >= x {
                0
            } else {
                old + 1
            }
        }
        (Dec, _) => {
            if old == 0 || old > x {
                x
            } else {
                old - 1
            }
        }
        (_, NumTy::F32) => {
            let (a, b) = (f32::from_bits(old as u32), f32::from_bits(x as u32));
            u64::from(num::canon(match op {
                Add => a + b,
                Min => a.min(b),
                _ => a.max(b),
            }))
        }
        (_, NumTy::F64) => {
            let (a, b) = (f64::from_bits(old), f64::from_bits(x));
            match op {
                Add => a + b,
                Min => a.min(b),
                _ => a.max(b),
            }
            .to_bits()
        }
        (_, NumTy::F16 | NumTy::BF16) => half(op, ty == NumTy::BF16, old as u32, x as u32),
        (_, NumTy::F16x2 | NumTy::BF16x2) => {
            let bf = ty == NumTy::BF16x2;
            half(op, bf, old as u32 & 0xffff, x as u32 & 0xffff) | half(op, bf, old as u32 >> 16, x as u32 >> 16) << 16
        }
        (Add, NumTy::U64 | NumTy::S64) => old.wrapping_add(x),
        (Add, NumTy::U16) => old.wrapping_add(x) & 0xffff,
        (Add, _) => u64::from((old as u32).wrapping_add(x as u32)),
        (Min, NumTy::S32) => u64::from((old as i32).min(x as i32) as u32),
        (Max, NumTy::S32) => u64::from((old as i32).max(x as i32) as u32),
        (Min, NumTy::S64) => (old as i64).min(x as i64) as u64,
        (Max, NumTy::S64) => (old as i64).max(x as i64) as u64,
        (Min, _) => old.min(x),
        (Max, _) => old.max(x),
    }
}

fn half(op: AtomOp, bf: bool, a: u32, b: u32) -> u64 {
    let f = if bf { num::BF16 } else { num::F16 };
    let (x, y) = (f.decode(a), f.decode(b));
    let v = match op {
        AtomOp::Add => num::add_odd(x, y),
        AtomOp::Min => x.min(y),
        _ => x.max(y),
    };
    u64::from(f.encode(v, num::Rnd::Rn, false))
}

pub fn run(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    a: Atomic,
    m: u32,
) -> Result<(), Fault> {
    let addr = addresses(w, i);
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    let defs = usize::from(i.defs);
    let count = usize::from(a.count);
    let n = usize::from(a.ty.bytes());
    let source =
        |w: &Warp, r: Reg, l: usize| if r.class() == Class::Q { w.regs.q(r)[l] } else { u64::from(w.regs.r(r)[l]) };
    by_space(a.space, &addr, m, |space, addr, m| {
        if let (Some(mx), true) = (&mut cx.metrics, space == MemSpace::Global) {
            mx.global(s.func, s.pc, addr, m, (n * count) as u32, true);
        }
        // Compare-and-swap loops start from a plain load, so the race checker treats the operation as a read.
        let swaps = a.op == AtomOp::Cas;
        let tells = if swaps && order::has_word(cl, w, a.order) {
            matching(cx, cl, w, space, addr, m, (list[defs], n))
        } else {
            m
        };
        order::tell(cx, cl, w, space, addr, tells, a.order, a.scope);
        for l in lanes(m) {
            let mut old = [0u64; 8];
            for e in 0..count {
                let x = source(w, list[defs + e], l);
                let y = if swaps { source(w, list[defs + count], l) } else { 0 };
                let at = addr[l] + (n * e) as u64;
                // Another lane or block may have changed the value in the meantime.
                let fails = match tells >> l & 1 {
                    0 => current(cx, cl, w, space, at, n).filter(|v| *v != x),
                    _ => None,
                };
                if tells >> l & 1 == 0 && fails.is_none() {
                    order::tell(cx, cl, w, space, addr, 1 << l, a.order, a.scope);
                }
                let v = match space {
                    MemSpace::Global => {
                        let k = locate_written(cx, w, s, l, at, n as u64, "an atomic")?;
                        if e == 0 && !at.is_multiple_of((n * count) as u64) {
                            return cx.fault(
                                w,
                                s,
                                l as u32,
                                Kind::Misaligned,
                                format!("an atomic of {} bytes at a misaligned address", n * count),
                                Some(at),
                            );
                        }
                        let (bytes, marks) = (n as u64, strength(cl, a.scope));
                        let t = Touch { lane: l, alloc: k, addr: at, bytes, write: !swaps, marks };
                        check_init(cx, w, s, t);
                        // The last arrival is the one to remember: a thread that has seen all other arrivals may then go on without them.
                        let _turn = cx.global_shadow.and_then(|shadow| shadow.turn(at));
                        check_race(cx, cl, w, s, t, |_| false);
                        coop::arrive(cx, cl, w, at);
                        let al = cx.mem.get(k);
                        let off = (at - al.base) as usize;
                        al.mark(off, n);
                        fails.unwrap_or_else(|| rmw(al, off, n, |v| apply(a.op, a.ty, v, x, y)))
                    }
                    MemSpace::Shared => {
                        let (b, off) = shared::locate(cx, cl, w, s, l, at, n, n)?;
                        shared_check::touch_atomic(cx, cl, w, s, l, (b, off), n, (!swaps, a.scope));
                        let sh = &mut cl.blocks[b].shared;
                        let v = shared::read(sh, off, n);
                        let new = apply(a.op, a.ty, v, x, y);
                        sh[off..off + n].copy_from_slice(&new.to_le_bytes()[..n]);
                        v
                    }
                    _ => {
                        return cx.fault(
                            w,
                            s,
                            l as u32,
                            Kind::OutOfBounds,
                            "an atomic outside global and shared memory",
                            Some(at),
                        );
                    }
                };
                cx.effects += u64::from(apply(a.op, a.ty, v, x, y) != v);
                old[e & 7] = v;
            }
            for (e, r) in list[..defs].iter().enumerate() {
                if r.class() == Class::Q {
                    w.regs.q[w.regs.qb + r.slot()][l] = old[e & 7];
                } else {
                    w.regs.r[w.regs.rb + r.slot()][l] = old[e & 7] as u32;
                }
            }
        }
        order::hear(cx, cl, w, space, addr, m, (a.scope, false));
        Ok(())
    })
}

/// Lanes whose compare-and-swap succeeds. A compare-and-swap that fails is a load, which publishes nothing.
fn matching(
    cx: &Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    space: MemSpace,
    addr: &[u64; 32],
    m: u32,
    (asked, n): (Reg, usize),
) -> u32 {
    // If the address is invalid, a fault follows.
    let finds = |l: &usize| current(cx, cl, w, space, addr[*l], n).is_none_or(|v| v == register_value(w, asked, *l));
    lanes(m).filter(finds).fold(0, |found, l| found | 1 << l)
}

/// The `n` bytes that an atomic is about to access, if the address is valid.
fn current(cx: &Cx<'_>, cl: &Cluster, w: &Warp, space: MemSpace, addr: u64, n: usize) -> Option<u64> {
    match space {
        MemSpace::Global if addr.is_multiple_of(n as u64) => {
            let al = cx.mem.get(cx.mem.find(addr, n as u64).ok()?);
            let off = (addr - al.base) as usize;
            Some(match n {
                8 => al.load64(off),
                2 => al.load16(off).into(),
                _ => al.load32(off).into(),
            })
        }
        MemSpace::Shared => {
            let (block, off) = shared::split(w.block, addr);
            let bytes = cl.blocks.get(block)?.shared.get(off..off + n)?;
            Some(shared::read(bytes, 0, n))
        }
        _ => None,
    }
}

fn rmw(al: &Alloc, off: usize, n: usize, f: impl Fn(u64) -> u64) -> u64 {
    match n {
        8 => al.at::<AtomicU64>(off).fetch_update(Relaxed, Relaxed, |v| Some(f(v))).unwrap_or_default(),
        2 => al
            .at::<AtomicU16>(off)
            .fetch_update(Relaxed, Relaxed, |v| Some(f(u64::from(v)) as u16))
            .unwrap_or_default()
            .into(),
        _ => al
            .at::<AtomicU32>(off)
            .fetch_update(Relaxed, Relaxed, |v| Some(f(u64::from(v)) as u32))
            .unwrap_or_default()
            .into(),
    }
}

/// Used by asynchronous reductions.
pub fn reduce_global(al: &Alloc, off: usize, op: AtomOp, ty: NumTy, x: u64) {
    rmw(al, off, usize::from(ty.bytes()), |v| apply(op, ty, v, x, 0));
}
