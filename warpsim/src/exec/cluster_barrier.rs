//! The cluster barrier.

use super::cx::Cx;
use super::mem_ops::lanes;
use super::run::Flow;
use super::state::*;
use crate::report::{Fault, Kind};

type Wide = Result<Flow, Fault>;

pub fn arrive(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    m: u32,
    relaxed: bool,
    aligned: bool,
) -> Wide {
    if w.cluster_arrived & m != 0 {
        let message = "a second arrival at the cluster barrier without a wait";
        return cx.fault(w, s, m.trailing_zeros(), Kind::BarrierMisuse, message, None);
    }
    w.cluster_arrived |= m;
    lanes(m).for_each(|l| w.cluster_turn[l] = cl.bar_phase + 1);
    if aligned {
        together(cx, w, s, m, 0);
    }
    cl.bar_open = true;
    if let Some(c) = &mut cl.clocks {
        c.cluster_arrive(w.party(m), relaxed);
    }
    settle(cl, w);
    Ok(Flow::Next)
}

/// Completes the barrier's phase when all threads that have not exited have arrived; `current` is the running warp.
pub fn settle(cl: &mut Cluster, current: &Warp) {
    let turn = cl.bar_phase + 1;
    let arrived = |w: &Warp| lanes(w.alive).all(|l| w.cluster_turn[l] == turn);
    let mut others = cl.blocks.iter().flat_map(|b| b.warps.iter().flatten());
    if cl.bar_open && arrived(current) && others.all(|w| arrived(w)) {
        (cl.bar_phase, cl.bar_open) = (turn, false);
        cl.events += 1;
        if let Some(c) = &mut cl.clocks {
            c.cluster.publish();
        }
    }
}

pub fn wait(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, m: u32, aligned: bool) -> Wide {
    if w.cluster_arrived & m != m {
        let message = "a wait at the cluster barrier without an arrival";
        return cx.fault(w, s, m.trailing_zeros(), Kind::BarrierMisuse, message, None);
    }
    w.cluster_arrived &= !m;
    if aligned {
        together(cx, w, s, m, 1);
    }
    let phase = w.cluster_turn[m.trailing_zeros() as usize] - 1;
    Ok(Flow::Block(Wait::Cluster { phase }))
}

/// Reports an aligned arrive or wait instruction that lanes of a warp reach at different places.
fn together(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, m: u32, which: usize) {
    if m == w.alive || !cx.opts.checks.sync {
        return;
    }
    let here = (w.cluster_turn[m.trailing_zeros() as usize], s.func, s.pc);
    let before = w.cluster_aligned[which].replace(here);
    if before.is_some_and(|b| b.0 == here.0 && b != here) {
        let elsewhere = w.alive & !m;
        cx.report(w, s, m.trailing_zeros(), Kind::DivergentBarrier, None, None, |_| {
            format!(
                "only lanes {m:#010x} of the warp come to this `.aligned` instruction; lanes {elsewhere:#010x} are elsewhere: \
                 take it out of the branch that they take differently"
            )
        });
    }
}
