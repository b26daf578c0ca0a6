//! Shared-memory access with its checks.

use super::cx::Cx;
use super::early_exit;
use super::mem_ops::{extend, lanes};
use super::state::*;
use crate::check::race::{Cause, Conflict, EVERY, Stamp, VOLATILE_LANES};
use crate::ir::*;
use crate::report::{Earlier, Fault, Kind};

/// Splits a shared address into the block (index in the cluster) and the offset in it.
#[inline(always)]
pub fn split(own: usize, addr: u64) -> (usize, usize) {
    let top = (addr >> 24) as usize & 0xff;
    (if top == 0 { own } else { top - 1 }, (addr & 0xff_ffff) as usize)
}

/// Checks that `n` bytes at a shared address exist and are aligned to `align`.
pub fn locate(
    cx: &Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    addr: u64,
    n: usize,
    align: usize,
) -> Result<(usize, usize), Fault> {
    let (b, off) = split(w.block, addr);
    if addr >> 32 != 0 || b >= cl.blocks.len() || off + n > cl.blocks[b].shared.len() {
        let (have, vars) = (cl.blocks[w.block].shared.len(), describe(cx, off));
        return cx.fault(
            w,
            s,
            l as u32,
            Kind::OutOfBounds,
            format!("{n} bytes at shared address {addr:#x} of {have} bytes{vars}"),
            Some(addr),
        );
    }
    if off % align != 0 {
        return cx.fault(
            w,
            s,
            l as u32,
            Kind::Misaligned,
            format!("shared address {addr:#x} is not a multiple of {align}"),
            Some(addr),
        );
    }
    Ok((b, off))
}

/// ` (4 bytes past `tile`)` when a static variable is near.
pub fn describe(cx: &Cx<'_>, off: usize) -> String {
    let best = cx.prog.shared_vars.iter().filter(|v| v.0 as usize <= off).max_by_key(|v| v.0);
    match best {
        Some((at, size, name)) if off < (at + size) as usize => format!(" (byte {} of `{name}`)", off - *at as usize),
        Some((at, size, name)) => format!(" ({} bytes past the end of `{name}`)", off - (*at + *size) as usize),
        None => String::new(),
    }
}

/// One block for all active lanes and all in bounds and aligned: the fast case.
#[inline(always)]
fn uniform(cl: &Cluster, w: &Warp, addr: &[u64; 32], m: u32, total: usize) -> Option<[u32; 32]> {
    let len = cl.blocks[w.block].shared.len();
    let mut out = [0u32; 32];
    let (mut high, mut bits) = (0u64, 0u64);
    for l in 0..32 {
        let v = if m >> l & 1 == 1 { addr[l] } else { 0 };
        out[l] = v as u32;
        high = high.max(v);
        bits |= v;
    }
    (high as usize + total <= len && bits & (total as u64 - 1) == 0 && high < 1 << 24).then_some(out)
}

pub fn load(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    a: Access,
    addr: &[u64; 32],
    m: u32,
) -> Result<(), Fault> {
    let (n, count) = (usize::from(a.bytes), usize::from(a.count));
    let fast = uniform(cl, w, addr, m, n * count);
    if fast.is_none() {
        for l in lanes(m) {
            locate(cx, cl, w, s, l, addr[l], n * count, n * count)?;
        }
    }
    if let Some(mx) = &mut cx.metrics {
        mx.shared(s.func, s.pc, addr, m, (n * count) as u32, false);
    }
    check(cx, cl, w, s, addr, m, n * count, a.order, None);
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..];
    if let Some(off) = fast {
        let sh = &cl.blocks[w.block].shared[..];
        for e in 0..count {
            let r = list[e];
            if n == 4 {
                let d = &mut w.regs.r[w.regs.rb + r.slot()];
                let get = |o: u32| {
                    let at = o as usize + 4 * e;
                    u32::from_le_bytes([sh[at], sh[at + 1], sh[at + 2], sh[at + 3]])
                };
                if m == !0 {
                    for l in 0..32 {
                        d[l] = get(off[l]);
                    }
                } else {
                    for l in lanes(m) {
                        d[l] = get(off[l]);
                    }
                }
            } else {
                for l in lanes(m) {
                    put(w, r, l, read(sh, off[l] as usize + n * e, n), a);
                }
            }
        }
        return Ok(());
    }
    for e in 0..count {
        for l in lanes(m) {
            let (b, off) = split(w.block, addr[l]);
            let v = read(&cl.blocks[b].shared, off + n * e, n);
            put(w, list[e], l, v, a);
        }
    }
    Ok(())
}

