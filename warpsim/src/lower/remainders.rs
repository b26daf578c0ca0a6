//! Remainders that are computed as differences.
//!
//! Compilers emit `h % 1000` as `h - (h * m >> k) * 1000`. `h` may be a hash, which wraps around on purpose. The difference between `h` and a
//! multiple that is computed from its bits is a new number, which the checker of offsets does not track.

use rustc_hash::FxHashMap;

use crate::ir::*;

/// Maximum number of registers to visit backwards from a difference: a signed quotient takes about ten.
const MOST: usize = 32;
/// Maximum number of instructions to examine among those that write a register: compilers seldom reuse a register name.
const WRITERS: usize = 4;

struct Body<'a> {
    insts: &'a [Inst],
    /// By register: the first instructions that write it.
    writers: FxHashMap<Reg, Vec<usize>>,
    negative: Vec<Reg>,
}

/// Marks remainders as new numbers.
pub fn mark(insts: &mut [Inst], lists: &[Reg], consts: &[(Reg, Init)]) {
    if !insts.iter().any(|i| matches!(i.offset, Offset::Sub | Offset::Mad | Offset::Add)) {
        return;
    }
    let mut writers: FxHashMap<Reg, Vec<usize>> = FxHashMap::default();
    for (k, i) in insts.iter().enumerate() {
        let more = &lists[i.ext as usize..][..usize::from(i.defs)];
        for r in more.iter().chain([&i.d]).filter(|r| r.is_some()) {
            let list = writers.entry(*r).or_default();
            if list.len() < WRITERS {
                list.push(k);
            }
        }
    }
    let negative = consts.iter().filter(|(r, init)| match (init, r.class()) {
        (Init::Imm(v), Class::R) => (*v as i32) < 0,
        (Init::Imm(v), _) => (*v as i64) < 0,
        _ => false,
    });
    let body = Body { insts, writers, negative: negative.map(|(r, _)| *r).collect() };
    let found: Vec<_> = (0..insts.len()).filter(|k| body.is_remainder(&insts[*k])).collect();
    found.into_iter().for_each(|k| insts[k].offset = Offset::Opaque);
}

impl Body<'_> {
    fn writers(&self, r: Reg) -> impl Iterator<Item = &Inst> {
        self.writers.get(&r).into_iter().flatten().map(|k| &self.insts[*k])
    }

    fn is_remainder(&self, i: &Inst) -> bool {
        let is_negative = |r: Reg| self.negative.contains(&r);
        let taken = |r: Reg| {
            self.writers(r).any(|i| match i.offset {
                Offset::Negate => true,
                Offset::Mul => is_negative(i.a) || is_negative(i.b),
                _ => false,
            })
        };
        match i.offset {
            Offset::Sub => self.comes_from_bits(i.b, i.a),
            Offset::Mad => {
                is_negative(i.b) && self.comes_from_bits(i.a, i.c) || is_negative(i.a) && self.comes_from_bits(i.b, i.c)
            }
            Offset::Add => taken(i.b) && self.comes_from_bits(i.b, i.a) || taken(i.a) && self.comes_from_bits(i.a, i.b),
            _ => false,
        }
    }

    /// Whether `r` is computed from the bits of `number`, for example as a quotient of it, and not by sums and products alone.
    fn comes_from_bits(&self, r: Reg, number: Reg) -> bool {
        let copied = self.writers(number).find(|i| i.offset == Offset::Copy).map_or(number, |i| i.a);
        let mut ways = vec![(r, false)];
        let mut at = 0;
        while let Some(&(r, bits)) = ways.get(at) {
            if bits && (r == number || r == copied) {
                return true;
            }
            at += 1;
            for i in self.writers(r).filter(|i| matches!(i.op, Op::Alu(_))) {
                let bits = bits || i.offset == Offset::Opaque;
                for r in [i.a, i.b, i.c] {
                    if r.is_some() && r.class() != Class::P && ways.len() < MOST && !ways.contains(&(r, bits)) {
                        ways.push((r, bits));
                    }
                }
            }
        }
        false
    }
}
