//! Branches, calls, exits.

use super::func::{Entity, Lower, R};
use super::types::{Mods, Ty};
use crate::ir::*;
use crate::ptx::ast::{Arg, Name};

const UNSET: u32 = u32::MAX;

impl Lower<'_, '_> {
    fn label(&self, a: &Arg) -> R<u32> {
        let Arg::Name(n) = a else { return self.fail("a label is needed") };
        match self.lookup(n) {
            Some(Entity::Label(l)) => Ok(l),
            _ => self.fail(format!("`{n}` is not a label")),
        }
    }

    pub(super) fn control(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        m.take("uni");
        if matches!(m.root, "ret" | "exit" | "trap" | "brkpt") {
            self.count(a, 0, 0)?;
        }
        match m.root {
            "bra" => {
                self.count(a, 1, 1)?;
                let target = self.label(&a[0])?;
                self.emit(Inst::new(Op::Bra { target, join: UNSET }));
            }
            "brx" => {
                if !m.take("idx") {
                    return self.fail("only `brx.idx` exists");
                }
                self.count(a, 2, 2)?;
                let x = self.src(&a[0], Ty::U(32))?;
                let Arg::Name(n) = &a[1] else { return self.fail("a branch table is needed") };
                let Some(Entity::Table(list)) = self.lookup(n) else {
                    return self.fail(format!("`{n}` is not a branch table"));
                };
                let mut targets = vec![];
                for l in list {
                    targets.push(self.label(&Arg::Name(l))?);
                }
                self.tables.push(targets);
                let table = self.tables.len() as u32 - 1;
                self.emit(Inst { a: x, ..Inst::new(Op::BrxIdx { table, join: UNSET }) });
            }
            "ret" if self.func.entry => self.emit(Inst::new(Op::Exit)),
            "ret" => {
                let target = self.end_label;
                self.emit(Inst::new(Op::Bra { target, join: UNSET }));
            }
            "exit" => self.emit(Inst::new(Op::Exit)),
            "trap" | "brkpt" => self.emit(Inst::new(Op::Trap)),
            "pmevent" => {
                m.take("mask");
                self.emit(Inst::new(Op::Nop));
            }
            _ => return self.call(a),
        }
        Ok(())
    }

    fn call(&mut self, a: &[Arg]) -> R<()> {
        let (results, at) = match a.first() {
            Some(Arg::List(items)) => (items.as_slice(), 1),
            _ => (&[][..], 0),
        };
        let Arg::Name(target) = self.arg(a, at)?.clone() else { return self.fail("a function name is needed") };
        let (rets, taken) = self.results(results, &target)?;
        let args = match a.get(at + 1) {
            Some(Arg::List(items)) => self.arguments(items, &target)?,
            _ => vec![],
        };
        if let Some(f) = self.linker.ast.funcs.iter().find(|f| f.name == target)
            && (f.params.len(), f.rets.len().max(rets.len())) != (args.len(), f.rets.len())
        {
            let takes = format!("{} arguments and gives {} results", f.params.len(), f.rets.len());
            return self.fail(format!("`{target}` takes {takes}, not {} and {}", args.len(), rets.len()));
        }
        self.transfer(&target, Copies { args, rets })?;
        for (off, bytes, r) in taken {
            self.get(off, bytes, r);
        }
        Ok(())
    }

    fn transfer(&mut self, target: &Name, copies: Copies) -> R<()> {
        let args = copies.args.clone();
        let rets = copies.rets.clone();
        self.copies.push(copies);
        let copies = self.copies.len() as u32 - 1;
        if let Some(Entity::Reg(r, ty)) = self.lookup(target) {
            if ty.bits() != 64 {
                return self.fail(format!("`{target}` does not hold a function's address"));
            }
            self.linker.reach_tables();
            self.emit(Inst { a: r, ..Inst::new(Op::CallIndirect { copies }) });
            return Ok(());
        }
        if let Some(func) = self.linker.func(target) {
            self.emit(Inst::new(Op::Call { func, copies }));
            return Ok(());
        }
        let frame = |l: &mut Self, k: usize| match args.get(k) {
            Some((off, _)) => Ok(l.constant(Class::R, Init::Local(*off))),
            None => l.fail(format!("`{target}` needs {} arguments", k + 1)),
        };
        match target.as_ref() {
            "vprintf" => {
                let (x, y) = (frame(self, 0)?, frame(self, 1)?);
                let ret = match rets.first() {
                    Some((off, _)) => self.constant(Class::R, Init::Local(*off)),
                    None => Reg::NONE,
                };
                self.emit(Inst { a: x, b: y, c: ret, ..Inst::new(Op::Printf) });
            }
            "__assertfail" => {
                let (x, y, z) = (frame(self, 0)?, frame(self, 1)?, frame(self, 2)?);
                self.emit(Inst { a: x, b: y, c: z, ..Inst::new(Op::AssertFail) });
            }
            "malloc" | "free" => return self.heap(target, &args, &rets),
            name if name.trim_start_matches('_').starts_with("cuda") => {
                let what = "the device runtime (dynamic parallelism) is not modelled: launch from the host";
                return self.fail(format!("`{target}`: {what}"));
            }
            _ if self.linker.declared(target) => return self.fail(format!("`{target}` has no body and is not known")),
            _ => return self.fail(format!("`{target}` is not defined")),
        }
        Ok(())
    }

    /// `malloc` and `free`: argument and result are in the frame.
    fn heap(&mut self, name: &str, args: &[(u32, u32)], rets: &[(u32, u32)]) -> R<()> {
        let results = usize::from(name == "malloc");
        let (&[(from, 8)], true) = (args, rets.len() == results && rets.iter().all(|r| r.1 == 8)) else {
            return self.fail(format!("`{name}` takes one argument of 8 bytes and has {results} results"));
        };
        self.linker.heap = true;
        let given = self.temp(Class::Q);
        self.get(from, 8, given);
        let [(to, _)] = *rets else {
            self.emit(Inst { a: given, ..Inst::new(Op::Free) });
            return Ok(());
        };
        let result = self.temp(Class::Q);
        self.emit(Inst { d: result, a: given, ..Inst::new(Op::Malloc) });
        self.put(to, 8, result);
        Ok(())
    }
}