pub fn store(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    a: Access,
    addr: &[u64; 32],
    m: u32,
) -> Result<(), Fault> {
    let (n, count) = (usize::from(a.bytes), usize::from(a.count));
    for l in lanes(m) {
        locate(cx, cl, w, s, l, addr[l], n * count, n * count)?;
    }
    if let Some(mx) = &mut cx.metrics {
        mx.shared(s.func, s.pc, addr, m, (n * count) as u32, true);
    }
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..];
    check(cx, cl, w, s, addr, m, n * count, a.order, Some(&list[..count]));
    for e in 0..count {
        let r = list[e];
        for l in lanes(m) {
            let v = if r.class() == Class::Q { w.regs.q(r)[l] } else { u64::from(w.regs.r(r)[l]) };
            let (b, off) = split(w.block, addr[l]);
            let at = off + n * e;
            cl.blocks[b].shared[at..at + n].copy_from_slice(&v.to_le_bytes()[..n]);
        }
    }
    Ok(())
}

#[inline(always)]
pub fn read(sh: &[u8], at: usize, n: usize) -> u64 {
    match n {
        8 => u64::from_le_bytes(sh[at..at + 8].try_into().unwrap_or_default()),
        4 => u64::from(u32::from_le_bytes(sh[at..at + 4].try_into().unwrap_or_default())),
        2 => u64::from(u16::from_le_bytes([sh[at], sh[at + 1]])),
        _ => u64::from(sh[at]),
    }
}

#[inline(always)]
fn put(w: &mut Warp, r: Reg, l: usize, v: u64, a: Access) {
    if r.class() == Class::Q {
        w.regs.q[w.regs.qb + r.slot()][l] = v;
    } else {
        w.regs.r[w.regs.rb + r.slot()][l] = extend(v as u32, a.bytes, a.sext);
    }
}

/// initcheck and racecheck of a generic-proxy access; of a store when there are `values`.
fn check(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    addr: &[u64; 32],
    m: u32,
    n: usize,
    order: Order,
    values: Option<&[Reg]>,
) {
    if !cx.opts.checks.init && !cx.opts.checks.race {
        return;
    }
    let write = values.is_some();
    let marks = match order {
        Order::Weak => 0,
        Order::Volatile => Stamp::VOLATILE,
        _ => Stamp::STRONG,
    };
    let mut left = m;
    while left != 0 {
        let l = left.trailing_zeros() as usize;
        left &= left - 1;
        let mut who = 1 << l;
        // Neighbours at the same address: a broadcast is one access by several lanes.
        let mut next = l + 1;
        while !write && next < 32 && left >> next & 1 == 1 && addr[next] == addr[l] {
            left &= !(1 << next);
            who |= 1 << next;
            next += 1;
        }
        let (b, off) = split(w.block, addr[l]);
        let lane = if next > l + 1 { EVERY } else { l as u8 };
        touch(cx, cl, w, s, Near { who, lane, block: b, off, n, write, marks }, values);
    }
}

/// An access to one place in shared memory.
#[derive(Clone, Copy)]
pub struct Near {
    /// The lanes that make it.
    pub who: u32,
    /// What the shadow remembers of them.
    pub lane: u8,
    pub block: usize,
    pub off: usize,
    pub n: usize,
    pub write: bool,
    /// The marks of its [`Stamp`].
    pub marks: u64,
}

impl Near {
    pub fn read(l: usize, (block, off): (usize, usize), n: usize) -> Self {
        Near { who: 1 << l, lane: l as u8, block, off, n, write: false, marks: 0 }
    }

    pub fn write(l: usize, at: (usize, usize), n: usize) -> Self {
        Near { write: true, ..Near::read(l, at, n) }
    }
}

/// Checks and records an access. A store with `values` may write what is there already.
pub fn touch(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, a: Near, values: Option<&[Reg]>) {
    let (l, Near { block: b, off, n, write, .. }) = (a.who.trailing_zeros() as usize, a);
    let Cluster { blocks, clocks, .. } = cl;
    let blk = &mut blocks[b];
    if cx.opts.checks.init {
        if write {
            mark(&mut blk.shared_init, off, n);
        } else if !marked(&blk.shared_init, off, n) {
            cx.report(w, s, l as u32, Kind::UninitialisedShared, Some(off as u64), None, |cx| {
                format!("reads {n} bytes of shared memory at {off:#x} that nobody wrote{}", describe(cx, off))
            });
        }
    }
    let (Some(shadow), Some(clocks)) = (&mut blk.shadow, clocks) else { return };
    let me = Stamp::new(w.agent, a.lane, clocks.now(w.agent), s.pc, a.marks);
    let found = shadow.access(clocks, w.party(a.who), me, off, n, write).filter(|c| {
        let same = |list| same_bytes(w, list, l, &blk.shared[off..off + n], c.stamp, s, n);
        !(c.write && c.cause == Cause::Unordered && values.is_some_and(same))
    });
    if let Some(c) = found {
        report(cx, w, s, l, c, write, off);
    }
    if b != w.block {
        early_exit::visit(cx, cl, w, s, l, b, me, write);
    }
}

