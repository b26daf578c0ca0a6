//! Video instructions: `vadd`, `vabsdiff4` and their like.

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::exec::alu_video as av;
use crate::ir::*;
use crate::ptx::ast::Arg;

const U32: Ty = Ty::U(32);

impl Lower<'_, '_> {
    pub(super) fn video(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let (name, parts) = match m.root.as_bytes() {
            [name @ .., b'2'] => (name, 2),
            [name @ .., b'4'] => (name, 4),
            name => (name, 1),
        };
        let op = match name {
            b"vadd" => av::ADD,
            b"vsub" => av::SUB,
            b"vavrg" if parts > 1 => av::AVERAGE,
            b"vabsdiff" => av::ABSDIFF,
            b"vmin" => av::MIN,
            b"vmax" => av::MAX,
            b"vset" => av::COMPARE,
            b"vshl" | b"vshr" if parts == 1 => av::SHIFT,
            b"vmad" if parts == 1 => return self.video_mad(m, a),
            _ => return self.fail(format!("unsupported video instruction `{}`", m.root)),
        };
        let mut types = vec![];
        while let Some(t) = m.ty() {
            if !matches!(t, Ty::U(32) | Ty::S(32)) {
                return self.fail("only .u32 and .s32 exist");
            }
            types.push(t.signed());
        }
        let (result, x, y) = match types.as_slice() {
            [d, x, y] if op != av::COMPARE => (*d, *x, *y),
            // The operand that a result is compared with has the type of the first operand.
            [x, y] if op == av::COMPARE => (parts == 1 && *x, *x, *y),
            _ => return self.fail("the types of the result and both operands are needed"),
        };
        let flag = |on: bool, bit: i64| if on { bit } else { 0 };
        let mut imm = op | flag(x, av::SIGNED_A) | flag(y, av::SIGNED_B) | flag(result, av::SIGNED);
        imm |= flag(m.take("sat"), av::SATURATE);
        if op == av::SHIFT {
            let Some(way) = m.one_of(&["clamp", "wrap"]) else { return self.fail("`clamp` or `wrap` is missing") };
            if y {
                return self.fail("the second operand is .u32");
            }
            imm |= flag(m.root == "vshr", av::RIGHT) | flag(way == 1, av::WRAP);
        }
        if op == av::COMPARE {
            let relations = [("lt", 1), ("eq", 2), ("le", 3), ("gt", 4), ("ne", 5), ("ge", 6)];
            let found = m.find(|s| relations.iter().find(|r| r.0 == s).map(|r| r.1));
            let Some(relation) = found else { return self.fail("the comparison is missing") };
            imm |= relation << av::RELATION;
        }
        if parts == 1 { self.video_scalar(m, a, imm) } else { self.video_simd(m, a, imm, parts) }
    }

