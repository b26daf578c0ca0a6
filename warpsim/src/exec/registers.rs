//! `setmaxnreg`: warps return registers to their block's pool, and wait until the pool has the registers that they request.

use super::cx::Cx;
use super::run::Flow;
use super::state::*;
use crate::check::view::WARP_WIDE;
use crate::ir::Inst;
use crate::report::{Earlier, Fault, Kind};

/// The new count is in the low half of `imm`; the value above it is 1 for an increase.
pub fn set(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32) -> Result<Flow, Fault> {
    let flow = change(cx, cl, w, s, i, m)?;
    if matches!(flow, Flow::Next) {
        together(cx, cl, w, s, i, m);
        let time = cl.clocks.as_ref().map_or(0, |c| c.now(w.agent));
        cl.blocks[w.block].resized.push((w.id, (s.func, s.pc), time));
    }
    Ok(flow)
}

/// Between two of them, the warps of a warpgroup have to meet. Compilers ask for the same number again without that.
fn together(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, i: &Inst, m: u32) {
    let resized = &cl.blocks[w.block].resized;
    let of = |warp: usize| resized.iter().filter(move |r| r.0 == warp);
    let (Some(c), Some(own)) = (&cl.clocks, of(w.id).next_back()) else { return };
    let (func, pc) = own.1;
    let same = cx.prog.funcs[func as usize].insts[pc as usize].imm as u32 == i.imm as u32;
    if same || !cx.opts.checks.sync {
        return;
    }
    let turn = of(w.id).count() - 1;
    let first = w.id & !3;
    // Warps of a block are consecutive agents.
    let ordered = |k: usize, time: u32| c.after(w.party(m), w.agent - w.id + k, WARP_WIDE, time);
    let all = first..cl.blocks[w.block].warps.len().min(first + 4);
    let mut others = all.filter(|k| *k != w.id);
    let Some(other) = others.find(|k| of(*k).nth(turn).is_none_or(|r| !ordered(*k, r.2))) else { return };
    let earlier = Earlier { place: cx.place(func, pc), who: format!("warp {}", w.id), write: true };
    cx.report(w, s, m.trailing_zeros(), Kind::BarrierMisuse, None, Some(earlier), |_| {
        format!(
            "nothing orders this setmaxnreg behind the last one of warp {other}, which is of its warpgroup: let the warpgroup's \
             threads wait for each other in between"
        )
    });
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
