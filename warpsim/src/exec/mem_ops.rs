//! Loads and stores.

use std::sync::atomic::Ordering::Relaxed;

use super::comes::Values;
use super::cx::Cx;
use super::global_check::{Touch, check_load, check_store, pass, strength};
use super::state::*;
use super::{coop, misc, order, shared, stack, undefined, undefined_bytes};
use crate::check::global::GStamp;
use crate::ir::*;
use crate::memory::{AccessError, Alloc, space_of, window};
use crate::report::{self, Fault, Kind};

/// The set bits of a mask.
pub fn lanes(mut m: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (m != 0).then(|| {
            let l = m.trailing_zeros() as usize;
            m &= m - 1;
            l
        })
    })
}

/// Calls `f` with a lane and the mask of all lanes that it represents. With `merge`, these are lanes with the same address, because a
/// broadcast is one access: most often neighbours, or those of two halves of the warp.
#[inline(always)]
pub fn each_place<T: PartialEq>(at: &[T; 32], m: u32, merge: bool, mut f: impl FnMut(usize, u32)) {
    let halves = merge && m == !0 && at[..16] == at[16..];
    let (mut left, both) = if halves { (0xffff, 0x1_0001u32) } else { (m, 1) };
    while left != 0 {
        let l = left.trailing_zeros() as usize;
        left &= left - 1;
        let mut who = both << l;
        let mut next = l + 1;
        while merge && next < 32 && left >> next & 1 == 1 && at[next] == at[l] {
            left &= !(1 << next);
            who |= both << next;
            next += 1;
        }
        f(l, who);
    }
}

/// Addresses of all lanes, including the offset.
#[inline(always)]
pub fn addresses(w: &Warp, i: &Inst) -> [u64; 32] {
    if !i.a.is_some() {
        return [i.imm as u64; 32];
    }
    if i.a.class() == Class::Q {
        let mut a = *w.regs.q(i.a);
        for v in &mut a {
            *v = v.wrapping_add(i.imm as u64);
        }
        a
    } else {
        let r = w.regs.r(i.a);
        std::array::from_fn(|k| u64::from(r[k].wrapping_add(i.imm as u32)))
    }
}

pub fn load(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    a: Access,
    m: u32,
) -> Result<(), Fault> {
    if a.space == MemSpace::Shared
        && (m, a.bytes, a.order) == (!0, 4, Order::Weak)
        && i.a.is_some()
        && i.a.class() == Class::R
        && cx.metrics.is_none()
        && shared::load_words(cx, cl, w, s, i, a)
    {
        return Ok(());
    }
    let addr = addresses(w, i);
    by_space(a.space, &addr, m, |space, addr, m| {
        match space {
            MemSpace::Shared => shared::load(cx, cl, w, s, i, a, addr, m)?,
            MemSpace::Local => stack::access(cx, w, s, i, a, addr, m, false)?,
            MemSpace::Param => param(cx, w, s, i, a, addr, m)?,
            _ => global(cx, cl, w, s, i, a, addr, m, false)?,
        }
        if a.order != Order::Weak {
            cx.polls = true;
            order::hear(cx, cl, w, space, addr, m, (a.scope, a.order == Order::Strong));
            coop::poll(cx, cl, w, s, addr, m)?;
        }
        Ok(())
    })
}

pub fn store(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    a: Access,
    m: u32,
) -> Result<(), Fault> {
    let addr = addresses(w, i);
    by_space(a.space, &addr, m, |space, addr, m| {
        if a.order != Order::Weak {
            order::tell(cx, cl, w, space, addr, m, a.order, a.scope);
        }
        match space {
            MemSpace::Shared => {
                shared::store(cx, cl, w, s, i, a, addr, m)?;
                if cx.watches(w, s) {
                    undefined_bytes::stored(cx, cl, w, s, i, a, addr, m);
                }
                Ok(())
            }
            MemSpace::Local => stack::access(cx, w, s, i, a, addr, m, true),
            MemSpace::Param => {
                cx.fault(w, s, m.trailing_zeros(), Kind::OutOfBounds, "a store to a kernel parameter", None)
            }
            _ => global(cx, cl, w, s, i, a, addr, m, true),
        }
    })
}

