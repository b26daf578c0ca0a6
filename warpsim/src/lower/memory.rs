//! Loads, stores, atomics and cache hints.

use super::func::{Lower, R};
use super::operand::Addr;
use super::types::{Mods, Ty};
use crate::ir::*;
use crate::ptx::ast::{Arg, Space};

impl Lower<'_, '_> {
    /// Takes the state space; generic if there is none.
    pub fn space(&self, m: &mut Mods<'_>) -> MemSpace {
        let entry = self.func.entry;
        m.find(|s| {
            Some(match s {
                "global" | "const" => MemSpace::Global,
                "shared" | "shared::cta" | "shared::cluster" => MemSpace::Shared,
                "local" => MemSpace::Local,
                "param" if entry => MemSpace::Param,
                "param::entry" => MemSpace::Param,
                "param" | "param::func" => MemSpace::Local,
                _ => return None,
            })
        })
        .unwrap_or(MemSpace::Generic)
    }

    /// Takes the memory order and its scope.
    pub fn order(&mut self, m: &mut Mods<'_>) -> (Order, Scope) {
        m.take("mmio");
        let o = m.one_of(&["weak", "volatile", "relaxed", "acquire", "release", "acq_rel"]);
        let scope = self.scope(m);
        self.linker.narrow |= scope == Scope::Block;
        let order = match o {
            None | Some(0) => Order::Weak,
            Some(1) => Order::Volatile,
            Some(2) => Order::Strong,
            Some(3) => Order::Acquire,
            Some(4) => Order::Release,
            _ => Order::AcqRel,
        };
        (order, scope)
    }

    pub fn scope(&self, m: &mut Mods<'_>) -> Scope {
        match m.one_of(&["cta", "cluster", "gpu", "sys"]) {
            Some(0) => Scope::Block,
            Some(1) => Scope::Cluster,
            _ => Scope::Gpu,
        }
    }

    /// Cache operators and eviction priorities have no effect on values; returns true for a cache-policy operand.
    pub fn cache_hints(&self, m: &mut Mods<'_>) -> bool {
        let mut policy = false;
        while let Some(p) = m.find(|s| {
            let known = matches!(s, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "unified" | "relu_not_here")
                || s.starts_with("L1::")
                || s.starts_with("L2::");
            known.then(|| s == "L2::cache_hint")
        }) {
            policy |= p;
        }
        policy
    }

    pub(super) fn vector(&self, m: &mut Mods<'_>) -> u8 {
        m.find(|s| match s {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        })
        .unwrap_or(1)
    }

    /// The space of an access, once its address is known.
    fn settle(&self, space: MemSpace, addr: &Addr) -> R<MemSpace> {
        match (space, addr.space) {
            (MemSpace::Generic | MemSpace::Global, None) if addr.base.is_some() && addr.base.class() == Class::R => {
                self.fail("the address has 32 bits, and one of global or of any memory has 64")
            }
            (s, None) => Ok(s),
            // ptxas takes the space of a variable that is named.
            (MemSpace::Generic, Some(s @ (MemSpace::Global | MemSpace::Shared | MemSpace::Local))) => Ok(s),
            // `.param` names both kernel parameters and call frames.
            (MemSpace::Param | MemSpace::Local, Some(s @ (MemSpace::Param | MemSpace::Local))) => Ok(s),
            (a, Some(b)) if a == b => Ok(a),
            _ => self.fail("the address is of another state space"),
        }
    }

    /// Refuses writes to constant memory.
    fn writable(&self, m: &mut Mods<'_>) -> R<()> {
        if m.take("const") { self.fail("a kernel cannot write constant memory") } else { Ok(()) }
    }

    fn grain(&mut self, space: MemSpace, bytes: u8) {
        let s = match space {
            MemSpace::Shared => Space::Shared,
            MemSpace::Global => Space::Global,
            MemSpace::Generic => Space::Generic,
            _ => return,
        };
        self.linker.note_grain(s, u32::from(bytes));
    }

