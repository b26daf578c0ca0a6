//! The interpreter loop: executes one warp at a time; lanes that run together form a split.

use super::cx::Cx;
use super::split::{diverge, split_guarded};
use super::state::*;
use super::{
    ahead, async_copy, atomic, atomic_wide, barrier, call, cluster_barrier, coop, cp_arrive, heap, matrix, mbarrier,
    mem_ops, misc, mma, offsets, order, polling, registers, st_async, stack, tma, undefined, warp_ops, wgmma,
    wgmma_regs, wmma,
};
use crate::check::clocks::Clocks;
use crate::ir::{Inst, Op, Order};
use crate::report::{Fault, Kind};

/// The result of an instruction that may wait.
pub enum Flow {
    Next,
    /// Retry the instruction when the condition holds: the program counter stays.
    Retry(Wait),
    /// Go on at the next instruction when the condition holds.
    Block(Wait),
    /// Retry the instruction for each of these lanes separately.
    Apart(Vec<u32>),
}

/// How a split ended its turn.
enum Turn {
    Gone,
    Blocked(Wait),
    Budget,
}

/// The instruction budget of a turn.
struct Left {
    now: u64,
    /// Number of instructions at which the turn ends.
    end: u64,
    /// Number of effects when the turn began.
    effects: u64,
}

impl Left {
    /// A thread that only tests for the progress of others soon yields to them.
    fn asks(&mut self, cx: &Cx<'_>) {
        const SOON: u64 = 128;
        if cx.effects == self.effects {
            self.end = self.end.max(self.now.saturating_sub(SOON));
            self.effects = u64::MAX;
        }
    }
}

/// Runs a warp until its budget is spent or all its splits wait. Returns the instructions executed.
pub fn run_warp(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, budget: u64) -> Result<u64, Fault> {
    let mut left = Left { now: budget, end: 0, effects: cx.effects };
    let others = std::mem::take(&mut cx.polls);
    wake(cx, cl, w)?;
    while let Some(s) = w.ready.pop() {
        let mut s = s;
        w.set_bases(s.bases);
        match run_split(cx, cl, w, &mut s, &mut left)? {
            Turn::Gone => {}
            Turn::Blocked(wait) => {
                w.blocked.push((s, wait));
                if w.ready.is_empty() {
                    warp_ops::gather(&mut cl.clocks, w);
                }
            }
            Turn::Budget => {
                w.ready.insert(0, s);
                break;
            }
        }
    }
    let ran = budget - left.now;
    cx.instructions += ran;
    polling::release(w, ran, cx.polls);
    cx.polls |= others;
    Ok(ran)
}

/// Moves splits whose condition holds back to the ready list.
fn wake(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp) -> Result<(), Fault> {
    if w.blocked.is_empty() {
        return Ok(());
    }
    let mut k = 0;
    while k < w.blocked.len() {
        let wait = w.blocked[k].1;
        let go = match wait {
            Wait::Yield => true,
            Wait::Bar { id, phase } | Wait::BarRed { id, phase, .. } => {
                cl.blocks[w.block].bars[id as usize].phase != phase
            }
            Wait::Cluster { phase } => cl.bar_phase != phase,
            Wait::Mbar { block, off, parity } => mbarrier::wakes(cx, cl, block, off, parity),
            Wait::Lanes { .. } => false,
            Wait::Registers { need } => cl.blocks[w.block].pool >= need,
            Wait::Warpgroup { target } => wgmma::all_committed(cl, w, target),
        };
        if !go {
            k += 1;
            continue;
        }
        let (mut s, _) = w.blocked.swap_remove(k);
        if matches!(wait, Wait::Bar { .. } | Wait::BarRed { .. } | Wait::Cluster { .. }) {
            w.rejoin(&mut s, wait);
        }
        if let Some(c) = &mut cl.clocks {
            acquire(c, w, &s, wait);
        }
        if let Wait::BarRed { id, d, ballot, all, .. } = wait {
            w.set_bases(s.bases);
            barrier::write_reduction(cl, w, &s, id, d, ballot, all);
        }
        w.ready.push(s);
    }
    warp_ops::gather(&mut cl.clocks, w);
    Ok(())
}

