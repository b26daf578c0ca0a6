//! Shared-memory access with its checks.

use super::cx::Cx;
use super::mem_ops::{lanes, put, register_value};
use super::shared_check::check;
use super::state::*;
use super::undefined;
use crate::ir::*;
use crate::report::{Fault, Kind};

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
    if addr >> 32 != 0 || b >= cl.blocks.len() || off + n > cl.blocks[b].shared.len() || !cx.launch.owns(off, n) {
        // A negative index: no shared window is as large as 16 MiB.
        let before =
            (addr >> 32 == 0).then(|| (addr as u32).wrapping_neg()).filter(|bytes| (1..=1 << 24).contains(bytes));
        let vars = before.map_or_else(|| describe(cx, off), |bytes| format!(" ({bytes} bytes before its start)"));
        let have = cx.launch.shared_bytes;
        return cx.fault(
            w,
            s,
            l as u32,
            Kind::OutOfBounds,
            format!("{n} bytes at shared address {addr:#x} of {have} bytes{vars}"),
            Some(addr),
        );
    }
    if b != w.block && cx.prog.funcs[s.func as usize].insts[s.pc as usize].own {
        return elsewhere(cx, w, s, l, addr, b);
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

/// The fault of an instruction that only accesses the thread's own block, but is given an address in another block.
pub fn elsewhere<T>(cx: &Cx<'_>, w: &Warp, s: &Split, l: usize, addr: u64, block: usize) -> Result<T, Fault> {
    let what = format!("shared address {addr:#x} is in the block of rank {block}, which takes .shared::cluster");
    cx.fault(w, s, l as u32, Kind::OutOfBounds, what, Some(addr))
}

/// Describes an offset in shared memory, ` (byte 4 of `tile`)`: the last static variable that begins before it, or dynamic memory.
pub fn describe(cx: &Cx<'_>, off: usize) -> String {
    let l = cx.launch;
    let dynamic = off >= l.dyn_offset as usize;
    if dynamic && l.dynamic_shared == 0 && cx.prog.dyn_align > 0 {
        return " (dynamic shared memory, of which the launch has none)".into();
    }
    let (at, size, name) = if dynamic && l.dynamic_shared > 0 {
        (l.dyn_offset, l.dynamic_shared, "dynamic shared memory".into())
    } else {
        let before = cx.prog.shared_vars.iter().filter(|v| v.0 as usize <= off).max_by_key(|v| v.0);
        let Some((at, size, name)) = before else { return String::new() };
        (*at, *size, format!("`{name}`"))
    };
    match off - at as usize {
        byte if byte < size as usize => format!(" (byte {byte} of {name})"),
        byte => format!(" ({} bytes past the end of {name})", byte - size as usize),
    }
}

/// Whether all active lanes access their own block, in bounds and aligned: the common case.
#[inline(always)]
fn in_block(cl: &Cluster, w: &Warp, at: &[u32; 32], m: u32, total: usize) -> bool {
    const WINDOW: usize = 1 << 24;
    let Some(last) = cl.blocks[w.block].shared.len().min(WINDOW).checked_sub(total) else { return false };
    let (mut bits, mut past) = (0, 0);
    // Both are far below 2³¹, so their difference is negative for accesses past the end.
    let mut look = |at: u32| {
        bits |= at;
        past |= (last as u32).wrapping_sub(at);
    };
    if m == !0 {
        at.iter().for_each(|at| look(*at));
    } else {
        lanes(m).for_each(|l| look(at[l]));
    }
    (bits as usize) < WINDOW && bits as usize & (total - 1) == 0 && past as i32 >= 0
}

/// Whether the active lanes, which access their own block, access its variables only.
#[inline(always)]
fn owned(cx: &Cx<'_>, at: &[u32; 32], m: u32, total: usize) -> bool {
    cx.launch.owned.is_empty() || in_variables(cx, at, m, total)
}

/// See [`owned`]. Usually all lanes access the same variable.
#[inline(never)]
fn in_variables(cx: &Cx<'_>, at: &[u32; 32], m: u32, total: usize) -> bool {
    let (mut first, mut last) = (u32::MAX, 0);
    if m == !0 {
        for &at in at {
            (first, last) = (first.min(at), last.max(at));
        }
        let end = last + total as u32;
        if cx.prog.shared_vars.iter().any(|(at, bytes, _)| *at <= first && end <= at + bytes) {
            return true;
        }
    }
    lanes(m).all(|l| cx.launch.owns(at[l] as usize, total))
}

/// Checks the addresses of a load or store one by one unless all are `near`, and truncates them to the width of shared addresses.
#[inline(always)]
fn settle(
    cx: &Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    addr: &[u64; 32],
    m: u32,
    total: usize,
) -> Result<([u32; 32], bool), Fault> {
    let mut at = [0; 32];
    for l in 0..32 {
        at[l] = addr[l] as u32;
    }
    let near = lanes(m).all(|l| addr[l] >> 32 == 0) && in_block(cl, w, &at, m, total) && owned(cx, &at, m, total);
    if !near {
        for l in lanes(m) {
            locate(cx, cl, w, s, l, addr[l], total, total)?;
        }
    }
    Ok((at, near))
}

/// A [`load`] of 32-bit elements by a whole warp with 32-bit addresses: the common case. Does nothing if one of the addresses is not in the
/// thread's own block.
#[inline]
pub fn load_words(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, a: Access) -> bool {
    let total = 4 * usize::from(a.count);
    let mut at = *w.regs.r(i.a);
    for at in &mut at {
        *at = at.wrapping_add(i.imm as u32);
    }
    if !in_block(cl, w, &at, !0, total) || !owned(cx, &at, !0, total) {
        return false;
    }
    let holes = check(cx, cl, w, s, &at, !0, total, a, None);
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..][..usize::from(a.count)];
    // SAFETY: `in_block` has checked `total` bytes for each lane.
    unsafe { words(cl, w, list, &at, !0) };
    if holes != 0 {
        undefined::shared_holes(cx, cl, w, s, i, a, &at, holes);
    }
    true
}

