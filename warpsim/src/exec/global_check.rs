//! Checks of global memory: reads of what nobody wrote, and accesses that nothing orders.

use std::sync::atomic::Ordering::Relaxed;

use super::cx::Cx;
use super::mem_ops::block_of;
use super::state::*;
use crate::check::global::GStamp;
use crate::ir::*;
use crate::report::{Earlier, Kind};

/// initcheck and racecheck of one lane's access.
pub fn check_global(
    cx: &mut Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    a: Access,
    l: usize,
    k: usize,
    addr: u64,
    total: u64,
    write: bool,
    same: bool,
) {
    let mem = cx.mem;
    let al = mem.get(k);
    let off = (addr - al.base) as usize;
    if cx.opts.checks.init && !write && !al.marked(off, total as usize) {
        cx.report(w, s, l as u32, Kind::UninitialisedGlobal, Some(addr), None, |cx| {
            format!("reads {total} bytes that nobody wrote: {}", cx.mem.describe(addr))
        });
    }
    let Some(shadow) = cx.global_shadow else { return };
    if a.order != Order::Weak {
        return;
    }
    let block = cl.blocks[w.block].linear;
    let now = cl.clocks.as_ref().map_or(0, |c| c.now(w.agent));
    let me = GStamp::new(block, w.id, l as u32, now, s.pc);
    let (first, last) = (off >> shadow.shift, (off + total as usize - 1) >> shadow.shift);
    for g in first..=last {
        let (writer, reader) = shadow.touch(k, g, me, write);
        // Writing what another thread wrote already harms nobody.
        if same && writer.0 != 0 {
            continue;
        }
        for (old, was_write) in [(writer, true), (reader, false)] {
            if old.0 != 0 && conflicts(cx, cl, w, me, old, block) {
                let by =
                    if old.block() == block { cl.blocks[w.block].ctaid } else { block_of(cx.launch.grid, old.block()) };
                let t = cx.thread(old.warp(), old.lane());
                let who = format!("thread ({},{},{}) of block ({},{},{})", t[0], t[1], t[2], by[0], by[1], by[2]);
                let earlier = Earlier { place: cx.place(s.func, old.pc()), who, write: was_write };
                cx.report(w, s, l as u32, Kind::GlobalRace, Some(addr), Some(earlier), |cx| {
                    let verb = if write { "writes" } else { "reads" };
                    format!("{verb} {} while nothing orders it with the earlier access", cx.mem.describe(addr))
                });
                return;
            }
        }
    }
}

fn conflicts(cx: &Cx<'_>, cl: &Cluster, w: &Warp, me: GStamp, old: GStamp, block: u64) -> bool {
    if old.block() == block & 0xf_ffff {
        if old.warp() == w.id & 31 {
            return old.lane() != me.lane() && old.time() == me.time() && old.pc() != me.pc();
        }
        let Some(c) = &cl.clocks else { return false };
        let agent = w.agent - w.id + old.warp();
        // The stamp keeps 16 bits of the time; the rest is that of the latest such moment.
        let now = c.now(agent);
        let time = now - (now.wrapping_sub(old.time()) & 0xffff).min(now);
        return !c.knows(w.agent, agent, time);
    }
    let b = cl.blocks.iter().find(|b| b.linear & 0xf_ffff == old.block());
    if let (Some(b), Some(c)) = (b, &cl.clocks) {
        let agent = b.rank as usize * b.warps.len() + old.warp();
        return !c.knows(w.agent, agent, c.now(agent).min(old.time()));
    }
    let published = cx.launch.published.get(old.block() as usize).map_or(0, |p| p.load(Relaxed));
    let acquired = cx.launch.acquired.get(block as usize).map_or(0, |p| p.load(Relaxed));
    published == 0 || acquired < published
}
