//! Comparisons and selections.

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::exec::{alu_float as ff, alu_half as hf, alu_int as ai};
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

impl Lower<'_, '_> {
    /// setp and set.
    pub(super) fn compare(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let set = m.root == "set";
        let cmps = [
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
            "num", "nan",
        ];
        let Some(cmp) = m.one_of(&cmps).map(|k| cmps[k]) else { return self.fail("a comparison is missing") };
        let bool_op = m.one_of(&["and", "or", "xor"]).map_or(0, |k| k as i64 + 1);
        let ftz = m.take("ftz");
        let out_ty = if set { Some(self.need_ty(m)?) } else { None };
        let ty = self.need_ty(m)?;
        self.count(a, 3 + usize::from(bool_op != 0), 3 + usize::from(bool_op != 0))?;
        let (x, y) = (self.src(&a[1], ty)?, self.src(&a[2], ty)?);
        let (c, negc) = match a.get(3) {
            None => (N, 0),
            Some(Arg::Not(n)) => (self.src(&Arg::Name(n.clone()), Ty::Pred)?, 4),
            Some(p) => (self.src(p, Ty::Pred)?, 0),
        };
        let combine = bool_op | negc;
        let packed = matches!(ty, Ty::F16x2 | Ty::BF16x2);
        if let Some(out) = out_ty {
            if packed {
                return self.set_packed(&a[0], out, cmp, ty, ftz, [x, y, c], combine);
            }
            let p = self.temp(Class::P);
            self.emit_cmp(cmp, ty, ftz, p, x, y, c, combine, false, 0)?;
            let (t, class) = match out {
                Ty::F32 => (0x3f80_0000, Class::R),
                Ty::U(32) | Ty::S(32) | Ty::B(32) => (0xffff_ffff, Class::R),
                Ty::U(16) | Ty::S(16) => (0xffff, Class::R),
                Ty::F16 => (0x3c00, Class::R),
                Ty::BF16 => (0x3f80, Class::R),
                _ => return self.fail("not defined for this type"),
            };
            let (one, zero) = (self.imm(class, t), self.imm(class, 0));
            let d = self.dst(&a[0], out)?;
            self.alu(ai::selp32(), d, one, zero, p, 0);
            return Ok(());
        }
        let (p, q) = match &a[0] {
            Arg::Pair(p, q) => (self.dst(p, Class::P)?, self.dst(q, Class::P)?),
            p => (self.dst(p, Class::P)?, N),
        };
        if packed {
            let hi = if q.is_some() { q } else { self.temp(Class::P) };
            self.emit_cmp(cmp, ty, ftz, p, x, y, c, combine, false, 0)?;
            return self.emit_cmp(cmp, ty, ftz, hi, x, y, c, combine, false, 1);
        }
        if q.is_some() {
            // `p` may also be the predicate to combine with, so it is written last.
            self.emit_cmp(cmp, ty, ftz, q, x, y, c, combine, true, 0)?;
            if c == q {
                return self.fail("the second predicate is also the combined one");
            }
        }
        self.emit_cmp(cmp, ty, ftz, p, x, y, c, combine, false, 0)
    }

    /// `set` on two halves: each half of the result is one or all ones.
    fn set_packed(
        &mut self,
        d: &Arg,
        out: Ty,
        cmp: &str,
        ty: Ty,
        ftz: bool,
        [x, y, c]: [Reg; 3],
        combine: i64,
    ) -> R<()> {
        let one = match out {
            Ty::F16x2 if ty == out => 0x3c00,
            Ty::BF16x2 if ty == out => 0x3f80,
            Ty::U(32) | Ty::S(32) => 0xffff,
            _ => return self.fail("not defined for these types"),
        };
        let zero = self.imm(Class::R, 0);
        let mut halves = [zero; 2];
        for (k, half) in halves.iter_mut().enumerate() {
            let (p, value) = (self.temp(Class::P), self.imm(Class::R, one << (16 * k)));
            self.emit_cmp(cmp, ty, ftz, p, x, y, c, combine, false, k as i64)?;
            *half = self.temp(Class::R);
            self.alu(ai::selp32(), *half, value, zero, p, 0);
        }
        let d = self.dst(d, Class::R)?;
        self.alu(ai::or32(), d, halves[0], halves[1], N, 0);
        Ok(())
    }

