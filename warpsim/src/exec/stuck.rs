//! What happens when no thread can go on.

use super::cx::Cx;
use super::state::*;
use super::{barrier, mbarrier, mbarrier_check, registers};
use crate::ir::Op;
use crate::occupancy::Device;
use crate::report::{Fault, Kind};

/// Makes every `mbarrier.try_wait` give up, as happens after a while on hardware: a thread that then does something else may allow the others
/// to go on. Returns false if there is none, or if this has not helped before.
pub fn expire(cl: &mut Cluster) -> bool {
    const ROUNDS: u32 = 3;
    let (events, rounds) = cl.stalls;
    cl.stalls = (cl.events, if events == cl.events { rounds + 1 } else { 1 });
    if cl.stalls.1 > ROUNDS {
        return false;
    }
    let mut any = false;
    for w in cl.blocks.iter_mut().flat_map(|b| b.warps.iter_mut().flatten()) {
        let waits = |wait: &Wait| matches!(wait, Wait::Mbar { .. });
        for (s, _) in w.blocked.extract_if(.., |(_, wait)| waits(wait)) {
            w.ready.push(Split { expired: true, ..s });
            any = true;
        }
    }
    any
}

/// Releases lanes that wait at a join for the rest of their warp while the rest polls. Threads of a warp make independent progress: a thread
/// that holds a lock may release it after the loop in which the others try to get the lock. Returns false if there are no such lanes.
pub fn part(cl: &mut Cluster) -> bool {
    let mut any = false;
    for w in cl.blocks.iter_mut().flat_map(|b| b.warps.iter_mut().flatten()) {
        any |= w.part(w.waiting());
    }
    any
}

/// Reports lanes that wait for the rest of their warp at an instruction that needs the whole warp.
fn apart(cx: &Cx<'_>, cl: &Cluster) -> Result<(), Fault> {
    for w in cl.blocks.iter().flat_map(|b| b.warps.iter().flatten()) {
        for (s, wait) in &w.blocked {
            let op = &cx.prog.funcs[s.func as usize].insts[s.pc as usize].op;
            if matches!(wait, Wait::Lanes { .. }) && !matches!(op, Op::Warp(_)) {
                let (here, missing) = (s.mask, w.alive & !s.mask);
                let message = format!(
                    "only lanes {here:#010x} of the warp execute it, and all are needed; lanes {missing:#010x} are elsewhere: \
                     let every lane take this way"
                );
                return cx.fault(w, s, here.trailing_zeros(), Kind::DivergentBarrier, message, None);
            }
        }
    }
    Ok(())
}

/// Called when all clusters poll, except those that wait for room.
pub fn hopeless(cx: &mut Cx<'_>, cl: &mut Cluster, left_out: u64) -> Result<bool, Fault> {
    let mut what =
        "no thread can go on: those that run go round for ever, and nobody will write what they poll".to_owned();
    if left_out > 0 {
        let device = cx.opts.device.unwrap_or_else(|| Device::for_target(&cx.prog.target)).name;
        what += &format!(
            ", unless it is one of the {left_out} blocks or clusters that {device} has no room for until others end: launch no more blocks \
             than it holds at once, which a cooperative launch sees to"
        );
    }
    fault(cx, cl, Kind::Deadlock, &what)
}

/// Returns an error if a cluster has executed more instructions than the limit.
pub fn endless(cx: &mut Cx<'_>, cl: &mut Cluster) -> Result<(), Fault> {
    let (limit, alone) = (cx.opts.instruction_limit, cl.executed - cl.told);
    if cl.executed <= limit {
        return Ok(());
    }
    let mut what = format!("the limit of {limit} warp instructions a block or cluster is reached: an endless loop?");
    // A thread that reads a clock, or counts, never returns to the same state, and may give up at some time.
    if alone > limit / 2 {
        what += &format!(
            " For the last {alone} warp instructions no thread of the block or cluster has done what others could see: those that wait in a \
             loop wait for what does not come"
        );
    }
    fault(cx, cl, Kind::InstructionLimit, &what).map(drop)
}

/// Describes which threads wait where.
pub fn fault(cx: &mut Cx<'_>, cl: &mut Cluster, kind: Kind, what: &str) -> Result<bool, Fault> {
    barrier::report_partial(cx, cl);
    apart(cx, cl)?;
    let cl = &*cl;
    let mut text = what.to_string();
    // A polling thread is more informative than a thread that waits for it.
    let mut first: Option<(bool, &Warp, Split)> = None;
    let mut told = 0;
    for b in &cl.blocks {
        for w in b.warps.iter().flatten().filter(|w| !w.done()) {
            let running = w.ready.iter().map(|s| (s, None));
            let waiting = w.blocked.iter().map(|(s, wait)| (s, Some(*wait)));
            for (s, wait) in waiting.chain(running) {
                let runs = wait.is_none_or(|wait| wait == Wait::Yield);
                // Behind a barrier goes on who waits there.
                let behind = matches!(wait, Some(Wait::Bar { .. } | Wait::BarRed { .. } | Wait::Cluster { .. }));
                let at = Split { pc: s.pc - u32::from(behind), ..s.clone() };
                let place = cx.place(at.func, at.pc);
                if first.as_ref().is_none_or(|first| runs && !first.0) {
                    first = Some((runs, w, at));
                }
                told += 1;
                if told <= 12 {
                    let [x, y, z] = b.ctaid;
                    let verb = wait.map_or_else(|| "runs".to_owned(), |wait| wait_text(cx, cl, b, wait))
                        + &tested(cl, w, runs);
                    text.push_str(&format!(
                        "\n  block ({x},{y},{z}) warp {} lanes {:#010x} {verb}, {place}",
                        w.id, s.mask
                    ));
                }
            }
        }
    }
    if told > 12 {
        text.push_str(&format!("\n  and {} more", told - 12));
    }
    match first {
        Some((_, w, s)) => cx.fault(w, &s, s.mask.trailing_zeros(), kind, text, None),
        None => Ok(true),
    }
}

/// What a running warp has tested in vain.
fn tested(cl: &Cluster, w: &Warp, runs: bool) -> String {
    match w.tested {
        Some((block, off, parity)) if runs && !mbarrier::over(cl, block, off, parity) => {
            format!("; its last test in vain was for {}", phase_text(cl, (block, off, parity)))
        }
        _ => String::new(),
    }
}

fn phase_text(cl: &Cluster, (block, off, parity): (u32, u32, u32)) -> String {
    let state = mbarrier_check::describe(cl, block, off);
    format!("phase parity {parity} of the mbarrier at shared {off:#x} of rank {block} ({state})")
}

fn wait_text(cx: &Cx<'_>, cl: &Cluster, b: &Block, wait: Wait) -> String {
    match wait {
        Wait::Bar { id, .. } | Wait::BarRed { id, .. } => {
            let bar = &b.bars[id as usize];
            let here: u32 = bar.lanes.iter().map(|l| l.count_ones()).sum();
            let want = if bar.expected == 0 { "all".to_string() } else { bar.expected.to_string() };
            format!("waits at barrier {id} ({here} of {want} threads there)")
        }
        Wait::Cluster { .. } => "waits at the cluster barrier".into(),
        Wait::Mbar { block, off, parity } => format!("waits for {}", phase_text(cl, (block, off, parity))),
        Wait::Lanes { need, .. } => format!("waits for lanes {need:#010x} to reach the same instruction"),
        Wait::Warpgroup { target } => format!("waits for its warpgroup to commit {target} wgmma groups"),
        Wait::Registers { need } => registers::describe(cx, b, need),
        Wait::Yield => "polls".into(),
    }
}
