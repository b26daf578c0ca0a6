//! The syntax tree of a PTX module: the text's structure, without any meaning.

use std::sync::Arc;

/// A name in the source. Cloning it is cheap.
pub type Name = Arc<str>;

/// A whole translation unit.
#[derive(Debug, Default)]
pub struct Ast {
    pub version: String,
    pub target: String,
    /// Whether it was compiled for a debugger.
    pub debug: bool,
    pub files: Vec<(u32, String)>,
    pub vars: Vec<Var>,
    pub funcs: Vec<Func>,
    /// `.alias alias, function;`
    pub aliases: Vec<(Name, Name)>,
}

impl Ast {
    /// The index of the function with a body that has this name, or this alias.
    pub fn place(&self, name: &str) -> Option<u32> {
        let name = self.aliases.iter().find(|a| a.0.as_ref() == name).map_or(name, |a| a.1.as_ref());
        self.funcs.iter().position(|f| f.name.as_ref() == name && f.body.is_some()).map(|k| k as u32)
    }
}

impl Ast {
    /// Bytes of the largest variable in which a function passes an argument or takes a result.
    pub fn largest_argument(&self) -> u64 {
        fn largest(body: &[Stmt]) -> u64 {
            let each = body.iter().map(|s| match s {
                Stmt::Var(v) if v.space == Space::Param => type_bytes_of(v),
                Stmt::Block(inner) => largest(inner),
                _ => 0,
            });
            each.max().unwrap_or(0)
        }
        self.funcs.iter().flat_map(|f| &f.body).map(|b| largest(b)).max().unwrap_or(0)
    }
}

/// The state space of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Const,
    Param,
    /// A function parameter that is a register.
    Reg,
}

/// One variable: module scope, function scope or a parameter.
#[derive(Debug, Clone)]
pub struct Var {
    pub space: Space,
    pub align: u32,
    /// Fundamental type without its dot: `b32`, `f64`.
    pub ty: Name,
    pub name: Name,
    /// Elements, counting a vector as its elements; `None` for `name[]`.
    pub count: Option<u64>,
    pub init: Vec<Init>,
    pub external: bool,
    pub line: u32,
}

impl Var {
    /// Shared memory that the PTX does not declare.
    pub fn bytes(name: &str, count: u32) -> Self {
        let (ty, count) = ("b8".into(), Some(u64::from(count)));
        Self { space: Space::Shared, align: 128, ty, name: name.into(), count, init: vec![], external: false, line: 0 }
    }
}

/// One element of an initialiser.
#[derive(Debug, Clone)]
pub enum Init {
    Int(u64),
    Float(f64),
    F32(u32),
    F64(u64),
    /// The address of a symbol plus an offset; `generic` when written `generic(sym)`.
    Addr(Name, i64),
    /// `0xff00(sym)`: the bits of the address that the mask selects.
    Masked(Name, i64, u64),
}

/// An `.entry` or a `.func`.
#[derive(Debug)]
pub struct Func {
    pub name: Name,
    pub entry: bool,
    pub rets: Vec<Var>,
    pub params: Vec<Var>,
    pub body: Option<Vec<Stmt>>,
    pub bounds: Bounds,
    pub line: u32,
}

/// Performance-tuning directives that change what a launch may look like.
#[derive(Debug, Default, Clone)]
pub struct Bounds {
    pub max_threads: Option<[u32; 3]>,
    pub required_threads: Option<[u32; 3]>,
    pub required_cluster: Option<[u32; 3]>,
    pub min_blocks: Option<u32>,
    pub max_registers: Option<u32>,
}

/// A statement of a function body.
/// File, line and column of a source.
pub type Source = (u32, u32, u32);

/// `.loc file line column[, function_name …, inlined_at file line column]`
#[derive(Debug, Clone, Copy)]
pub struct Loc {
    pub at: Source,
    pub inlined_at: Option<Source>,
}

#[derive(Debug)]
pub enum Stmt {
    /// `.reg .b32 %r<10>, a;`: type, then names with an optional count, and the line.
    Reg(Name, u32, Vec<(Name, Option<u32>)>, u32),
    Var(Var),
    /// With its line.
    Label(Name, u32),
    Inst(Box<Inst>),
    Block(Vec<Stmt>),
    Loc(Loc),
    /// `label: .branchtargets a, b;` or `.calltargets`
    Targets(Name, Vec<Name>),
    /// `label: .callprototype …;`
    Prototype(Name),
}

/// One instruction as written.
#[derive(Debug)]
pub struct Inst {
    pub line: u32,
    /// `@p` or `@!p`: negated, name.
    pub guard: Option<(bool, Name)>,
    /// The opcode with its modifiers: `ld.global.v4.f32`.
    pub op: Name,
    pub args: Vec<Arg>,
}

/// One operand.
#[derive(Debug, Clone)]
pub enum Arg {
    /// A register, variable, label, function or special register.
    Name(Name),
    /// `!p`
    Not(Name),
    /// `-reg`, which few instructions accept.
    Neg(Name),
    Int(u64),
    F32(u32),
    F64(u64),
    /// A decimal literal with a point.
    Decimal(f64),
    /// `{a, b, …}`
    Vec(Vec<Arg>),
    /// `[base + offset]`, or `[a, {b, c}]` with what follows the comma.
    Mem(Box<Arg>, i64, Vec<Arg>),
    /// `a|b`
    Pair(Box<Arg>, Box<Arg>),
    /// `sym + 4`
    Offset(Name, i64),
    /// `(a, b)` of a call
    List(Vec<Arg>),
    /// `_`
    Sink,
}

/// Bytes of a variable.
pub fn type_bytes_of(v: &Var) -> u64 {
    u64::from(type_bytes(&v.ty)).saturating_mul(v.count.unwrap_or(0))
}

/// Bytes of a fundamental type; 0 for an unknown one.
pub fn type_bytes(ty: &str) -> u32 {
    match ty {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        "b128" => 16,
        _ => 0,
    }
}
