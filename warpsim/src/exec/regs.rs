//! A warp's registers: one array of 32 lanes per slot.

use crate::ir::{Inst, Reg};

/// The register files of one warp. Frames of called functions are stored one after another.
#[derive(Default)]
pub struct Regs {
    pub r: Vec<[u32; 32]>,
    pub q: Vec<[u64; 32]>,
    pub p: Vec<u32>,
    /// Lanes written so far, for registers that are checked; empty if unchecked.
    pub ri: Vec<u32>,
    pub qi: Vec<u32>,
    pub pi: Vec<u32>,
    pub rb: usize,
    pub qb: usize,
    pub pb: usize,
}

/// A lane value and the file that holds it.
pub trait Lane: Copy + Default {
    fn get(regs: &Regs, r: Reg) -> &[Self; 32];
    fn get_mut(regs: &mut Regs, r: Reg) -> &mut [Self; 32];
}

impl Lane for u32 {
    #[inline(always)]
    fn get(regs: &Regs, r: Reg) -> &[u32; 32] {
        &regs.r[regs.rb + r.slot()]
    }
    #[inline(always)]
    fn get_mut(regs: &mut Regs, r: Reg) -> &mut [u32; 32] {
        &mut regs.r[regs.rb + r.slot()]
    }
}

impl Lane for u64 {
    #[inline(always)]
    fn get(regs: &Regs, r: Reg) -> &[u64; 32] {
        &regs.q[regs.qb + r.slot()]
    }
    #[inline(always)]
    fn get_mut(regs: &mut Regs, r: Reg) -> &mut [u64; 32] {
        &mut regs.q[regs.qb + r.slot()]
    }
}

impl Regs {
    #[inline(always)]
    pub fn r(&self, r: Reg) -> &[u32; 32] {
        u32::get(self, r)
    }
    #[inline(always)]
    pub fn q(&self, r: Reg) -> &[u64; 32] {
        u64::get(self, r)
    }
    #[inline(always)]
    pub fn pred(&self, r: Reg) -> u32 {
        self.p[self.pb + r.slot()]
    }
    #[inline(always)]
    pub fn set_pred(&mut self, r: Reg, bits: u32, mask: u32) {
        let p = &mut self.p[self.pb + r.slot()];
        *p = *p & !mask | bits & mask;
    }
    /// Writes `v` to the lanes of `mask`; does nothing if the operand is absent.
    pub fn set_r(&mut self, r: Reg, v: &[u32; 32], mask: u32) {
        if r.is_some() {
            blend(u32::get_mut(self, r), v, mask);
        }
    }
    pub fn set_q(&mut self, r: Reg, v: &[u64; 32], mask: u32) {
        if r.is_some() {
            blend(u64::get_mut(self, r), v, mask);
        }
    }
}

/// Copies the lanes of `mask`.
#[inline(always)]
pub fn blend<T: Copy>(d: &mut [T; 32], v: &[T; 32], mask: u32) {
    let mut t = *v;
    if mask != !0 {
        // Selects values rather than addresses, so that the compiler vectorises it.
        let old = *d;
        for k in 0..32 {
            t[k] = if mask >> k & 1 == 1 { t[k] } else { old[k] };
        }
    }
    *d = t;
}

// Operands are copied first, so that the compiler knows that results do not alias them, and vectorises the loops.

#[inline(always)]
pub fn map1<A: Lane, D: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(A) -> D) {
    let a = *A::get(r, i.a);
    let mut t = [D::default(); 32];
    for k in 0..32 {
        t[k] = f(a[k]);
    }
    blend(D::get_mut(r, i.d), &t, m);
}

#[inline(always)]
pub fn map2<A: Lane, B: Lane, D: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(A, B) -> D) {
    let (a, b) = (*A::get(r, i.a), *B::get(r, i.b));
    let mut t = [D::default(); 32];
    for k in 0..32 {
        t[k] = f(a[k], b[k]);
    }
    blend(D::get_mut(r, i.d), &t, m);
}

#[inline(always)]
pub fn map3<A: Lane, B: Lane, C: Lane, D: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(A, B, C) -> D) {
    let (a, b, c) = (*A::get(r, i.a), *B::get(r, i.b), *C::get(r, i.c));
    let mut t = [D::default(); 32];
    for k in 0..32 {
        t[k] = f(a[k], b[k], c[k]);
    }
    blend(D::get_mut(r, i.d), &t, m);
}

/// Predicate = f(a, b), combined with predicate `c` as `imm` says.
///
/// `imm`: bits 0-1 combine (0 none, 1 and, 2 or, 3 xor), bit 2 negate `c`, bit 3 negate the comparison.
#[inline(always)]
pub fn cmp2<A: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(A, A) -> bool) {
    let (a, b) = (*A::get(r, i.a), *A::get(r, i.b));
    let mut t = [0u8; 32];
    for k in 0..32 {
        t[k] = u8::from(f(a[k], b[k]));
    }
    let mut bits = 0u32;
    for (w, c) in t.chunks_exact(8).enumerate() {
        let v = u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
        // One multiplication gathers eight 0/1 bytes into a byte of bits.
        bits |= ((v.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32) << (w * 8);
    }
    let bits = combine(r, i, bits);
    r.set_pred(i.d, bits, m);
}

#[inline(always)]
pub fn combine(r: &Regs, i: &Inst, bits: u32) -> u32 {
    let bits = if i.imm & 8 != 0 { !bits } else { bits };
    if i.imm & 3 == 0 {
        return bits;
    }
    let c = r.pred(i.c);
    let c = if i.imm & 4 != 0 { !c } else { c };
    match i.imm & 3 {
        1 => bits & c,
        2 => bits | c,
        _ => bits ^ c,
    }
}
