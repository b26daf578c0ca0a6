//! `cp.async.mbarrier.arrive`: a thread's copies so far arrive at an mbarrier when they complete, and are then complete for the threads that
//! wait on that mbarrier.

use super::async_copy::{self, Piece};
use super::cx::Cx;
use super::mbarrier;
use super::mem_ops::lanes;
use super::state::*;
use crate::check::race::IN_FLIGHT;
use crate::ir::Inst;
use crate::report::Fault;

/// The arrivals of one instruction at one mbarrier.
pub struct Arrival {
    agent: usize,
    lanes: u32,
    /// Lanes whose copies have not arrived yet.
    due: u32,
    bar: (u32, u32),
    /// Copies that their threads have not waited for by other means.
    copies: Vec<Piece>,
    /// Agent and time that represent the barrier's phase.
    phase: (usize, u32),
    /// Actions of the threads up to this time are known to the waiting threads.
    told: u32,
}

impl Arrival {
    /// Performs the copies of these lanes, and lets them arrive.
    fn complete(&mut self, cx: &Cx<'_>, cl: &mut Cluster, m: u32) {
        let mine = |piece: &&mut Piece| m >> piece.lane & 1 == 1;
        self.copies.iter_mut().filter(mine).for_each(|piece| piece.perform(cx, cl));
        self.arrive(cl, m);
    }

    fn arrive(&mut self, cl: &mut Cluster, m: u32) {
        mbarrier::copies_arrive(cl, self.bar, (self.due & m).count_ones());
        self.due &= !m;
    }

    /// Whether a lane's copy reads some of these bytes, and may still be reading as far as `reader` of this warp knows.
    pub fn may_read(&self, cl: &Cluster, (agent, lane): (usize, u8), w: &Warp, reader: usize, at: (u64, u64)) -> bool {
        let reads = |piece: &Piece| piece.lane == lane && piece.reads(at.0, at.1);
        let over = || cl.clocks.as_ref().is_none_or(|c| c.after(w.party(1 << reader), self.phase.0, 0, self.phase.1));
        self.agent == agent && self.copies.iter().any(reads) && !over()
    }
}

pub fn run(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    m: u32,
    noinc: bool,
) -> Result<(), Fault> {
    forget(cl);
    let mut places = [(0, 0); 32];
    for l in lanes(m) {
        places[l] = mbarrier::place(cx, cl, w, s, i.a, l)?;
    }
    let mut left = m;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let bar = places[first];
        let same = lanes(left).filter(|l| places[*l] == bar).fold(0u32, |same, l| same | 1 << l);
        // A phase may complete between two lanes.
        let apart = noinc && mbarrier::get(cl, bar.0, bar.1).is_some_and(|s| same.count_ones() > s.pending);
        let here = if apart { 1 << first } else { same };
        if !noinc {
            mbarrier::expect_copies(cl, bar, here.count_ones());
        }
        track(cl, w, bar, here);
        left &= !here;
    }
    Ok(())
}

/// Ties the copies of these lanes to the barrier's phase: they are complete when it is, and arrive when they are done.
fn track(cl: &mut Cluster, w: &mut Warp, bar: (u32, u32), m: u32) {
    let mut a =
        Arrival { agent: w.agent, lanes: m, due: m, bar, copies: async_copy::take(w, m), phase: (0, 0), told: 0 };
    let Cluster { blocks, clocks, arrivals, .. } = &mut *cl;
    let earlier = || arrivals.iter().filter(|a| a.agent == w.agent && a.lanes & m != 0);
    // Each thread's arrivals are made in program order.
    let unfinished = a.copies.iter().filter(|piece| !piece.is_done()).fold(0, |m, piece| m | 1 << piece.lane);
    let late = earlier().fold(unfinished, |late, a| late | a.due & m);
    if let Some(c) = clocks {
        a.phase = (c.mbar_agent(bar.0, bar.1), c.mbar(bar.0, bar.1).phase + 1);
        a.told = c.now(w.agent);
        for piece in &a.copies {
            if let Some(shadow) = &mut blocks[piece.dst.0 as usize].shadow {
                let from = (w.agent, piece.lane, IN_FLIGHT);
                shadow.hand_over(piece.dst.1 as usize, piece.bytes, from, (a.phase.0, 0, a.phase.1));
            }
        }
        // All earlier copies of these threads are complete by then, including those that other barriers track.
        for (agent, time) in earlier().map(|a| a.phase) {
            c.mbar(bar.0, bar.1).arriving.seen.learn(agent, time);
        }
    }
    mbarrier::tell(cl, w.party(m), bar.0, bar.1);
    a.arrive(cl, m & !late);
    if a.due != 0 || cl.clocks.is_some() && !a.copies.is_empty() {
        cl.arrivals.push(a);
    }
}

