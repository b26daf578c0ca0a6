//! Moves, and packing and unpacking of vectors.

use super::func::{Entity, Lower, R};
use super::types::{Mods, Ty};
use crate::exec::alu_int as ai;
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

fn copy(ty: Ty) -> LaneFn {
    match ty.class() {
        Class::P => ai::pmov(),
        Class::R => ai::mov32(),
        Class::Q => ai::mov64(),
    }
}

impl Lower<'_, '_> {
    /// The two 64-bit halves of a 128-bit register.
    pub fn wide_reg(&self, a: &Arg) -> Option<[Reg; 2]> {
        let Arg::Name(n) = a else { return None };
        match self.lookup(n) {
            Some(Entity::Reg(r, Ty::B(128))) => Some([r, Reg::new(Class::Q, r.slot() as u32 + 1)]),
            _ => None,
        }
    }

    pub(super) fn mov(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let count = self.vector(m);
        let ty = self.need_ty(m)?;
        self.count(a, 2, 2)?;
        if count > 1 {
            return self.mov_vector(a, ty, count);
        }
        if ty.bits() == 128 {
            return self.mov128(a);
        }
        match (&a[0], &a[1]) {
            (Arg::Vec(parts), _) => return self.unpack(parts, &a[1], ty.bits()),
            (_, Arg::Vec(parts)) => return self.pack(&a[0], parts, ty.bits()),
            _ => {}
        }
        let s = self.src(&a[1], ty)?;
        let d = self.dst(&a[0], ty)?;
        self.emit(Inst { d, a: s, moves: true, ..Inst::new(Op::Alu(copy(ty))) });
        Ok(())
    }

    /// `mov.v4.u32 v, %tid`: handles each element, or axis, separately.
    fn mov_vector(&mut self, a: &[Arg], ty: Ty, count: u8) -> R<()> {
        let axes = |n: &str| ["x", "y", "z", "w"].map(|axis| Arg::Name(format!("{n}.{axis}").into()));
        let named = match &a[1] {
            Arg::Name(n) if count == 4 && n.starts_with('%') => axes(n).to_vec(),
            vector => self.elements(vector, count)?.into_iter().cloned().collect(),
        };
        let mut parts = vec![];
        // Reads all sources before writing any destination.
        for x in &named {
            let (s, part) = (self.src(x, ty)?, self.temp(ty.class()));
            self.alu_free(copy(ty), part, s, N, N, 0);
            parts.push(part);
        }
        for (d, part) in self.elements(&a[0], count)?.into_iter().zip(parts) {
            let d = self.dst(d, ty)?;
            self.alu(copy(ty), d, part, N, N, 0);
        }
        Ok(())
    }

    fn mov128(&mut self, a: &[Arg]) -> R<()> {
        let halves = |l: &mut Self, x: &Arg, write: bool| -> R<[Reg; 2]> {
            match x {
                Arg::Vec(v) if v.len() == 2 => {
                    let ty = Ty::B(64);
                    Ok(if write {
                        [l.dst(&v[0], Class::Q)?, l.dst(&v[1], Class::Q)?]
                    } else {
                        [l.src(&v[0], ty)?, l.src(&v[1], ty)?]
                    })
                }
                _ => match l.wide_reg(x) {
                    Some(p) => Ok(p),
                    None => l.fail("a .b128 register or a pair of .b64 is needed"),
                },
            }
        };
        let (d, s) = (halves(self, &a[0], true)?, halves(self, &a[1], false)?);
        self.alu(ai::mov64(), d[0], s[0], N, N, 0);
        self.alu(ai::mov64(), d[1], s[1], N, N, 0);
        Ok(())
    }

    fn unpack(&mut self, parts: &[Arg], s: &Arg, bits: u32) -> R<()> {
        let n = parts.len() as u32;
        if n == 0 || !matches!((bits, bits / n), (64, 32 | 16 | 8) | (32, 16 | 8) | (16, 8)) || !bits.is_multiple_of(n)
        {
            return self.fail("a vector of the wrong size");
        }
        let w = bits / n;
        let s = self.src(s, Ty::B(bits as u8))?;
        // Reads everything before writing: a destination may also be a source.
        let (lo, hi) = if bits == 64 {
            let (lo, hi) = (self.temp(Class::R), self.temp(Class::R));
            self.alu_free(ai::trunc64(), lo, s, N, N, 0);
            self.alu_free(ai::hi64(), hi, s, N, N, 0);
            (lo, hi)
        } else {
            let lo = self.temp(Class::R);
            self.alu_free(ai::mov32(), lo, s, N, N, 0);
            (lo, N)
        };
        for (k, p) in parts.iter().enumerate() {
            if matches!(p, Arg::Sink) {
                continue;
            }
            let at = k as u32 * w;
            let from = if at >= 32 { hi } else { lo };
            let d = self.dst(p, Ty::B(w as u8))?;
            if w == 32 {
                self.alu(ai::mov32(), d, from, N, N, 0);
            } else {
                let t = self.temp(Class::R);
                self.alu_free(ai::shr_imm(), t, from, N, N, i64::from(at % 32));
                self.alu(ai::mask32(), d, t, N, N, (1 << w) - 1);
            }
        }
        Ok(())
    }

    fn pack(&mut self, d: &Arg, parts: &[Arg], bits: u32) -> R<()> {
        let n = parts.len() as u32;
        if n == 0 || !matches!((bits, bits / n), (64, 32 | 16 | 8) | (32, 16 | 8) | (16, 8)) || !bits.is_multiple_of(n)
        {
            return self.fail("a vector of the wrong size");
        }
        let w = bits / n;
        let mut regs = vec![];
        for p in parts {
            regs.push(self.src(p, Ty::B(w as u8))?);
        }
        if let ([a, b], 32) = (&regs[..], bits) {
            let d = self.dst(d, Ty::B(32))?;
            self.emit(Inst { d, a: *a, b: *b, joins: true, ..Inst::new(Op::Alu(ai::pack32())) });
            return Ok(());
        }
        let words: Vec<Reg> = regs
            .chunks((32 / w) as usize)
            .map(|c| {
                if c.len() == 1 {
                    return c[0];
                }
                if w == 16 {
                    let t = self.temp(Class::R);
                    self.alu_free(ai::pack32(), t, c[0], c[1], N, 0);
                    return t;
                }
                let mut acc = self.imm(Class::R, 0);
                for (k, r) in c.iter().enumerate() {
                    let t = self.temp(Class::R);
                    self.alu_free(ai::insert8(), t, acc, *r, N, 8 * k as i64);
                    acc = t;
                }
                acc
            })
            .collect();
        if bits == 64 {
            let d = self.dst(d, Ty::B(64))?;
            self.alu(ai::pack64(), d, words[0], words[1], N, 0);
        } else {
            let d = self.dst(d, Ty::B(bits as u8))?;
            self.alu(ai::mov32(), d, words[0], N, N, 0);
        }
        Ok(())
    }
}
