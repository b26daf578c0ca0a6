//! The registers that an asynchronous `wgmma` uses: threads may access them only after `wgmma.wait_group`, and hand them over by
//! `wgmma.fence`.

use super::cx::Cx;
use super::state::*;
use crate::ir::*;
use crate::report::{Earlier, Kind};

/// The last event for one register.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Last {
    #[default]
    Nothing,
    /// The thread accessed it, after it had executed `fences` fences.
    Thread { fences: u32, func: u32, pc: u32 },
    /// A multiplication of this group reads or writes it.
    Wgmma { group: u32, func: u32, pc: u32 },
}

impl Last {
    /// The fences before it; a multiplication that was not waited for comes last.
    fn fences(&self) -> u32 {
        match self {
            Last::Nothing => 0,
            Last::Thread { fences, .. } => *fences,
            Last::Wgmma { .. } => u32::MAX,
        }
    }
}

/// By register slot, for the slots that some `wgmma` uses.
#[derive(Default)]
pub struct WgRegs {
    last: Vec<Last>,
    fences: u32,
    /// Number of groups that have been waited for.
    waited: u32,
}

impl WgRegs {
    pub fn fence(&mut self) {
        self.fences += 1;
    }

    pub fn wait(&mut self, group: u32) {
        self.waited = self.waited.max(group);
    }

    fn at(&mut self, slot: usize) -> &mut Last {
        if self.last.len() <= slot {
            self.last.resize(slot + 1, Last::Nothing);
        }
        &mut self.last[slot]
    }
}

/// Whether a register holds an accumulator or a fragment of A of some `wgmma` in its function, or a value that is moved into one: a compiler
/// that renames registers also moves them after the fence.
pub fn named(code: &Code) -> Vec<bool> {
    let mut out = vec![false; code.nr as usize];
    if code.serial {
        return out;
    }
    for i in code.insts.iter().filter(|i| matches!(i.op, Op::Wgmma(_))) {
        for r in works_on(code, i) {
            out[r.slot()] = true;
        }
    }
    let word = |r: &Reg| r.is_some() && r.class() == Class::R;
    let mut written = vec![false; out.len()];
    for i in &code.insts {
        let list = &code.lists[i.ext as usize..][..usize::from(i.defs)];
        list.iter().chain([&i.d]).filter(|r| word(r)).for_each(|r| written[r.slot()] = true);
    }
    // Constants are never written, and have no state.
    let into_words = code.insts.iter().filter(|i| word(&i.d));
    let moves: Vec<_> = into_words.flat_map(|i| i.copied().map(|r| (i.d.slot(), r))).collect();
    let moves: Vec<_> = moves.into_iter().filter(|(_, r)| word(r) && written[r.slot()]).collect();
    let mut grown = true;
    while std::mem::take(&mut grown) {
        for (d, r) in moves.iter().rev() {
            grown |= out[*d] && !std::mem::replace(&mut out[r.slot()], true);
        }
    }
    out
}

/// The accumulators and fragments of a `wgmma`, without the metadata, which is read when it is issued.
fn works_on<'a>(code: &'a Code, i: &Inst) -> &'a [Reg] {
    let metadata = usize::from(matches!(&i.op, Op::Wgmma(info) if info.sparse.is_some()));
    &code.lists[i.ext as usize..][..usize::from(i.len) - metadata]
}

/// Checks an instruction other than `wgmma` that reads or writes such registers. Moves between them are the compiler's way to rename
/// registers, and disappear in the machine code; nvcc also emits the joining of two halves after the fence that follows it in the source.
pub fn access(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) {
    let code = &cx.prog.funcs[s.func as usize];
    let named = &cx.launch.wgmma[s.func as usize];
    let list = &code.lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    let base = w.regs.rb;
    let mut state = std::mem::take(&mut w.wg_regs);
    let now = Last::Thread { fences: state.fences, func: s.func, pc: s.pc };
    let mine = |r: &&Reg| r.is_some() && r.class() == Class::R && named[r.slot()];
    for r in [i.a, i.b, i.c, i.d].iter().chain(list).filter(mine) {
        if let Last::Wgmma { group, func, pc } = *state.at(base + r.slot())
            && group > state.waited
        {
            let earlier = Earlier { place: cx.place(func, pc), who: "an asynchronous operation".into(), write: true };
            cx.report(w, s, m.trailing_zeros(), Kind::AsyncRace, None, Some(earlier), |_| {
                "touches a register of a wgmma that no wgmma.wait_group has waited for".into()
            });
        }
        if *r != i.d && i.copied().any(|source| source == *r) {
            continue;
        }
        let from = i.copied().filter(|r| mine(&r)).map(|r| *state.at(base + r.slot()));
        let from = from.filter(|last| *last != Last::Nothing).max_by_key(Last::fences);
        let new = match from {
            Some(from) => from,
            // A constant: nvcc emits the zeros that sums start from after the fence, and ptxas moves them before it.
            None if i.moves || i.joins => *state.at(base + r.slot()),
            None => now,
        };
        *state.at(base + r.slot()) = new;
    }
    w.wg_regs = state;
}

/// A multiplication takes over its registers.
pub fn issue(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, group: u32) {
    let list = works_on(&cx.prog.funcs[s.func as usize], i);
    let base = w.regs.rb;
    let mut state = std::mem::take(&mut w.wg_regs);
    for r in list {
        let fences = state.fences;
        let last = state.at(base + r.slot());
        if fences == 0 && *last == Last::Nothing {
            cx.report(w, s, 0, Kind::AsyncRace, None, None, |_| {
                "works on registers before the first wgmma.fence: put one before the first wgmma".into()
            });
        }
        if let Last::Thread { fences: then, func, pc } = *last
            && then == fences
        {
            let who = "the same thread".into();
            let earlier = Earlier { place: cx.place(func, pc), who, write: false };
            cx.report(w, s, 0, Kind::AsyncRace, None, Some(earlier), |_| {
                "works on a register that the thread touched after the last wgmma.fence, or before the first".into()
            });
        }
        *last = Last::Wgmma { group, func: s.func, pc: s.pc };
    }
    w.wg_regs = state;
}
