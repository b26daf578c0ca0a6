//! Block barriers (`bar`, `barrier`).

use super::cx::Cx;
use super::run::Flow;
use super::state::*;
use crate::check::bar::Came;
use crate::ir::{Inst, Reg, VoteMode};
use crate::report::{Earlier, Fault, Kind};

type Wide = Result<Flow, Fault>;

struct Arrival {
    id: u32,
    phase: u32,
}

pub fn sync(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32, aligned: bool) -> Wide {
    let a = enter(cx, cl, w, s, i, m, (aligned, true), None)?;
    Ok(Flow::Block(Wait::Bar { id: a.id, phase: a.phase }))
}

pub fn arrive(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32, aligned: bool) -> Wide {
    enter(cx, cl, w, s, i, m, (aligned, false), None)?;
    Ok(Flow::Next)
}

pub fn reduce(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    mode: VoteMode,
    aligned: bool,
) -> Wide {
    let a = enter(cx, cl, w, s, i, m, (aligned, true), Some(w.regs.pred(i.c)))?;
    Ok(Flow::Block(Wait::BarRed {
        id: a.id,
        phase: a.phase,
        d: i.d,
        ballot: mode == VoteMode::Ballot,
        all: mode == VoteMode::All,
    }))
}

fn enter(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    (aligned, waits): (bool, bool),
    p: Option<u32>,
) -> Result<Arrival, Fault> {
    let lane = m.trailing_zeros();
    let id = w.regs.r(i.a)[lane as usize];
    if id > 15 {
        return cx.fault(
            w,
            s,
            lane,
            Kind::BarrierMisuse,
            format!("barrier {id} does not exist: there are 0 to 15"),
            None,
        );
    }
    let expected = if i.b.is_some() { w.regs.r(i.b)[lane as usize] } else { 0 };
    if i.b.is_some() && (expected == 0 || expected % 32 != 0) {
        return cx.fault(
            w,
            s,
            lane,
            Kind::BarrierCount,
            format!("a barrier for {expected} threads: a multiple of 32 is needed"),
            None,
        );
    }
    if let Some(c) = &mut cl.clocks {
        let unordered = c.bar_arrive(w.party(m), w.block, id, (cx.number(s), waits));
        if let (Some(came), true) = (unordered, cx.opts.checks.sync) {
            reused(cx, cl, w, s, lane, (id, expected), came);
        }
    }
    let total = cl.blocks[w.block].warps.len() as u32 * 32;
    let bar = &mut cl.blocks[w.block].bars[id as usize];
    if bar.lanes.is_empty() {
        bar.lanes = vec![0; total as usize / 32];
    }
    if bar.open && bar.reduces != p.is_some() && cx.opts.checks.sync {
        cx.report(w, s, lane, Kind::BarrierMisuse, None, None, |_| {
            let (there, here) =
                if p.is_some() { ("others wait or arrive at", "reduces") } else { ("others reduce at", "does not") };
            format!("{there} barrier {id} while this thread {here}: what comes of it is not defined")
        });
    }
    let bar = &mut cl.blocks[w.block].bars[id as usize];
    if !bar.open {
        (bar.open, bar.expected, bar.reduces) = (true, expected, p.is_some());
        (bar.popc, bar.all, bar.any) = (0, true, false);
    } else if bar.expected != expected && cx.opts.checks.sync {
        let (old, new) = (bar.expected, expected);
        cx.report(w, s, lane, Kind::BarrierCount, None, None, |_| {
            format!("barrier {id} is waiting for {}, this arrival names {}", threads(old), threads(new))
        });
    }
    if bar.lanes[w.id] & m != 0 && cx.opts.checks.sync {
        cx.report(w, s, lane, Kind::BarrierMisuse, None, None, |_| {
            format!("these threads arrive again at barrier {id} before its phase is over")
        });
    }
    if cx.opts.checks.sync && aligned && m != w.alive {
        let at = Split { mask: m, ..s.clone() };
        let elsewhere = |k: &(usize, Split)| k.0 == w.id && (k.1.pc, k.1.func) != (s.pc, s.func);
        if bar.partial.iter().any(elsewhere) {
            divergent(cx, w, &at, id);
        } else {
            bar.partial.push((w.id, at));
        }
    }
    bar.lanes[w.id] |= m;
    if let Some(p) = p {
        bar.popc += (p & m).count_ones();
        bar.all &= p & m == m;
        bar.any |= p & m != 0;
    }
    let a = Arrival { id, phase: bar.phase };
    settle(cx, cl, w.block, id, w);
    Ok(a)
}