    pub(super) fn elements<'x>(&self, a: &'x Arg, n: u8) -> R<Vec<&'x Arg>> {
        match a {
            Arg::Vec(v) if v.len() == usize::from(n) => Ok(v.iter().collect()),
            Arg::Vec(_) => self.fail("a vector of the wrong length"),
            _ if n == 1 => Ok(vec![a]),
            _ => self.fail("a vector is needed"),
        }
    }

    pub(super) fn load(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let space = self.space(m);
        let (order, scope) = self.order(m);
        // `ldu` reads read-only data as well.
        let constant = m.take("nc") || m.root == "ldu";
        let policy = self.cache_hints(m);
        let count = self.vector(m);
        let ty = self.need_ty(m)?;
        self.count(a, 2 + usize::from(policy), 2 + usize::from(policy))?;
        let addr = self.addr(&a[1])?;
        let space = self.settle(space, &addr)?;
        let bytes = (ty.bits() / 8) as u8;
        self.grain(space, bytes);
        let mut defs = vec![];
        let mut wides = vec![];
        let mut reg_bits = 32;
        for d in self.elements(&a[0], count)? {
            if ty.bits() == 128 {
                let Some(pair) = self.wide_reg(d) else { return self.fail("a .b128 register is needed") };
                defs.extend(pair);
                continue;
            }
            // ptxas accepts any register of the right size in a vector of floats.
            let ty = if count > 1 && ty.float() { Ty::B(ty.bits() as u8) } else { ty };
            let (r, wide) = self.dst_wide(d, ty)?;
            if self.reg_bits(d) == 16 {
                reg_bits = 16;
            }
            defs.push(r);
            wides.push((r, wide));
        }
        let sext = if ty.signed() && ty.bits() < reg_bits { reg_bits as u8 } else { 0 };
        let (bytes, count) = if bytes == 16 { (8, count * 2) } else { (bytes, count) };
        let mut i = Inst {
            a: addr.base,
            imm: addr.off,
            ..Inst::new(Op::Ld(Access { space, bytes, count, sext, order, scope, constant }))
        };
        self.ext(&mut i, &defs, &[]);
        self.emit(i);
        for (r, wide) in wides {
            self.widen(r, wide, ty.signed().then_some(32.min(ty.bits())));
        }
        Ok(())
    }

    pub(super) fn store(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        if m.take("async") {
            return self.st_async(m, a);
        }
        self.writable(m)?;
        let space = self.space(m);
        let (order, scope) = self.order(m);
        let policy = self.cache_hints(m);
        let count = self.vector(m);
        let ty = self.need_ty(m)?;
        self.count(a, 2 + usize::from(policy), 2 + usize::from(policy))?;
        let addr = self.addr(&a[0])?;
        let space = self.settle(space, &addr)?;
        if space == MemSpace::Param {
            return self.fail("the parameters of a kernel are not written");
        }
        let bytes = (ty.bits() / 8) as u8;
        self.grain(space, bytes);
        let mut uses = vec![];
        for s in self.elements(&a[1], count)? {
            if ty.bits() == 128 {
                let Some(pair) = self.wide_reg(s) else { return self.fail("a .b128 register is needed") };
                uses.extend(pair);
            } else {
                uses.push(self.src(s, ty)?);
            }
        }
        let (bytes, count) = if bytes == 16 { (8, count * 2) } else { (bytes, count) };
        let mut i = Inst {
            a: addr.base,
            imm: addr.off,
            ..Inst::new(Op::St(Access { space, bytes, count, sext: 0, order, scope, constant: false }))
        };
        self.ext(&mut i, &[], &uses);
        self.emit(i);
        Ok(())
    }

    pub(super) fn atomic(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let red = m.root == "red";
        if m.take("async") {
            return self.red_async(m, a);
        }
        self.writable(m)?;
        let space = self.space(m);
        let (order, scope) = self.order(m);
        let policy = self.cache_hints(m);
        let noftz = m.take("noftz");
        let ops = ["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"];
        use AtomOp as A;
        let kinds = [A::Add, A::Min, A::Max, A::Inc, A::Dec, A::And, A::Or, A::Xor, A::Exch, A::Cas];
        let Some(op) = m.one_of(&ops).map(|k| kinds[k]) else { return self.fail("the operation is missing") };
        let count = self.vector(m);
        let ty = self.need_ty(m)?;
        if ty == Ty::B(128) && !red && count == 1 && matches!(op, A::Exch | A::Cas) {
            let operands = 3 + usize::from(op == A::Cas) + usize::from(policy);
            self.count(a, operands, operands)?;
            let atomic = Atomic { op, ty: NumTy::U64, space, count, order, scope };
            return self.atomic_wide(atomic, a);
        }
        self.defined(op, ty, red, count)?;
        if ty.bits() <= 32 && !noftz && matches!(ty, Ty::F16 | Ty::BF16 | Ty::F16x2 | Ty::BF16x2) {
            return self.fail("`.noftz` is needed with this type");
        }
        let num = match ty {
            Ty::U(32) | Ty::B(32) => NumTy::U32,
            Ty::S(32) => NumTy::S32,
            Ty::U(64) | Ty::B(64) => NumTy::U64,
            Ty::S(64) => NumTy::S64,
            Ty::F32 => NumTy::F32,
            Ty::F64 => NumTy::F64,
            Ty::F16 => NumTy::F16,
            Ty::BF16 => NumTy::BF16,
            Ty::F16x2 => NumTy::F16x2,
            Ty::BF16x2 => NumTy::BF16x2,
            Ty::B(16) | Ty::U(16) => NumTy::U16,
            _ => return self.fail("not defined for this type"),
        };
        let sources = 1 + usize::from(op == A::Cas);
        let at = usize::from(!red);
        let operands = at + 1 + sources + usize::from(policy);
        self.count(a, operands, operands)?;
        let addr = self.addr(&a[at])?;
        let space = self.settle(space, &addr)?;
        if !matches!(space, MemSpace::Generic | MemSpace::Global | MemSpace::Shared) {
            return self.fail("atomics work on global and shared memory");
        }
        if count > 1 && space == MemSpace::Shared {
            return self.fail("vectors are added to in global memory only");
        }
        self.grain(space, num.bytes());
        let mut uses = vec![];
        for s in self.elements(&a[at + 1], count)? {
            uses.push(self.src(s, ty)?);
        }
        if op == A::Cas {
            uses.push(self.src(&a[at + 2], ty)?);
        }
        let mut defs = vec![];
        if matches!(a[0], Arg::Sink) && !red {
            defs.extend((0..count).map(|_| self.temp(ty.class())));
        } else if !red {
            for d in self.elements(&a[0], count)? {
                defs.push(self.dst(d, ty)?);
            }
        }
        let mut i = Inst {
            a: addr.base,
            imm: addr.off,
            ..Inst::new(Op::Atom(Atomic { op, ty: num, space, count, order, scope }))
        };
        self.ext(&mut i, &defs, &uses);
        self.emit(i);
        Ok(())
    }

    /// Checks that ptxas supports an atomic of this type, or of a vector of it.
    fn defined(&self, op: AtomOp, ty: Ty, red: bool, count: u8) -> R<()> {
        use AtomOp as A;
        let half = matches!(ty, Ty::F16 | Ty::BF16 | Ty::F16x2 | Ty::BF16x2);
        let ok = match op {
            A::Add => half || matches!(ty, Ty::U(32 | 64) | Ty::S(32) | Ty::F32 | Ty::F64),
            A::Min | A::Max => half && count > 1 || matches!(ty, Ty::U(32 | 64) | Ty::S(32 | 64)),
            A::Inc | A::Dec => ty == Ty::U(32),
            A::And | A::Or | A::Xor => matches!(ty, Ty::B(32 | 64)),
            A::Exch => !red && matches!(ty, Ty::B(32 | 64)),
            A::Cas => !red && matches!(ty, Ty::B(16 | 32 | 64)),
        };
        let vector = (half || ty == Ty::F32) && u32::from(count) * ty.bits() <= 128;
        match ok && (count == 1 || vector) {
            true => Ok(()),
            false => self
                .fail(format!("this operation is not defined for {ty}{}", if count > 1 { " in vectors" } else { "" })),
        }
    }

    fn atomic_wide(&mut self, atomic: Atomic, a: &[Arg]) -> R<()> {
        let addr = self.addr(&a[1])?;
        let space = self.settle(atomic.space, &addr)?;
        if !matches!(space, MemSpace::Generic | MemSpace::Global | MemSpace::Shared) {
            return self.fail("atomics work on global and shared memory");
        }
        self.grain(space, 8);
        let operands = if atomic.op == AtomOp::Cas { &a[2..4] } else { &a[2..3] };
        let mut uses = vec![];
        for x in operands {
            let Some(pair) = self.wide_reg(x) else { return self.fail("a .b128 register is needed") };
            uses.extend(pair);
        }
        let defs = match &a[0] {
            Arg::Sink => Some([self.temp(Class::Q), self.temp(Class::Q)]),
            d => self.wide_reg(d),
        };
        let Some(defs) = defs else { return self.fail("a .b128 register is needed") };
        let mut i = Inst { a: addr.base, imm: addr.off, ..Inst::new(Op::AtomWide(Atomic { space, ..atomic })) };
        self.ext(&mut i, &defs, &uses);
        self.emit(i);
        Ok(())
    }
}
