//! Ends that come too early, and starts that come too late: a block's shared memory is gone when its last thread has exited, so whatever else still uses
//! it must be known to be over by then. That is asked of the order of events, not of when they happened to run.

use super::cx::Cx;
use super::shared_check;
use super::state::*;
use crate::check::race::Stamp;
use crate::report::{Earlier, Kind};

/// A use of a block's shared memory by a thread of another block, or by an asynchronous copy.
pub struct Guest {
    stamp: Stamp,
    write: bool,
}

/// Records such a use, and finds those that come when the block has ended.
pub fn visit(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    block: usize,
    stamp: Stamp,
    write: bool,
) {
    let host = &mut cl.blocks[block];
    if host.live == 0 {
        cx.report(w, s, l as u32, Kind::EarlyExit, None, None, |_| {
            format!(
                "uses the shared memory of block rank {block}, which has ended: put a cluster barrier before its end"
            )
        });
        return;
    }
    let guest = Guest { stamp, write };
    // The latest of each agent's lane stands for the earlier ones.
    match host.guests.iter_mut().find(|g| g.stamp.agent() == stamp.agent() && g.stamp.lane() == stamp.lane()) {
        Some(old) => *old = guest,
        None => host.guests.push(guest),
    }
}

/// Finds uses of another block's shared memory that nothing puts behind the start of that block. A cluster barrier does,
/// whoever has waited at it, and so does whatever a thread of that block has told.
pub fn started(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, l: usize, block: usize) {
    let Some(c) = cl.clocks.as_ref().filter(|_| cl.bar_phase == 0) else { return };
    let warps = cl.blocks[block].warps.len();
    let p = w.party(1 << l);
    let told = |agent: usize| (0..32).any(|lane| c.after(p, agent, lane, 1));
    if (block * warps..(block + 1) * warps).any(told) {
        return;
    }
    cx.report(w, s, l as u32, Kind::BarrierMisuse, None, None, |_| {
        format!(
            "uses the shared memory of block rank {block}, which may not have started: put a cluster barrier before it"
        )
    });
}

/// Lanes of `m` exit; `last` when no thread of their block is left.
pub fn check(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, m: u32, last: bool) {
    let Some(c) = &mut cl.clocks else { return };
    c.exit(w.party(m), w.block);
    if !last {
        return;
    }
    for g in std::mem::take(&mut cl.blocks[w.block].guests) {
        let st = g.stamp;
        let Some(c) = &cl.clocks else { return };
        if c.ended_after(w.block, st.agent(), st.lane(), st.time()) {
            continue;
        }
        let (earlier, copy) = (
            Earlier { place: cx.place_of(st.pc()), who: shared_check::who(cx, st, (w.agent, 32)), write: g.write },
            !c.is_warp(st.agent()),
        );
        cx.report(w, s, m.trailing_zeros(), Kind::EarlyExit, None, Some(earlier), |_| {
            let what = if copy {
                "an asynchronous copy may still use it: wait for its mbarrier first"
            } else {
                "another block of the cluster may still use it: put a cluster barrier before its end"
            };
            format!("the block ends, and with it its shared memory, while {what}")
        });
        return;
    }
}