fn acquire(c: &mut Clocks, w: &Warp, s: &Split, wait: Wait) {
    match wait {
        Wait::Bar { id, phase } | Wait::BarRed { id, phase, .. } => c.bar_wake(w.party(s.mask), w.block, id, phase),
        Wait::Cluster { .. } => c.cluster_wake(w.party(s.mask)),
        _ => {}
    }
}

/// Runs a split until it is gone, waits, or has spent the budget.
fn run_split(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &mut Split, left: &mut Left) -> Result<Turn, Fault> {
    let prog = cx.prog;
    let mut code = &prog.funcs[s.func as usize];
    let mut join_pc = w.join_pc(s.join);
    let checks = cx.opts.checks;
    let watching = u8::from(checks.init) | u8::from(checks.race) << 1 | u8::from(checks.offsets) << 2;
    let measuring = cx.metrics.is_some();
    loop {
        if s.pc == join_pc {
            match w.arrive(s) {
                None => return Ok(Turn::Gone),
                Some(next) => {
                    *s = next;
                    w.set_bases(s.bases);
                    code = &prog.funcs[s.func as usize];
                    join_pc = w.join_pc(s.join);
                    continue;
                }
            }
        }
        if left.now <= left.end {
            // Lanes that have met for an instruction execute it before any other split runs.
            if w.group.is_none() {
                return Ok(Turn::Budget);
            }
            left.now = left.now.max(1);
        }
        let i = &code.insts[s.pc as usize];
        left.now -= u64::from(i.first);
        let m = active(w, s, i);
        if measuring && let Some(mx) = &mut cx.metrics {
            mx.count(s.func, s.pc, i, m, s.mask);
        }
        if watching != 0 {
            let what = watching & (cx.launch.watch[s.func as usize][s.pc as usize] | u8::from(w.follows_all));
            if what & 1 != 0 {
                undefined::watch(cx, w, s, i, m);
            }
            if what & 2 != 0 && m != 0 {
                wgmma_regs::access(cx, w, s, i, m);
            }
            if what & 4 != 0 && m != 0 {
                offsets::step(cx, w, s, i, m);
            }
        }
        match &i.op {
            Op::Alu(f) => {
                if m != 0 {
                    // SAFETY: the function was picked for this machine's features when the program was lowered.
                    unsafe { f(&mut w.regs, i, m) };
                }
                s.pc += 1;
            }
            Op::Ld(a) => {
                if m != 0 {
                    if a.order != Order::Weak {
                        left.asks(cx);
                    } else if w.polls {
                        order::acts(cl, w);
                    }
                    mem_ops::load(cx, cl, w, s, i, *a, m)?;
                }
                s.pc += 1;
            }
            Op::St(a) => {
                if m != 0 {
                    if w.polls {
                        order::acts(cl, w);
                    }
                    cx.effects += u64::from(!polling::private(w, i, a.space, m));
                    mem_ops::store(cx, cl, w, s, i, *a, m)?;
                }
                s.pc += 1;
            }
            Op::Bra { target, join } => {
                if let Some(mx) = &mut cx.metrics
                    && i.guard.is_some()
                {
                    mx.branch(s.func, s.pc, m != 0 && m != s.mask);
                }
                if m == s.mask {
                    s.pc = *target;
                } else if m == 0 {
                    s.pc += 1;
                } else {
                    let (target, fall) = (*target, s.pc + 1);
                    diverge(w, s, *join, &[(fall, s.mask & !m), (target, m)]);
                    join_pc = w.join_pc(s.join);
                }
            }
            Op::BrxIdx { table, join } => {
                let groups = misc::branch_groups(cx, w, s, i, &code.tables[*table as usize], m)?;
                if let Some(mx) = &mut cx.metrics {
                    mx.branch(s.func, s.pc, groups.len() > 1);
                }
                if groups.len() == 1 {
                    s.pc = groups[0].0;
                } else {
                    diverge(w, s, *join, &groups);
                    join_pc = w.join_pc(s.join);
                }
            }
            Op::Exit => {
                if m == 0 {
                    s.pc += 1;
                    continue;
                }
                cx.effects += 1;
                misc::exit(cx, cl, w, s, m)?;
                s.mask &= !m;
                if s.mask == 0 {
                    return Ok(Turn::Gone);
                }
                s.pc += 1;
            }
            Op::Call { func, copies } if m != 0 => {
                if m != s.mask {
                    split_guarded(w, s, m);
                    join_pc = w.join_pc(s.join);
                    continue;
                }
                call::call(cx, w, s, *func, *copies)?;
                code = &prog.funcs[s.func as usize];
                join_pc = u32::MAX;
            }
            Op::CallIndirect { copies } if m != 0 => {
                if m != s.mask {
                    split_guarded(w, s, m);
                    join_pc = w.join_pc(s.join);
                    continue;
                }
                call::indirect(cx, w, s, i, *copies)?;
                code = &prog.funcs[s.func as usize];
                join_pc = u32::MAX;
            }
            Op::Call { .. } | Op::CallIndirect { .. } => s.pc += 1,
            Op::Ret => {
                call::ret(cx, w, s);
                code = &prog.funcs[s.func as usize];
                join_pc = w.join_pc(s.join);
            }
            _ if m == 0 => s.pc += 1,
            op => {
                let effects = cx.effects;
                if w.polls && !polling::passive(op) {
                    order::acts(cl, w);
                }
                let flow = slow(cx, cl, w, s, i, op, m)?;
                s.expired = false;
                if cx.effects != effects {
                    w.polls = false;
                } else if polling::asks(op) {
                    left.asks(cx);
                }
                match flow {
                    Flow::Next => s.pc += 1,
                    Flow::Retry(wait) => {
                        if m != s.mask {
                            split_guarded(w, s, m);
                        }
                        return Ok(Turn::Blocked(wait));
                    }
                    Flow::Block(wait) => {
                        if m != s.mask {
                            split_guarded(w, s, m);
                        }
                        s.pc += 1;
                        return Ok(Turn::Blocked(wait));
                    }
                    Flow::Apart(groups) => {
                        if m != s.mask {
                            split_guarded(w, s, m);
                        }
                        let groups: Vec<_> = groups.into_iter().map(|g| (s.pc, g)).collect();
                        diverge(w, s, s.pc + 1, &groups);
                        join_pc = w.join_pc(s.join);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn active(w: &Warp, s: &Split, i: &Inst) -> u32 {
    if !i.guard.is_some() {
        return s.mask;
    }
    let p = w.regs.pred(i.guard);
    s.mask & if i.guard_neg { !p } else { p }
}

/// Executes an instruction that [`run_split`] does not handle itself.
fn slow(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, op: &Op, m: u32) -> Result<Flow, Fault> {
    let m = match warp_ops::meet(w, op, m) {
        Ok(m) => m,
        Err(wait) => return Ok(Flow::Retry(wait)),
    };
    cx.effects += u64::from(!polling::silent(op));
    cx.glances += u64::from(matches!(op, Op::Clock(_)));
    cx.polls |= polling::asks(op);
    match op {
        Op::Atom(a) => atomic::run(cx, cl, w, s, i, *a, m)?,
        Op::AtomWide(a) => atomic_wide::run(cx, cl, w, s, i, *a, m)?,
        Op::Warp(op) => return warp_ops::run(cx, cl, w, s, i, *op, m),
        Op::BarSync { aligned } => return barrier::sync(cx, cl, w, s, i, m, *aligned),
        Op::BarArrive { aligned } => return barrier::arrive(cx, cl, w, s, i, m, *aligned),
        Op::BarRed(mode, aligned) => return barrier::reduce(cx, cl, w, s, i, m, *mode, *aligned),
        Op::ClusterArrive { relaxed, aligned } => {
            return cluster_barrier::arrive(cx, cl, w, s, m, *relaxed, *aligned);
        }
        Op::ClusterWait { aligned } => return cluster_barrier::wait(cx, w, s, m, *aligned),
        Op::Fence(f) => {
            if let Some(c) = &mut cl.clocks {
                let party = w.party(m);
                order::fence(c, w, party, i, *f);
            }
        }
        Op::ActiveMask => w.regs.set_r(i.d, &[s.mask; 32], m),
        Op::Clock(hi) => misc::clock(cx, w, i, *hi, m),
        Op::Nanosleep => return Ok(Flow::Block(Wait::Yield)),
        Op::IsSpacep(window) => misc::is_space(cx, w, i, *window, m),
        Op::Alloca => stack::alloca(cx, w, s, i, m)?,
        Op::Discard => misc::discard(cx, w, s, i, m)?,
        Op::GridWait => ahead::wait(cx, cl, w, m),
        Op::GridRelease => ahead::release(cl, w),
        Op::Nop | Op::Prefetch => {}
        Op::Policy => misc::policy(cx, w, s, i, m),
        Op::Trap => {
            let message = format!("the kernel trapped{}", coop::advice(cx));
            return cx.fault(w, s, m.trailing_zeros(), Kind::Trap, message, None);
        }
        Op::Printf => misc::printf(cx, cl, w, s, i, m)?,
        Op::Malloc => heap::malloc(cx, w, s, i, m),
        Op::Free => heap::free(cx, cl, w, s, i, m)?,
        Op::AssertFail => return misc::assert_fail(cx, w, s, i, m),
        Op::CpAsync { bytes, bypass } => async_copy::cp_async(cx, cl, w, s, i, (*bytes, *bypass), m)?,
        Op::CpAsyncCommit => async_copy::commit(cl, w, m),
        Op::CpAsyncWait { all } => async_copy::wait(cx, cl, w, s, m, if *all { None } else { Some(i.imm as u32) })?,
        Op::CpAsyncMbar { noinc } => cp_arrive::run(cx, cl, w, s, i, m, *noinc)?,
        Op::LdMatrix { num, trans } => matrix::ldmatrix(cx, cl, w, s, i, m, *num, *trans)?,
        Op::StMatrix { num, trans } => matrix::stmatrix(cx, cl, w, s, i, m, *num, *trans)?,
        Op::MovMatrix => matrix::movmatrix(cx, w, s, i, m)?,
        Op::Mma(info) => mma::run(cx, w, s, i, info, m)?,
        Op::Wmma(info) => wmma::multiply(cx, w, s, i, info, m)?,
        Op::WmmaCopy(t) => wmma::transfer(cx, cl, w, s, i, t, m)?,
        Op::Mbar(kind) => return mbarrier::run(cx, cl, w, s, i, *kind, m),
        Op::Mapa { shared } => misc::mapa(cx, cl, w, s, i, *shared, m)?,
        Op::GetCtaRank { shared } => misc::cta_rank(cl, w, i, *shared, m),
        Op::Bulk(b) => tma::bulk(cx, cl, w, s, i, *b, m)?,
        Op::StAsync(info) => st_async::run(cx, cl, w, s, i, *info, m)?,
        Op::Tensor(t) => tma::tensor(cx, cl, w, s, i, *t, m)?,
        Op::BulkCommit => tma::commit(w, m),
        Op::BulkWait { read } => tma::wait(cx, cl, w, s, m, i.imm as u32, *read)?,
        Op::WgFence => wgmma::fence(cx, cl, w, s, m)?,
        Op::WgCommit => wgmma::commit(cl, w),
        Op::WgWait => return Ok(wgmma::wait(cl, w, i.imm as u32)),
        Op::Wgmma(info) => wgmma::issue(cx, cl, w, s, i, info, m)?,
        Op::SetMaxNReg => return registers::set(cx, cl, w, s, i, m),
        _ => return cx.fault(w, s, 0, Kind::Internal, "an instruction without an implementation", None),
    }
    Ok(Flow::Next)
}
