//! Tensor maps that a kernel makes or modifies: `tensormap.replace` and `tensormap.cp_fenceproxy`.
//!
//! The layout of a map's 128 bytes is the simulator's own, so replacing a field is a plain store, checked like any other.

use super::func::{Lower, R};
use super::types::Mods;
use crate::exec::alu_int as ai;
use crate::ir::*;
use crate::ptx::ast::{Arg, Space};
use crate::tensor_map::{MAGIC, field};

const N: Reg = Reg::NONE;

/// The simulator's element type for each that PTX numbers; values are flushed by neither.
const TYPES: [u64; 13] = [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 10];

impl Lower<'_, '_> {
    pub(super) fn tensormap(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        if m.take("cp_fenceproxy") {
            return self.copy_map(m, a);
        }
        if !m.take("replace") || !m.take("tile") {
            return self.fail("only `replace.tile` and `cp_fenceproxy` are supported");
        }
        let names = [
            "global_address",
            "rank",
            "box_dim",
            "global_dim",
            "global_stride",
            "element_stride",
            "elemtype",
            "interleave_layout",
            "swizzle_mode",
            "fill_mode",
        ];
        let Some(k) = m.one_of(&names) else { return self.fail("this field is not supported") };
        let space = self.space(m);
        m.take("b1024");
        let ty = self.need_ty(m)?;
        let indexed = (2..=5).contains(&k);
        self.count(a, 2 + usize::from(indexed), 2 + usize::from(indexed))?;
        let new = &a[a.len() - 1];
        let mut at = [
            field::ADDRESS,
            field::RANK,
            field::TILE,
            field::DIMS,
            field::STRIDES,
            field::STEPS,
            field::TYPE,
            field::INTERLEAVE,
            field::SWIZZLE,
            field::FILL,
        ][k];
        if indexed {
            let n = self.literal(&a[1])?;
            if n >= if k == 4 { 4 } else { 5 } {
                return self.fail("a tensor has at most five dimensions");
            }
            at += n as usize * if matches!(k, 2 | 5) { 2 } else { 4 };
        }
        let value = match k {
            // The value is the rank minus one.
            1 => {
                let (v, one, t) = (self.src(new, ty)?, self.imm(Class::R, 1), self.temp(Class::R));
                self.alu_free(ai::add32(), t, v, one, N, 0);
                t
            }
            // Assemblers before CUDA 12.5 took strides in units of 16 bytes.
            4 if self.version() < (8, 5) => {
                let (v, unit, t) = (self.src(new, ty)?, self.imm(Class::Q, 16), self.temp(Class::Q));
                self.alu_free(ai::mul64(), t, v, unit, N, 0);
                t
            }
            6 => match TYPES.get(self.literal(new)? as usize) {
                Some(t) => self.imm(Class::R, *t),
                None => return self.fail("this element type is not supported"),
            },
            _ => self.src(new, ty)?,
        };
        if (value.class() == Class::Q) != matches!(k, 0 | 4) {
            return self.fail("the type does not fit the field");
        }
        let magic = self.imm(Class::R, MAGIC.into());
        self.map_store(space, &a[0], field::MAGIC, magic, 2)?;
        if k == 5 {
            self.map_store(space, &a[0], field::MARK, magic, 2)?;
        }
        if k == 4 {
            let (units, low) = (self.temp(Class::Q), self.temp(Class::R));
            let four = self.imm(Class::R, 4);
            self.alu_free(ai::shr_u64(), units, value, four, N, 0);
            self.alu_free(ai::trunc64(), low, units, N, N, 0);
            self.map_store(space, &a[0], at, low, 4)?;
            at = field::WHOLE_STRIDES + 2 * (at - field::STRIDES);
        }
        let bytes = match k {
            0 | 4 => 8,
            2 | 5 => 2,
            3 => 4,
            _ => 1,
        };
        self.map_store(space, &a[0], at, value, bytes)
    }

    fn version(&self) -> (u32, u32) {
        let mut parts = self.linker.ast.version.split('.').map(|n| n.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    fn map_store(&mut self, space: MemSpace, addr: &Arg, at: usize, value: Reg, bytes: u8) -> R<()> {
        let addr = self.addr(addr)?;
        let access = Access { space, bytes, count: 1, sext: 0, order: Order::Weak, scope: Scope::Gpu, constant: false };
        let mut i = Inst { a: addr.base, imm: addr.off + at as i64, ..Inst::new(Op::St(access)) };
        self.ext(&mut i, &[], &[value]);
        self.emit(i);
        Ok(())
    }

    /// Every lane copies the same 128 bytes and fences; the proxies are coherent here.
    fn copy_map(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        if !m.take("global") || !(m.take("shared::cta") || m.take("shared")) {
            return self.fail("only copies from shared to global memory exist");
        }
        m.take("tensormap::generic");
        m.take("release");
        let scope = self.scope(m);
        self.linker.narrow |= scope == Scope::Block;
        m.take("sync");
        m.take("aligned");
        self.count(a, 3, 3)?;
        if self.literal(&a[2])? != 128 {
            return self.fail("the size must be 128");
        }
        self.linker.note_grain(Space::Shared, 4);
        let (to, from) = (self.addr(&a[0])?, self.addr(&a[1])?);
        let access = |space| Access {
            space,
            bytes: 8,
            count: 2,
            sext: 0,
            order: Order::Weak,
            scope: Scope::Gpu,
            constant: false,
        };
        for at in (0..128).step_by(16) {
            let pair = [self.temp(Class::Q), self.temp(Class::Q)];
            let mut i = Inst { a: from.base, imm: from.off + at, ..Inst::new(Op::Ld(access(MemSpace::Shared))) };
            self.ext(&mut i, &pair, &[]);
            self.emit(i);
            let mut i = Inst { a: to.base, imm: to.off + at, ..Inst::new(Op::St(access(MemSpace::Global))) };
            self.ext(&mut i, &[], &pair);
            self.emit(i);
        }
        self.emit(Inst::new(Op::Fence(Fence::ReleaseMaps(scope))));
        let all = self.imm(Class::R, u64::from(u32::MAX));
        self.emit(Inst { c: all, ..Inst::new(Op::Warp(WarpOp::SyncWarp)) });
        Ok(())
    }
}
