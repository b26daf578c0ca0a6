//! `st.async` and `red.async`.

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::ir::*;
use crate::ptx::ast::{Arg, Space};

impl Lower<'_, '_> {
    /// The parts that both instructions have: space, completion by an mbarrier, and operands `[address], value, [mbarrier]`.
    fn st_async_head(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        self.shared_space(m);
        if !m.take("mbarrier::complete_tx::bytes") {
            return self.fail("only the completion by `.mbarrier::complete_tx::bytes` is supported");
        }
        self.count(a, 3, 3)
    }

    pub(super) fn st_async(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        m.take("weak");
        self.st_async_head(m, a)?;
        let count = self.vector(m);
        let ty = self.need_ty(m)?;
        let bytes = ty.bits() / 8;
        if !matches!(ty, Ty::B(32 | 64) | Ty::U(32 | 64) | Ty::S(32 | 64) | Ty::F32 | Ty::F64) {
            return self.fail("not defined for this type");
        }
        if bytes * u32::from(count) > 16 {
            return self.fail("a vector of more than 16 bytes");
        }
        self.async_store(a, StAsync { bytes: bytes as u8, count, reduce: None }, ty)
    }

    pub(super) fn red_async(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        m.take("relaxed");
        m.take("cluster");
        self.st_async_head(m, a)?;
        let Some(op) = self.reduce_op(m) else { return self.fail("the operation is missing") };
        let ty = self.need_ty(m)?;
        use AtomOp as A;
        let number = match (op, ty) {
            (A::Inc | A::Dec, Ty::U(32)) | (A::And | A::Or | A::Xor, Ty::B(32)) => NumTy::U32,
            (A::Min | A::Max | A::Add, Ty::U(32)) => NumTy::U32,
            (A::Min | A::Max | A::Add, Ty::S(32)) => NumTy::S32,
            (A::Add, Ty::U(64)) => NumTy::U64,
            (A::Add, Ty::S(64)) => NumTy::S64,
            _ => return self.fail("not defined for this type"),
        };
        self.async_store(a, StAsync { bytes: number.bytes(), count: 1, reduce: Some((op, number)) }, ty)
    }

    fn async_store(&mut self, a: &[Arg], info: StAsync, ty: Ty) -> R<()> {
        let (to, bar) = (self.addr_reg(&a[0])?, self.addr_reg(&a[2])?);
        let mut uses = vec![];
        for x in self.elements(&a[1], info.count)? {
            uses.push(self.src(x, ty)?);
        }
        self.linker.note_grain(Space::Shared, u32::from(info.bytes));
        let mut i = Inst { a: to, b: bar, ..Inst::new(Op::StAsync(info)) };
        self.ext(&mut i, &[], &uses);
        self.emit(i);
        Ok(())
    }
}
