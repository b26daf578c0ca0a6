//! Prefetches, priorities and policies: caches are not modelled, so these only evaluate their operands.

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::exec::alu_int as ai;
use crate::exec::misc::is_fraction;
use crate::ir::*;
use crate::ptx::ast::Arg;

const F32: Ty = Ty::F32;

impl Lower<'_, '_> {
    pub(super) fn hint(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        match m.root {
            "createpolicy" => self.policy(m, a),
            "discard" => {
                m.take("global");
                m.take("L2");
                self.count(a, 2, 2)?;
                let addr = self.addr(&a[0])?;
                if self.literal(&a[1])? != 128 {
                    return self.fail("the size must be 128");
                }
                self.emit(Inst { a: addr.base, imm: addr.off, ..Inst::new(Op::Discard) });
                Ok(())
            }
            _ => {
                self.space(m);
                self.cache_hints(m);
                m.take("tensormap");
                m.find(|s| matches!(s, "L1" | "L2").then_some(()));
                let most = if m.root == "applypriority" { 2 } else { 1 };
                self.count(a, most, most)?;
                let addr = self.addr(&a[0])?;
                self.emit(Inst { a: addr.base, ..Inst::new(Op::Prefetch) });
                Ok(())
            }
        }
    }

    fn policy(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let kind = m.one_of(&["fractional", "range", "cvt"]);
        while m.find(|_| Some(())).is_some() {}
        let d = self.dst(self.arg(a, 0)?, Class::Q)?;
        match kind {
            Some(0) => {
                self.count(a, 1, 2)?;
                if let Some(fraction) = a.get(1) {
                    let constant = !matches!(fraction, Arg::Name(_));
                    let value = if constant { self.immediate(fraction, F32)? } else { 0 };
                    if constant && !is_fraction(f32::from_bits(value as u32)) {
                        return self.fail("the fraction must be above 0 and at most 1");
                    }
                    let fraction = self.src(fraction, F32)?;
                    self.emit(Inst { a: fraction, ..Inst::new(Op::Policy) });
                }
            }
            Some(1) => {
                self.count(a, 4, 4)?;
                self.addr(&a[1])?;
                let (part, whole) = (self.src(&a[2], Ty::U(32))?, self.src(&a[3], Ty::U(32))?);
                self.emit(Inst { b: part, c: whole, ..Inst::new(Op::Policy) });
            }
            Some(_) => {
                self.count(a, 2, 2)?;
                self.src(&a[1], Ty::B(64))?;
            }
            None => return self.fail("`fractional`, `range` or `cvt` is missing"),
        }
        let v = self.imm(Class::Q, 0);
        self.alu(ai::mov64(), d, v, Reg::NONE, Reg::NONE, 0);
        Ok(())
    }
}