/// Calls `f` once for each memory space that the lanes' addresses belong to, with addresses relative to it.
pub fn by_space(
    space: MemSpace,
    addr: &[u64; 32],
    m: u32,
    mut f: impl FnMut(MemSpace, &[u64; 32], u32) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if space != MemSpace::Generic {
        return f(space, addr, m);
    }
    let mut rest = m;
    while rest != 0 {
        let sp = space_of(addr[rest.trailing_zeros() as usize]);
        let mine = lanes(rest).filter(|l| space_of(addr[*l]) == sp).fold(0, |b, l| b | 1 << l);
        let base = window(sp);
        f(sp, &addr.map(|v| v.wrapping_sub(base)), mine)?;
        rest &= !mine;
    }
    Ok(())
}

pub fn extend(v: u32, bytes: u8, sext: u8) -> u32 {
    match (bytes, sext) {
        (_, 0) => v,
        (1, 16) => v as u8 as i8 as i16 as u16 as u32,
        (1, _) => v as u8 as i8 as i32 as u32,
        (2, 32) => v as u16 as i16 as i32 as u32,
        _ => v,
    }
}

pub fn register_value(w: &Warp, r: Reg, lane: usize) -> u64 {
    if r.class() == Class::Q { w.regs.q(r)[lane] } else { u64::from(w.regs.r(r)[lane]) }
}

#[inline(always)]
pub fn put(w: &mut Warp, r: Reg, l: usize, v: u64, a: Access) {
    if r.class() == Class::Q {
        w.regs.q[w.regs.qb + r.slot()][l] = v;
    } else {
        w.regs.r[w.regs.rb + r.slot()][l] = extend(v as u32, a.bytes, a.sext);
    }
}

fn param(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, a: Access, addr: &[u64; 32], m: u32) -> Result<(), Fault> {
    let list = &cx.prog.funcs[s.func as usize].lists;
    let n = usize::from(a.bytes);
    // Almost always a parameter accessed by its name, with the same address for all lanes.
    let different = if i.a.is_some() { m } else { m & m.wrapping_neg() };
    if let Some(l) = lanes(different).find(|l| !addr[*l].is_multiple_of(n as u64)) {
        let message = format!("{n} bytes at byte {} of the parameters: not a multiple of {n}", addr[l] as i64);
        return cx.fault(w, s, l as u32, Kind::Misaligned, message, None);
    }
    let all = (!i.a.is_some() && a.sext == 0).then(|| addr[0] as usize);
    if let Some(bytes) = all.and_then(|at| cx.launch.params.get(at..)?.get(..n * usize::from(a.count))) {
        for (e, element) in bytes.chunks_exact(n).enumerate() {
            let mut v = [0u8; 8];
            v[..n].copy_from_slice(element);
            let (r, v) = (list[i.ext as usize + e], u64::from_le_bytes(v));
            match r.class() {
                Class::Q => w.regs.set_q(r, &[v; 32], m),
                _ => w.regs.set_r(r, &[v as u32; 32], m),
            }
        }
        return Ok(());
    }
    for l in lanes(m) {
        for e in 0..usize::from(a.count) {
            let at = (addr[l] as usize).saturating_add(e * n);
            let Some(b) = cx.launch.params.get(at..at.saturating_add(n)) else {
                return cx.fault(
                    w,
                    s,
                    l as u32,
                    Kind::OutOfBounds,
                    format!("parameter byte {at} of {}", cx.launch.params.len()),
                    None,
                );
            };
            let mut v = [0u8; 8];
            v[..n].copy_from_slice(b);
            put(w, list[i.ext as usize + e], l, u64::from_le_bytes(v), a);
        }
    }
    Ok(())
}

