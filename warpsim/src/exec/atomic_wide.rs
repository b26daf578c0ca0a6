//! Atomics of 128 bits: exchange and compare-and-swap.

use std::sync::{Mutex, PoisonError};

use super::cx::Cx;
use super::global_check::{Touch, check_init, check_race, strength};
use super::mem_ops::{addresses, by_space, lanes, locate_written};
use super::state::*;
use super::{order, shared, shared_check};
use crate::ir::*;
use crate::report::{Fault, Kind};

const BYTES: usize = 16;

/// A lock: blocks run at the same time, and the host has no such atomic.
static TURN: Mutex<()> = Mutex::new(());

/// The register list holds the two result registers, then the comparison value, if there is one, and the value to store.
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
    let write = a.op != AtomOp::Cas;
    by_space(a.space, &addr, m, |space, addr, m| {
        if let (Some(mx), MemSpace::Global) = (&mut cx.metrics, space) {
            mx.global(s.func, s.pc, addr, m, BYTES as u32, true);
        }
        order::tell(cx, cl, w, space, addr, m, a.order, a.scope);
        for l in lanes(m) {
            let pair = |k: usize| [w.regs.q(list[k])[l], w.regs.q(list[k + 1])[l]];
            let (first, last) = (pair(2), pair(list.len() - 2));
            let next = |old: [u64; 2]| if write || old == first { last } else { old };
            let old = match space {
                MemSpace::Global => {
                    let k = locate_written(cx, w, s, l, addr[l], BYTES as u64, "an atomic")?;
                    if !addr[l].is_multiple_of(BYTES as u64) {
                        let message = "an atomic of 16 bytes at a misaligned address";
                        return cx.fault(w, s, l as u32, Kind::Misaligned, message, Some(addr[l]));
                    }
                    let marks = strength(cl, a.scope);
                    let t = Touch { lane: l, alloc: k, addr: addr[l], bytes: BYTES as u64, write, marks };
                    check_init(cx, w, s, t);
                    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
                    check_race(cx, cl, w, s, t, |_| false);
                    let al = cx.mem.get(k);
                    let off = (addr[l] - al.base) as usize;
                    let old = [al.load64(off), al.load64(off + 8)];
                    let [low, high] = next(old);
                    al.store64(off, low);
                    al.store64(off + 8, high);
                    al.mark(off, BYTES);
                    old
                }
                MemSpace::Shared => {
                    let (b, off) = shared::locate(cx, cl, w, s, l, addr[l], BYTES, BYTES)?;
                    shared_check::touch_atomic(cx, cl, w, s, l, (b, off), BYTES, (write, a.scope));
                    let sh = &mut cl.blocks[b].shared;
                    let old = [shared::read(sh, off, 8), shared::read(sh, off + 8, 8)];
                    for (k, v) in next(old).iter().enumerate() {
                        sh[off + 8 * k..off + 8 * k + 8].copy_from_slice(&v.to_le_bytes());
                    }
                    old
                }
                _ => {
                    let message = "an atomic outside global and shared memory";
                    return cx.fault(w, s, l as u32, Kind::OutOfBounds, message, Some(addr[l]));
                }
            };
            cx.effects += u64::from(next(old) != old);
            for (r, v) in list[..2].iter().zip(old) {
                w.regs.q[w.regs.qb + r.slot()][l] = v;
            }
        }
        order::hear(cx, cl, w, space, addr, m, (a.scope, false));
        Ok(())
    })
}
