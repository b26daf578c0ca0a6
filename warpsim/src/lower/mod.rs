//! From the syntax tree to an executable program.

mod alu;
mod alu_float;
mod arch;
mod arguments;
mod cfg;
mod compare;
mod control;
mod conversions;
mod convert;
mod dispatch;
mod fields;
mod forms;
mod func;
mod hints;
mod int_ops;
mod joins;
mod mbarrier;
mod meeting;
mod memory;
mod mma;
mod mov;
mod offsets;
mod operand;
mod rare;
mod regalloc;
mod remainders;
mod scopes;
mod st_async;
mod stack;
mod sync;
mod tensor;
mod tensormap;
mod types;
mod video;
mod wmma;

use rustc_hash::FxHashMap;

pub(crate) use offsets::{addresses, passed};

use crate::ir::{Fence, Inst, Op, Program};
use crate::names::plain;
use crate::ptx::ParseError;
use crate::ptx::ast::{Ast, Func, Init, Name, Space, Var, type_bytes_of};

/// Maximum bytes of kernel parameters.
const MAX_PARAMS: u32 = 32_764;

/// Lays out variables and collects functions while a kernel is lowered.
pub(crate) struct Linker<'a> {
    pub ast: &'a Ast,
    globals: FxHashMap<Name, u32>,
    shared: FxHashMap<Name, u32>,
    funcs: FxHashMap<Name, u32>,
    queue: Vec<&'a Func>,
    pub texts: Vec<String>,
    text_ids: FxHashMap<String, u32>,
    pub static_shared: u32,
    pub dyn_align: u32,
    pub shared_vars: Vec<(u32, u32, String)>,
    pub shared_grain: u32,
    pub global_grain: u32,
    pub narrow: bool,
    pub relaxed: bool,
    pub invalidates: bool,
    pub heap: bool,
}

/// Total size of the guard regions before a static shared variable that has this many variables before it. Guards preserve banks and
/// swizzles. Only the first 256 variables have them, because all variables have to stay within the 16 MiB window of shared addresses.
pub fn guards(variables: usize) -> u32 {
    const GUARD: u32 = 1024;
    variables.min(256) as u32 * GUARD
}

/// The variables by name: a definition, whatever declares it.
fn globals(ast: &Ast) -> FxHashMap<Name, u32> {
    let vars = || ast.vars.iter().enumerate().map(|(k, v)| (v, k as u32));
    let declared = vars().filter(|(v, _)| v.external);
    declared.chain(vars().filter(|(v, _)| !v.external)).map(|(v, k)| (v.name.clone(), k)).collect()
}

/// Lowers one kernel and every function that it may call.
pub fn program(ast: &Ast, kernel: &str) -> Result<Program, ParseError> {
    let entry = ast.funcs.iter().find(|f| f.entry && f.name.as_ref() == kernel && f.body.is_some());
    let Some(entry) = entry else {
        let all: Vec<_> = ast.funcs.iter().filter(|f| f.entry).map(|f| f.name.as_ref()).collect();
        let has = if all.is_empty() { " none".into() } else { format!(": {}", all.join(", ")) };
        return Err(ParseError::new(0, format!("no kernel `{kernel}`; the module has{has}")));
    };
    let mut linker = Linker {
        ast,
        globals: globals(ast),
        shared: FxHashMap::default(),
        funcs: FxHashMap::from_iter([(entry.name.clone(), 0)]),
        queue: vec![entry],
        texts: vec![],
        text_ids: FxHashMap::default(),
        static_shared: 0,
        dyn_align: 0,
        shared_vars: vec![],
        shared_grain: 4,
        global_grain: 4,
        narrow: false,
        relaxed: false,
        invalidates: false,
        heap: false,
    };
    let mut funcs = vec![];
    while funcs.len() < linker.queue.len() {
        let f = linker.queue[funcs.len()];
        funcs.push(func::lower(&mut linker, f)?);
    }
    let mut base = 0;
    for code in &mut funcs {
        code.base = base;
        base = base.saturating_add(code.insts.len() as u32);
    }
    let fences_global = |i: &Inst| matches!(i.op, Op::Fence(Fence::ProxyAsync { global: true, .. }));
    let fences_global = funcs.iter().any(|code| code.insts.iter().any(fences_global));
    let mut params = vec![];
    let mut at = 0u32;
    for p in &entry.params {
        let start = at.next_multiple_of(p.align.clamp(1, MAX_PARAMS));
        let end = u64::from(start).saturating_add(type_bytes_of(p));
        if end > u64::from(MAX_PARAMS) {
            return Err(ParseError::new(entry.line, format!("more than {MAX_PARAMS} bytes of parameters")));
        }
        at = end as u32;
        params.push((start, at - start, p.name.to_string()));
    }
    let numbers = &linker.funcs;
    let number = |f: &Func| f.body.as_ref().and_then(|_| numbers.get(&f.name)).copied().unwrap_or(u32::MAX);
    Ok(Program {
        kernel: kernel.to_string(),
        funcs,
        places: ast.funcs.iter().map(number).collect(),
        texts: linker.texts,
        files: ast.files.clone(),
        params,
        param_bytes: at,
        static_shared: linker.static_shared,
        dyn_align: linker.dyn_align,
        shared_vars: linker.shared_vars,
        constants: ast
            .vars
            .iter()
            .enumerate()
            .filter(|(_, v)| v.space == Space::Const)
            .map(|(k, v)| (k as u32, type_bytes_of(v)))
            .collect(),
        bounds: entry.bounds.clone(),
        shared_grain: linker.shared_grain,
        global_grain: linker.global_grain,
        narrow: linker.narrow,
        relaxed: linker.relaxed,
        invalidates: linker.invalidates,
        heap: linker.heap,
        fences_global,
        in_step: arch::lacks(&ast.target, arch::FREE_LANES).is_some(),
        target: ast.target.clone(),
    })
}

