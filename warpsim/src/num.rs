//! Number formats and correctly rounded arithmetic in every PTX rounding mode.

/// PTX rounding modes to a floating format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rnd {
    /// To nearest, ties to even.
    Rn,
    Rz,
    /// Towards minus infinity.
    Rm,
    Rp,
    /// To nearest, ties away from zero.
    Rna,
}

/// A small binary floating-point format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub exp: u32,
    pub man: u32,
    /// e4m3: no infinity; only the all-ones pattern is NaN.
    pub finite: bool,
}

pub const F16: Format = Format { exp: 5, man: 10, finite: false };
pub const BF16: Format = Format { exp: 8, man: 7, finite: false };
pub const TF32: Format = Format { exp: 8, man: 10, finite: false };
pub const F32: Format = Format { exp: 8, man: 23, finite: false };
pub const E4M3: Format = Format { exp: 4, man: 3, finite: true };
pub const E5M2: Format = Format { exp: 5, man: 2, finite: false };

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exp - 1)) - 1
    }
    /// Largest finite value's bits, without sign.
    pub const fn max_bits(self) -> u32 {
        if self.finite { (1 << (self.exp + self.man)) - 2 } else { (((1 << self.exp) - 1) << self.man) - 1 }
    }
    /// Canonical NaN as the hardware writes it.
    pub const fn nan(self) -> u32 {
        (1 << (self.exp + self.man)) - 1
    }

    /// The exact value.
    pub fn decode(self, bits: u32) -> f64 {
        let sign = if bits >> (self.exp + self.man) & 1 == 1 { -1.0 } else { 1.0 };
        let e = bits >> self.man & ((1 << self.exp) - 1);
        let m = bits & ((1 << self.man) - 1);
        let all = (1 << self.exp) - 1;
        if e == all && !(self.finite && m != (1 << self.man) - 1) {
            return if m == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        let (frac, e) = if e == 0 { (m, 1) } else { (m | 1 << self.man, e) };
        sign * f64::from(frac) * pow2(e as i32 - self.bias() - self.man as i32)
    }

    /// Rounds a value to the format. Overflow saturates if `satfinite`, and otherwise follows the rounding mode.
    pub fn encode(self, v: f64, rnd: Rnd, satfinite: bool) -> u32 {
        let sign = u32::from(v.is_sign_negative()) << (self.exp + self.man);
        if v.is_nan() {
            return self.nan();
        }
        let a = v.abs();
        if a.is_infinite() {
            return sign
                | if satfinite || self.finite {
                    if satfinite { self.max_bits() } else { self.nan() }
                } else {
                    self.max_bits() + 1
                };
        }
        if a == 0.0 {
            return sign;
        }
        // Exponent of the last kept bit.
        let e = exponent(a).max(1 - self.bias());
        let quantum = pow2(e - self.man as i32);
        let scaled = a / quantum;
        let floor = scaled.floor();
        let frac = scaled - floor;
        let up = match rnd {
            Rnd::Rn => frac > 0.5 || (frac == 0.5 && floor % 2.0 == 1.0),
            Rnd::Rna => frac >= 0.5,
            Rnd::Rz => false,
            Rnd::Rm => sign != 0 && frac > 0.0,
            Rnd::Rp => sign == 0 && frac > 0.0,
        };
        let n = floor as u64 + u64::from(up);
        // n counts quanta; adding it to the biased exponent carries by itself.
        let bits = if n == 0 {
            0
        } else {
            let base = (e + self.bias() - 1) as i64;
            (base << self.man) as u64 + n
        };
        if bits > u64::from(self.max_bits()) {
            let to_inf = match rnd {
                Rnd::Rn | Rnd::Rna => true,
                Rnd::Rz => false,
                Rnd::Rm => sign != 0,
                Rnd::Rp => sign == 0,
            };
            return sign
                | if satfinite || !to_inf {
                    self.max_bits()
                } else if self.finite {
                    self.nan()
                } else {
                    self.max_bits() + 1
                };
        }
        sign | bits as u32
    }
}

/// 2^e exactly, for every e that a normal or subnormal f64 can represent.
pub fn pow2(e: i32) -> f64 {
    if e >= -1022 {
        f64::from_bits(((e + 1023).min(2047) as u64) << 52)
    } else {
        f64::from_bits(1u64 << (e + 1074).max(0))
    }
}

fn exponent(a: f64) -> i32 {
    let e = (a.to_bits() >> 52) as i32 & 0x7ff;
    if e == 0 { a.to_bits().ilog2() as i32 - 1074 } else { e - 1023 }
}

/// f16 bits to f32, with few branches so that lane loops vectorise.
#[inline(always)]
pub fn f16_to_f32(h: u32) -> f32 {
    let sign = (h & 0x8000) << 16;
    let body = (h & 0x7fff) << 13;
    let scaled = f32::from_bits(body) * f32::from_bits(0x7780_0000);
    let bits = if h & 0x7c00 == 0x7c00 { body | 0x7f80_0000 } else { scaled.to_bits() };
    f32::from_bits(bits | sign)
}