/// The allocation that holds the bytes of every active lane, if there is one.
#[inline(always)]
fn common(cx: &mut Cx<'_>, addr: &[u64; 32], m: u32, total: u64) -> Option<usize> {
    if cx.last_alloc < cx.mem.count() {
        let a = cx.mem.get(cx.last_alloc);
        if a.live && !a.heap && a.holds(addr, m, total) {
            return Some(cx.last_alloc);
        }
    }
    let (low, high) = lanes(m).fold((u64::MAX, 0), |(low, high), l| (addr[l].min(low), addr[l].max(high)));
    let k = cx.mem.find(low, (high - low).saturating_add(total)).ok()?;
    cx.last_alloc = k;
    Some(k)
}

/// The allocation that holds one lane's bytes, or the fault.
pub fn locate(cx: &Cx<'_>, w: &Warp, s: &Split, l: usize, addr: u64, n: u64, what: &str) -> Result<usize, Fault> {
    cx.mem.find(addr, n).or_else(|e| {
        let advice = if addr < 4096 { coop::advice(cx) } else { "" };
        let kind = if e == AccessError::Freed { Kind::UseAfterFree } else { Kind::OutOfBounds };
        let (bytes, place) = (report::bytes(n), cx.mem.describe(addr));
        cx.fault(w, s, l as u32, kind, format!("{what} of {bytes} at {place}{advice}"), Some(addr))
    })
}

/// The allocation that holds one lane's bytes for writing, or the fault.
pub fn locate_written(
    cx: &Cx<'_>,
    w: &Warp,
    s: &Split,
    l: usize,
    addr: u64,
    n: u64,
    what: &str,
) -> Result<usize, Fault> {
    let k = locate(cx, w, s, l, addr, n, what)?;
    writable(cx, w, s, l, k, addr, what)?;
    Ok(k)
}

fn writable(cx: &Cx<'_>, w: &Warp, s: &Split, l: usize, alloc: usize, addr: u64, what: &str) -> Result<(), Fault> {
    if !cx.mem.get(alloc).constant {
        return Ok(());
    }
    let message = format!("{what} to constant memory, which a kernel cannot write: {}", cx.mem.describe(addr));
    cx.fault(w, s, l as u32, Kind::OutOfBounds, message, Some(addr))
}

#[inline(always)]
fn store_at(al: &Alloc, at: usize, n: usize, v: u64) {
    match n {
        1 => al.store8(at, v as u8),
        2 => al.store16(at, v as u16),
        4 => al.store32(at, v as u32),
        _ => al.store64(at, v),
    }
}

/// Performs one lane's store.
fn keep(cx: &Cx<'_>, w: &Warp, s: &Split, i: &Inst, a: Access, (alloc, addr): (usize, u64), l: usize) {
    let (al, n) = (cx.mem.get(alloc), usize::from(a.bytes));
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..][..usize::from(a.count)];
    for (e, r) in list.iter().enumerate() {
        store_at(al, (addr - al.base) as usize + n * e, n, register_value(w, *r, l));
    }
}

