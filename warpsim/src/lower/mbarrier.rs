//! mbarrier instructions.

use rustc_hash::FxHashSet;

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::ir::*;
use crate::ptx::ast::Arg;

const U32: Ty = Ty::U(32);
const NAMES: [&str; 9] =
    ["init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait", "try_wait", "pending_count"];

/// Waits whose result is not used order nothing: marks them, and returns whether there are any.
pub(super) fn unheeded(insts: &mut [Inst], lists: &[Reg]) -> bool {
    let waits = |i: &Inst| matches!(i.op, Op::Mbar(Mbar::Test { .. }));
    if !insts.iter().any(waits) {
        return false;
    }
    let mut read: FxHashSet<Reg> = FxHashSet::default();
    for i in insts.iter() {
        let listed = &lists[i.ext as usize..][usize::from(i.defs)..usize::from(i.len)];
        read.extend([i.a, i.b, i.c, i.guard, i.under].into_iter().chain(listed.iter().copied()));
    }
    let mut any = false;
    for i in insts.iter_mut().filter(|i| !read.contains(&i.d)) {
        if let Op::Mbar(Mbar::Test { relaxed, .. }) = &mut i.op {
            (*relaxed, any) = (true, true);
        }
    }
    any
}

impl Lower<'_, '_> {
    pub(super) fn mbarrier(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let Some(name) = m.one_of(&NAMES).map(|k| NAMES[k]) else { return self.fail("the operation is missing") };
        let (arrives, waits) = (matches!(name, "arrive" | "arrive_drop"), matches!(name, "test_wait" | "try_wait"));
        let expect = arrives && m.take("expect_tx");
        let no_complete = arrives && !expect && m.take("noComplete");
        let parity = waits && m.take("parity");
        let (mut relaxed, mut narrow) = (false, false);
        if arrives || waits || name.ends_with("_tx") {
            relaxed = m.one_of(&[if waits { "acquire" } else { "release" }, "relaxed"]) == Some(1);
            self.linker.relaxed |= relaxed && (arrives || waits);
            // Without a scope, the default is also `.cta`; but compilers and libraries omit the scope even where blocks signal each other.
            narrow = m.one_of(if no_complete { &["cta"] } else { &["cta", "cluster"] }) == Some(0);
        }
        let peer = m.take("shared::cluster");
        if peer && (waits || matches!(name, "init" | "inval" | "pending_count") || no_complete) {
            return self.fail("only an mbarrier of the own block (`.shared::cta`) can be named here");
        }
        let generic = !peer && !self.shared_space(m);
        self.need_ty(m)?;
        if name == "pending_count" {
            self.count(a, 2, 2)?;
            let s = self.src(&a[1], Ty::B(64))?;
            let d = self.dst(&a[0], Class::R)?;
            self.emit(Inst { d, b: s, ..Inst::new(Op::Mbar(Mbar::PendingCount)) });
            return Ok(());
        }
        if arrives && matches!(a.first(), Some(Arg::Mem(..))) {
            return self.fail("the state is missing: `_` discards it");
        }
        let first = usize::from(arrives || waits);
        let count = usize::from(name != "inval");
        let optional = usize::from((arrives && !expect && !no_complete) || name == "try_wait");
        let most = first + 1 + count + usize::from(name == "try_wait");
        self.count(a, most - optional, most)?;
        let at = self.addr(&a[first])?;
        if generic && at.space.is_none() && at.base.is_some() && at.base.class() == Class::R {
            return self.fail("the address has 32 bits, and without `.shared` it is one of any memory, which has 64");
        }
        let mut i = Inst { a: self.addr_reg(&a[first])?, ..Inst::new(Op::Nop) };
        match name {
            "init" => i.op = Op::Mbar(Mbar::Init),
            "inval" => {
                self.linker.invalidates = true;
                i.op = Op::Mbar(Mbar::Inval);
            }
            "expect_tx" => i.op = Op::Mbar(Mbar::ExpectTx),
            "complete_tx" => i.op = Op::Mbar(Mbar::CompleteTx),
            _ if arrives => {
                i.op = Op::Mbar(Mbar::Arrive { drop: name == "arrive_drop", no_complete, expect, relaxed, narrow });
                if first == 1 {
                    if peer && !matches!(a[0], Arg::Sink) {
                        return self.fail("the state of a peer's mbarrier cannot be read: the destination must be `_`");
                    }
                    i.d = self.dst(&a[0], Class::Q)?;
                }
            }
            _ => {
                i.op = Op::Mbar(Mbar::Test { parity, blocking: name == "try_wait", relaxed, narrow });
                i.d = self.dst(&a[0], Class::P)?;
                // Time is not modelled: a wait with a time limit waits until the phase is complete.
                if let Some(limit) = a.get(3) {
                    i.c = self.src(limit, U32)?;
                }
            }
        }
        if let Some(x) = a.get(first + 1) {
            if parity && matches!(x, Arg::Int(2..)) {
                return self.fail("a phase parity is 0 or 1");
            }
            i.b = self.src(x, if waits && !parity { Ty::B(64) } else { U32 })?;
        }
        self.emit(i);
        Ok(())
    }
}
