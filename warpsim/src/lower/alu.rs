//! Integer arithmetic.

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::exec::{alu_int as ai, alu_rare as ar};
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

impl Lower<'_, '_> {
    pub fn need_ty(&self, m: &mut Mods<'_>) -> R<Ty> {
        match m.ty() {
            Some(t) => Ok(t),
            None => self.fail(format!("`{}` without a type", m.root)),
        }
    }

    pub(super) fn arith(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let ty = self.need_ty(m)?;
        if ty.float() { self.float_arith(m, a, ty) } else { self.int_arith(m, a, ty) }
    }

    /// Source operands of one type, then `d`.
    fn regs(&mut self, a: &[Arg], ty: Ty, n: usize) -> R<(Reg, [Reg; 3])> {
        self.count(a, n + 1, n + 1)?;
        let mut s = [N; 3];
        for k in 0..n {
            s[k] = self.src(&a[k + 1], ty)?;
        }
        Ok((self.dst(&a[0], ty)?, s))
    }

    fn int_arith(&mut self, m: &mut Mods<'_>, a: &[Arg], ty: Ty) -> R<()> {
        let signed = ty.signed();
        let bits = ty.bits();
        if matches!(ty, Ty::U16x2 | Ty::S16x2) {
            return self.packed_int(m, a, ty);
        }
        if matches!(m.root, "mul" | "mad") {
            return self.int_mul(m, a, ty);
        }
        if m.take("cc") {
            return self.carry(m.root, a, ty, false, true);
        }
        if m.take("sat") {
            let f = if m.root == "add" { ai::addsat_s32() } else { ai::subsat_s32() };
            if ty != Ty::S(32) {
                return self.fail("`.sat` needs .s32");
            }
            let (d, s) = self.regs(a, ty, 2)?;
            self.alu(f, d, s[0], s[1], N, 0);
            return Ok(());
        }
        let relu = ty == Ty::S(32) && matches!(m.root, "min" | "max") && m.take("relu");
        let f = match (m.root, bits) {
            ("min", 32) if relu => ar::min_relu(),
            ("max", 32) if relu => ar::max_relu(),
            ("add", 32) => ai::add32(),
            ("add", 16) => ai::add16(),
            ("add", 64) => ai::add64(),
            ("sub", 32) => ai::sub32(),
            ("sub", 16) => ai::sub16(),
            ("sub", 64) => ai::sub64(),
            ("div", 32) => {
                if signed {
                    ai::div_s32()
                } else {
                    ai::div_u32()
                }
            }
            ("div", 16) => {
                if signed {
                    ai::div_s16()
                } else {
                    ai::div_u16()
                }
            }
            ("div", 64) => {
                if signed {
                    ai::div_s64()
                } else {
                    ai::div_u64()
                }
            }
            ("min", 32) => {
                if signed {
                    ai::min_s32()
                } else {
                    ai::min_u32()
                }
            }
            ("max", 32) => {
                if signed {
                    ai::max_s32()
                } else {
                    ai::max_u32()
                }
            }
            ("min", 16) => {
                if signed {
                    ai::min_s16()
                } else {
                    ai::min_u32()
                }
            }
            ("max", 16) => {
                if signed {
                    ai::max_s16()
                } else {
                    ai::max_u32()
                }
            }
            ("min", 64) => {
                if signed {
                    ai::min_s64()
                } else {
                    ai::min_u64()
                }
            }
            ("max", 64) => {
                if signed {
                    ai::max_s64()
                } else {
                    ai::max_u64()
                }
            }
            ("abs", 32) => ai::abs32(),
            ("abs", 16) => ai::abs16(),
            ("abs", 64) => ai::abs64(),
            ("neg", 32) => ai::neg32(),
            ("neg", 16) => ai::neg16(),
            ("neg", 64) => ai::neg64(),
            _ => return self.fail("not defined for this type"),
        };
        let n = if matches!(m.root, "abs" | "neg") { 1 } else { 2 };
        let (d, s) = self.regs(a, ty, n)?;
        self.alu(f, d, s[0], s[1], s[2], 0);
        Ok(())
    }