    fn emit_cmp(
        &mut self,
        cmp: &str,
        ty: Ty,
        ftz: bool,
        d: Reg,
        x: Reg,
        y: Reg,
        c: Reg,
        combine: i64,
        negate: bool,
        half: i64,
    ) -> R<()> {
        // Derives all comparisons from equal, less, less-or-equal, ordered-not-equal and unordered.
        let (kind, swap, neg) = match cmp {
            "eq" => (0, false, false),
            "ne" if ty.float() => (3, false, false),
            "ne" => (0, false, true),
            "lt" | "lo" => (1, false, false),
            "gt" | "hi" => (1, true, false),
            "le" | "ls" if ty.float() => (2, false, false),
            "ge" | "hs" if ty.float() => (2, true, false),
            "le" | "ls" => (1, true, true),
            "ge" | "hs" => (1, false, true),
            "equ" => (3, false, true),
            "neu" => (0, false, true),
            "ltu" => (2, true, true),
            "leu" => (1, true, true),
            "gtu" => (2, false, true),
            "geu" => (1, false, true),
            "num" => (4, false, true),
            _ => (4, false, false),
        };
        let unsigned = matches!(cmp, "lo" | "ls" | "hi" | "hs");
        let float_only = matches!(cmp, "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "num" | "nan");
        if float_only && !ty.float() {
            return self.fail(format!("`.{cmp}` needs a floating type"));
        }
        let mut imm = combine | if neg != negate { 8 } else { 0 };
        let f = match (ty, kind) {
            (Ty::F32, k) => {
                imm |= i64::from(ftz) << 8;
                [ff::feq, ff::flt, ff::fle, ff::fone, ff::funord][k]()
            }
            (Ty::F64, k) => [ff::deq, ff::dlt, ff::dle, ff::done, ff::dunord][k](),
            (Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2, k) => {
                let bf = matches!(ty, Ty::BF16 | Ty::BF16x2);
                imm |= (i64::from(bf) * hf::BF | i64::from(ftz) * hf::FTZ) << 8 | half << 16;
                [hf::heq, hf::hlt, hf::hle, hf::hone, hf::hunord][k]()
            }
            (Ty::B(16) | Ty::U(16) | Ty::S(16), 0) => ai::eq16(),
            (Ty::B(32) | Ty::U(32) | Ty::S(32), 0) => ai::eq32(),
            (Ty::B(64) | Ty::U(64) | Ty::S(64), 0) => ai::eq64(),
            (Ty::S(16), 1) if !unsigned => ai::lt_s16(),
            (Ty::U(16) | Ty::S(16), 1) => ai::lt_u16(),
            (Ty::S(32), 1) if !unsigned => ai::lt_s32(),
            (Ty::U(32) | Ty::S(32), 1) => ai::lt_u32(),
            (Ty::S(64), 1) if !unsigned => ai::lt_s64(),
            (Ty::U(64) | Ty::S(64), 1) => ai::lt_u64(),
            _ => return self.fail("not defined for this type"),
        };
        let (x, y) = if swap { (y, x) } else { (x, y) };
        self.alu(f, d, x, y, c, imm);
        Ok(())
    }

    /// selp and slct.
    pub(super) fn select(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let ftz = m.take("ftz");
        let ty = self.need_ty(m)?;
        self.count(a, 4, 4)?;
        let wide = ty.class() == Class::Q;
        let (f, cty) = if m.root == "selp" {
            (if wide { ai::selp64() } else { ai::selp32() }, Ty::Pred)
        } else {
            let cty = self.need_ty(m)?;
            let f = match (wide, cty) {
                (false, Ty::S(32)) => ai::slct32_s32(),
                (false, Ty::F32) => ai::slct32_f32(),
                (true, Ty::S(32)) => ai::slct64_s32(),
                (true, Ty::F32) => ai::slct64_f32(),
                _ => return self.fail("not defined for this type"),
            };
            (f, cty)
        };
        let (x, y, c) = (self.src(&a[1], ty)?, self.src(&a[2], ty)?, self.src(&a[3], cty)?);
        let d = self.dst(&a[0], ty)?;
        self.alu(f, d, x, y, c, i64::from(ftz));
        Ok(())
    }
}
