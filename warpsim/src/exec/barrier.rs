//! Block barriers (`bar`, `barrier`) and the cluster barrier.

use super::cx::Cx;
use super::run::Flow;
use super::state::*;
use crate::ir::{Inst, Reg, VoteMode};
use crate::report::{Fault, Kind};

type Wide = Result<Flow, Fault>;

struct Arrival {
    id: u32,
    phase: u32,
}

pub fn sync(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32, aligned: bool) -> Wide {
    let a = enter(cx, cl, w, s, i, m, aligned, None)?;
    Ok(Flow::Block(Wait::Bar { id: a.id, phase: a.phase }))
}

pub fn arrive(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32, aligned: bool) -> Wide {
    enter(cx, cl, w, s, i, m, aligned, None)?;
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
    let a = enter(cx, cl, w, s, i, m, aligned, Some(w.regs.pred(i.c)))?;
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
    aligned: bool,
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
    if cx.opts.checks.sync && aligned && m != w.alive {
        let missing = w.alive & !m;
        cx.report(w, s, lane, Kind::DivergentBarrier, None, None, |_| {
            format!("only lanes {m:#010x} of the warp reach barrier {id}; lanes {missing:#010x} are elsewhere")
        });
    }
    if let Some(c) = &mut cl.clocks {
        c.bar_arrive(w.party(m), w.block, id);
    }
    let total = cl.blocks[w.block].warps.len() as u32 * 32;
    let bar = &mut cl.blocks[w.block].bars[id as usize];
    if bar.lanes.is_empty() {
        bar.lanes = vec![0; total as usize / 32];
    }
    if !bar.open {
        (bar.open, bar.expected) = (true, expected);
        (bar.popc, bar.all, bar.any) = (0, true, false);
    } else if bar.expected != expected && cx.opts.checks.sync {
        let (old, new) = (bar.expected, expected);
        cx.report(w, s, lane, Kind::BarrierCount, None, None, |_| {
            let say = |n: u32| if n == 0 { "all threads".to_string() } else { format!("{n} threads") };
            format!("barrier {id} is waiting for {}, this arrival names {}", say(old), say(new))
        });
    }
    if bar.lanes[w.id] & m != 0 && cx.opts.checks.sync {
        cx.report(w, s, lane, Kind::BarrierMisuse, None, None, |_| {
            format!("these threads arrive again at barrier {id} before its phase is over")
        });
    }
    bar.lanes[w.id] |= m;
    if let Some(p) = p {
        bar.popc += (p & m).count_ones();
        bar.all &= p & m == m;
        bar.any |= p & m != 0;
    }
    let a = Arrival { id, phase: bar.phase };
    settle(cl, w.block, id, Some(w));
    Ok(a)
}

/// Finishes the barrier's phase when everybody has arrived.
fn settle(cl: &mut Cluster, block: usize, id: u32, current: Option<&Warp>) {
    let b = &mut cl.blocks[block];
    let alive: Vec<u32> = b
        .warps
        .iter()
        .enumerate()
        .map(|(k, w)| match (w, current) {
            (Some(w), _) => w.alive,
            (None, Some(c)) if c.id == k => c.alive,
            _ => 0,
        })
        .collect();
    let bar = &mut b.bars[id as usize];
    if !bar.open {
        return;
    }
    let mut arrived = 0;
    for (k, lanes) in bar.lanes.iter().enumerate() {
        let whole = lanes & alive[k] == alive[k] && (*lanes != 0 || (bar.expected == 0 && alive[k] == 0));
        arrived += if whole { 32 } else { lanes.count_ones() };
    }
    let expected = if bar.expected == 0 { bar.lanes.len() as u32 * 32 } else { bar.expected };
    if arrived >= expected {
        bar.phase = bar.phase.wrapping_add(1);
        bar.open = false;
        bar.result = (bar.popc, bar.all, bar.any);
        bar.lanes.fill(0);
        cl.events += 1;
        if let Some(c) = &mut cl.clocks {
            c.bar_complete(block, id);
        }
    }
}

/// After lanes exited: barriers that no longer wait for them.
pub fn after_exit(cl: &mut Cluster, w: &Warp) {
    for id in 0..16 {
        let bar = &cl.blocks[w.block].bars[id];
        if bar.open && bar.expected == 0 {
            settle(cl, w.block, id as u32, Some(w));
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

pub fn cluster_arrive(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, m: u32, relaxed: bool) -> Wide {
    if cx.opts.checks.sync && m != w.alive {
        cx.report(w, s, m.trailing_zeros(), Kind::DivergentBarrier, None, None, |_| {
            format!("only lanes {m:#010x} of the warp reach the cluster barrier")
        });
    }
    if w.cluster_arrived {
        return cx.fault(
            w,
            s,
            m.trailing_zeros(),
            Kind::BarrierMisuse,
            "a second arrival at the cluster barrier without a wait",
            None,
        );
    }
    w.cluster_arrived = true;
    w.cluster_phase = cl.bar_phase;
    if let Some(c) = &mut cl.clocks {
        c.cluster_arrive(w.party(m), relaxed);
    }
    cl.bar_arrived += 1;
    cluster_settle(cl);
    Ok(Flow::Next)
}

/// Warps that exited count as arrived.
pub fn cluster_settle(cl: &mut Cluster) {
    let live: usize = cl.blocks.iter().map(|b| b.live).sum();
    if cl.bar_arrived >= live && cl.bar_arrived > 0 {
        cl.bar_arrived = 0;
        cl.bar_phase = cl.bar_phase.wrapping_add(1);
        cl.events += 1;
        if let Some(c) = &mut cl.clocks {
            c.cluster.publish();
        }
    }
}

pub fn cluster_wait(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, m: u32) -> Wide {
    if !w.cluster_arrived {
        return cx.fault(
            w,
            s,
            m.trailing_zeros(),
            Kind::BarrierMisuse,
            "a wait at the cluster barrier without an arrival",
            None,
        );
    }
    w.cluster_arrived = false;
    let phase = w.cluster_phase;
    let _ = cl;
    Ok(Flow::Block(Wait::Cluster { phase }))
}
