//! wmma.load, wmma.store, wmma.mma.

use std::sync::Arc;

use super::func::{Lower, R};
use super::mma::{by_rows, held_in};
use super::types::{Mods, Ty};
use crate::ir::*;
use crate::num::Rnd;
use crate::ptx::ast::Arg;

/// Number of registers of a fragment.
fn length(rows: u16, cols: u16, e: Elem) -> usize {
    let bits = usize::from(rows) * usize::from(cols) * e.bits() as usize / 32;
    bits / if e == Elem::F64 { 64 } else { 32 }
}

impl Lower<'_, '_> {
    pub(super) fn wmma(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let Some(kind) = m.one_of(&["load", "store", "mma"]) else { return self.fail("the operation is missing") };
        if kind == 2 {
            return self.wmma_mma(m, a);
        }
        let operand = m.one_of(&["a", "b", "c", "d"]).unwrap_or(3);
        m.take("sync");
        m.take("aligned");
        let Some(layout) = m.one_of(&["row", "col"]) else { return self.fail("the layout is missing") };
        let [sm, sn, sk] = self.shape(m)?;
        let space = self.space(m);
        let elem = self.elem(m)?;
        let small = elem.bits() < 8;
        if small && (operand > 1 || layout != operand || (sm, sn, u32::from(sk)) != (8, 8, 128 / elem.bits())) {
            return self.fail("of elements of fewer than 8 bits, A is by rows, B by columns, and a row has 128 bits");
        }
        // Such a B is moved by columns, so that elements that are adjacent in memory share a register.
        let (layout, operand) = if small { (0, operand * 4) } else { (layout, operand) };
        let (rows, cols) = [(sm, sk), (sk, sn), (sm, sn), (sm, sn), (sn, sk)][operand];
        self.count(a, 2, 3)?;
        let store = kind == 1;
        let (mem, frag) = if store { (&a[0], &a[1]) } else { (&a[1], &a[0]) };
        let regs = self.reg_list(frag, held_in(elem), !store)?;
        if regs.len() < length(rows, cols, elem) {
            return self.fail("a fragment of the wrong length");
        }
        let base = self.addr_reg(mem)?;
        // Without a stride, the matrix is dense.
        let stride = match a.get(2) {
            Some(x) => self.src(x, Ty::U(32))?,
            None => self.imm(Class::R, u64::from(if layout == 0 { cols } else { rows })),
        };
        let copy = WmmaCopy { store, rows, cols, by_rows: layout == 0, elem, space };
        let mut i = Inst { a: base, b: stride, ..Inst::new(Op::WmmaCopy(copy)) };
        if store {
            self.ext(&mut i, &[], &regs);
        } else {
            self.ext(&mut i, &regs, &[]);
        }
        self.emit(i);
        Ok(())
    }

    fn wmma_mma(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let and = m.one_of(&["xor", "and"]);
        m.take("popc");
        m.take("sync");
        m.take("aligned");
        // Fragments keep the layout of the load.
        let layout = [m.find(by_rows), m.find(by_rows)];
        let [sm, sn, sk] = self.shape(m)?;
        let sat = m.take("satfinite");
        let rnd = m.rounding().map(|r| r.0);
        let d = self.elem(m)?;
        let second = self.elem(m)?;
        let (ea, eb, c) =
            if m.left().is_some() { (second, self.elem(m)?, self.elem(m)?) } else { (Elem::F16, Elem::F16, second) };
        if rnd.is_some() && ea != Elem::F64 {
            return self.fail("a rounding mode is for f64");
        }
        let small = ea.bits() < 8;
        if small && (layout != [Some(true), Some(false)] || (sm, sn, u32::from(sk)) != (8, 8, 128 / ea.bits())) {
            return self.fail("of elements of fewer than 8 bits, A is by rows, B by columns, and a row has 128 bits");
        }
        if small && ea.bits() != eb.bits() || (ea == Elem::B1) != and.is_some() {
            return self.fail("not defined for these types");
        }
        self.count(a, 4, 4)?;
        let dd = self.reg_list(&a[0], held_in(d), true)?;
        let (ra, rb) = (self.reg_list(&a[1], held_in(ea), false)?, self.reg_list(&a[2], held_in(eb), false)?);
        let rc = self.reg_list(&a[3], held_in(c), false)?;
        let short = [(&dd, sm, sn, d), (&ra, sm, sk, ea), (&rb, sk, sn, eb), (&rc, sm, sn, c)];
        if short.into_iter().any(|(regs, rows, cols, e)| regs.len() < length(rows, cols, e)) {
            return self.fail("a fragment of the wrong length");
        }
        let info = Mma {
            m: sm,
            n: sn,
            k: sk,
            a: ea,
            b: eb,
            d,
            c,
            sat,
            rnd: rnd.unwrap_or(Rnd::Rn),
            and: and == Some(1),
            sparse: None,
            a_regs: true,
            neg_a: false,
            neg_b: false,
            trans_a: false,
            trans_b: false,
        };
        let mut i = Inst { imm: ra.len() as i64 | (rb.len() as i64) << 8, ..Inst::new(Op::Wmma(Arc::new(info))) };
        let uses: Vec<Reg> = ra.into_iter().chain(rb).chain(rc).collect();
        self.ext(&mut i, &dd, &uses);
        self.emit(i);
        Ok(())
    }
}