fn global(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    a: Access,
    addr: &[u64; 32],
    m: u32,
    write: bool,
) -> Result<(), Fault> {
    let n = usize::from(a.bytes);
    let total = u64::from(a.bytes) * u64::from(a.count);
    let bits = if m == !0 {
        addr.iter().fold(0, |bits, addr| bits | addr)
    } else {
        lanes(m).fold(0, |bits, l| bits | addr[l])
    };
    if bits & (total - 1) != 0
        && let Some(l) = lanes(m).find(|l| addr[*l] & (total - 1) != 0)
    {
        return cx.fault(
            w,
            s,
            l as u32,
            Kind::Misaligned,
            format!("{total} bytes at an address that is not a multiple of {total}"),
            Some(addr[l]),
        );
    }
    // Constant memory is not global memory, and its reads have no sectors.
    let counted = cx.metrics.is_some() && !lanes(m).all(|l| misc::is_constant(cx, addr[l]));
    if let (Some(mx), true) = (&mut cx.metrics, counted) {
        mx.global(s.func, s.pc, addr, m, total as u32, write);
    }
    let one = common(cx, addr, m, total);
    if let (true, Some(k)) = (write, one) {
        let l = m.trailing_zeros() as usize;
        writable(cx, w, s, l, k, addr[l], "a store")?;
    }
    let checks = cx.opts.checks;
    let slow = checks.init || cx.global_shadow.is_some();
    let mut left = m;
    if one.is_none() || slow {
        let marks = match a.order {
            _ if a.constant => GStamp::CONSTANT,
            Order::Weak => 0,
            Order::Volatile => GStamp::VOLATILE,
            _ => strength(cl, a.scope),
        };
        let mut holes = 0;
        let rest = one.map_or(m, |alloc| pass(cx, cl, w, s, alloc, addr, m, (total, write, marks)));
        // Whoever sees the stamp of a store may wait for its value, so none waits with a value that has its stamp.
        if let (true, Some(k)) = (write && rest != 0, one) {
            lanes(m & !rest).for_each(|l| keep(cx, w, s, i, a, (k, addr[l]), l));
        }
        let mut values = Values { inst: i, access: a, addr, lanes: rest };
        for l in lanes(rest) {
            let k = match one {
                Some(k) => k,
                None if write => locate_written(cx, w, s, l, addr[l], total, "a store")?,
                None => locate(cx, w, s, l, addr[l], total, "a load")?,
            };
            if slow {
                let t = Touch { lane: l, alloc: k, addr: addr[l], bytes: total, write, marks };
                if !write && check_load(cx, w, s, t) {
                    holes |= 1 << l;
                }
                check_store(cx, cl, w, s, t, &values);
            }
            if write {
                keep(cx, w, s, i, a, (k, addr[l]), l);
            }
            values.lanes &= !(1 << l);
        }
        if holes != 0 {
            undefined::global_holes(cx, w, s, i, a, addr, holes);
        }
        if write && rest != 0 {
            left = 0;
        }
    }
    let list = &cx.prog.funcs[s.func as usize].lists;
    for e in 0..usize::from(a.count) {
        let r = list[i.ext as usize + e];
        let mem = cx.mem;
        if let (Some(k), 4) = (one, n) {
            let al = mem.get(k);
            let slot = &mut w.regs.r[w.regs.rb + r.slot()];
            // SAFETY: `common` found every active lane's bytes in the allocation, and all of them are aligned.
            let word = |l: usize| unsafe { al.word((addr[l] - al.base) as usize + 4 * e) };
            match (write, left == !0) {
                (false, true) => (0..32).for_each(|l| slot[l] = word(l).load(Relaxed)),
                (false, false) => lanes(left).for_each(|l| slot[l] = word(l).load(Relaxed)),
                (true, true) => (0..32).for_each(|l| word(l).store(slot[l], Relaxed)),
                (true, false) => lanes(left).for_each(|l| word(l).store(slot[l], Relaxed)),
            }
            continue;
        }
        for l in lanes(left) {
            let k = match one {
                Some(k) => k,
                None => locate(cx, w, s, l, addr[l], total, "an access")?,
            };
            let al = mem.get(k);
            let at = (addr[l] - al.base) as usize + n * e;
            if write {
                store_at(al, at, n, register_value(w, r, l));
            } else {
                let v = match n {
                    1 => u64::from(al.load8(at)),
                    2 => u64::from(al.load16(at)),
                    4 => u64::from(al.load32(at)),
                    _ => al.load64(at),
                };
                put(w, r, l, v, a);
            }
        }
    }
    if write && checks.init {
        for l in lanes(m) {
            if let Some(k) = one.or_else(|| cx.mem.find(addr[l], total).ok()) {
                let al = cx.mem.get(k);
                al.mark((addr[l] - al.base) as usize, total as usize);
            }
        }
        if cx.watches(w, s) {
            undefined_bytes::stored_far(cx, w, s, i, a, addr, m);
        }
    }
    Ok(())
}
