//! `setmaxnreg`: warps return registers to their block's pool, and wait until the pool has the registers that they request.

use super::cx::Cx;
use super::run::Flow;
use super::state::*;
use crate::ir::Inst;
use crate::report::{Earlier, Fault, Kind};

/// The new count is in the low half of `imm`; the value above it is 1 for an increase.
pub fn set(cx: &Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32) -> Result<Flow, Fault> {
    let flow = change(cx, cl, w, s, i, m)?;
    if matches!(flow, Flow::Next) {
        cl.blocks[w.block].resized.push((w.id, (s.func, s.pc)));
    }
    Ok(flow)
}

fn change(cx: &Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32) -> Result<Flow, Fault> {
    let (wanted, increase, have) = (i.imm as u32, i.imm >> 32 != 0, w.registers);
    // The initial number of registers is unknown.
    if have == 0 {
        return Ok(Flow::Next);
    }
    if wanted != have && increase != (wanted > have) {
        let (verb, other) = if increase { ("an increase", ".dec") } else { ("a decrease", ".inc") };
        let message = format!("{verb} to {wanted} registers by a warp that has {have}: use {other}");
        return cx.fault(w, s, m.trailing_zeros(), Kind::IllegalInstruction, message, None);
    }
    let pool = &mut cl.blocks[w.block].pool;
    if increase {
        let need = 32 * (wanted - have);
        if *pool < need {
            return Ok(Flow::Retry(Wait::Registers { need }));
        }
        *pool -= need;
    } else {
        *pool += 32 * (have - wanted);
        cl.events += 1;
    }
    w.registers = wanted;
    Ok(Flow::Next)
}

/// A block has ended: checks that the warps of each warpgroup have executed the same `setmaxnreg`.
pub fn ended(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, lane: u32) {
    let b = &cl.blocks[w.block];
    let of = |warp: usize| b.resized.iter().filter(move |r| r.0 == warp).map(|r| r.1);
    for first in (0..b.warps.len()).step_by(4) {
        let Some(other) = (first + 1..b.warps.len().min(first + 4)).find(|k| !of(*k).eq(of(first))) else { continue };
        let (warp, other) = if of(first).count() < of(other).count() { (other, first) } else { (first, other) };
        let Some((func, pc)) = of(warp).next_back() else { continue };
        let earlier = Earlier { place: cx.place(func, pc), who: format!("warp {warp}"), write: true };
        cx.report(w, s, lane, Kind::BarrierMisuse, None, Some(earlier), |_| {
            format!("warp {other} has not executed the setmaxnreg of warp {warp}, which is of its warpgroup: all four have to")
        });
    }
}

/// Explains why the pool lacks the registers that a warp waits for.
pub fn describe(cx: &Cx<'_>, b: &Block, need: u32) -> String {
    let all = cx.launch.registers * cx.launch.threads.next_multiple_of(32);
    format!(
        "waits for {need} registers of the block's pool, which has {}: the block started with {all}, {} for each thread, and all \
         its warps together cannot have more; decrease others further, or ask for less",
        b.pool, cx.launch.registers
    )
}
