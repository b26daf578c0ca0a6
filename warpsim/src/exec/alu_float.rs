//! f32 and f64 instructions.
//!
//! `Inst::imm` carries flags: bit 0 `.ftz`, bit 1 `.sat`, bits 2-4 the rounding mode.

use super::lane::lane;
use super::regs::{cmp2, map1, map2, map3};
use crate::directed;
use crate::num::{self, Rnd, canon, ftz};

pub const FTZ: i64 = 1;
pub const SAT: i64 = 2;

/// The flag bits of a rounding mode.
pub fn rnd_flag(r: Rnd) -> i64 {
    (r as i64) << 2
}

fn rnd_of(imm: i64) -> Rnd {
    match imm >> 2 & 7 {
        1 => Rnd::Rz,
        2 => Rnd::Rm,
        3 => Rnd::Rp,
        4 => Rnd::Rna,
        _ => Rnd::Rn,
    }
}

#[inline(always)]
fn f(v: u32) -> f32 {
    f32::from_bits(v)
}

#[inline(always)]
fn d(v: u64) -> f64 {
    f64::from_bits(v)
}

#[inline(always)]
fn inp(v: u32, imm: i64) -> f32 {
    if imm & FTZ != 0 { ftz(f(v)) } else { f(v) }
}

/// `div.approx`: multiplies by the reciprocal, which is zero where the divisor is larger than 2¹²⁶.
#[inline(always)]
fn divide(x: f32, y: f32) -> f32 {
    const LARGE: f32 = f32::from_bits(0x7e80_0000);
    if y.abs() > LARGE && y.is_finite() { x * 0f32.copysign(y) } else { x / y }
}

#[inline(always)]
fn out(v: f32, imm: i64) -> u32 {
    let v = if imm & FTZ != 0 { ftz(v) } else { v };
    if imm & SAT != 0 {
        return if v > 0.0 { v.min(1.0).to_bits() } else { 0 };
    }
    canon(v)
}

#[inline(always)]
fn fmin(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == 0.0 && b == 0.0 {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    }
}

/// min or max with the flags: bit 0 ftz, bit 8 max, bit 9 NaN propagates, bit 10 xorsign.abs.
#[inline(always)]
fn minmax(a: u32, b: u32, imm: i64) -> u32 {
    let (mut x, mut y) = (inp(a, imm), inp(b, imm));
    let sign = (a ^ b) & 1 << 31;
    if imm & 1 << 10 != 0 {
        (x, y) = (x.abs(), y.abs());
    }
    if imm & 1 << 9 != 0 && (x.is_nan() || y.is_nan()) {
        return 0x7fff_ffff;
    }
    let v = if imm & 1 << 8 != 0 { -fmin(-x, -y) } else { fmin(x, y) };
    if v.is_nan() {
        return 0x7fff_ffff;
    }
    if imm & 1 << 10 != 0 { v.to_bits() | sign } else { v.to_bits() }
}

fn minmax64(a: f64, b: f64, max: bool) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        if a.is_sign_negative() == max { b } else { a }
    } else if (a < b) != max {
        a
    } else {
        b
    }
}

/// Functions of one variable that the hardware approximates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approx {
    Rcp,
    Rsqrt,
    Sqrt,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

pub fn approx(kind: Approx, x: f32) -> f32 {
    let w = f64::from(x);
    match kind {
        Approx::Rcp => (1.0 / w) as f32,
        Approx::Rsqrt => (1.0 / w.sqrt()) as f32,
        Approx::Sqrt => x.sqrt(),
        Approx::Ex2 => x.exp2(),
        Approx::Lg2 => w.log2() as f32,
        Approx::Sin => w.sin() as f32,
        Approx::Cos => w.cos() as f32,
        Approx::Tanh => w.tanh() as f32,
    }
}

macro_rules! approx_fns {
    ($($name:ident $kind:ident)*) => { lane! {$(
        $name = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| out(approx(Approx::$kind, inp(a, k)), k)) };
    )*} };
}
approx_fns! { rcp_approx Rcp rsqrt_approx Rsqrt sqrt_approx Sqrt ex2 Ex2 lg2 Lg2 sin Sin cos Cos tanh Tanh }