    /// Parses an operand and the suffix after its dot: `%r1.b0`.
    fn selected<'x>(&self, a: &'x Arg) -> (Arg, Option<&'x str>) {
        if let Arg::Name(n) = a
            && self.lookup(n).is_none()
            && let Some((register, selector)) = n.rsplit_once('.')
        {
            return (Arg::Name(register.into()), Some(selector));
        }
        (a.clone(), None)
    }

    fn video_scalar(&mut self, m: &mut Mods<'_>, a: &[Arg], mut imm: i64) -> R<()> {
        let second = m.one_of(&["add", "min", "max"]).map_or(0, |k| k as i64 + 1);
        imm |= second << av::SECOND;
        self.count(a, 3, 4)?;
        let ((d, part), (x, of_x), (y, of_y)) = (self.selected(&a[0]), self.selected(&a[1]), self.selected(&a[2]));
        for (selector, at) in [(part, av::MASK), (of_x, av::PICK_A), (of_y, av::PICK_B)] {
            imm |= self.part(selector)? << at;
        }
        if (a.len() == 4) != (part.is_some() || second != 0) {
            return self.fail("a third operand is for a second operation, or for a result that is a part");
        }
        if part.is_some() && second != 0 {
            return self.fail("a result that is a part has no second operation");
        }
        let (x, y) = (self.src(&x, U32)?, self.src(&y, U32)?);
        let c = if a.len() == 4 { self.src(&a[3], U32)? } else { self.imm(Class::R, 0) };
        let d = self.dst(&d, Class::R)?;
        self.alu(av::scalar(), d, x, y, c, imm);
        Ok(())
    }

    /// Bytes are numbered from 1 on, and halves after them; 0 is the whole register.
    fn part(&self, selector: Option<&str>) -> R<i64> {
        let Some(selector) = selector else { return Ok(0) };
        match ["b0", "b1", "b2", "b3", "h0", "h1"].iter().position(|s| *s == selector) {
            Some(place) => Ok(place as i64 + 1),
            None => self.fail(format!("`.{selector}` is not a part of a register")),
        }
    }

    /// `vmad`: either a factor of the product or the addend may be negated. Whether the result is signed follows from the negation and from
    /// the factors, whatever type is given.
    fn video_mad(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let types = [m.ty(), m.ty(), m.ty()];
        if types.iter().any(|t| !matches!(t, Some(Ty::U(32) | Ty::S(32)))) {
            return self.fail("three types are needed, each .u32 or .s32");
        }
        let signed = |k: usize| types[k].is_some_and(Ty::signed);
        self.count(a, 4, 4)?;
        let plain = |x: &Arg| match x {
            Arg::Neg(n) => (Arg::Name(n.clone()), true),
            x => (x.clone(), false),
        };
        let [(x, minus_x), (y, minus_y), (z, minus_z)] = [plain(&a[1]), plain(&a[2]), plain(&a[3])];
        let ((x, of_x), (y, of_y)) = (self.selected(&x), self.selected(&y));
        let (minus, more) = (minus_x != minus_y, m.take("po"));
        if usize::from(minus_x || minus_y) + usize::from(minus_z) + usize::from(more) > 1 {
            return self.fail("either the product or the third operand is negated, and neither with `.po`");
        }
        let flags = [
            (signed(1), av::SIGNED_A),
            (signed(2), av::SIGNED_B),
            (minus, av::MINUS_PRODUCT),
            (minus_z, av::MINUS_C),
            (more, av::PLUS_ONE),
            (m.take("sat"), av::SATURATE),
        ];
        let mut imm = flags.iter().filter(|f| f.0).map(|f| f.1).sum::<i64>();
        imm |= m.one_of(&["shr7", "shr15"]).map_or(0, |k| [7, 15][k]) << av::SCALE;
        imm |= self.part(of_x)? << av::PICK_A | self.part(of_y)? << av::PICK_B;
        let (x, y, z) = (self.src(&x, U32)?, self.src(&y, U32)?, self.src(&z, U32)?);
        let d = self.dst(&a[0], Class::R)?;
        self.alu(av::mad(), d, x, y, z, imm);
        Ok(())
    }

    fn video_simd(&mut self, m: &mut Mods<'_>, a: &[Arg], mut imm: i64, parts: usize) -> R<()> {
        let letter = if parts == 2 { 'h' } else { 'b' };
        imm |= if parts == 2 { av::HALVES } else { 0 } | if m.take("add") { av::SUM } else { 0 };
        self.count(a, 4, 4)?;
        let ((d, mask), (x, of_x), (y, of_y)) = (self.selected(&a[0]), self.selected(&a[1]), self.selected(&a[2]));
        // Digits start with the highest lane.
        let digits = |selector: &str, most: u32| -> Option<Vec<u32>> {
            let digits =
                selector.strip_prefix(letter)?.chars().rev().map(|c| c.to_digit(10)).collect::<Option<Vec<_>>>()?;
            digits.iter().all(|k| *k < most).then_some(digits)
        };
        let bad = |l: &Self, s: &str| l.fail(format!("`.{s}` does not select parts of a register"));
        match mask {
            None => imm |= ((1 << parts) - 1) << av::MASK,
            Some(s) => match digits(s, parts as u32) {
                Some(lanes) => lanes.iter().for_each(|k| imm |= 1 << (av::MASK + k)),
                None => return bad(self, s),
            },
        }
        for (selector, at, first) in [(of_x, av::PICK_A, 0), (of_y, av::PICK_B, parts as u32)] {
            let lanes = match selector {
                None => (first..first + parts as u32).collect(),
                Some(s) => match digits(s, 2 * parts as u32).filter(|lanes| lanes.len() == parts) {
                    Some(lanes) => lanes,
                    None => return bad(self, s),
                },
            };
            lanes.iter().zip(0..).for_each(|(part, lane): (&u32, u32)| imm |= i64::from(*part) << (at + 4 * lane));
        }
        let (x, y, c) = (self.src(&x, U32)?, self.src(&y, U32)?, self.src(&a[3], U32)?);
        let d = self.dst(&d, Class::R)?;
        self.alu(av::simd(), d, x, y, c, imm);
        Ok(())
    }
}
