//! Where diverged lanes reconverge: at post-dominators of the control-flow graph without the paths that leave the kernel.
//!
//! Lanes that exit never arrive at a join, so a `return` or a `trap` in one arm of a branch has no influence on where the other lanes
//! reconverge. A join that is followed only by the end of the kernel is not used: lanes would wait there, instead of exiting, for lanes that
//! wait at a barrier for them to exit.

use super::cfg::{self, Blocks};
use super::meeting::Meeting;
use crate::ir::{Inst, Op};

const NOWHERE: u32 = u32::MAX;

/// Sets the join of each branch.
pub fn place(insts: &mut [Inst], tables: &[Vec<u32>]) {
    let g = cfg::blocks(insts, tables);
    let exit = g.count();
    let succ = without_ends(&g, insts);
    let after = cfg::post_dominators(&succ);
    let meeting = Meeting::new(&succ);
    let beyond = |b: usize| match succ[b][..] {
        [] | [_] => None,
        [x, y] => meeting.of(b, [x, y]),
        _ => beyond_exits(&succ, b),
    };
    for b in 0..exit {
        if let Op::Bra { join, .. } | Op::BrxIdx { join, .. } = &mut insts[g.start[b + 1] - 1].op {
            let meets = after[b].filter(|p| *p != exit);
            let meets = meets.or_else(|| beyond(b));
            *join = meets.map_or(NOWHERE, |p| g.start[p] as u32);
        }
    }
}

/// The graph without the blocks that only end the thread, and without the blocks from which all paths end in a trap.
fn without_ends(g: &Blocks, insts: &[Inst]) -> Vec<Vec<usize>> {
    let exit = g.count();
    let body = |b: usize| &insts[g.start[b]..g.start[b + 1]];
    let faults = |i: &Inst| !i.guard.is_some() && matches!(i.op, Op::Trap | Op::AssertFail);
    let leaves = |i: &Inst| !i.guard.is_some() && matches!(i.op, Op::Exit);
    let passes = |i: &Inst| matches!(i.op, Op::Nop) || !i.guard.is_some() && matches!(i.op, Op::Bra { .. });
    let mut ends: Vec<bool> = (0..exit)
        .map(|b| {
            body(b).iter().any(faults) || body(b).iter().all(|i| leaves(i) || passes(i)) && body(b).iter().any(leaves)
        })
        .collect();
    ends.push(false);
    let mut dead: Vec<bool> = (0..exit).map(|b| body(b).iter().any(faults)).collect();
    dead.push(false);
    loop {
        let mut changed = false;
        for b in (0..exit).rev() {
            let all = |v: &[bool]| !g.succ[b].is_empty() && g.succ[b].iter().all(|s| v[*s]);
            if !dead[b] && all(&dead) {
                (dead[b], ends[b], changed) = (true, true, true);
            }
            if !ends[b] && body(b).iter().all(passes) && all(&ends) {
                (ends[b], changed) = (true, true);
            }
        }
        if !changed {
            break;
        }
    }
    let kept = |b: usize| g.succ[b].iter().copied().filter(|s| !ends[*s]).collect::<Vec<_>>();
    let mut succ: Vec<Vec<usize>> = (0..=exit).map(kept).collect();
    // A block that no longer reaches an end had only ends that were removed.
    let open = reaches(&succ, |b| b == exit);
    for b in 0..exit {
        if !open[b] && g.succ[b].iter().any(|s| ends[*s]) {
            succ[b].push(exit);
        }
    }
    succ
}

/// The nodes from which some wanted node can be reached.
fn reaches(succ: &[Vec<usize>], wanted: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut pred = vec![vec![]; succ.len()];
    for (b, ss) in succ.iter().enumerate() {
        ss.iter().for_each(|s| pred[*s].push(b));
    }
    let mut seen: Vec<bool> = (0..succ.len()).map(wanted).collect();
    let mut work: Vec<usize> = (0..succ.len()).filter(|b| seen[*b]).collect();
    while let Some(b) = work.pop() {
        for &p in &pred[b] {
            if !seen[p] {
                seen[p] = true;
                work.push(p);
            }
        }
    }
    seen
}

/// Where the paths from a branch reconverge if some of them end separately: the first node that all the others pass through.
pub(super) fn beyond_exits(succ: &[Vec<usize>], branch: usize) -> Option<usize> {
    let exit = succ.len() - 1;
    let mut ways = vec![0u32; succ.len()];
    for &first in &succ[branch] {
        let mut seen = vec![false; succ.len()];
        let mut work = vec![first];
        while let Some(b) = work.pop() {
            if b == branch || b == exit || std::mem::replace(&mut seen[b], true) {
                continue;
            }
            ways[b] += 1;
            work.extend(&succ[b]);
        }
    }
    let common = |b: usize| ways[b] > 1;
    // A path that returns to the branch starts anew there.
    let mut cut: Vec<Vec<usize>> = succ.to_vec();
    cut.iter_mut().for_each(|ss| ss.retain(|s| *s != branch));
    let useful = reaches(&cut, common);
    for b in 0..exit {
        let leaves = common(b) && succ[b].iter().any(|s| *s == branch || *s == exit);
        cut[b].retain(|s| *s != exit && (ways[*s] > 0 && useful[*s]));
        if leaves {
            cut[b].push(exit);
        }
    }
    cfg::post_dominators(&cut)[branch].filter(|p| *p != exit)
}