    fn int_mul(&mut self, m: &mut Mods<'_>, a: &[Arg], ty: Ty) -> R<()> {
        let (signed, bits, mad) = (ty.signed(), ty.bits(), m.root == "mad");
        let part = m.one_of(&["lo", "hi", "wide"]).unwrap_or(0);
        let cc = m.take("cc");
        let sat = mad && part == 1 && ty == Ty::S(32) && m.take("sat");
        let f = match (part, bits) {
            (0, 32) => ai::mul32(),
            (0, 16) => ai::mul16(),
            (0, 64) => ai::mul64(),
            (1, 32) => {
                if signed {
                    ai::mulhi_s32()
                } else {
                    ai::mulhi_u32()
                }
            }
            (1, 16) => {
                if signed {
                    ai::mulhi_s16()
                } else {
                    ai::mulhi_u16()
                }
            }
            (1, 64) => {
                if signed {
                    ai::mulhi_s64()
                } else {
                    ai::mulhi_u64()
                }
            }
            (2, 32) => {
                if signed {
                    ai::mulwide_s32()
                } else {
                    ai::mulwide_u32()
                }
            }
            (2, 16) => {
                if signed {
                    ai::mulwide_s16()
                } else {
                    ai::mulwide_u16()
                }
            }
            _ => return self.fail("not defined for this type"),
        };
        self.count(a, 3 + usize::from(mad), 3 + usize::from(mad))?;
        let (x, y) = (self.src(&a[1], ty)?, self.src(&a[2], ty)?);
        let out = if part == 2 { Ty::U(bits as u8 * 2) } else { ty };
        if !mad {
            let d = self.dst(&a[0], out)?;
            self.alu(f, d, x, y, N, 0);
            return Ok(());
        }
        let z = self.src(&a[3], out)?;
        let d = self.dst(&a[0], out)?;
        let fused = match (part, bits) {
            _ if cc => None,
            (0, 32) => Some(ai::mad32()),
            (0, 16) => Some(ai::mad16()),
            (0, 64) => Some(ai::mad64()),
            (2, 32) => Some(if signed { ai::madwide_s32() } else { ai::madwide_u32() }),
            _ => None,
        };
        if let Some(f) = fused {
            self.alu(f, d, x, y, z, 0);
            return Ok(());
        }
        let t = self.temp(out.class());
        self.alu_free(f, t, x, y, N, 0);
        if cc {
            return self.carry_regs("add", d, t, z, out, false, true);
        }
        let add = match out.bits() {
            16 => ai::add16(),
            64 => ai::add64(),
            _ if sat => ai::addsat_s32(),
            _ => ai::add32(),
        };
        self.alu(add, d, t, z, N, 0);
        Ok(())
    }

    /// addc, subc, madc: reads the carry; `.cc` writes it.
    pub(super) fn extended(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let ty = self.need_ty(m)?;
        if m.root != "madc" {
            let cc = m.take("cc");
            let op = if m.root == "addc" { "add" } else { "sub" };
            return self.carry(op, a, ty, true, cc);
        }
        let hi = m.one_of(&["lo", "hi"]) == Some(1);
        let cc = m.take("cc");
        self.count(a, 4, 4)?;
        let f = match (hi, ty.bits(), ty.signed()) {
            (false, 32, _) => ai::mul32(),
            (false, 64, _) => ai::mul64(),
            (true, 32, false) => ai::mulhi_u32(),
            (true, 32, true) => ai::mulhi_s32(),
            (true, 64, false) => ai::mulhi_u64(),
            (true, 64, true) => ai::mulhi_s64(),
            _ => return self.fail("not defined for this type"),
        };
        let (x, y, z) = (self.src(&a[1], ty)?, self.src(&a[2], ty)?, self.src(&a[3], ty)?);
        let d = self.dst(&a[0], ty)?;
        let t = self.temp(ty.class());
        self.alu_free(f, t, x, y, N, 0);
        self.carry_regs("add", d, t, z, ty, true, cc)
    }

    fn carry(&mut self, op: &str, a: &[Arg], ty: Ty, read: bool, write: bool) -> R<()> {
        let (d, s) = self.regs(a, ty, 2)?;
        self.carry_regs(op, d, s[0], s[1], ty, read, write)
    }

    fn carry_regs(&mut self, op: &str, d: Reg, x: Reg, y: Reg, ty: Ty, read: bool, write: bool) -> R<()> {
        let cin = if read { self.carry } else { self.imm(Class::P, if op == "sub" { 0xffff_ffff } else { 0 }) };
        let (value, flag) = match (op, ty.bits()) {
            ("add", 32) => (ai::addc32(), ai::carry_add32()),
            ("add", 64) => (ai::addc64(), ai::carry_add64()),
            ("sub", 32) => (ai::subc32(), ai::carry_sub32()),
            ("sub", 64) => (ai::subc64(), ai::carry_sub64()),
            _ => return self.fail("not defined for this type"),
        };
        // The carry needs the sources and the old carry, any of which the result may overwrite.
        let t = self.temp(Class::P);
        if write {
            self.alu_free(flag, t, x, y, cin, 0);
        }
        self.alu(value, d, x, y, cin, 0);
        if write {
            let c = self.carry;
            self.alu(ai::pmov(), c, t, N, N, 0);
        }
        Ok(())
    }

    pub(super) fn int_op(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        super::int_ops::lower(self, m, a)
    }
}
