//! Divergence and reconvergence of the lanes of a warp.

use super::state::*;

impl Warp {
    pub fn join_pc(&self, join: u32) -> u32 {
        if join == NO_JOIN { u32::MAX } else { self.joins[join as usize].pc }
    }

    fn new_join(&mut self, pc: u32, s: &Split) -> u32 {
        let j = Join {
            pc,
            pending: s.mask,
            arrived: 0,
            parent: s.join,
            used: true,
            func: s.func,
            bases: s.bases,
            stack: s.stack.clone(),
        };
        if let Some(k) = self.joins.iter().position(|j| !j.used) {
            self.joins[k] = j;
            return k as u32;
        }
        self.joins.push(j);
        self.joins.len() as u32 - 1
    }

    /// The join at `pc` for the lanes of `s`: their present join if it is at `pc`, or else a new one.
    pub fn join_at(&mut self, pc: u32, s: &Split) -> u32 {
        if pc == u32::MAX || self.join_pc(s.join) == pc { s.join } else { self.new_join(pc, s) }
    }

    /// Lanes of `s` have reached their join; returns the merged split if they were the last.
    pub fn arrive(&mut self, s: &Split) -> Option<Split> {
        self.held.came(s.join as usize);
        let j = &mut self.joins[s.join as usize];
        j.pending &= !s.mask;
        j.arrived |= s.mask;
        if j.pending != 0 { None } else { self.merge(s.join as usize) }
    }

    fn merge(&mut self, k: usize) -> Option<Split> {
        let j = &mut self.joins[k];
        j.used = false;
        if j.arrived == 0 {
            return None;
        }
        Some(Split {
            pc: j.pc,
            mask: j.arrived,
            join: j.parent,
            func: j.func,
            bases: j.bases,
            stack: std::mem::take(&mut j.stack),
            expired: false,
        })
    }

    /// Other lanes that had the same barrier to wait for go on together with `s`, if they do so at the same instruction.
    pub fn rejoin(&mut self, s: &mut Split, wait: Wait) {
        self.blocked.retain(|(other, awaited)| {
            let alike = *awaited == wait && Split { mask: s.mask, ..other.clone() } == *s;
            s.mask |= if alike { other.mask } else { 0 };
            !alike
        });
    }

    /// Lanes that have arrived at their join stop waiting for the others, unless one of those is `waiting`. Returns false if there are no
    /// such lanes.
    pub fn part(&mut self, waiting: u32) -> bool {
        self.part_where(waiting, |_| true)
    }

    /// The same, only for joins whose number satisfies `which`.
    pub fn part_where(&mut self, waiting: u32, which: impl Fn(usize) -> bool) -> bool {
        let before = self.ready.len();
        let free = |(k, j): &(usize, &mut Join)| j.used && j.arrived != 0 && j.pending & waiting == 0 && which(*k);
        for (_, j) in self.joins.iter_mut().enumerate().filter(free) {
            let (pc, mask, join, func, bases) = (j.pc, std::mem::take(&mut j.arrived), j.parent, j.func, j.bases);
            self.ready.push(Split { pc, mask, join, func, bases, stack: j.stack.clone(), expired: false });
        }
        self.ready.len() > before
    }

    /// Lanes that wait for something other than a turn.
    pub fn waiting(&self) -> u32 {
        let polls = |wait: &Wait| matches!(wait, Wait::Yield | Wait::Mbar { .. });
        self.blocked.iter().filter(|(_, wait)| !polls(wait)).fold(0, |m, (s, _)| m | s.mask)
    }

    /// Lanes exit.
    pub fn exit(&mut self, mask: u32) {
        self.alive &= !mask;
        for k in 0..self.joins.len() {
            let j = &mut self.joins[k];
            if j.used && j.pending & mask != 0 {
                j.pending &= !mask;
                if j.pending == 0
                    && let Some(s) = self.merge(k)
                {
                    self.ready.push(s);
                }
            }
        }
    }

    pub fn set_bases(&mut self, b: Bases) {
        (self.regs.rb, self.regs.qb, self.regs.pb) = (b.rb, b.qb, b.pb);
    }
}

/// Lanes diverge, and reconverge at `join`.
pub fn diverge(w: &mut Warp, s: &mut Split, join: u32, groups: &[(u32, u32)]) {
    let j = w.join_at(join, s);
    for &(pc, mask) in &groups[1..] {
        w.ready.push(Split { pc, mask, join: j, ..s.clone() });
    }
    (s.pc, s.mask, s.join) = (groups[0].0, groups[0].1, j);
}

/// A guarded instruction that waits or calls: the lanes whose guard is false go ahead to the next instruction.
pub fn split_guarded(w: &mut Warp, s: &mut Split, m: u32) {
    let (pc, rest) = (s.pc, s.mask & !m);
    diverge(w, s, pc + 1, &[(pc, m), (pc + 1, rest)]);
}
