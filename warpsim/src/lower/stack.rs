//! alloca, stacksave and stackrestore.
//!
//! The stack pointer is a hidden register of the function: the first free byte of its frame's local memory.

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::exec::alu_int as ai;
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

impl Lower<'_, '_> {
    pub(super) fn stack(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let ty = self.need_ty(m)?;
        if !matches!(ty, Ty::U(32 | 64)) {
            return self.fail("not defined for this type");
        }
        let wide = ty.class() == Class::Q;
        let top = self.constant(Class::R, Init::FrameEnd);
        match m.root {
            "stacksave" => {
                self.count(a, 1, 1)?;
                let d = self.dst(&a[0], ty.class())?;
                self.alu(if wide { ai::zext() } else { ai::mov32() }, d, top, N, N, 0);
            }
            "stackrestore" => {
                self.count(a, 1, 1)?;
                let x = self.src(&a[0], ty)?;
                self.alu(if wide { ai::trunc64() } else { ai::mov32() }, top, x, N, N, 0);
            }
            _ => {
                self.count(a, 2, 3)?;
                let size = self.src(&a[1], ty)?;
                let align = if a.len() > 2 { self.literal(&a[2])? } else { 8 };
                if !align.is_power_of_two() || align > 1 << 23 {
                    return self.fail("the alignment must be a power of two up to 2^23");
                }
                let d = self.dst(&a[0], ty.class())?;
                let mut i = Inst { d, a: size, b: top, imm: align.max(8) as i64, ..Inst::new(Op::Alloca) };
                self.ext(&mut i, &[top], &[]);
                self.emit(i);
            }
        }
        Ok(())
    }
}
