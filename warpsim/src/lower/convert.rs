//! cvt, cvta, isspacep.

use super::conversions::{pair_refused, refused};
use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::exec::cvt::{self, Conv, Cv};
use crate::exec::{alu_half as hf, alu_int as ai};
use crate::ir::*;
use crate::num::Rnd;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

fn scalar(t: Ty) -> Option<Cv> {
    Some(match t {
        Ty::U(8) => Cv::U8,
        Ty::S(8) => Cv::S8,
        Ty::U(16) => Cv::U16,
        Ty::S(16) => Cv::S16,
        Ty::U(32) => Cv::U32,
        Ty::S(32) => Cv::S32,
        Ty::U(64) => Cv::U64,
        Ty::S(64) => Cv::S64,
        Ty::F16 => Cv::F16,
        Ty::BF16 => Cv::BF16,
        Ty::F32 => Cv::F32,
        Ty::F64 => Cv::F64,
        Ty::TF32 => Cv::TF32,
        _ => return None,
    })
}

/// The element of a packed pair.
fn pair(t: Ty) -> Option<Cv> {
    Some(match t {
        Ty::F16x2 => Cv::F16,
        Ty::BF16x2 => Cv::BF16,
        Ty::E4M3x2 => Cv::E4M3,
        Ty::E5M2x2 => Cv::E5M2,
        _ => return None,
    })
}

impl Lower<'_, '_> {
    pub(super) fn cvt(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        if m.take("pack") {
            return self.cvt_pack(m, a);
        }
        let round = m.rounding();
        let (ftz, sat) = (m.take("ftz"), m.take("sat"));
        let (satfinite, relu) = (m.take("satfinite"), m.take("relu"));
        let (to, from) = (self.need_ty(m)?, self.need_ty(m)?);
        let mut c = Conv { from: Cv::F32, to: Cv::F32, rnd: Rnd::Rn, integral: false, ftz, sat, satfinite, relu };
        if let Some((r, integral)) = round {
            (c.rnd, c.integral) = (r, integral);
        }
        if let (Some(t), Some(f)) = (pair(to), scalar(from)) {
            // d = {a in the high part, b in the low part}
            self.count(a, 3, 3)?;
            (c.to, c.from) = (t, f);
            self.refuse(pair_refused(&c, round, false))?;
            let (x, y) = (self.src(&a[1], from)?, self.src(&a[2], from)?);
            let d = self.dst(&a[0], to)?;
            let plain = c.rnd == Rnd::Rn && !relu && !satfinite && !ftz;
            let f = match t {
                Cv::F16 if plain => hf::cvt_f16x2_f32(),
                Cv::BF16 if plain => hf::cvt_bf16x2_f32(),
                _ => cvt::cvt_pack2(),
            };
            self.alu(f, d, x, y, N, c.pack());
            return Ok(());
        }
        self.count(a, 2, 2)?;
        if let (Some(t), Some(f)) = (pair(to), pair(from)) {
            (c.to, c.from) = (t, f);
            self.refuse(pair_refused(&c, round, true))?;
            let x = self.src(&a[1], from)?;
            let d = self.dst(&a[0], to)?;
            self.alu(cvt::cvt_unpack2(), d, x, N, N, c.pack());
            return Ok(());
        }
        let (Some(t), Some(f)) = (scalar(to), scalar(from)) else { return self.fail("not defined for these types") };
        (c.to, c.from) = (t, f);
        self.refuse(refused(&c, round))?;
        self.wider &= t != Cv::BF16 && f != Cv::BF16;
        let x = self.src(&a[1], from)?;
        let (d, wide) = self.dst_wide(&a[0], to)?;
        let func = pick(&c);
        self.alu(func.0, d, x, N, N, func.1.unwrap_or_else(|| c.pack()));
        // A narrow signed result is sign-extended to a wider register.
        let reg_bits = self.reg_bits(&a[0]);
        if wide.is_some() {
            self.widen(d, wide, to.signed().then_some(to.bits()));
        } else if to.signed() && reg_bits > to.bits() && to.bits() < 32 {
            self.alu(ai::sext32(), d, d, N, N, i64::from(to.bits()));
            if reg_bits == 16 {
                self.alu(ai::mask32(), d, d, N, N, 0xffff);
            }
        }
        Ok(())
    }

    fn refuse(&self, why: Option<&str>) -> R<()> {
        why.map_or(Ok(()), |why| self.fail(why))
    }

