//! Lowers one function: scopes, labels and statements, then control flow and registers.

use rustc_hash::FxHashMap;

use super::scopes::Scope;
use super::types::Ty;
use super::{Linker, fields, joins, mbarrier, offsets, regalloc, remainders};
use crate::ir::*;
use crate::ptx::ParseError;
use crate::ptx::ast::{Func, Loc, Name, Source, Space, Stmt, type_bytes_of};

/// What a name means in a function.
#[derive(Clone)]
pub enum Entity {
    Reg(Reg, Ty),
    /// Offset in the frame in bytes.
    Frame(u32, u32),
    Shared(u32),
    KernelParam(u32),
    /// `.reg .v4 .f32 v`: its elements are `v.x` and so on.
    Vector(u32),
    Label(u32),
    Table(Vec<Name>),
    Prototype,
}

/// Lowers one function body.
pub(crate) struct Lower<'a, 'l> {
    pub linker: &'l mut Linker<'a>,
    pub func: &'a Func,
    pub(super) scopes: Vec<Scope>,
    pub insts: Vec<Inst>,
    origins: Vec<Origin>,
    pub lists: Vec<Reg>,
    pub tables: Vec<Vec<u32>>,
    pub copies: Vec<Copies>,
    labels: Vec<u32>,
    consts: FxHashMap<(Class, Init), Reg>,
    pub(super) next: [u32; 3],
    frame: u32,
    pub(super) origin: Origin,
    /// By source location, the latest entry: the call that it was inlined from.
    inlined: FxHashMap<Source, Source>,
    pub(super) guard: (Reg, bool),
    pub(super) fresh: bool,
    pub end_label: u32,
    pub carry: Reg,
    pub line: u32,
    /// Whether the instruction accepts registers that are wider than its type.
    pub wider: bool,
    /// Whether the function has vector registers.
    pub vectors: bool,
}

pub type R<T> = Result<T, ParseError>;

pub(crate) fn lower<'a>(linker: &mut Linker<'a>, func: &'a Func) -> R<Code> {
    let l = Lower {
        linker,
        func,
        scopes: vec![Scope::default()],
        insts: vec![],
        origins: vec![],
        lists: vec![],
        tables: vec![],
        copies: vec![],
        labels: vec![],
        consts: FxHashMap::default(),
        next: [0; 3],
        frame: 0,
        origin: Origin::default(),
        inlined: FxHashMap::default(),
        guard: (Reg::NONE, false),
        fresh: true,
        end_label: 0,
        carry: Reg::NONE,
        line: func.line,
        wider: false,
        vectors: false,
    };
    l.run()
}