/// f32 to f16 bits, rounded to nearest even.
#[inline(always)]
pub fn f32_to_f16(v: f32) -> u32 {
    let x = v.to_bits();
    let sign = x >> 16 & 0x8000;
    let a = x & 0x7fff_ffff;
    let normal = {
        let r = a.wrapping_add(0xfff + (a >> 13 & 1));
        r.wrapping_sub(112 << 23) >> 13
    };
    let sub = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let r = if a < 113 << 23 { sub } else { normal };
    let r = if a >= 0x477f_f000 { 0x7c00 } else { r };
    if a > 0x7f80_0000 { 0x7fff } else { sign | r & 0x7fff }
}

#[inline(always)]
pub fn bf16_to_f32(h: u32) -> f32 {
    f32::from_bits(h << 16)
}

/// f32 to bf16 bits, rounded to nearest even.
#[inline(always)]
pub fn f32_to_bf16(v: f32) -> u32 {
    let x = v.to_bits();
    let r = x.wrapping_add(0x7fff + (x >> 16 & 1)) >> 16;
    if v.is_nan() { 0x7fff } else { r }
}

/// Rounds an f64 that is exact, or was rounded to odd, to f32.
pub fn to_f32(v: f64, rnd: Rnd) -> f32 {
    match rnd {
        Rnd::Rn => v as f32,
        _ if v.is_nan() => f32::NAN,
        _ => f32::from_bits(F32.encode(v, rnd, false)),
    }
}

fn nudge(s: f64, err: f64) -> f64 {
    // Sets the last bit if bits were lost (round to odd), so that a second rounding gives the correct result.
    if err == 0.0 || err.is_nan() || s.is_infinite() || s.is_nan() || s.to_bits() & 1 == 1 {
        return s;
    }
    step(s, err > 0.0)
}

/// The adjacent floating-point number above or below `s`.
fn step(s: f64, up: bool) -> f64 {
    if up { s.next_up() } else { s.next_down() }
}

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let bb = s - a;
    (s, (a - (s - bb)) + (b - bb))
}

/// a + b rounded to odd.
pub fn add_odd(a: f64, b: f64) -> f64 {
    let (s, e) = two_sum(a, b);
    nudge(s, e)
}

/// a * b + c rounded to odd; exact products only (operands of 24 bits or fewer).
pub fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    add_odd(a * b, c)
}

pub fn div_odd(a: f64, b: f64) -> f64 {
    let q = a / b;
    if !q.is_finite() || q == 0.0 {
        return q;
    }
    let r = (-q).mul_add(b, a);
    nudge(q, if b < 0.0 { -r } else { r })
}

pub fn sqrt_odd(a: f64) -> f64 {
    let q = a.sqrt();
    if !q.is_finite() || q == 0.0 {
        return q;
    }
    nudge(q, (-q).mul_add(q, a))
}

/// Whether two numbers of different signs add up to zero, which is negative if rounded down.
fn cancel(a: f64, b: f64) -> bool {
    a == -b && a.is_sign_negative() != b.is_sign_negative()
}

/// f32 arithmetic in a directed rounding mode.
pub fn add32(a: f32, b: f32, rnd: Rnd) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    if rnd == Rnd::Rm && cancel(x, y) {
        return -0.0;
    }
    to_f32(add_odd(x, y), rnd)
}

pub fn mul32(a: f32, b: f32, rnd: Rnd) -> f32 {
    to_f32(f64::from(a) * f64::from(b), rnd)
}

pub fn fma32(a: f32, b: f32, c: f32, rnd: Rnd) -> f32 {
    let p = f64::from(a) * f64::from(b);
    if rnd == Rnd::Rm && cancel(p, f64::from(c)) {
        return -0.0;
    }
    to_f32(add_odd(p, f64::from(c)), rnd)
}

/// Canonical NaN of the hardware for f32 results.
#[inline(always)]
pub fn canon(v: f32) -> u32 {
    // Compares bits: some compiler versions fold away the comparison of a square root with itself.
    let b = v.to_bits();
    if b & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { b }
}

/// The f64 NaN that an operation passes on.
#[inline(always)]
pub fn quiet(nan: u64) -> u64 {
    nan | 1 << 51
}

/// Converts an f64 NaN to an f32 NaN, which keeps the sign and the upper bits.
#[inline(always)]
pub fn nan_to_f32(nan: u64) -> u32 {
    (nan >> 63) as u32 * (1 << 31) | 0x7fc0_0000 | (nan >> 29) as u32 & 0x7f_ffff
}

/// Flushes a subnormal to a zero of the same sign.
#[inline(always)]
pub fn ftz(v: f32) -> f32 {
    let b = v.to_bits();
    f32::from_bits(if b & 0x7f80_0000 == 0 { b & 0x8000_0000 } else { b })
}

/// f16 bits of a value, rounded to nearest even.
pub fn f16_bits(v: f64) -> u16 {
    F16.encode(v, Rnd::Rn, false) as u16
}

/// The value of f16 bits.
pub fn f16_value(bits: u16) -> f64 {
    F16.decode(u32::from(bits))
}

/// bf16 bits of a value, rounded to nearest even.
pub fn bf16_bits(v: f64) -> u16 {
    BF16.encode(v, Rnd::Rn, false) as u16
}

/// The value of bf16 bits.
pub fn bf16_value(bits: u16) -> f64 {
    BF16.decode(u32::from(bits))
}