/// Drops copies of phases before the last one of each barrier: no thread waits for them by other means any more.
fn forget(cl: &mut Cluster) {
    let Some(c) = &mut cl.clocks else { return };
    cl.arrivals.retain(|a| a.due != 0 || c.mbar(a.bar.0, a.bar.1).phase <= a.phase.1);
}

/// Makes the arrivals at this mbarrier, and before each of them the earlier arrivals of its threads.
pub fn complete_on(cx: &Cx<'_>, cl: &mut Cluster, bar: (u32, u32)) {
    if due(cl, bar) == 0 {
        return;
    }
    let mut arrivals = std::mem::take(&mut cl.arrivals);
    let mut wanted = vec![0; cl.blocks.len() * cl.blocks[0].warps.len()];
    let mut now = vec![];
    for a in arrivals.iter().rev() {
        let wanted = &mut wanted[a.agent];
        *wanted |= if a.bar == bar { a.due } else { 0 };
        now.push(a.due & *wanted);
    }
    for (a, m) in arrivals.iter_mut().zip(now.into_iter().rev()) {
        a.complete(cx, cl, m);
    }
    let keep = cl.clocks.is_some();
    arrivals.retain(|a| a.due != 0 || keep && !a.copies.is_empty());
    cl.arrivals = arrivals;
}

/// The number of outstanding arrivals at this mbarrier.
pub fn due(cl: &Cluster, bar: (u32, u32)) -> u32 {
    cl.arrivals.iter().filter(|a| a.bar == bar).map(|a| a.due.count_ones()).sum()
}

/// Whether arrivals are outstanding.
pub fn any_due(cl: &Cluster) -> bool {
    cl.arrivals.iter().any(|a| a.due != 0)
}

/// Threads commit their copies that belong to no group yet.
pub fn commit(cl: &mut Cluster, w: &Warp, m: u32) {
    let mine = cl.arrivals.iter_mut().filter(|a| a.agent == w.agent).flat_map(|a| &mut a.copies);
    for piece in mine.filter(|piece| m >> piece.lane & 1 == 1) {
        piece.commit(w.cp_committed[usize::from(piece.lane)]);
    }
}

/// Threads wait for groups of copies, which may include copies that arrive at mbarriers.
pub fn wait(cx: &Cx<'_>, cl: &mut Cluster, w: &Warp, m: u32, keep: Option<u32>) {
    let mut arrivals = std::mem::take(&mut cl.arrivals);
    let mut behind = 0;
    for a in arrivals.iter_mut().filter(|a| a.agent == w.agent) {
        let (agent, time) = a.phase;
        let due =
            |piece: &mut Piece| m >> piece.lane & 1 == 1 && piece.due(w.cp_committed[usize::from(piece.lane)], keep);
        for mut piece in a.copies.extract_if(.., due) {
            piece.perform(cx, cl);
            if let Some(shadow) = &mut cl.blocks[piece.dst.0 as usize].shadow {
                let to = (a.agent, piece.lane, a.told);
                shadow.hand_over(piece.dst.1 as usize, piece.bytes, (agent, 0, time), to);
            }
        }
        let unfinished = a.copies.iter().fold(0, |m, piece| m | 1 << piece.lane);
        a.arrive(cl, m & !unfinished & !behind);
        behind |= a.due;
    }
    arrivals.retain(|a| a.due != 0 || !a.copies.is_empty());
    cl.arrivals = arrivals;
}

/// Threads exit: their copies that they have not waited for are performed, and other threads still have to wait for these copies.
pub fn finish(cx: &Cx<'_>, cl: &mut Cluster, w: &Warp, m: u32) {
    let mut arrivals = std::mem::take(&mut cl.arrivals);
    for a in arrivals.iter_mut().filter(|a| a.agent == w.agent) {
        a.complete(cx, cl, m);
        a.copies.retain(|piece| m >> piece.lane & 1 == 0);
    }
    arrivals.retain(|a| a.due != 0 || !a.copies.is_empty());
    cl.arrivals = arrivals;
}