    /// cvta{.to}.space and isspacep.space
    pub(super) fn cvta(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let to = m.take("to");
        let spaces = ["global", "shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry"];
        let Some(space) = m.one_of(&spaces) else { return self.fail("a state space is missing") };
        self.count(a, 2, 2)?;
        if m.root == "isspacep" {
            let window = match spaces[space] {
                "global" => Window::Global,
                "const" => Window::Const,
                "local" => Window::Local,
                "shared::cluster" => Window::Shared { cluster: true },
                "shared" | "shared::cta" => Window::Shared { cluster: false },
                _ => Window::Param,
            };
            let x = self.src(&a[1], Ty::U(64))?;
            let d = self.dst(&a[0], Class::P)?;
            self.emit(Inst { d, a: x, ..Inst::new(Op::IsSpacep(window)) });
            return Ok(());
        }
        if let Arg::Name(n) | Arg::Offset(n, _) = &a[1]
            && let Some(is) = self.space_named(n)
            && !spaces[space].starts_with(is)
        {
            return self.fail(format!("`{n}` is a .{is} variable"));
        }
        let space = match space {
            0 | 5 => MemSpace::Global,
            1..=3 => MemSpace::Shared,
            4 => MemSpace::Local,
            _ if self.func.entry => MemSpace::Param,
            _ => MemSpace::Local,
        };
        if self.need_ty(m)?.bits() != 64 {
            return self.fail("only 64-bit generic addresses are supported");
        }
        let x = self.src(&a[1], Ty::U(64))?;
        let d = self.dst(&a[0], Ty::U(64))?;
        let window = crate::memory::window(space);
        if window == 0 {
            self.alu(ai::mov64(), d, x, N, N, 0);
        } else {
            let w = self.imm(Class::Q, window);
            self.alu(if to { ai::sub64() } else { ai::add64() }, d, x, w, N, 0);
        }
        Ok(())
    }
}

/// The lane function of a scalar conversion, and its flags if it has any.
fn pick(c: &Conv) -> (LaneFn, Option<i64>) {
    let plain = !c.ftz && !c.sat && !c.satfinite && !c.relu;
    let nearest = plain && c.rnd == Rnd::Rn && !c.integral;
    let zero = !c.sat && !c.ftz && c.rnd == Rnd::Rz;
    use Cv::*;
    match (c.from, c.to) {
        (U32 | S32, U32 | S32) if plain => (ai::mov32(), None),
        (U64 | S64, U64 | S64) if plain => (ai::mov64(), None),
        (U64 | S64, U32 | S32) if plain => (ai::trunc64(), None),
        (U32, U64 | S64) if plain => (ai::zext(), None),
        (U16, U32 | S32 | U16 | S16) if plain => (ai::mask32(), Some(0xffff)),
        (S32, U64 | S64) if plain => (ai::sext64(), Some(32)),
        (S16, U64 | S64) if plain => (ai::sext64(), Some(16)),
        (S16, U32 | S32) if plain => (ai::sext32(), Some(16)),
        (S8, U32 | S32) if plain => (ai::sext32(), Some(8)),
        (U32 | S32, U16 | S16) if plain => (ai::mask32(), Some(0xffff)),
        (U32 | S32 | U16 | S16 | U8, U8) if plain => (ai::mask32(), Some(0xff)),
        (U8, U32 | S32 | U16 | S16) if plain => (ai::mask32(), Some(0xff)),
        (F16, F32) if plain => (hf::cvt_f32_f16(), None),
        (BF16, F32) if plain => (hf::cvt_f32_bf16(), None),
        (F32, F16) if nearest => (hf::cvt_f16_f32(), None),
        (F32, BF16) if nearest => (hf::cvt_bf16_f32(), None),
        (F32, F64) if plain => (hf::cvt_f64_f32(), None),
        (F64, F32) if nearest => (hf::cvt_f32_f64(), None),
        (S32, F32) if nearest => (hf::cvt_f32_s32(), None),
        (U32, F32) if nearest => (hf::cvt_f32_u32(), None),
        (F32, S32) if zero => (hf::cvt_s32_f32_rz(), None),
        (F32, U32) if zero => (hf::cvt_u32_f32_rz(), None),
        (S64, F64) if nearest => (cvt::cvt_f64_s64(), None),
        (U64, F64) if nearest => (cvt::cvt_f64_u64(), None),
        _ => match (c.from.bits() == 64, c.to.bits() == 64) {
            (false, false) => (cvt::cvt_rr(), None),
            (false, true) => (cvt::cvt_rq(), None),
            (true, false) => (cvt::cvt_qr(), None),
            (true, true) => (cvt::cvt_qq(), None),
        },
    }
}
