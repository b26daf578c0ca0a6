//! Programmatic launches: they may start before the launches ahead of them in the stream have ended, and wait for these by
//! `griddepcontrol.wait`.
//!
//! In the simulator, the launches ahead have already ended. Their accesses are kept, and a thread's accesses are compared with them until the
//! thread knows of a wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::cx::{Cx, Launched, block_of, thread_of};
use super::global_check::Touch;
use super::state::*;
use crate::check::clocks::Party;
use crate::check::global::{GStamp, GlobalShadow};
use crate::check::race::members;
use crate::ir::Program;
use crate::report::{Earlier, Kind};

/// A launch that has ended in the simulator, but may still be running on a GPU.
struct Past {
    prog: Arc<Program>,
    shadow: GlobalShadow,
    grid: [u32; 3],
    block: [u32; 3],
}

/// The launches that a launch may overlap with.
#[derive(Default)]
pub struct Ahead {
    /// Launches that may still be running until a thread has waited.
    before: Vec<Arc<Past>>,
    /// Launches that may still be running even then, because the launches in between did not wait for them.
    after: Vec<Arc<Past>>,
    /// Whether some thread has waited.
    waited: AtomicBool,
    /// Whether, in some block, a thread had waited by the time that the block let the next launch start.
    held: AtomicBool,
}

impl Ahead {
    /// The launches that the next launch may overlap with, given that this one made the accesses in `shadow`.
    pub fn behind(launch: Launched, prog: &Arc<Program>, shadow: GlobalShadow) -> Self {
        let Launched { ahead: Ahead { before, after, waited, held }, grid, block, .. } = launch;
        let after = if waited.into_inner() { after } else { before.clone() };
        let mut before = if held.into_inner() { after.clone() } else { before };
        before.push(Arc::new(Past { prog: prog.clone(), shadow, grid, block }));
        Ahead { before, after, ..Ahead::default() }
    }

    /// The launches that may still be running when these threads execute, and whether these threads know of a wait.
    #[inline(always)]
    fn beside(&self, cl: &Cluster, p: Party) -> (&[Arc<Past>], bool) {
        if self.before.is_empty() {
            return (&[], false);
        }
        let waited = cl.clocks.as_ref().is_some_and(|c| c.outlasted(p));
        (if waited { &self.after } else { &self.before }, waited)
    }

    /// Whether there are any.
    #[inline(always)]
    pub fn any(&self, cl: &Cluster, p: Party) -> bool {
        !self.beside(cl, p).0.is_empty()
    }
}

/// `griddepcontrol.wait`.
pub fn wait(cx: &Cx<'_>, cl: &mut Cluster, w: &Warp, m: u32) {
    let ahead = &cx.launch.ahead;
    ahead.waited.store(true, Relaxed);
    if !cl.blocks[w.block].released {
        ahead.held.store(true, Relaxed);
    }
    if let (Some(c), false) = (&mut cl.clocks, ahead.before.is_empty()) {
        c.outlast(w.party(m));
    }
}

/// `griddepcontrol.launch_dependents`: one thread of a block executes it on behalf of the block.
pub fn release(cl: &mut Cluster, w: &Warp) {
    cl.blocks[w.block].released = true;
}

/// Reports an access that conflicts with one of a launch that may still be running.
#[inline(always)]
pub fn check(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, t: Touch) {
    let launch = cx.launch;
    let (beside, waited) = launch.ahead.beside(cl, w.party(1 << t.lane));
    for past in beside {
        compare(cx, w, s, t, past, waited);
    }
}

#[cold]
fn compare(cx: &mut Cx<'_>, w: &Warp, s: &Split, t: Touch, past: &Past, waited: bool) {
    let (off, shift) = ((t.addr - cx.mem.get(t.alloc).base) as usize, past.shadow.shift);
    let me = GStamp::new(0, 0, 0, 0, 0, t.marks).uncopied(t.write);
    let granules = off >> shift..=(off + t.bytes as usize - 1) >> shift;
    let all = granules.flat_map(|g| past.shadow.at(t.alloc, g).into_iter().zip([true, false, false]));
    let mut conflicts = all.filter(|(old, write)| {
        *old != GStamp::NOBODY && (t.write || *write) && !me.may_meet_grid(old.uncopied(*write))
    });
    let Some((old, write)) = conflicts.next() else { return };
    let ([bx, by, bz], lane) = (block_of(past.grid, old.block()), members(old.lane()).trailing_zeros());
    let [tx, ty, tz] = thread_of(past.block, old.warp() as u32 * 32 + lane);
    let kernel = &past.prog.kernel;
    let who = format!("thread ({tx},{ty},{tz}) of block ({bx},{by},{bz}) of `{kernel}`");
    let place = Cx::new(&past.prog, cx.mem, cx.launch, cx.opts, None).place_of_far(old);
    cx.report(w, s, t.lane as u32, Kind::GlobalRace, Some(t.addr), Some(Earlier { place, who, write }), |cx| {
        let (verb, place) = (if t.write { "writes" } else { "reads" }, cx.mem.describe(t.addr));
        let why = if waited {
            "and a launch between them ended without a griddepcontrol.wait: let each programmatic launch wait"
        } else {
            "and nothing has waited for it: put griddepcontrol.wait (cudaGridDependencySynchronize) before this access"
        };
        format!("{verb} {place} while `{kernel}`, launched ahead, may not have ended, {why}")
    });
}
