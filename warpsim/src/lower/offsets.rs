//! Finds the instructions that compute an address in 32 bits, which the overflow checker tracks.
//!
//! Starts from the addresses of memory accesses, and goes backwards through operations that preserve offsets, to find all values that can
//! reach an address. Of these, only the results of 32-bit arithmetic matter; few kernels have many.

use rustc_hash::FxHashMap;

use crate::ir::*;

/// How the checker treats an instruction, by its opcode. Operations that mix bits produce a new number: hashes may wrap around.
pub fn kind(op: &str) -> Offset {
    match op {
        "mov.b32" | "mov.u32" | "mov.s32" | "mov.b64" | "mov.u64" | "mov.s64" => Offset::Copy,
        "add.u32" | "add.s32" | "add.u64" | "add.s64" => Offset::Add,
        "sub.u32" | "sub.s32" | "sub.u64" | "sub.s64" => Offset::Sub,
        "neg.s32" | "neg.s64" => Offset::Negate,
        "mul.lo.u32" | "mul.lo.s32" | "mul.lo.u64" | "mul.lo.s64" => Offset::Mul,
        "mad.lo.u32" | "mad.lo.s32" | "mad.lo.u64" | "mad.lo.s64" => Offset::Mad,
        "shl.b32" | "shl.b64" => Offset::Shl,
        "selp.b32" | "selp.u32" | "selp.s32" | "selp.b64" | "selp.u64" | "selp.s64" => Offset::Select,
        "min.u32" | "min.u64" => Offset::Extreme { most: false, signed: false },
        "min.s32" | "min.s64" => Offset::Extreme { most: false, signed: true },
        "max.u32" | "max.u64" => Offset::Extreme { most: true, signed: false },
        "max.s32" | "max.s64" => Offset::Extreme { most: true, signed: true },
        "cvt.u64.u32" | "cvt.s64.u32" | "mul.wide.u32" | "mad.wide.u32" => Offset::Widen { signed: false },
        "cvt.s64.s32" | "cvt.u64.s32" | "mul.wide.s32" | "mad.wide.s32" => Offset::Widen { signed: true },
        "cvt.u32.u64" | "cvt.s32.s64" | "cvt.u32.s64" | "cvt.s32.u64" => Offset::Cut,
        _ if op.starts_with("cvta.") => Offset::Copy,
        _ if op.starts_with("shfl.sync.") => Offset::Shuffle,
        _ => Offset::Opaque,
    }
}

/// The registers that hold addresses of memory that the instruction accesses.
pub fn addresses(i: &Inst) -> [Reg; 2] {
    match i.op {
        Op::CpAsync { .. } | Op::Bulk(_) | Op::StAsync(_) => [i.a, i.b],
        Op::Ld(_) | Op::St(_) | Op::Atom(_) | Op::AtomWide(_) | Op::LdMatrix { .. } | Op::StMatrix { .. } => {
            [i.a, Reg::NONE]
        }
        Op::WmmaCopy(_) | Op::Mbar(_) | Op::CpAsyncMbar { .. } | Op::Tensor(_) | Op::Discard => [i.a, Reg::NONE],
        _ => [Reg::NONE; 2],
    }
}

/// The operands from which the result inherits an offset.
fn sources(i: &Inst) -> [Reg; 3] {
    match i.offset {
        Offset::Opaque | Offset::Pass => [Reg::NONE; 3],
        Offset::Shl | Offset::Shuffle => [i.a, Reg::NONE, Reg::NONE],
        Offset::Select | Offset::Extreme { .. } => [i.a, i.b, Reg::NONE],
        _ => [i.a, i.b, i.c],
    }
}