impl<'a> Linker<'a> {
    pub fn text(&mut self, op: &str) -> u32 {
        if let Some(&n) = self.text_ids.get(op) {
            return n;
        }
        let n = self.texts.len() as u32;
        self.texts.push(op.to_string());
        self.text_ids.insert(op.to_string(), n);
        n
    }

    /// The function's index; queues the function to be lowered. `None` if it has no body.
    pub fn func(&mut self, name: &Name) -> Option<u32> {
        if let Some(&n) = self.funcs.get(name) {
            return Some(n);
        }
        let f = &self.ast.funcs[self.ast.place(name)? as usize];
        if let Some(&n) = self.funcs.get(&f.name) {
            return Some(n);
        }
        let n = self.queue.len() as u32;
        self.funcs.insert(f.name.clone(), n);
        self.queue.push(f);
        Some(n)
    }

    /// The function's address; queues the function to be lowered. `None` if it has no body.
    pub fn address(&mut self, name: &Name) -> Option<u32> {
        self.func(name)?;
        self.ast.place(name)
    }

    /// Queues the functions whose addresses are in module variables: any indirect call may reach them.
    pub fn reach_tables(&mut self) {
        let ast = self.ast;
        for i in ast.vars.iter().flat_map(|v| &v.init) {
            if let Init::Addr(name, _) | Init::Masked(name, ..) = i {
                self.func(name);
            }
        }
    }

    pub fn declared(&self, name: &Name) -> bool {
        self.ast.funcs.iter().any(|f| f.name == *name)
    }

    pub fn global(&self, name: &Name) -> Option<u32> {
        self.globals.get(name).copied()
    }

    /// Offset of a module's static shared variable, which is placed on first use.
    pub fn place_shared(&mut self, v: &Var) -> u32 {
        if let Some(&at) = self.shared.get(&v.name) {
            return at;
        }
        let at = self.place_local_shared(v);
        self.shared.insert(v.name.clone(), at);
        at
    }

    /// Offset of a function's static shared variable, whose name may be that of another in another scope.
    pub fn place_local_shared(&mut self, v: &Var) -> u32 {
        // A variable that does not fit is refused at the launch.
        let bytes = u32::try_from(type_bytes_of(v)).unwrap_or(u32::MAX);
        let at = self.static_shared.checked_next_multiple_of(v.align.max(1)).unwrap_or(u32::MAX);
        self.static_shared = at.saturating_add(bytes);
        let at = at.saturating_add(guards(self.shared_vars.len()));
        self.shared_vars.push((at, bytes, plain(&v.name).to_owned()));
        at
    }

    pub fn note_grain(&mut self, space: Space, bytes: u32) {
        if matches!(space, Space::Shared | Space::Generic) {
            self.shared_grain = self.shared_grain.min(bytes);
        }
        if matches!(space, Space::Global | Space::Generic) {
            self.global_grain = self.global_grain.min(bytes);
        }
    }
}
