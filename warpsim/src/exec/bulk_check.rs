//! Checks of bulk operations when they are issued: bounds, and both sides for the race checkers.

use super::bulk::{BulkOp, Far, Target};
use super::cx::Cx;
use super::global_check::{Touch, check_init, check_race};
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
            // `st.async` is of the generic proxy.
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
        near(
            cx,
            cl,
            w,
            s,
            l,
            (t.block as usize, t.off as usize),
            op.bytes(),
            me,
            op.load,
            op.load && op.reduce.is_some(),
        );
    }
    Ok(())
}

/// Checks the far side of an operation.
fn far(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, l: usize, op: &BulkOp, what: &str) -> Result<(), Fault> {
    if let Far::Peer { block, off, bytes } = op.far {
        // Its own mbarrier says when it has been read.
        let (me, at) = (load_stamp(cl, cx.number(s), op.targets[0], Stamp::PROXY), (block as usize, off as usize));
        near(cx, cl, w, s, l, at, bytes, me, false, false);
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
            check_init(cx, w, s, t);
        }
        check_race(cx, cl, w, s, t, |_, _| false);
    }
    if let (Some(c), Far::Linear { .. } | Far::Tensor { .. }, true) = (&mut cl.clocks, &op.far, op.load) {
        let mut end = |t: &Target| (c.mbar_agent(t.bar.0, t.bar.1), c.mbar(t.bar.0, t.bar.1).phase + 1);
        let ends = op.targets.iter().map(&mut end).collect();
        c.copies(w.agent, l, ends);
    }
    Ok(())
}

/// How the race shadow knows a copy that completes on an mbarrier: it is over when that phase is.
fn load_stamp(cl: &mut Cluster, number: u32, t: Target, marks: u64) -> Stamp {
    let Some(c) = &mut cl.clocks else { return Stamp::NOBODY };
    let agent = c.mbar_agent(t.bar.0, t.bar.1);
    let time = c.mbar(t.bar.0, t.bar.1).phase + 1;
    Stamp::new(agent, 0, time, number, marks)
}

/// Checks one shared side of an operation, which `adds` to what is there or else only reads or writes it.
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
    adds: bool,
) {
    let Cluster { blocks, clocks, .. } = cl;
    let blk = &mut blocks[block];
    if (!write || adds) && cx.opts.checks.init && !shared_check::marked(&blk.shared_init, off, n) {
        cx.report(w, s, l as u32, Kind::UninitialisedShared, Some(off as u64), None, |cx| {
            let verb = if adds { "adds to" } else { "stores" };
            format!("{verb} shared memory at {off:#x} that nobody wrote{}", shared::describe(cx, off))
        });
    }
    let (Some(shadow), Some(c)) = (&mut blk.shadow, clocks) else { return };
    let found = shadow.access(c, w.party(1 << l), me, off, n, write);
    // A thread's own stores end with the thread: `finish` looks after them.
    let visits = !c.is_warp(me.agent()) || block != w.block;
    if let Some(conflict) = found {
        shared_check::report(cx, w, s, l, conflict, write, off);
    }
    if visits {
        early_exit::visit(cx, cl, w, s, l, block, me, write);
    }
}