impl<'a> Lower<'a, '_> {
    fn run(mut self) -> R<Code> {
        let func = self.func;
        self.end_label = self.new_label();
        self.carry = self.temp(Class::P);
        let mut at = 0u32;
        let (mut params, mut rets) = (vec![], vec![]);
        for p in &func.params {
            let bytes = self.room(p);
            if p.space == Space::Reg && func.entry {
                return self.fail(format!("`{}`: a kernel's parameters are no registers", p.name));
            }
            let e = if func.entry {
                at = at.next_multiple_of(p.align.max(1));
                at += bytes;
                Entity::KernelParam(at - bytes)
            } else {
                let off = self.frame_alloc(bytes, p.align)?;
                params.push((off, bytes));
                if p.space == Space::Reg { self.given(p, off)? } else { Entity::Frame(off, bytes) }
            };
            self.declare(&p.name, e)?;
        }
        for p in &func.rets {
            let bytes = type_bytes_of(p) as u32;
            let off = self.frame_alloc(bytes, p.align)?;
            rets.push((off, bytes));
            let e = if p.space == Space::Reg { self.register(p)? } else { Entity::Frame(off, bytes) };
            self.declare(&p.name, e)?;
        }
        self.block(func.body.as_deref().unwrap_or(&[]))?;
        self.bind(self.end_label);
        self.guard = (Reg::NONE, false);
        self.fresh = false;
        self.origin.text = self.linker.text("the end of the function");
        for (p, (off, _)) in func.rets.iter().zip(&rets).filter(|(p, _)| p.space == Space::Reg) {
            if let Some(Entity::Reg(r, ty)) = self.lookup(&p.name) {
                self.put(*off, ty.bits() / 8, r);
            }
        }
        self.emit(Inst::new(if func.entry { Op::Exit } else { Op::Ret }));
        self.resolve_labels()?;
        joins::place(&mut self.insts, &self.tables);
        self.linker.relaxed |= mbarrier::unheeded(&mut self.insts, &self.lists);
        let mut consts: Vec<_> = self.consts.into_iter().map(|((_, init), reg)| (reg, init)).collect();
        consts.sort_by_key(|(r, _)| r.0);
        let (texts, origins) = (&self.linker.texts, &self.origins);
        let bitwise = |k: usize| {
            let text = texts[origins[k].text as usize].as_str();
            ["and.b", "or.b"].iter().any(|op| text.starts_with(op))
        };
        fields::mark(&mut self.insts, &self.lists, &consts, bitwise);
        remainders::mark(&mut self.insts, &self.lists, &consts);
        let calls = self.copies.iter().flat_map(|c| c.args.iter().chain(&c.rets));
        let places: Vec<_> = calls.chain(&params).chain(&rets).copied().collect();
        offsets::mark_passed(&mut self.insts, &consts, &places);
        let tracks = offsets::tracks(&self.insts, &self.lists, &consts, self.next);
        // ptxas waits after each `wgmma` in a module for a debugger, and in a function that leaves the wait to its caller.
        let waits = self.insts.iter().any(|i| matches!(i.op, Op::WgWait));
        let serial = self.linker.ast.debug || !func.entry && !waits;
        let frame_end = consts.iter().position(|c| c.1 == Init::FrameEnd);
        // The address of a local variable may be passed to a called function.
        let stack = self.frame > 0 || frame_end.is_some() || !func.entry;
        let alloc = regalloc::allocate(&mut self.insts, &mut self.lists, &self.tables, &mut consts, self.next, stack)
            .map_err(|m| ParseError::new(func.line, format!("`{}`: {m}", func.name)))?;
        Ok(Code {
            base: 0,
            insts: self.insts,
            origins: self.origins,
            tracks,
            lists: self.lists,
            tables: self.tables,
            copies: self.copies,
            stack_top: frame_end.map_or(Reg::NONE, |k| consts[k].0),
            consts,
            nr: alloc.counts[0],
            nq: alloc.counts[1],
            np: alloc.counts[2],
            maybe_uninit: alloc.maybe_uninit,
            followed: alloc.followed,
            local_bytes: self.frame.next_multiple_of(16),
            frame_bytes: self.frame,
            params,
            rets,
            pressure: alloc.pressure,
            serial,
        })
    }

    pub fn fail<T>(&self, msg: impl AsRef<str>) -> R<T> {
        Err(ParseError::new(self.line, msg.as_ref().to_string()))
    }

    pub fn frame_alloc(&mut self, bytes: u32, align: u32) -> R<u32> {
        let off = self.frame.next_multiple_of(align.max(1));
        match off.checked_add(bytes) {
            Some(end) if end < 1 << 24 => {
                self.frame = end;
                Ok(off)
            }
            _ => self.fail("the function's local variables are too large"),
        }
    }

    fn new_label(&mut self) -> u32 {
        self.labels.push(u32::MAX);
        self.labels.len() as u32 - 1
    }

    fn bind(&mut self, label: u32) {
        self.labels[label as usize] = self.insts.len() as u32;
    }

    fn resolve_labels(&mut self) -> R<()> {
        for (k, i) in self.insts.iter_mut().enumerate() {
            if let Op::Bra { target, .. } = &mut i.op {
                *target = self.labels[*target as usize];
                if *target == u32::MAX {
                    return Err(ParseError::new(self.origins[k].line, "a branch to a label without a place".into()));
                }
            }
        }
        for t in self.tables.iter_mut().flatten() {
            *t = self.labels[*t as usize];
        }
        if self.tables.iter().flatten().any(|t| *t == u32::MAX) {
            return self.fail("a branch table with a label without a place");
        }
        Ok(())
    }

    fn block(&mut self, stmts: &'a [Stmt]) -> R<()> {
        for s in stmts {
            let (name, e) = match s {
                Stmt::Label(n, line) => {
                    self.line = *line;
                    (n, Entity::Label(self.new_label()))
                }
                Stmt::Targets(n, list) => (n, Entity::Table(list.clone())),
                Stmt::Prototype(n) => (n, Entity::Prototype),
                _ => continue,
            };
            self.declare(name, e)?;
        }
        for s in stmts {
            self.statement(s)?;
        }
        Ok(())
    }

    /// Sets the source location of the following instructions.
    fn locate(&mut self, loc: Loc) {
        match loc.inlined_at {
            Some(call) => self.inlined.insert(loc.at, call),
            None => self.inlined.remove(&loc.at),
        };
        // The call may itself be in an inlined function. Compilers nest less deeply than this limit, but hand-written text may be circular.
        let mut caller = loc.inlined_at;
        for _ in 0..64 {
            caller = caller.map(|call| self.inlined.get(&call).copied().unwrap_or(call));
        }
        let place = |(file, line, _): Source| (file, line);
        (self.origin.source, self.origin.caller) = (place(loc.at), caller.map(place).unwrap_or_default());
    }

    fn statement(&mut self, s: &'a Stmt) -> R<()> {
        match s {
            Stmt::Loc(loc) => self.locate(*loc),
            Stmt::Label(n, _) => {
                if let Some(Entity::Label(l)) = self.lookup(n) {
                    self.bind(l);
                }
            }
            Stmt::Targets(..) | Stmt::Prototype(_) => {}
            Stmt::Block(inner) => {
                self.scopes.push(Scope::default());
                self.block(inner)?;
                self.scopes.pop();
            }
            Stmt::Reg(ty, width, names, line) => {
                self.line = *line;
                let Some(t) = Ty::parse(ty) else { return self.fail(format!("unsupported register type `.{ty}`")) };
                for (name, count) in names {
                    self.declare_reg(t, *width, name, *count)?;
                }
            }
            Stmt::Var(v) => self.variable(v)?,
            Stmt::Inst(i) => self.inst(i)?,
        }
        Ok(())
    }

    pub fn temp(&mut self, class: Class) -> Reg {
        let id = self.next[class as usize];
        self.next[class as usize] += 1;
        Reg::new(class, id)
    }

    /// A register that holds `init` from the start.
    pub fn constant(&mut self, class: Class, init: Init) -> Reg {
        if let Some(&r) = self.consts.get(&(class, init)) {
            return r;
        }
        let r = self.temp(class);
        self.consts.insert((class, init), r);
        r
    }

    pub fn imm(&mut self, class: Class, v: u64) -> Reg {
        self.constant(class, Init::Imm(v))
    }

    /// Emits an instruction under the statement's guard.
    pub fn emit(&mut self, mut i: Inst) {
        (i.guard, i.guard_neg) = self.guard;
        self.push(i);
    }

    /// Emits an instruction for all lanes: for helpers that only write temporaries.
    pub fn emit_free(&mut self, mut i: Inst) {
        (i.under, i.guard_neg) = self.guard;
        self.push(i);
    }

    fn push(&mut self, mut i: Inst) {
        i.first = self.fresh;
        self.fresh = false;
        self.insts.push(i);
        self.origins.push(self.origin);
    }

    /// Emits `op d, a, b, c`, with absent operands as `Reg::NONE`.
    pub fn alu(&mut self, f: LaneFn, d: Reg, a: Reg, b: Reg, c: Reg, imm: i64) {
        self.emit(Inst { d, a, b, c, imm, ..Inst::new(Op::Alu(f)) });
    }

    pub fn alu_free(&mut self, f: LaneFn, d: Reg, a: Reg, b: Reg, c: Reg, imm: i64) {
        self.emit_free(Inst { d, a, b, c, imm, ..Inst::new(Op::Alu(f)) });
    }

    /// Appends an operand list: `defs` are written, then `uses` are read.
    pub fn ext(&mut self, i: &mut Inst, defs: &[Reg], uses: &[Reg]) {
        i.ext = self.lists.len() as u32;
        i.defs = defs.len() as u16;
        i.len = (defs.len() + uses.len()) as u16;
        self.lists.extend_from_slice(defs);
        self.lists.extend_from_slice(uses);
    }
}