lane! {
    fadd = |r, i, m| map2(r, i, m, |a: u32, b: u32| canon(f(a) + f(b)));
    fsub = |r, i, m| map2(r, i, m, |a: u32, b: u32| canon(f(a) - f(b)));
    fmul = |r, i, m| map2(r, i, m, |a: u32, b: u32| canon(f(a) * f(b)));
    ffma = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| canon(f(a).mul_add(f(b), f(c))));
    fadd_ftz = |r, i, m| map2(r, i, m, |a: u32, b: u32| canon(ftz(ftz(f(a)) + ftz(f(b)))));
    fsub_ftz = |r, i, m| map2(r, i, m, |a: u32, b: u32| canon(ftz(ftz(f(a)) - ftz(f(b)))));
    fmul_ftz = |r, i, m| map2(r, i, m, |a: u32, b: u32| canon(ftz(ftz(f(a)) * ftz(f(b)))));
    ffma_ftz = |r, i, m| map3(r, i, m, |a: u32, b: u32, c: u32| canon(ftz(ftz(f(a)).mul_add(ftz(f(b)), ftz(f(c))))));
    fadd_any = |r, i, m| { let k = i.imm; let q = rnd_of(k); map2(r, i, m, |a: u32, b: u32| { let (x, y) = (inp(a, k), inp(b, k)); out(if q == Rnd::Rn { x + y } else { num::add32(x, y, q) }, k) }) };
    fsub_any = |r, i, m| { let k = i.imm; let q = rnd_of(k); map2(r, i, m, |a: u32, b: u32| { let (x, y) = (inp(a, k), -inp(b, k)); out(if q == Rnd::Rn { x + y } else { num::add32(x, y, q) }, k) }) };
    fmul_any = |r, i, m| { let k = i.imm; let q = rnd_of(k); map2(r, i, m, |a: u32, b: u32| { let (x, y) = (inp(a, k), inp(b, k)); out(if q == Rnd::Rn { x * y } else { num::mul32(x, y, q) }, k) }) };
    ffma_any = |r, i, m| { let k = i.imm; let q = rnd_of(k); map3(r, i, m, |a: u32, b: u32, c: u32| { let (x, y, z) = (inp(a, k), inp(b, k), inp(c, k)); out(if q == Rnd::Rn { x.mul_add(y, z) } else { num::fma32(x, y, z, q) }, k) }) };
    fdiv_approx = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| out(divide(inp(a, k), inp(b, k)), k)) };
    fdiv = |r, i, m| { let k = i.imm; let q = rnd_of(k); map2(r, i, m, |a: u32, b: u32| { let (x, y) = (inp(a, k), inp(b, k)); out(if q == Rnd::Rn { x / y } else { num::to_f32(num::div_odd(f64::from(x), f64::from(y)), q) }, k) }) };
    frcp = |r, i, m| { let k = i.imm; let q = rnd_of(k); map1(r, i, m, |a: u32| { let x = inp(a, k); out(if q == Rnd::Rn { 1.0 / x } else { num::to_f32(num::div_odd(1.0, f64::from(x)), q) }, k) }) };
    fsqrt = |r, i, m| { let k = i.imm; let q = rnd_of(k); map1(r, i, m, |a: u32| { let x = inp(a, k); out(if q == Rnd::Rn { x.sqrt() } else { num::to_f32(num::sqrt_odd(f64::from(x)), q) }, k) }) };
    fneg = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| canon(-inp(a, k))) };
    fabs = |r, i, m| { let k = i.imm; map1(r, i, m, |a: u32| canon(inp(a, k).abs())) };
    fminmax = |r, i, m| { let k = i.imm; map2(r, i, m, |a: u32, b: u32| minmax(a, b, k)) };
    fcopysign = |r, i, m| map2(r, i, m, |a: u32, b: u32| b & !(1 << 31) | a & 1 << 31);
    dcopysign = |r, i, m| map2(r, i, m, |a: u64, b: u64| b & !(1 << 63) | a & 1 << 63);

    dadd = |r, i, m| { let q = rnd_of(i.imm); map2(r, i, m, |a: u64, b: u64| if q == Rnd::Rn { d(a) + d(b) } else { directed::add(d(a), d(b), q) }.to_bits()) };
    dsub = |r, i, m| { let q = rnd_of(i.imm); map2(r, i, m, |a: u64, b: u64| if q == Rnd::Rn { d(a) - d(b) } else { directed::add(d(a), -d(b), q) }.to_bits()) };
    dmul = |r, i, m| { let q = rnd_of(i.imm); map2(r, i, m, |a: u64, b: u64| if q == Rnd::Rn { d(a) * d(b) } else { directed::mul(d(a), d(b), q) }.to_bits()) };
    dfma = |r, i, m| { let q = rnd_of(i.imm); map3(r, i, m, |a: u64, b: u64, c: u64| if q == Rnd::Rn { d(a).mul_add(d(b), d(c)) } else { directed::fma(d(a), d(b), d(c), q) }.to_bits()) };
    ddiv = |r, i, m| { let q = rnd_of(i.imm); map2(r, i, m, |a: u64, b: u64| directed::div(d(a), d(b), q).to_bits()) };
    drcp = |r, i, m| { let q = rnd_of(i.imm); map1(r, i, m, |a: u64| directed::div(1.0, d(a), q).to_bits()) };
    /// The 20-bit seed that software division refines: low word zero.
    drcp_seed = |r, i, m| map1(r, i, m, |a: u64| seed(a, |x| 1.0 / x));
    drsqrt_seed = |r, i, m| map1(r, i, m, |a: u64| seed(a, |x| 1.0 / x.sqrt()));
    drsqrt = |r, i, m| map1(r, i, m, |a: u64| (1.0 / d(a).sqrt()).to_bits());
    dsqrt = |r, i, m| { let q = rnd_of(i.imm); map1(r, i, m, |a: u64| directed::sqrt(d(a), q).to_bits()) };
    dneg = |r, i, m| map1(r, i, m, |a: u64| if d(a).is_nan() { num::quiet(a) } else { a ^ 1 << 63 });
    dabs = |r, i, m| map1(r, i, m, |a: u64| if d(a).is_nan() { num::quiet(a) } else { a & !(1 << 63) });
    dmin = |r, i, m| map2(r, i, m, |a: u64, b: u64| minmax64(d(a), d(b), false).to_bits());
    dmax = |r, i, m| map2(r, i, m, |a: u64, b: u64| minmax64(d(a), d(b), true).to_bits());

    feq = |r, i, m| { let z = i.imm & 256 != 0; cmp2(r, i, m, |a: u32, b: u32| pre(a, z) == pre(b, z)) };
    flt = |r, i, m| { let z = i.imm & 256 != 0; cmp2(r, i, m, |a: u32, b: u32| pre(a, z) < pre(b, z)) };
    fle = |r, i, m| { let z = i.imm & 256 != 0; cmp2(r, i, m, |a: u32, b: u32| pre(a, z) <= pre(b, z)) };
    fone = |r, i, m| { let z = i.imm & 256 != 0; cmp2(r, i, m, |a: u32, b: u32| { let (x, y) = (pre(a, z), pre(b, z)); x < y || x > y }) };
    funord = |r, i, m| cmp2(r, i, m, |a: u32, b: u32| f(a).is_nan() || f(b).is_nan());
    deq = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| d(a) == d(b));
    dlt = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| d(a) < d(b));
    dle = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| d(a) <= d(b));
    done = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| d(a) < d(b) || d(a) > d(b));
    dunord = |r, i, m| cmp2(r, i, m, |a: u64, b: u64| d(a).is_nan() || d(b).is_nan());

    /// `testp`; `imm >> 8`: 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal.
    ftestp = |r, i, m| { let k = i.imm >> 8; cmp2(r, i, m, |a: u32, _| { let x = f(a); match k { 0 => x.is_finite(), 1 => x.is_infinite(), 2 => !x.is_nan(), 3 => x.is_nan(), 4 => x.is_normal() || x == 0.0, _ => x.is_subnormal() } }) };
    dtestp = |r, i, m| { let k = i.imm >> 8; cmp2(r, i, m, |a: u64, _| { let x = d(a); match k { 0 => x.is_finite(), 1 => x.is_infinite(), 2 => !x.is_nan(), 3 => x.is_nan(), 4 => x.is_normal() || x == 0.0, _ => x.is_subnormal() } }) };
}

/// Only the upper words of the operand and of the result are significant, and subnormal numbers are not.
#[inline(always)]
fn seed(a: u64, f: impl Fn(f64) -> f64) -> u64 {
    let flush = |x: f64| if x.is_subnormal() { 0f64.copysign(x) } else { x };
    let upper = |x: u64| x & !0xffff_ffff;
    let result = f(flush(d(upper(a))));
    if result.is_nan() { 0x7fff_ffff_0000_0000 } else { upper(flush(result).to_bits()) }
}

#[inline(always)]
fn pre(v: u32, z: bool) -> f32 {
    if z { ftz(f(v)) } else { f(v) }
}
