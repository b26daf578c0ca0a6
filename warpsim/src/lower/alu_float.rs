//! Floating-point instructions.

use super::arch;
use super::func::{Lower, R};
use super::int_ops::{one, three, two};
use super::types::{Mods, Ty};
use crate::exec::{alu_float as ff, alu_half as hf};
use crate::ir::*;
use crate::num::Rnd;
use crate::ptx::ast::Arg;

impl Lower<'_, '_> {
    pub(super) fn float_arith(&mut self, m: &mut Mods<'_>, a: &[Arg], ty: Ty) -> R<()> {
        match ty {
            Ty::F32 => self.f32_arith(m, a),
            Ty::F64 => self.f64_arith(m, a),
            Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2 => self.half_arith(m, a, ty),
            _ => self.fail("not defined for this type"),
        }
    }

    fn f32_arith(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let t = Ty::F32;
        let rnd = m.rounding().map_or(Rnd::Rn, |r| r.0);
        let ftz = m.take("ftz");
        let sat = m.take("sat");
        let flags = i64::from(ftz) * ff::FTZ | i64::from(sat) * ff::SAT | ff::rnd_flag(rnd);
        let plain = rnd == Rnd::Rn && !sat;
        let pick = |fast: LaneFn, fast_ftz: LaneFn, any: LaneFn| match (plain, ftz) {
            (true, false) => fast,
            (true, true) => fast_ftz,
            _ => any,
        };
        match m.root {
            "add" => two(self, a, pick(ff::fadd(), ff::fadd_ftz(), ff::fadd_any()), [t; 2], t, flags),
            "sub" => two(self, a, pick(ff::fsub(), ff::fsub_ftz(), ff::fsub_any()), [t; 2], t, flags),
            "mul" => two(self, a, pick(ff::fmul(), ff::fmul_ftz(), ff::fmul_any()), [t; 2], t, flags),
            "fma" | "mad" => three(self, a, pick(ff::ffma(), ff::ffma_ftz(), ff::ffma_any()), [t; 3], t, flags),
            "div" => {
                let approximate = m.one_of(&["approx", "full"]) == Some(0);
                two(self, a, if approximate { ff::fdiv_approx() } else { ff::fdiv() }, [t; 2], t, flags)
            }
            "neg" => one(self, a, ff::fneg(), t, t, flags),
            "abs" => one(self, a, ff::fabs(), t, t, flags),
            _ => {
                let nan = m.take("NaN");
                let xs = m.take("xorsign") && m.take("abs");
                let k = i64::from(ftz) | i64::from(m.root == "max") << 8 | i64::from(nan) << 9 | i64::from(xs) << 10;
                if a.len() == 4 {
                    if let Some(why) = arch::lacks(&self.linker.ast.target, arch::THREE_INPUTS) {
                        return self.fail(why);
                    }
                    let tmp = self.temp(Class::R);
                    let (x, y, z) = (self.src(&a[1], t)?, self.src(&a[2], t)?, self.src(&a[3], t)?);
                    let d = self.dst(&a[0], t)?;
                    self.alu_free(ff::fminmax(), tmp, x, y, Reg::NONE, k);
                    self.alu(ff::fminmax(), d, tmp, z, Reg::NONE, k);
                    return Ok(());
                }
                two(self, a, ff::fminmax(), [t; 2], t, k)
            }
        }
    }

    fn f64_arith(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let t = Ty::F64;
        let flags = ff::rnd_flag(m.rounding().map_or(Rnd::Rn, |r| r.0));
        match m.root {
            "add" => two(self, a, ff::dadd(), [t; 2], t, flags),
            "sub" => two(self, a, ff::dsub(), [t; 2], t, flags),
            "mul" => two(self, a, ff::dmul(), [t; 2], t, flags),
            "fma" | "mad" => three(self, a, ff::dfma(), [t; 3], t, flags),
            "div" => two(self, a, ff::ddiv(), [t; 2], t, flags),
            "neg" => one(self, a, ff::dneg(), t, t, 0),
            "abs" => one(self, a, ff::dabs(), t, t, 0),
            "min" => two(self, a, ff::dmin(), [t; 2], t, 0),
            _ => two(self, a, ff::dmax(), [t; 2], t, 0),
        }
    }

