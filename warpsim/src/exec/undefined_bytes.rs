//! Values with some undefined bytes: one of two packed halves, or a word with padding. While such a value is moved, packed and masked, each
//! of its bytes is tracked; the result of any other operation on it is undefined as a whole.

use rustc_hash::FxHashMap;

use super::cx::Cx;
use super::mem_ops::lanes;
use super::shared;
use super::shared_check::unmark;
use super::state::*;
use super::undefined::{define, keep_division, unknown};
use crate::ir::*;

/// Details on a lane's undefined register.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// One bit per byte: whether the byte is defined.
    known: u8,
    /// While the value is only copied: its offset in the vector that was loaded, and the size of the vector in bytes. It may be padding.
    from: Option<(u8, u8)>,
}

/// Undefined registers with details, by their indices in the warp's register files.
#[derive(Default)]
pub struct Parts(FxHashMap<u32, [Part; 32]>);

impl Warp {
    /// These lanes have written a register.
    #[inline(always)]
    pub fn forget_parts(&mut self, r: Reg, m: u32) {
        if !self.parts.0.is_empty() {
            let place = place(self, r);
            if let Some(parts) = self.parts.0.get_mut(&place) {
                lanes(m).for_each(|l| parts[l] = Part::default());
            }
        }
    }
}

/// The index of a register of the running function in the warp's register file.
fn place(w: &Warp, r: Reg) -> u32 {
    let base = [w.regs.rb, w.regs.qb, w.regs.pb][r.class() as usize];
    Reg::new(r.class(), (base + r.slot()) as u32).0
}

/// One bit for each byte of a register.
fn whole(r: Reg) -> u8 {
    if r.class() == Class::Q { 0xff } else { 0xf }
}

fn part(w: &Warp, r: Reg, l: usize) -> Part {
    w.parts.0.get(&place(w, r)).map_or(Part::default(), |parts| parts[l])
}

/// The defined bytes of a lane's register.
pub fn known(w: &Warp, code: &Code, r: Reg, l: usize) -> u8 {
    if unknown(w, code, r) >> l & 1 == 0 { whole(r) } else { part(w, r, l).known }
}

/// A lane's register is undefined except for this.
fn set(w: &mut Warp, code: &Code, r: Reg, l: usize, part: Part) {
    let undefined = part.known & whole(r) != whole(r);
    define(w, code, std::iter::once(r), 1 << l, u32::from(undefined) << l);
    if undefined && part != Part::default() {
        let place = place(w, r);
        w.parts.0.entry(place).or_default()[l] = part;
    }
}

/// A lane has loaded element `k` of a vector, of which the bytes in `written` were written in memory.
pub fn loaded(w: &mut Warp, code: &Code, r: Reg, l: usize, a: Access, k: usize, written: u8) {
    let mut known = written;
    // The bytes that an extension adds are defined; those of a sign extension only if the sign is.
    if a.sext == 0 || written >> (a.bytes - 1) & 1 == 1 {
        known |= (0xffu16 << a.bytes) as u8;
    }
    set(w, code, r, l, Part { known, from: Some(((k * usize::from(a.bytes)) as u8, a.bytes * a.count)) });
}

/// Details on a register that may be undefined.
pub fn parts(w: &Warp, r: Reg) -> Option<[Part; 32]> {
    (!w.parts.0.is_empty()).then(|| std::array::from_fn(|l| part(w, r, l)))
}

/// Details on the results of lanes whose result is undefined; `None` if there are none.
pub fn result(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) -> Option<[Part; 32]> {
    let (code, text) = (&cx.prog.funcs[s.func as usize], cx.text(s));
    if m == 0 || !i.d.is_some() || i.d.class() == Class::P || i.defs > 0 {
        return None;
    }
    if i.moves {
        return self::parts(w, i.a);
    }
    let mut parts = [Part::default(); 32];
    if text.contains("16x2") {
        let halves = |w: &Warp, r: Reg, l| if r.is_some() { known(w, code, r, l) } else { 0xf };
        for l in lanes(m) {
            let [a, b, c] = [i.a, i.b, i.c].map(|r| halves(w, r, l));
            parts[l].known = match text.starts_with("cvt") {
                true if text.ends_with("x2.f32") => u8::from(b == 0xf) * 0b0011 | u8::from(a == 0xf) * 0b1100,
                true => 0,
                false => [0b0011, 0b1100].iter().filter(|h| a & b & c & **h == **h).fold(0, |all, half| all | half),
            };
        }
        return Some(parts);
    }
    // Which operands are data; the other operands must be fully defined.
    let data = match text.split('.').next().unwrap_or("") {
        "mov" | "and" | "or" | "xor" | "not" | "lop3" => [true; 3],
        "selp" | "prmt" | "shf" => [true, true, false],
        "shl" | "shr" | "bfe" => [true, false, false],
        "cvt" if !text.contains(['f', '_']) && !text.contains("sat") => [true, false, false],
        _ => return None,
    };
    let operands = [i.a, i.b, i.c].map(|r| if r.is_some() { unknown(w, code, r) } else { 0 });
    let others = operands.iter().zip(data).filter(|(_, data)| !data).fold(0, |all, (lanes, _)| all | lanes);
    let listed = &code.lists[i.ext as usize..][..i.len.into()];
    let m = m & !others & !listed.iter().fold(0, |all, r| all | unknown(w, code, *r));
    if m == 0 {
        return None;
    }
    let known = unchanged(w, code, i, operands, m);
    lanes(m).for_each(|l| parts[l].known = known[l]);
    Some(parts)
}