/// An atomic of one lane; its value must have been written by somebody.
pub fn touch_atomic(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    (b, off): (usize, usize),
    n: usize,
    write: bool,
) {
    let blk = &mut cl.blocks[b];
    if cx.opts.checks.init && !marked(&blk.shared_init, off, n) {
        cx.report(w, s, l as u32, Kind::UninitialisedShared, Some(off as u64), None, |cx| {
            format!("an atomic on shared memory at {off:#x} that nobody wrote{}", describe(cx, off))
        });
    }
    touch(cx, cl, w, s, Near { marks: Stamp::STRONG, write, ..Near::read(l, (b, off), n) }, None);
}

/// A store of what is there already, or of what another lane of the same store writes, harms nobody.
fn same_bytes(w: &Warp, list: &[Reg], l: usize, now: &[u8], earlier: Stamp, s: &Split, n: usize) -> bool {
    let bytes = |lane: usize| -> Vec<u8> {
        let each = n / list.len();
        list.iter()
            .flat_map(|r| {
                let v = if r.class() == Class::Q { w.regs.q(*r)[lane] } else { u64::from(w.regs.r(*r)[lane]) };
                v.to_le_bytes().into_iter().take(each)
            })
            .collect()
    };
    let mine = bytes(l);
    let sibling = earlier.agent() == w.agent && earlier.pc() == s.pc && earlier.lane() < 32;
    mine == now || sibling && bytes(earlier.lane() as usize) == mine
}

/// Who made an access, in words.
pub fn who(cx: &Cx<'_>, st: Stamp) -> String {
    let warps = cx.launch.threads.div_ceil(32) as usize;
    let cluster: usize = cx.launch.cluster.iter().map(|v| *v as usize).product();
    if st.agent() >= warps * cluster {
        return "an asynchronous operation".to_string();
    }
    let (lane, more) = if st.lane() < 32 { (st.lane(), "") } else { (0, " and others of its warp") };
    let [x, y, z] = cx.thread(st.agent() % warps, lane.into());
    format!("thread ({x},{y},{z}){more} of block rank {}", st.agent() / warps)
}

/// Turns a conflict into a finding.
pub fn report(cx: &mut Cx<'_>, w: &Warp, s: &Split, l: usize, c: Conflict, write: bool, off: usize) {
    let earlier = Earlier { place: cx.place(s.func, c.stamp.pc()), who: who(cx, c.stamp), write: c.write };
    let verb = if write { "writes" } else { "reads" };
    let kind = match c.cause {
        Cause::Unordered => Kind::SharedRace,
        Cause::InFlight => Kind::AsyncRace,
        Cause::Proxy => Kind::MissingProxyFence,
    };
    cx.report(w, s, l as u32, kind, Some(off as u64), Some(earlier), |cx| {
        let what = format!("{verb} shared memory at {off:#x}{}", describe(cx, off));
        match c.cause {
            Cause::Unordered if c.volatile => format!("{what} while nothing orders it with the earlier access: {VOLATILE_LANES}"),
            Cause::Unordered => format!("{what} while nothing orders it with the earlier access: put a barrier between them"),
            Cause::InFlight => {
                format!("{what} while an asynchronous operation on it has not been waited for: wait for its group or mbarrier first")
            }
            Cause::Proxy => {
                format!("{what} through the asynchronous proxy without a fence.proxy.async after the write")
            }
        }
    });
}

pub fn mark(bits: &mut [u64], off: usize, n: usize) {
    for b in off..off + n {
        bits[b / 64] |= 1 << (b % 64);
    }
}

pub fn unmark(bits: &mut [u64], off: usize, n: usize) {
    for b in off..off + n {
        bits[b / 64] &= !(1 << (b % 64));
    }
}

pub fn marked(bits: &[u64], off: usize, n: usize) -> bool {
    if n <= 32 && off % 64 + n <= 64 {
        let k = ((1u64 << n) - 1) << (off % 64);
        return bits[off / 64] & k == k;
    }
    (off..off + n).all(|b| bits[b / 64] >> (b % 64) & 1 == 1)
}