    fn half_arith(&mut self, m: &mut Mods<'_>, a: &[Arg], t: Ty) -> R<()> {
        if m.rounding().is_some_and(|r| r.0 != Rnd::Rn) {
            return self.fail("only `.rn` is defined for this type");
        }
        let mut k = 0;
        if matches!(t, Ty::BF16 | Ty::BF16x2) {
            k |= hf::BF;
        }
        if matches!(t, Ty::F16x2 | Ty::BF16x2) {
            k |= hf::PACKED;
        }
        for (name, flag) in
            [("ftz", hf::FTZ), ("sat", hf::SAT), ("relu", hf::RELU), ("NaN", hf::NAN), ("xorsign", hf::XORSIGN)]
        {
            if m.take(name) {
                k |= flag;
            }
        }
        if m.root == "fma" && m.take("oob") {
            k |= hf::OOB;
        }
        if k & hf::XORSIGN != 0 && !m.take("abs") {
            return self.fail("`.xorsign` needs `.abs`");
        }
        match m.root {
            "add" => two(self, a, hf::hadd(), [t; 2], t, k),
            "sub" => two(self, a, hf::hsub(), [t; 2], t, k),
            "mul" => two(self, a, hf::hmul(), [t; 2], t, k),
            "fma" => three(self, a, hf::hfma(), [t; 3], t, k),
            "neg" => one(self, a, hf::hneg(), t, t, k),
            "abs" => one(self, a, hf::habs(), t, t, k),
            "min" => two(self, a, hf::hminmax(), [t; 2], t, k),
            "max" => two(self, a, hf::hminmax(), [t; 2], t, k | hf::MAX),
            _ => self.fail("not defined for this type"),
        }
    }

    /// rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, testp, copysign.
    pub(super) fn float_fn(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let root = m.root;
        let approx = m.take("approx");
        let rnd = m.rounding().map_or(Rnd::Rn, |r| r.0);
        let ftz = m.take("ftz");
        let kinds = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
        let test = m.one_of(&kinds);
        let ty = self.need_ty(m)?;
        let flags = i64::from(ftz) * ff::FTZ | ff::rnd_flag(rnd);
        let f = match (root, ty) {
            ("testp", Ty::F32 | Ty::F64) => {
                let Some(k) = test else { return self.fail("a property is missing") };
                self.count(a, 2, 2)?;
                let x = self.src(&a[1], ty)?;
                let d = self.dst(&a[0], Class::P)?;
                let f = if ty == Ty::F32 { ff::ftestp() } else { ff::dtestp() };
                self.alu(f, d, x, x, Reg::NONE, (k as i64) << 8);
                return Ok(());
            }
            ("copysign", Ty::F32) => return two(self, a, ff::fcopysign(), [ty; 2], ty, 0),
            ("copysign", Ty::F64) => return two(self, a, ff::dcopysign(), [ty; 2], ty, 0),
            ("rcp", Ty::F32) => {
                if approx {
                    ff::rcp_approx()
                } else {
                    ff::frcp()
                }
            }
            ("sqrt", Ty::F32) => {
                if approx {
                    ff::sqrt_approx()
                } else {
                    ff::fsqrt()
                }
            }
            ("rsqrt", Ty::F32) => ff::rsqrt_approx(),
            ("sin", Ty::F32) => ff::sin(),
            ("cos", Ty::F32) => ff::cos(),
            ("lg2", Ty::F32) => ff::lg2(),
            ("ex2", Ty::F32) => ff::ex2(),
            ("tanh", Ty::F32) => ff::tanh(),
            ("rcp", Ty::F64) => {
                if approx {
                    ff::drcp_seed()
                } else {
                    ff::drcp()
                }
            }
            ("sqrt", Ty::F64) => ff::dsqrt(),
            ("rsqrt", Ty::F64) => {
                if ftz {
                    ff::drsqrt_seed()
                } else {
                    ff::drsqrt()
                }
            }
            ("ex2" | "tanh", Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2) => {
                let k = i64::from(matches!(ty, Ty::BF16 | Ty::BF16x2)) * hf::BF
                    | i64::from(matches!(ty, Ty::F16x2 | Ty::BF16x2)) * hf::PACKED
                    | i64::from(ftz) * hf::FTZ;
                return one(self, a, if root == "ex2" { hf::hex2() } else { hf::htanh() }, ty, ty, k);
            }
            _ => return self.fail("not defined for this type"),
        };
        one(self, a, f, ty, ty, flags)
    }
}
