//! Checks of bulk operations when they are issued: bounds, and races on both sides.

use super::bulk::{BulkOp, Far, Target, rows};
use super::cx::Cx;
use super::global_check::{self, Touch, check_race};
use super::shared_check::first_hole;
use super::state::*;
use super::{early_exit, mbarrier_check, mem_ops, shared, shared_check};
use crate::check::global::GStamp;
use crate::check::race::{IN_FLIGHT, Stamp};
use crate::report::{Fault, Kind};

pub fn check(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, l: usize, op: &BulkOp) -> Result<(), Fault> {
    let what = if op.load { "a bulk load" } else { "a bulk store" };
    for t in &op.targets {
        let end = t.off as usize + op.bytes();
        if end > cl.blocks[t.block as usize].shared.len() {
            return cx.fault(
                w,
                s,
                l as u32,
                Kind::OutOfBounds,
                format!("{what} of {} bytes at shared address {:#x}: past the end", op.bytes(), t.off),
                Some(t.off.into()),
            );
        }
    }
    far(cx, cl, w, s, l, op, what)?;
    for t in &op.targets {
        let mut me = Stamp::new(w.agent, l as u8, IN_FLIGHT, cx.number(s), Stamp::PROXY);
        if op.load {
            // `st.async` belongs to the generic proxy.
            let generic = matches!(op.far, Far::Value(_));
            mbarrier_check::check_visible(cx, cl, w, s, l, t.bar, generic);
            // Reductions into shared memory do not race with each other.
            let marks = match op.reduce {
                Some(_) => Stamp::STRONG,
                None if generic => 0,
                None => Stamp::PROXY,
            };
            me = load_stamp(cl, cx.number(s), *t, marks);
        }
        let at = (t.block as usize, t.off as usize);
        if !op.load || op.reduce.is_some() {
            let hole = |init: &[u64]| hole(init, op, at.1);
            check_init(cx, cl, w, s, l, at.0, hole, if op.load { "adds to" } else { "stores" });
        }
        near(cx, cl, w, s, l, at, op.bytes(), me, op.load);
    }
    Ok(())
}

/// Checks the other side of an operation.
fn far(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, l: usize, op: &BulkOp, what: &str) -> Result<(), Fault> {
    if let Far::Peer { block, off, bytes } = op.far {
        // Its own mbarrier signals when the source has been read.
        let (me, at) = (load_stamp(cl, cx.number(s), op.targets[0], Stamp::PROXY), (block as usize, off as usize));
        check_init(cx, cl, w, s, l, at.0, |init| first_hole(init, at.1, bytes), "stores");
        near(cx, cl, w, s, l, at, bytes, me, false);
    }
    let mut spans = vec![];
    op.spans(|addr, bytes| spans.push((addr, bytes)));
    for (addr, bytes) in spans {
        let (write, mut marks) = (!op.load, GStamp::PROXY);
        let alloc = match write {
            true => mem_ops::locate_written(cx, w, s, l, addr, bytes, what)?,
            false => mem_ops::locate(cx, w, s, l, addr, bytes, what)?,
        };
        if write {
            marks |= GStamp::IN_FLIGHT | if op.reduce.is_some() { GStamp::STRONG } else { 0 };
        }
        let t = Touch { lane: l, alloc, addr, bytes, write, marks };
        if op.load || op.reduce.is_some() {
            global_check::check_init(cx, w, s, t);
        }
        check_race(cx, cl, w, s, t, |_| false);
    }
    if let (Some(c), Far::Linear { .. } | Far::Tensor { .. }, true) = (&mut cl.clocks, &op.far, op.load) {
        let mut end = |t: &Target| (c.mbar_agent(t.bar.0, t.bar.1), c.mbar(t.bar.0, t.bar.1).phase + 1);
        let ends = op.targets.iter().map(&mut end).collect();
        c.copies(w.agent, l, ends);
    }
    Ok(())
}

/// The identity, in the race shadow, of a copy that completes on an mbarrier: the copy is complete when that phase is.
fn load_stamp(cl: &mut Cluster, number: u32, t: Target, marks: u64) -> Stamp {
    let Some(c) = &mut cl.clocks else { return Stamp::NOBODY };
    let agent = c.mbar_agent(t.bar.0, t.bar.1);
    let time = c.mbar(t.bar.0, t.bar.1).phase + 1;
    Stamp::new(agent, 0, time, number, marks)
}

/// initcheck of the shared memory that an operation reads or adds to; `hole` finds the first uninitialised byte.
fn check_init(
    cx: &mut Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    block: usize,
    hole: impl Fn(&[u64]) -> Option<usize>,
    verb: &str,
) {
    if !cx.opts.checks.init {
        return;
    }
    if let Some(off) = hole(&cl.blocks[block].shared_init) {
        cx.report(w, s, l as u32, Kind::UninitialisedShared, Some(off as u64), None, |cx| {
            format!("{verb} shared memory at {off:#x} that nobody wrote{}", shared::describe(cx, off))
        });
    }
}

/// The first uninitialised byte among those that an operation copies from shared memory, or adds to, starting at `off`. For a box, only the
/// bytes inside the tensor count.
fn hole(init: &[u64], op: &BulkOp, off: usize) -> Option<usize> {
    let first = first_hole(init, off, op.bytes())?;
    let Far::Tensor { map, at, off: offsets } = &op.far else { return Some(first) };
    let (mut found, size) = (None, map.data_type.bytes());
    rows(map, at, offsets, |row, _, lo, hi| {
        let (mut from, end) = (row + lo * size, row + hi * size);
        // The swizzle permutes chunks of 16 bytes.
        while from < end && found.is_none() {
            let (piece, skip) = (from / 16 * 16, from % 16);
            let n = (16 - skip).min(end - from);
            found = first_hole(init, map.swizzle.apply(off + piece) + skip, n);
            from += n;
        }
    });
    found
}

/// Checks the shared-memory side of an operation.
fn near(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    (block, off): (usize, usize),
    n: usize,
    me: Stamp,
    write: bool,
) {
    let Cluster { blocks, clocks, .. } = cl;
    let blk = &mut blocks[block];
    let (Some(shadow), Some(c)) = (&mut blk.shadow, clocks) else { return };
    let found = shadow.access(c, w.party(1 << l), me, off, n, write);
    // A thread's own stores end with the thread: `finish` checks them.
    let visits = !c.is_warp(me.agent()) || block != w.block;
    if let Some(conflict) = found {
        shared_check::report(cx, w, s, l, conflict, write, off);
    }
    if visits {
        early_exit::visit(cx, cl, w, s, l, block, me, write);
    }
}