/// Marks instructions that store a register to, or load it from, one of these places in the frame (offset, bytes), which calls pass.
pub fn mark_passed(insts: &mut [Inst], consts: &[(Reg, Init)], places: &[(u32, u32)]) {
    if places.is_empty() {
        return;
    }
    let passed = |at: i64| places.iter().any(|(off, bytes)| (i64::from(*off)..i64::from(off + bytes)).contains(&at));
    let locals = consts.iter().filter_map(|(r, init)| match init {
        Init::Local(off) => Some((*r, i64::from(*off))),
        _ => None,
    });
    let locals: FxHashMap<Reg, i64> = locals.collect();
    for i in insts {
        if let Op::Ld(Access { space: MemSpace::Local, count: 1, bytes: 4 | 8, .. })
        | Op::St(Access { space: MemSpace::Local, count: 1, bytes: 4 | 8, .. }) = i.op
            && locals.get(&i.a).is_some_and(|off| passed(off + i.imm))
        {
            i.offset = Offset::Pass;
        }
    }
}

/// The register that an instruction passes to another function, or receives from it.
pub fn passed(i: &Inst, lists: &[Reg]) -> Option<Reg> {
    (i.offset == Offset::Pass).then(|| lists[i.ext as usize])
}

/// By register.
struct Set([Vec<bool>; 2]);

impl Set {
    fn of(next: [u32; 3]) -> Self {
        Set([vec![false; next[0] as usize], vec![false; next[1] as usize]])
    }
    fn has(&self, r: Reg) -> bool {
        r.is_some() && r.class() != Class::P && self.0[r.class() as usize][r.slot()]
    }
    /// Returns true if it is new.
    fn insert(&mut self, r: Reg) -> bool {
        r.is_some() && r.class() != Class::P && !std::mem::replace(&mut self.0[r.class() as usize][r.slot()], true)
    }
}

/// What to track for each instruction of a function, whose registers are numbered up to `next`: see [`Track`].
pub fn tracks(insts: &[Inst], lists: &[Reg], consts: &[(Reg, Init)], next: [u32; 3]) -> Vec<Track> {
    let mut reaching = Set::of(next);
    let mut grown = false;
    // A value that is passed to another function may become an address there.
    let given = |i: &Inst| if matches!(i.op, Op::St(_)) { passed(i, lists) } else { None };
    for r in insts.iter().flat_map(|i| addresses(i).into_iter().chain(given(i))) {
        grown |= reaching.insert(r);
    }
    // Most values are defined before they are used, so that few rounds suffice.
    while std::mem::take(&mut grown) {
        for i in insts.iter().rev() {
            if reaching.has(i.d) {
                sources(i).into_iter().for_each(|r| grown |= reaching.insert(r));
            }
        }
    }
    let mut followed = Set::of(next);
    let starts = |i: &Inst| i.d.class() == Class::R && i.offset.is_arithmetic();
    for i in insts.iter().filter(|i| matches!(i.op, Op::Ld(_))) {
        passed(i, lists).filter(|r| reaching.has(*r)).map(|r| followed.insert(r));
    }
    grown = true;
    while std::mem::take(&mut grown) {
        for i in insts.iter().filter(|i| reaching.has(i.d)) {
            if starts(i) || sources(i).iter().any(|r| followed.has(*r)) {
                grown |= followed.insert(i.d);
            }
        }
    }
    let mut constants = Set::of(next);
    consts.iter().filter(|(_, init)| matches!(init, Init::Imm(_))).for_each(|(c, _)| _ = constants.insert(*c));
    let constant = |r: Reg| constants.has(r);
    insts
        .iter()
        .map(|i| {
            let at = i.ext as usize;
            let defines = passed(i, lists).is_some()
                || followed.has(i.d)
                || lists[at..at + usize::from(i.defs)].iter().any(|r| followed.has(*r));
            let accesses = addresses(i).iter().any(|r| followed.has(*r));
            if !defines && !accesses {
                return Track::default();
            }
            let operands = [i.a, i.b, i.c];
            Track { defines, accesses, followed: operands.map(|r| followed.has(r)), constant: operands.map(constant) }
        })
        .collect()
}
