//! Blocks that exit too early or start too late: a block's shared memory is gone when its last thread has exited, so every other use of it
//! must be known to be complete by then. The checks use the happens-before order, not the order in which the simulator happened to execute.

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

/// Records such a use, and finds uses that come after the block has ended.
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
    // The latest use of each agent's lane represents the earlier ones.
    match host.guests.iter_mut().find(|g| g.stamp.agent() == stamp.agent() && g.stamp.lane() == stamp.lane()) {
        Some(old) => *old = guest,
        None => host.guests.push(guest),
    }
}

/// Finds uses of another block's shared memory that are not ordered after the start of that block. A cluster barrier orders them for all
/// threads that waited at it, and so does anything that a thread of that block has published.
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

/// The lanes of `m` exit; `last` if no thread of their block remains.
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
