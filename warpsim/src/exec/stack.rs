//! Local memory, which grows while a function runs.

use super::cx::Cx;
use super::mem_ops::{lanes, put, register_value};
use super::state::*;
use super::{undefined, undefined_bytes};
use crate::ir::*;
use crate::report::{Fault, Kind};
use crate::zeroed::zeroed;

const MAX_LOCAL: usize = 1 << 20;

/// Records that this many bytes of the lanes' local memory are written, or are uninitialised.
pub fn mark(w: &mut Warp, at: usize, n: usize, m: u32, written: bool) {
    if n == 0 || w.local_init.is_empty() {
        return;
    }
    for l in lanes(m) {
        let base = l * w.local_stride + at;
        w.local_init[base..base + n].fill(written);
    }
}

/// Makes room for `need` bytes of local memory in every lane.
pub fn reserve(cx: &Cx<'_>, w: &mut Warp, need: usize) -> Result<(), (Kind, String)> {
    if need <= w.local_stride {
        return Ok(());
    }
    let stride = need.next_power_of_two().max(256);
    if stride > MAX_LOCAL {
        return Err((Kind::OutOfBounds, "local memory is exhausted: recursion too deep?".into()));
    }
    let bigger = zeroed(stride as u64 * 32).map_err(|error| (Kind::OutOfMemory, error.to_string()))?;
    let mut bigger = bigger.into_vec();
    let mut marks = vec![false; if cx.opts.checks.init { 32 * stride } else { 0 }];
    for l in 0..32 {
        let old = l * w.local_stride..(l + 1) * w.local_stride;
        let new = l * stride..l * stride + old.len();
        bigger[new.clone()].copy_from_slice(&w.local[old.clone()]);
        if cx.opts.checks.init && !w.local_init.is_empty() {
            marks[new].copy_from_slice(&w.local_init[old]);
        }
    }
    (w.local, w.local_init, w.local_stride) = (bigger, marks, stride);
    Ok(())
}

/// `alloca`: allocates bytes at the stack pointer in `b`.
pub fn alloca(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) -> Result<(), Fault> {
    let align = i.imm as usize;
    let mut at = [0u32; 32];
    let mut top = *w.regs.r(i.b);
    for l in lanes(m) {
        let size = if i.a.class() == Class::Q { w.regs.q(i.a)[l] } else { u64::from(w.regs.r(i.a)[l]) };
        let start = (top[l] as usize).next_multiple_of(align);
        let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        if let Err((kind, e)) = reserve(cx, w, end.min(MAX_LOCAL + 1)) {
            return cx.fault(w, s, l as u32, kind, format!("alloca of {size} bytes: {e}"), None);
        }
        mark(w, start, end - start, 1 << l, false);
        (at[l], top[l]) = (start as u32, end as u32);
    }
    let d = cx.prog.funcs[s.func as usize].lists[i.ext as usize];
    w.regs.set_r(d, &top, m);
    if i.d.class() == Class::Q {
        w.regs.set_q(i.d, &at.map(u64::from), m);
    } else {
        w.regs.set_r(i.d, &at, m);
    }
    Ok(())
}

/// The end of a lane's local memory: after the running function's frame, and what it has allocated.
pub fn end(cx: &Cx<'_>, w: &Warp, s: &Split, l: usize) -> usize {
    let code = &cx.prog.funcs[s.func as usize];
    let end = match code.stack_top.is_some() {
        true => w.regs.r(code.stack_top)[l] as usize,
        false => s.bases.lb + code.frame_bytes as usize,
    };
    end.min(w.local_stride)
}

/// The start of a called function's frame: after the caller's frame, and everything that its lanes have allocated.
pub fn frame_end(cx: &Cx<'_>, w: &Warp, s: &Split) -> usize {
    let code = &cx.prog.funcs[s.func as usize];
    let fixed = s.bases.lb + code.local_bytes as usize;
    if !code.stack_top.is_some() {
        return fixed;
    }
    let top = w.regs.r(code.stack_top);
    lanes(s.mask).map(|l| top[l] as usize).fold(fixed, usize::max).next_multiple_of(16)
}

/// A load or store of local memory.
pub fn access(
    cx: &mut Cx<'_>,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    a: Access,
    addr: &[u64; 32],
    m: u32,
    write: bool,
) -> Result<(), Fault> {
    let code = &cx.prog.funcs[s.func as usize];
    let list = &code.lists;
    let (ext, n, total) = (i.ext as usize, usize::from(a.bytes), usize::from(a.bytes) * usize::from(a.count));
    for l in lanes(m) {
        let at = addr[l] as usize;
        let end = end(cx, w, s, l);
        if addr[l].saturating_add(total as u64) > end as u64 {
            let message = format!(
                "{total} bytes at local address {:#x}, and the thread's local memory ends at {end:#x} here: an index past the end of \
                 an array?",
                addr[l]
            );
            return cx.fault(w, s, l as u32, Kind::OutOfBounds, message, Some(addr[l]));
        }
        if !at.is_multiple_of(total) {
            return cx.fault(
                w,
                s,
                l as u32,
                Kind::Misaligned,
                format!("{total} bytes at a local address that is not a multiple of {total}"),
                Some(addr[l]),
            );
        }
        let base = l * w.local_stride + at;
        for e in 0..usize::from(a.count) {
            let r = list[ext + e];
            let span = base + e * n..base + (e + 1) * n;
            if write {
                let v = register_value(w, r, l).to_le_bytes();
                if cx.opts.checks.init {
                    if undefined::known(w, code, r, l) {
                        w.local_init[span.clone()].fill(true);
                    } else {
                        let known = undefined_bytes::known(w, code, r, l);
                        (0..n).for_each(|b| w.local_init[span.start + b] = known >> b & 1 == 1);
                    }
                }
                w.local[span].copy_from_slice(&v[..n]);
            } else {
                let mut v = [0u8; 8];
                v[..n].copy_from_slice(&w.local[span.clone()]);
                put(w, r, l, u64::from_le_bytes(v), a);
                if cx.opts.checks.init && w.local_init[span.clone()].contains(&false) {
                    let bytes = undefined::bytes(n, |b| w.local_init[span.start + b]);
                    undefined::hole(w, s, code, r, l, a, e, bytes);
                }
            }
        }
    }
    Ok(())
}