/// Stores the details that [`result`] has returned.
pub fn keep(w: &mut Warp, code: &Code, d: Reg, m: u32, parts: &[Part; 32]) {
    lanes(m).filter(|l| parts[*l] != Part::default()).for_each(|l| set(w, code, d, l, parts[l]));
}

/// The bytes of a result that do not depend on the values of its undefined operands.
fn unchanged(w: &mut Warp, code: &Code, i: &Inst, undefined: [u32; 3], m: u32) -> [u8; 32] {
    const PATTERNS: [u64; 4] = [0, !0, 0x5a69_c396_3c5a_96a5, !0x5a69_c396_3c5a_96a5];
    let Op::Alu(f) = &i.op else { return [0; 32] };
    let operands = [i.a, i.b, i.c];
    let saved = [i.a, i.b, i.c, i.d].map(|r| value(w, r));
    let bits: [[u64; 32]; 3] = std::array::from_fn(|k| {
        let of = |l: usize| {
            (0..8).filter(|b| known(w, code, operands[k], l) >> b & 1 == 0).fold(0, |v, b| v | 0xff << (8 * b))
        };
        std::array::from_fn(|l| if undefined[k] >> l & 1 == 1 { of(l) } else { 0 })
    });
    let mut results = PATTERNS.map(|pattern| {
        for k in (0..3).filter(|k| undefined[*k] != 0 && operands[*k].class() != Class::P) {
            let tried = std::array::from_fn(|l| saved[k][l] & !bits[k][l] | pattern & bits[k][l]);
            put(w, operands[k], &tried);
        }
        // SAFETY: as for the execution of the instruction.
        unsafe { f(&mut w.regs, i, m) };
        let result = value(w, i.d);
        [i.a, i.b, i.c, i.d].iter().zip(&saved).for_each(|(r, v)| put(w, *r, v));
        result
    });
    let [first, rest @ ..] = &mut results;
    std::array::from_fn(|l| {
        let differ = rest.iter().fold(0, |all, other| all | first[l] ^ other[l]);
        (0..8).filter(|b| differ >> (8 * b) & 0xff == 0).fold(0, |known, b| known | 1 << b)
    })
}

fn value(w: &Warp, r: Reg) -> [u64; 32] {
    match r.is_some().then(|| r.class()) {
        Some(Class::R) => w.regs.r(r).map(u64::from),
        Some(Class::Q) => *w.regs.q(r),
        _ => [0; 32],
    }
}

fn put(w: &mut Warp, r: Reg, v: &[u64; 32]) {
    match r.is_some().then(|| r.class()) {
        Some(Class::R) => w.regs.set_r(r, &v.map(|v| v as u32), !0),
        Some(Class::Q) => w.regs.set_q(r, v, !0),
        _ => {}
    }
}

/// Lanes of a store to global memory that store undefined bytes. A value that is stored as it was loaded may have padding, if its other bytes
/// are defined.
pub fn missing(w: &Warp, code: &Code, a: Access, values: &[Reg], m: u32) -> u32 {
    let undefined = m & values.iter().fold(0, |all, r| all | unknown(w, code, *r));
    let all = byte_mask(a.bytes);
    let bad = |l: &usize| {
        let known = |r: &Reg| known(w, code, *r, *l) & all;
        let as_loaded = |(k, r): (usize, &Reg)| {
            known(r) == all || part(w, *r, *l).from == Some(((k * usize::from(a.bytes)) as u8, a.bytes * a.count))
        };
        !values.iter().enumerate().all(as_loaded) || values.iter().all(|r| known(r) == 0)
    };
    lanes(undefined).filter(bad).fold(0, |all, l| all | 1 << l)
}

fn byte_mask(bytes: u8) -> u8 {
    ((1u16 << bytes) - 1) as u8
}

/// Calls `f` with the lane, and the offset in the vector, of each undefined byte that lanes store.
fn unmade(w: &Warp, code: &Code, a: Access, values: &[Reg], m: u32, mut f: impl FnMut(usize, usize)) {
    for (k, r) in values.iter().enumerate() {
        for l in lanes(m & unknown(w, code, *r)) {
            let known = known(w, code, *r, l);
            let bytes = (0..usize::from(a.bytes)).filter(|b| known >> b & 1 == 0);
            bytes.for_each(|b| f(l, k * usize::from(a.bytes) + b));
        }
    }
}

/// A store to shared memory: undefined bytes count as not written.
pub fn stored(cx: &Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, i: &Inst, a: Access, addr: &[u64; 32], m: u32) {
    let code = &cx.prog.funcs[s.func as usize];
    let values = &code.lists[i.ext as usize..][..usize::from(a.count)];
    unmade(w, code, a, values, m, |l, byte| {
        let (b, off) = shared::split(w.block, addr[l]);
        keep_division(&mut cl.blocks[b], w, l);
        unmark(&mut cl.blocks[b].shared_init, off + byte, 1);
    });
}

/// A store to global memory: undefined bytes count as not written.
pub fn stored_far(cx: &Cx<'_>, w: &Warp, s: &Split, i: &Inst, a: Access, addr: &[u64; 32], m: u32) {
    let code = &cx.prog.funcs[s.func as usize];
    let values = &code.lists[i.ext as usize..][..usize::from(a.count)];
    let bad = missing(w, code, a, values, m);
    unmade(w, code, a, values, m & !bad, |l, byte| {
        if let Ok(k) = cx.mem.find(addr[l], 1) {
            let al = cx.mem.get(k);
            al.unmark((addr[l] - al.base) as usize + byte, 1);
        }
    });
}
