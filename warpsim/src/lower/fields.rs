//! Bit fields of a word: `word = word & mask | field`, which compilers emit for a value that shares its bytes with others.

use rustc_hash::FxHashSet;

use crate::ir::*;

/// How many instructions to search backwards for the parts of such an assignment.
const REACH: usize = 32;

/// Marks the instruction that keeps the other fields of a word that is written back to its own location. The word may be uninitialised:
/// nothing depends on the kept bits.
pub(super) fn mark(insts: &mut [Inst], lists: &[Reg], consts: &[(Reg, Init)], text: impl Fn(usize) -> bool) {
    let stores: Vec<usize> = (0..insts.len()).filter(|k| matches!(insts[*k].op, Op::St(_))).collect();
    if stores.is_empty() || !insts.iter().any(|i| matches!(i.op, Op::Ld(_))) {
        return;
    }
    let numbers: FxHashSet<Reg> = consts.iter().filter(|c| matches!(c.1, Init::Imm(_))).map(|c| c.0).collect();
    for k in stores {
        if let Some(keeps) = kept(insts, lists, k, &numbers, &text) {
            insts[keeps].keeps = true;
        }
    }
}

/// The instruction that keeps the other fields for the store at `k`.
fn kept(
    insts: &[Inst],
    lists: &[Reg],
    k: usize,
    numbers: &FxHashSet<Reg>,
    bitwise: &impl Fn(usize) -> bool,
) -> Option<usize> {
    let Op::St(to) = insts[k].op else { return None };
    if to.count != 1 || !matches!(to.space, MemSpace::Generic | MemSpace::Local | MemSpace::Shared) {
        return None;
    }
    let value = *lists.get(insts[k].ext as usize + usize::from(insts[k].defs))?;
    let written =
        |i: &Inst, r: Reg| i.d == r || lists[i.ext as usize..i.ext as usize + usize::from(i.defs)].contains(&r);
    // There is only straight-line code in between.
    let straight =
        |i: &Inst| !matches!(i.op, Op::Bra { .. } | Op::BrxIdx { .. } | Op::Call { .. } | Op::CallIndirect { .. });
    let source = |before: usize, r: Reg| {
        let back = insts[before.saturating_sub(REACH)..before].iter().rev();
        let (n, i) = back.take_while(|i| straight(i)).enumerate().find(|(_, i)| written(i, r))?;
        Some((before - 1 - n, i))
    };
    let masked = |before: usize, r: Reg| {
        let (at, and) = source(before, r)?;
        let word = match (numbers.contains(&and.a), numbers.contains(&and.b)) {
            (false, true) => and.a,
            (true, false) => and.b,
            _ => return None,
        };
        if !bitwise(at) || and.c.is_some() {
            return None;
        }
        let (_, load) = source(at, word)?;
        let Op::Ld(from) = load.op else { return None };
        let same = from.count == 1 && from.bytes == to.bytes && (load.a, load.imm) == (insts[k].a, insts[k].imm);
        same.then_some(at)
    };
    let (at, last) = source(k, value)?;
    masked(k, value).or_else(|| {
        (bitwise(at) && !last.c.is_some()).then(|| masked(at, last.a).or_else(|| masked(at, last.b))).flatten()
    })
}
