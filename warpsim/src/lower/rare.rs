//! Integer instructions that compilers rarely emit.

use super::func::{Lower, R};
use super::int_ops::{three, two};
use super::types::{Mods, Ty};
use crate::exec::{alu_int as ai, alu_rare as ar};
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

impl Lower<'_, '_> {
    /// add, min, max of `.u16x2` and `.s16x2`.
    pub(super) fn packed_int(&mut self, m: &mut Mods<'_>, a: &[Arg], ty: Ty) -> R<()> {
        let signed = ty == Ty::S16x2;
        let relu = signed && m.root != "add" && m.take("relu");
        let f = match m.root {
            "add" => ar::add16x2(),
            "min" => ar::min16x2(),
            "max" => ar::max16x2(),
            _ => return self.fail("not defined for this type"),
        };
        let flags = i64::from(signed) * ar::SIGNED | i64::from(relu) * ar::RELU;
        two(self, a, f, [ty; 2], ty, flags)
    }

    pub(super) fn fns(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        if self.need_ty(m)? != Ty::B(32) {
            return self.fail("only .b32 exists");
        }
        three(self, a, ar::fns(), [Ty::B(32), Ty::B(32), Ty::S(32)], Ty::B(32), 0)
    }

    pub(super) fn cvt_pack(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let field = m.find(|s| {
            Some(match s {
                "u16" => 16,
                "s16" => -16,
                "u8" => 8,
                "s8" => -8,
                "u4" => 4,
                "s4" => -4,
                "u2" => 2,
                "s2" => -2,
                _ => return None,
            })
        });
        let (Some(field), true) = (field, m.take("sat")) else {
            return self.fail("`.sat` and a type of at most 16 bits are needed");
        };
        let (types, third) = (self.need_ty(m)?, m.ty());
        let wide = i64::abs(field) == 16;
        if types != Ty::S(32) || third != (!wide).then_some(Ty::B(32)) {
            return self.fail("not defined for these types");
        }
        let t = Ty::B(32);
        if wide {
            self.count(a, 3, 3)?;
            let (x, y, zero) = (self.src(&a[1], t)?, self.src(&a[2], t)?, self.imm(Class::R, 0));
            let d = self.dst(&a[0], Class::R)?;
            self.alu(ar::cvt_pack(), d, x, y, zero, field);
            return Ok(());
        }
        three(self, a, ar::cvt_pack(), [t; 3], t, field)
    }

    /// mul24 and mad24.
    pub(super) fn mul24(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let high = m.one_of(&["lo", "hi"]) == Some(1);
        let mad = m.root == "mad24";
        let sat = mad && high && m.take("sat");
        let ty = self.need_ty(m)?;
        let f = match (ty, high) {
            (Ty::U(32), false) => ai::mul24_u(),
            (Ty::S(32), false) => ai::mul24_s(),
            (Ty::U(32), true) if !sat => ar::mul24hi_u(),
            (Ty::S(32), true) => ar::mul24hi_s(),
            _ => return self.fail("not defined for this type"),
        };
        if !mad {
            return two(self, a, f, [ty; 2], ty, 0);
        }
        self.count(a, 4, 4)?;
        let (x, y, z) = (self.src(&a[1], ty)?, self.src(&a[2], ty)?, self.src(&a[3], ty)?);
        let (d, t) = (self.dst(&a[0], Class::R)?, self.temp(Class::R));
        self.alu_free(f, t, x, y, N, 0);
        self.alu(if sat { ai::addsat_s32() } else { ai::add32() }, d, t, z, N, 0);
        Ok(())
    }

    /// lop3, with or without the predicate `(d != 0) BoolOp q`.
    pub(super) fn lop3(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let combine = m.one_of(&["and", "or"]).map(|k| k as i64 + 1);
        let t = self.need_ty(m)?;
        if t != Ty::B(32) {
            return self.fail("only .b32 exists");
        }
        let n = if combine.is_some() { 6 } else { 5 };
        self.count(a, n, n)?;
        let table = (self.literal(&a[4])? & 0xff) as i64;
        let Some(combine) = combine else { return three(self, &a[..4], ai::lop3(), [t; 3], t, table) };
        let Arg::Pair(d, p) = &a[0] else { return self.fail("a predicate beside the destination is needed") };
        let (x, y, z) = (self.src(&a[1], t)?, self.src(&a[2], t)?, self.src(&a[3], t)?);
        let (q, not) = match &a[5] {
            Arg::Not(n) => (self.src(&Arg::Name(n.clone()), Ty::Pred)?, 4),
            q => (self.src(q, Ty::Pred)?, 0),
        };
        let (d, p) = (self.dst(d, Class::R)?, self.dst(p, Class::P)?);
        let (value, zero) = (self.temp(Class::R), self.imm(Class::R, 0));
        self.alu(ai::lop3(), value, x, y, z, table);
        // Bit 3 negates: not equal to zero.
        self.alu(ai::eq32(), p, value, zero, q, combine | not | 8);
        self.alu(ai::mov32(), d, value, N, N, 0);
        Ok(())
    }
}
