//! `cp.async`: per-thread copies from global to shared memory, in groups.

use super::cx::Cx;
use super::global_check::{Touch, check_init, check_race};
use super::mem_ops::{self, lanes};
use super::state::*;
use super::{mbarrier, shared, shared_check};
use crate::check::race::{Conflict, IN_FLIGHT, Stamp};
use crate::ir::*;
use crate::launch::Completion;
use crate::report::{Fault, Kind};

pub use super::bulk::BulkOp;

/// The copies of one instruction, by lane.
pub struct CpEntry {
    mask: u32,
    dst: [(u32, u32); 32],
    src: [u64; 32],
    bytes: usize,
    take: [u8; 32],
    /// Group number; `u32::MAX` before the commit.
    group: [u32; 32],
    done: bool,
}

pub fn cp_async(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    (bytes, bypass): (u8, bool),
    m: u32,
) -> Result<(), Fault> {
    let n = usize::from(bytes);
    let mut e = CpEntry {
        mask: m,
        dst: [(0, 0); 32],
        src: [0; 32],
        bytes: n,
        take: [bytes; 32],
        group: [u32::MAX; 32],
        done: false,
    };
    for l in lanes(m) {
        let addr = mbarrier::smem_address(cx, w, s, i.a, l)?;
        let (b, off) = shared::locate(cx, cl, w, s, l, addr, n, n)?;
        e.dst[l] = (b as u32, off as u32);
        e.src[l] = if i.b.class() == Class::Q { w.regs.q(i.b)[l] } else { u64::from(w.regs.r(i.b)[l]) };
        if i.c.is_some() {
            let t = w.regs.r(i.c)[l];
            if t > u32::from(bytes) {
                return cx.fault(
                    w,
                    s,
                    l as u32,
                    Kind::IllegalInstruction,
                    format!("a source size of {t} for a copy of {n}"),
                    None,
                );
            }
            e.take[l] = t as u8;
        }
        if e.take[l] > 0 {
            if !e.src[l].is_multiple_of(n as u64) {
                return cx.fault(
                    w,
                    s,
                    l as u32,
                    Kind::Misaligned,
                    format!("cp.async of {n} bytes from a misaligned address"),
                    Some(e.src[l]),
                );
            }
            let take = u64::from(e.take[l]);
            let k = mem_ops::locate(cx, w, s, l, e.src[l], take, "cp.async")?;
            if cx.opts.checks.init || cx.global_shadow.is_some() {
                let t = Touch { lane: l, alloc: k, addr: e.src[l], bytes: take, write: false, marks: 0 };
                check_init(cx, w, s, t);
                check_race(cx, cl, w, s, t, |_, _| false);
            }
        }
        if let (Some(shadow), Some(clocks)) = (&mut cl.blocks[b].shadow, &cl.clocks) {
            let me = Stamp::new(w.agent, l as u8, IN_FLIGHT, cx.number(s), 0);
            // Lanes of one instruction may copy the same.
            let again = |c: &Conflict| {
                let other = usize::from(c.stamp.lane());
                let twin = c.stamp.agent() == w.agent && c.stamp.pc() == me.pc() && other < l && m >> other & 1 == 1;
                twin && (e.src[other], e.take[other], e.dst[other]) == (e.src[l], e.take[l], e.dst[l])
            };
            if let Some(c) = shadow.access(clocks, w.party(1 << l), me, off, n, true).filter(|c| !again(c)) {
                shared_check::report(cx, w, s, l, c, true, off);
            }
        }
    }
    // A lane that fills with zeros alone reads nothing.
    let reading = (0..32).filter(|l| m >> l & 1 == 1 && e.take[*l] > 0).fold(0, |mask, l| mask | 1 << l);
    if let Some(mx) = &mut cx.metrics
        && reading != 0
    {
        if bypass {
            mx.bypass(s.func, s.pc, &e.src, reading, n as u32);
        } else {
            mx.global(s.func, s.pc, &e.src, reading, n as u32, false);
        }
    }
    if cx.opts.async_completion == Completion::Earliest {
        for l in lanes(m) {
            copy(cx, cl, &e, l);
        }
        e.done = true;
    }
    w.cp.push(e);
    Ok(())
}

fn copy(cx: &Cx<'_>, cl: &mut Cluster, e: &CpEntry, l: usize) {
    let mut buf = [0u8; 16];
    // In bounds when it was issued.
    let _ = cx.mem.read(e.src[l], &mut buf[..usize::from(e.take[l])]);
    let (b, off) = (e.dst[l].0 as usize, e.dst[l].1 as usize);
    let blk = &mut cl.blocks[b];
    blk.shared[off..off + e.bytes].copy_from_slice(&buf[..e.bytes]);
    if !blk.shared_init.is_empty() {
        shared_check::mark(&mut blk.shared_init, off, e.bytes);
    }
}

pub fn commit(w: &mut Warp, m: u32) {
    for l in lanes(m) {
        w.cp_committed[l] += 1;
        for e in w.cp.iter_mut().filter(|e| e.mask >> l & 1 == 1 && e.group[l] == u32::MAX) {
            e.group[l] = w.cp_committed[l];
        }
    }
}

/// Completes all but the latest `keep` groups; everything when `None`.
pub fn wait(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    _s: &Split,
    m: u32,
    keep: Option<u32>,
) -> Result<(), Fault> {
    let mut entries = std::mem::take(&mut w.cp);
    for e in &mut entries {
        for l in lanes(e.mask & m) {
            let due = match keep {
                None => true,
                Some(n) => e.group[l] != u32::MAX && e.group[l] + n <= w.cp_committed[l],
            };
            if !due {
                continue;
            }
            if !e.done {
                copy(cx, cl, e, l);
            }
            if let (Some(shadow), Some(c)) = (&mut cl.blocks[e.dst[l].0 as usize].shadow, &cl.clocks) {
                shadow.settle(e.dst[l].1 as usize, e.bytes, w.agent, l as u8, c.now(w.agent));
            }
            e.mask &= !(1 << l);
        }
    }
    entries.retain(|e| e.mask != 0);
    w.cp = entries;
    Ok(())
}

/// `cp.async.mbarrier.arrive`: the thread's copies so far arrive when they are done.
pub fn mbar(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    noinc: bool,
) -> Result<(), Fault> {
    wait(cx, cl, w, s, m, None)?;
    for l in lanes(m) {
        let (b, off) = mbarrier::place(cx, cl, w, s, i.a, l)?;
        if noinc {
            mbarrier::arrive_one(cl, w.party(1 << l), b, off);
        } else {
            mbarrier::tell(cl, w.party(1 << l), b, off);
        }
    }
    Ok(())
}

/// Copies that nobody waited for happen when the thread ends.
pub fn finish(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, m: u32) -> Result<(), Fault> {
    if !w.cp.is_empty() {
        wait(cx, cl, w, s, m, None)?;
    }
    if !w.bulk.is_empty() {
        super::tma::finish(cx, cl, w, s, m);
    }
    Ok(())
}