/// Loads words from the thread's own block.
///
/// # Safety
///
/// From each active lane's address on, the block must contain as many words as `list` has registers.
#[inline(always)]
unsafe fn words(cl: &Cluster, w: &mut Warp, list: &[Reg], at: &[u32; 32], m: u32) {
    let words = cl.blocks[w.block].shared.as_chunks::<4>().0;
    for (e, r) in list.iter().enumerate() {
        let d = &mut w.regs.r[w.regs.rb + r.slot()];
        // SAFETY: the caller's.
        let get = |at: u32| u32::from_le_bytes(unsafe { *words.get_unchecked(at as usize / 4 + e) });
        if m == !0 {
            for l in 0..32 {
                d[l] = get(at[l]);
            }
        } else {
            lanes(m).for_each(|l| d[l] = get(at[l]));
        }
    }
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
    let (at, near) = settle(cx, cl, w, s, addr, m, n * count)?;
    if let Some(mx) = &mut cx.metrics {
        mx.shared(s.func, s.pc, addr, m, (n * count) as u32, false);
    }
    let holes = check(cx, cl, w, s, &at, m, n * count, a, None);
    if holes != 0 {
        undefined::shared_holes(cx, cl, w, s, i, a, &at, holes);
    }
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..][..count];
    if near && n == 4 {
        // SAFETY: `settle` has checked `n * count` bytes for each active lane.
        unsafe { words(cl, w, list, &at, m) };
        return Ok(());
    }
    for (e, r) in list.iter().enumerate() {
        for l in lanes(m) {
            let (b, off) = split(w.block, at[l].into());
            put(w, *r, l, read(&cl.blocks[b].shared, off + n * e, n), a);
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
    let (at, near) = settle(cx, cl, w, s, addr, m, n * count)?;
    if let Some(mx) = &mut cx.metrics {
        mx.shared(s.func, s.pc, addr, m, (n * count) as u32, true);
    }
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..][..count];
    check(cx, cl, w, s, &at, m, n * count, a, Some(list));
    for (e, r) in list.iter().enumerate() {
        if near && n == 4 {
            let words = cl.blocks[w.block].shared.as_chunks_mut::<4>().0;
            let v = &w.regs.r[w.regs.rb + r.slot()];
            lanes(m).for_each(|l| words[at[l] as usize / 4 + e] = v[l].to_le_bytes());
            continue;
        }
        for l in lanes(m) {
            let v = register_value(w, *r, l);
            let (b, off) = split(w.block, at[l].into());
            let to = off + n * e;
            cl.blocks[b].shared[to..to + n].copy_from_slice(&v.to_le_bytes()[..n]);
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
