//! The checker of 32-bit offsets: tracks the values that arithmetic would give in sufficiently wide registers.
//!
//! The bits of a register do not tell whether a number is signed. A register therefore has several exact values, one for each way to
//! interpret the inputs of the arithmetic. An offset that is widened to 64 bits, or used as an address, is right if it equals one of them:
//! sums that leave the 32-bit range and return to it are right, and products that stay outside are not. A wrong offset keeps its mark up to
//! the access.

use super::cx::Cx;
use super::mem_ops::lanes;
use super::passed::{self, Passed};
use super::state::{Split, Warp};
use crate::ir::{Class, Inst, Offset, Reg, Track};
use crate::lower::addresses;
use crate::report::Kind;

/// All numbers unsigned; all signed; constants signed, everything else unsigned.
const READINGS: usize = 3;
const UNSIGNED: usize = 0;
const SIGNED: usize = 1;

/// The exact values of a 32-bit register. For a lane without exact values, the bits are the value.
#[derive(Default)]
pub(super) struct Narrow {
    pub known: u32,
    exact: [[i64; 32]; READINGS],
    /// The number, in the program, of the instruction that exceeded 32 bits, counted from one; 0 for none.
    left_at: [u32; 32],
}

/// A 64-bit register made from a 32-bit one that had overflowed.
#[derive(Default)]
pub(super) struct Wide {
    pub marked: u32,
    overflow: [Overflow; 32],
}

#[derive(Clone, Copy, Default)]
struct Overflow {
    exact: i64,
    became: i64,
    at: u32,
}

/// A warp's tracked registers, by slot.
#[derive(Default)]
pub struct Offsets {
    pub(super) narrow: Vec<Narrow>,
    pub(super) wide: Vec<Wide>,
    pub(super) passed: Passed,
}

impl Offsets {
    fn narrow(&mut self, slot: usize) -> &mut Narrow {
        Self::grown(&mut self.narrow, slot)
    }

    fn wide(&mut self, slot: usize) -> &mut Wide {
        Self::grown(&mut self.wide, slot)
    }

    pub(super) fn grown<T: Default>(list: &mut Vec<T>, slot: usize) -> &mut T {
        list.resize_with(list.len().max(slot + 1), T::default);
        &mut list[slot]
    }
}

impl Narrow {
    /// Copies what `from` knows of these lanes.
    pub fn take(&mut self, from: &Narrow, m: u32) {
        self.known = self.known & !m | from.known & m;
        for l in lanes(from.known & m) {
            self.exact.iter_mut().zip(&from.exact).for_each(|(mine, theirs)| mine[l] = theirs[l]);
            self.left_at[l] = from.left_at[l];
        }
    }
}

impl Wide {
    /// Copies what `from` knows of these lanes.
    pub fn take(&mut self, from: &Wide, m: u32) {
        self.marked = self.marked & !m | from.marked & m;
        lanes(from.marked & m).for_each(|l| self.overflow[l] = from.overflow[l]);
    }
}

/// Where the tracked values of a register are: in the frame of the running function.
pub(super) fn slot(w: &Warp, r: Reg) -> usize {
    r.slot() + if r.class() == Class::R { w.regs.rb } else { w.regs.qb }
}

/// One lane's operand.
#[derive(Clone, Copy, Default)]
struct Operand {
    exact: [i64; READINGS],
    left_at: u32,
}