/// Reports a barrier that is used again while threads of its last phase may not have arrived there yet.
fn reused(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, lane: u32, (id, expected): (u32, u32), came: Came) {
    let bar = &cl.blocks[w.block].bars[id as usize];
    let kind = if bar.last == expected { Kind::BarrierMisuse } else { Kind::BarrierCount };
    let warps = cl.blocks[w.block].warps.len();
    let [x, y, z] = cx.thread(came.agent % warps, came.lane.into());
    let earlier = Earlier { place: cx.place_of(came.number), who: format!("thread ({x},{y},{z})"), write: false };
    let last = bar.last;
    cx.report(w, s, lane, kind, None, Some(earlier), |_| {
        format!(
            "barrier {id} has been for {}, and nothing orders this arrival, for {}, behind theirs: it may be counted among them. Use \
             another barrier, or let those of both wait for each other in between",
            threads(last),
            threads(expected)
        )
    });
}

fn threads(expected: u32) -> String {
    if expected == 0 { "all threads".into() } else { format!("{expected} threads") }
}

/// Reports an aligned barrier that some of the warp's lanes do not reach, or reach at another instruction.
fn divergent(cx: &mut Cx<'_>, w: &Warp, s: &Split, id: u32) {
    let (here, missing) = (s.mask, w.alive & !s.mask);
    cx.report(w, s, here.trailing_zeros(), Kind::DivergentBarrier, None, None, |_| {
        format!(
            "only lanes {here:#010x} of the warp reach barrier {id}; lanes {missing:#010x} are elsewhere: take it out of the \
             branch that they take differently"
        )
    });
}

/// Completes the barrier's phase when all threads have arrived; `current` is the running warp.
fn settle(cx: &mut Cx<'_>, cl: &mut Cluster, block: usize, id: u32, current: &Warp) {
    let b = &mut cl.blocks[block];
    let warp = |k: usize| match &b.warps[k] {
        Some(w) => Some(&**w),
        None if current.id == k => Some(current),
        None => None,
    };
    let bar = &mut b.bars[id as usize];
    if !bar.open {
        return;
    }
    let mut arrived = 0;
    for (k, lanes) in bar.lanes.iter().enumerate() {
        let alive = warp(k).map_or(0, |w| w.alive);
        let whole = lanes & alive == alive && (*lanes != 0 || (bar.expected == 0 && alive == 0));
        arrived += if whole { 32 } else { lanes.count_ones() };
    }
    let expected = if bar.expected == 0 { bar.lanes.len() as u32 * 32 } else { bar.expected };
    if arrived >= expected {
        bar.phase = bar.phase.wrapping_add(1);
        bar.open = false;
        bar.last = bar.expected;
        bar.result = (bar.popc, bar.all, bar.any);
        for (k, s) in std::mem::take(&mut bar.partial) {
            match warp(k) {
                Some(w) if bar.lanes[k] & w.alive != w.alive => divergent(cx, w, &s, id),
                _ => {}
            }
        }
        bar.lanes.fill(0);
        cl.events += 1;
        if let Some(c) = &mut cl.clocks {
            c.bar_complete(block, id);
        }
    }
}

/// Reports the barriers that wait for the remaining lanes of a warp, when no thread can go on.
pub fn report_partial(cx: &mut Cx<'_>, cl: &mut Cluster) {
    for b in &mut cl.blocks {
        for id in 0..16 {
            for (k, s) in std::mem::take(&mut b.bars[id].partial) {
                match &b.warps[k] {
                    Some(w) if b.bars[id].lanes[k] & w.alive != w.alive => divergent(cx, w, &s, id as u32),
                    _ => {}
                }
            }
        }
    }
}

/// Called after lanes have exited: completes barriers that no longer have to wait for them.
pub fn after_exit(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp) {
    for id in 0..16 {
        if cl.blocks[w.block].bars[id].open {
            settle(cx, cl, w.block, id as u32, w);
        }
    }
}

pub fn write_reduction(cl: &mut Cluster, w: &mut Warp, s: &Split, id: u32, d: Reg, ballot: bool, all: bool) {
    let (popc, and, or) = cl.blocks[w.block].bars[id as usize].result;
    if ballot {
        w.regs.set_r(d, &[popc; 32], s.mask);
    } else {
        let v = if all { and } else { or };
        w.regs.set_pred(d, if v { !0 } else { 0 }, s.mask);
    }
}
