//! The arguments and results of a call: variables in the frame; registers and numbers get a place in the frame.

use super::func::{Entity, Lower, R};
use super::types::Ty;
use crate::ir::*;
use crate::ptx::ast::{Arg, Name, Var, type_bytes_of};

/// Offset in the frame, and size in bytes.
type Place = (u32, u32);

/// The places of results, and the registers that receive some of them: offset, size, register.
type Results = (Vec<Place>, Vec<(u32, u32, Reg)>);

impl Lower<'_, '_> {
    /// The places of a call's arguments in the frame.
    pub(super) fn arguments(&mut self, items: &[Arg], target: &Name) -> R<Vec<Place>> {
        let mut out = vec![];
        for (k, x) in items.iter().enumerate() {
            if let Some(place) = self.frame_place(x) {
                out.push(place);
                continue;
            }
            let Some(ty) = self.passed(x, target, |f| f.params.get(k)) else { return self.no_argument(x) };
            let r = self.src(x, ty)?;
            let bytes = ty.bits() / 8;
            let off = self.frame_alloc(bytes, bytes)?;
            self.put(off, bytes, r);
            out.push((off, bytes));
        }
        Ok(out)
    }

    /// The places of a call's results, and the registers that receive them.
    pub(super) fn results(&mut self, items: &[Arg], target: &Name) -> R<Results> {
        let (mut places, mut taken) = (vec![], vec![]);
        for (k, x) in items.iter().enumerate() {
            if let Some(place) = self.frame_place(x) {
                places.push(place);
                continue;
            }
            let Some(ty) = self.passed(x, target, |f| f.rets.get(k)) else { return self.no_argument(x) };
            let r = self.dst(x, ty)?;
            let bytes = ty.bits() / 8;
            let off = self.frame_alloc(bytes, bytes)?;
            places.push((off, bytes));
            taken.push((off, bytes, r));
        }
        Ok((places, taken))
    }

    fn frame_place(&self, x: &Arg) -> Option<Place> {
        let Arg::Name(n) = x else { return None };
        match self.lookup(n)? {
            Entity::Frame(off, bytes) => Some((off, bytes)),
            _ => None,
        }
    }

    /// The type of an operand that is not a variable: the parameter's type, or the register's type if only a pointer is known.
    fn passed(&self, x: &Arg, target: &Name, pick: impl Fn(&crate::ptx::ast::Func) -> Option<&Var>) -> Option<Ty> {
        let declared = self.linker.ast.funcs.iter().find(|f| f.name == *target).and_then(pick);
        let declared = declared.filter(|v| v.count == Some(1)).and_then(|v| Ty::parse(&v.ty));
        let own = match x {
            Arg::Name(n) => match self.lookup(n) {
                Some(Entity::Reg(_, ty)) => Some(ty),
                _ => None,
            },
            _ => None,
        };
        declared.or(own).filter(|t| matches!(t.bits(), 8 | 16 | 32 | 64))
    }

    fn no_argument<T>(&self, x: &Arg) -> R<T> {
        let what = match x {
            Arg::Name(n) => format!("`{n}`"),
            _ => "a number".into(),
        };
        self.fail(format!("{what}: .param variables can be passed to a function, and registers and numbers of up to 64 bits whose type is known"))
    }

    /// Bytes of a parameter. The last one of a variadic function has no size: it takes the largest argument that the module passes.
    pub(super) fn room(&self, p: &Var) -> u32 {
        match p.count {
            None if !self.func.entry => self.linker.ast.largest_argument() as u32,
            _ => type_bytes_of(p) as u32,
        }
    }

    /// A parameter that is a register is loaded from its place when the function starts.
    pub(super) fn given(&mut self, p: &Var, off: u32) -> R<Entity> {
        let e = self.register(p)?;
        if let Entity::Reg(r, _) = e {
            self.origin.text = self.linker.text("the start of the function");
            self.fresh = false;
            self.get(off, type_bytes_of(p) as u32, r);
        }
        Ok(e)
    }

    pub(super) fn register(&mut self, p: &Var) -> R<Entity> {
        match Ty::parse(&p.ty) {
            Some(ty) if p.count == Some(1) && ty.bits() <= 64 => Ok(Entity::Reg(self.temp(ty.class()), ty)),
            _ => self.fail(format!("`{}`: parameters in registers have up to 64 bits", p.name)),
        }
    }

    /// Loads a register from the frame.
    pub(super) fn get(&mut self, off: u32, bytes: u32, r: Reg) {
        let a = self.constant(Class::R, Init::Local(off));
        let mut load = Inst { a, ..Inst::new(Op::Ld(frame_access(bytes))) };
        self.ext(&mut load, &[r], &[]);
        self.emit(load);
    }

    /// Stores a register to the frame.
    pub(super) fn put(&mut self, off: u32, bytes: u32, r: Reg) {
        let a = self.constant(Class::R, Init::Local(off));
        let mut store = Inst { a, ..Inst::new(Op::St(frame_access(bytes))) };
        self.ext(&mut store, &[], &[r]);
        self.emit(store);
    }

    /// Operands with vectors expanded: `v` becomes `{v.x, v.y}`. Empty if there are none.
    pub(super) fn spelled(&self, args: &[Arg]) -> Vec<Arg> {
        let elements = |x: &Arg| match x {
            Arg::Name(n) => match self.lookup(n) {
                Some(Entity::Vector(width)) => Some(
                    ["x", "y", "z", "w"]
                        .iter()
                        .take(width as usize)
                        .map(|c| Arg::Name(format!("{n}.{c}").into()))
                        .collect(),
                ),
                _ => None,
            },
            _ => None,
        };
        if !args.iter().any(|x| elements(x).is_some()) {
            return vec![];
        }
        args.iter().map(|x| elements(x).map_or_else(|| x.clone(), Arg::Vec)).collect()
    }
}

fn frame_access(bytes: u32) -> Access {
    Access {
        space: MemSpace::Local,
        bytes: bytes as u8,
        count: 1,
        sext: 0,
        order: Order::Weak,
        scope: Scope::Gpu,
        constant: false,
    }
}