fn fits(exact: [i64; READINGS]) -> bool {
    exact.iter().any(|v| (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(v))
}

/// Examines an instruction that is about to be executed.
pub fn step(cx: &mut Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) {
    let track = cx.prog.funcs[s.func as usize].tracks[s.pc as usize];
    if track.accesses {
        access(cx, w, s, i, track, m);
    }
    if track.defines {
        define(cx, w, s, i, track, m);
    }
}

fn access(cx: &mut Cx<'_>, w: &Warp, s: &Split, i: &Inst, track: Track, m: u32) {
    for (n, r) in addresses(i).into_iter().enumerate().filter(|(n, r)| track.followed[*n] && r.is_some()) {
        for l in lanes(m & suspects(w, r, false)) {
            let found = match r.class() {
                Class::R => overflow(w, cx.number(s), track, n, r, l, None),
                _ => mark(w, r, l),
            };
            let Some(Overflow { exact, became, at }) = found else { continue };
            let address = if r.class() == Class::R { w.regs.r(r)[l].into() } else { w.regs.q(r)[l] };
            cx.report(w, s, l as u32, Kind::IndexOverflow, Some(address), None, |cx| {
                let exact = if exact == i64::MAX || exact == i64::MIN { "more".into() } else { exact.to_string() };
                let place = cx.place_of(at - 1);
                format!("the address comes from an offset of {exact} that became {became} in 32 bits at {place}")
            });
        }
    }
}

/// Lanes whose register may differ from its exact value under this interpretation: most often none.
fn suspects(w: &Warp, r: Reg, signed: bool) -> u32 {
    if r.class() == Class::Q {
        return w.offsets.wide.get(slot(w, r)).map_or(0, |wide| wide.marked);
    }
    let Some(narrow) = w.offsets.narrow.get(slot(w, r)).filter(|narrow| narrow.known != 0) else { return 0 };
    let bits = w.regs.r(r);
    let differs = |l: usize| match signed {
        true => narrow.exact[SIGNED][l] != i64::from(bits[l] as i32),
        false => narrow.exact[UNSIGNED][l] != i64::from(bits[l]),
    };
    (0..32).fold(0, |found, l| found | u32::from(differs(l)) << l) & narrow.known
}

/// Operand `n` of a lane, which is the 32-bit register `r`.
fn operand(w: &Warp, track: Track, n: usize, r: Reg, l: usize) -> Operand {
    if track.followed[n]
        && let Some(narrow) = w.offsets.narrow.get(slot(w, r))
        && narrow.known >> l & 1 == 1
    {
        return Operand { exact: narrow.exact.map(|reading| reading[l]), left_at: narrow.left_at[l] };
    }
    let bits = w.regs.r(r)[l];
    let (unsigned, signed) = (i64::from(bits), i64::from(bits as i32));
    let mixed = if track.constant[n] { signed } else { unsigned };
    Operand { exact: [unsigned, signed, mixed], left_at: 0 }
}

/// Whether a lane's bits, read as signed, as unsigned, or either way, equal none of the exact values.
fn overflow(w: &Warp, here: u32, track: Track, n: usize, r: Reg, l: usize, signed: Option<bool>) -> Option<Overflow> {
    let Operand { exact, left_at } = operand(w, track, n, r, l);
    let bits = w.regs.r(r)[l];
    let read = [i64::from(bits), i64::from(bits as i32)];
    let as_read = match signed {
        None => &read[..],
        Some(signed) => &read[usize::from(signed)..][..1],
    };
    let at = if left_at == 0 { here + 1 } else { left_at };
    let likely = exact[if signed == Some(true) { SIGNED } else { UNSIGNED }];
    (!as_read.iter().any(|v| exact.contains(v))).then_some(Overflow { exact: likely, became: as_read[0], at })
}

/// The mark of a lane's 64-bit register.
fn mark(w: &Warp, r: Reg, l: usize) -> Option<Overflow> {
    let wide = w.offsets.wide.get(slot(w, r))?;
    (wide.marked >> l & 1 == 1).then(|| wide.overflow[l])
}

fn define(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, track: Track, m: u32) {
    let (code, here) = (&cx.prog.funcs[s.func as usize], cx.number(s));
    if let Some(r) = crate::lower::passed(i, &code.lists) {
        return passed::step(w, i, r, m);
    }
    // The sources are known when all lanes have arrived.
    if i.offset == Offset::Shuffle {
        return;
    }
    if i.offset == Offset::Opaque {
        let list = &code.lists[i.ext as usize..][..usize::from(i.defs)];
        for r in list.iter().chain([&i.d]).copied().filter(|r| r.is_some()) {
            let at = slot(w, r);
            match r.class() {
                Class::R => w.offsets.narrow.get_mut(at).into_iter().for_each(|narrow| narrow.known &= !m),
                Class::Q => w.offsets.wide.get_mut(at).into_iter().for_each(|wide| wide.marked &= !m),
                Class::P => {}
            }
        }
        return;
    }
    let at = slot(w, i.d);
    if i.d.class() == Class::R {
        if is_plain(w, i, track, m) {
            w.offsets.narrow.get_mut(at).into_iter().for_each(|narrow| narrow.known &= !m);
            return;
        }
        for l in lanes(m) {
            let Operand { exact, left_at } = narrow_result(w, here, i, track, l);
            let narrow = w.offsets.narrow(at);
            narrow.exact.iter_mut().zip(exact).for_each(|(reading, exact)| reading[l] = exact);
            narrow.left_at[l] = left_at;
        }
        w.offsets.narrow(at).known |= m;
    } else {
        let mut marked = 0;
        let operands = [i.a, i.b, i.c]
            .into_iter()
            .enumerate()
            .filter(|(n, r)| track.followed[*n] && r.is_some() && r.class() != Class::P);
        let signed = i.offset == Offset::Widen { signed: true };
        let suspects = operands.fold(0, |found, (_, r)| found | suspects(w, r, signed));
        for l in lanes(m & suspects) {
            if let Some(found) = wide_result(w, here, i, track, l) {
                w.offsets.wide(at).overflow[l] = found;
                marked |= 1 << l;
            }
        }
        w.offsets.wide.get_mut(at).into_iter().for_each(|wide| wide.marked = wide.marked & !m | marked);
    }
}

/// A shuffle by the lanes of `m`, each of which reads the lane in `from`.
pub fn shuffled(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, from: &[u32; 32], m: u32) {
    let track = cx.prog.funcs[s.func as usize].tracks[s.pc as usize];
    if !track.defines || !cx.opts.checks.offsets {
        return;
    }
    let mut there = Narrow::default();
    if let Some(source) = w.offsets.narrow.get(slot(w, i.a)).filter(|source| source.known & m != 0) {
        for l in lanes(m) {
            let of = from[l] as usize;
            there.known |= (m & source.known) >> of << l & 1 << l;
            there.exact.iter_mut().zip(&source.exact).for_each(|(mine, theirs)| mine[l] = theirs[of]);
            there.left_at[l] = source.left_at[of];
        }
    }
    let at = slot(w, i.d);
    if there.known != 0 || w.offsets.narrow.len() > at {
        w.offsets.narrow(at).take(&there, m);
    }
}

/// Whether every interpretation of the result equals its bits, as is the case if the operands equal their bits and are small numbers: then no
/// lane needs an exact value.
fn is_plain(w: &Warp, i: &Inst, track: Track, m: u32) -> bool {
    const NONE: [u32; 32] = [0; 32];
    let exact = |r: Reg| w.offsets.narrow.get(slot(w, r)).map_or(0, |narrow| narrow.known);
    let stands = |(n, r): (usize, &Reg)| !track.followed[n] || exact(*r) & m == 0;
    let operands = match i.offset {
        Offset::Cut => return !track.followed[0] || suspects(w, i.a, false) & m == 0,
        Offset::Mad => [i.a, i.b, i.c],
        Offset::Copy | Offset::Negate => [i.a, Reg::NONE, Reg::NONE],
        _ => [i.a, i.b, Reg::NONE],
    };
    if !operands.iter().enumerate().filter(|(_, r)| r.is_some()).all(stands) {
        return false;
    }
    let [a, b, c] = operands.map(|r| if r.is_some() { w.regs.r(r) } else { &NONE });
    match i.offset {
        Offset::Copy if !track.constant[0] => true,
        Offset::Copy | Offset::Select | Offset::Extreme { .. } => all_small(m, [a, b, c], |_, _, _| 0),
        Offset::Add => all_small(m, [a, b, c], |a, b, _| a.wrapping_add(b)),
        Offset::Sub => all_small(m, [a, b, c], |a, b, _| a.wrapping_sub(b)),
        // A product that does not fit is never small: its upper half is not zero.
        Offset::Mul | Offset::Mad => all_small(m, [a, b, c], |a, b, c| {
            let all = u64::from(a) * u64::from(b) + u64::from(c);
            all as u32 | 0u32.wrapping_sub((all >> 32) as u32) | (all >> 32) as u32
        }),
        Offset::Shl => all_small(m, [a, b, c], |a, b, _| {
            let all = u64::from(a) << (b & 31);
            all as u32 | 0u32.wrapping_sub((all >> 32) as u32) | (all >> 32) as u32 | 0u32.wrapping_sub(b >> 5)
        }),
        _ => false,
    }
}

/// Whether the lanes' operands, and the result of `f` on them, are the same numbers however 32 bits are interpreted.
#[inline(always)]
fn all_small(m: u32, operands: [&[u32; 32]; 3], f: impl Fn(u32, u32, u32) -> u32) -> bool {
    let [a, b, c] = operands;
    let mut bits = 0;
    for l in 0..32 {
        let all = a[l] | b[l] | c[l] | f(a[l], b[l], c[l]);
        bits |= if m >> l & 1 == 1 { all } else { 0 };
    }
    bits >> 31 == 0
}

/// Which operand a lane's `selp`, `min` or `max` selects.
fn selected(w: &Warp, i: &Inst, l: usize) -> (usize, Reg) {
    let first = match i.offset {
        Offset::Extreme { most, signed } => {
            let [a, b] = [i.a, i.b].map(|r| match (r.class(), signed) {
                (Class::R, false) => i128::from(w.regs.r(r)[l]),
                (Class::R, true) => i128::from(w.regs.r(r)[l] as i32),
                (_, false) => i128::from(w.regs.q(r)[l]),
                (_, true) => i128::from(w.regs.q(r)[l] as i64),
            });
            if most { a >= b } else { a <= b }
        }
        _ => w.regs.pred(i.c) >> l & 1 == 1,
    };
    if first { (0, i.a) } else { (1, i.b) }
}

/// The result of an operation under each interpretation.
#[inline(always)]
fn each(a: Operand, b: Operand, f: impl Fn(i64, i64) -> i64) -> [i64; READINGS] {
    [f(a.exact[0], b.exact[0]), f(a.exact[1], b.exact[1]), f(a.exact[2], b.exact[2])]
}

fn narrow_result(w: &Warp, here: u32, i: &Inst, track: Track, l: usize) -> Operand {
    let take = |n: usize, r: Reg| if r.is_some() { operand(w, track, n, r, l) } else { Operand::default() };
    match i.offset {
        Offset::Select | Offset::Extreme { .. } => {
            let (n, r) = selected(w, i, l);
            return take(n, r);
        }
        Offset::Cut => {
            let bits = w.regs.q(i.a)[l] as u32;
            let (unsigned, signed) = (i64::from(bits), i64::from(bits as i32));
            let whole = Operand { exact: [unsigned, signed, unsigned], left_at: 0 };
            let lost = |found: Overflow| Operand { exact: [i64::MAX; READINGS], left_at: found.at };
            return if track.followed[0] { mark(w, i.a, l).map_or(whole, lost) } else { whole };
        }
        _ => {}
    }
    let (a, b) = (take(0, i.a), take(1, i.b));
    let c = if i.offset == Offset::Mad { take(2, i.c) } else { Operand::default() };
    let exact = match i.offset {
        Offset::Negate => each(a, b, |a, _| a.saturating_neg()),
        Offset::Add => each(a, b, i64::saturating_add),
        Offset::Sub => each(a, b, i64::saturating_sub),
        Offset::Mul => each(a, b, i64::saturating_mul),
        Offset::Mad => each(Operand { exact: each(a, b, i64::saturating_mul), ..a }, c, i64::saturating_add),
        Offset::Shl => {
            let factor = 1 << w.regs.r(i.b)[l].min(32);
            each(a, b, |a, _| a.saturating_mul(factor))
        }
        _ => a.exact,
    };
    let earlier = [a.left_at, b.left_at, c.left_at].into_iter().find(|at| *at != 0);
    Operand { exact, left_at: if fits(exact) { 0 } else { earlier.unwrap_or(here + 1) } }
}

fn wide_result(w: &Warp, here: u32, i: &Inst, track: Track, l: usize) -> Option<Overflow> {
    if matches!(i.offset, Offset::Select | Offset::Extreme { .. }) {
        let (n, r) = selected(w, i, l);
        return track.followed[n].then(|| mark(w, r, l)).flatten();
    }
    let signed = match i.offset {
        Offset::Widen { signed } => Some(signed),
        _ => None,
    };
    let operands = [i.a, i.b, i.c].into_iter().enumerate().filter(|(n, _)| track.followed[*n]);
    operands
        .filter_map(|(n, r)| match r.class() {
            Class::R if signed.is_some() => overflow(w, here, track, n, r, l, signed),
            Class::Q => mark(w, r, l),
            _ => None,
        })
        .next()
}
