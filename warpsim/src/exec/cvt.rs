//! Conversions without a fast path, selected by flags in `Inst::imm`.

use super::lane::lane;
use super::regs::{map1, map2};
use crate::directed;
use crate::num::{self, Format, Rnd};

/// The types that a conversion reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cv {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    BF16,
    F32,
    F64,
    TF32,
    E4M3,
    E5M2,
}

const ALL: [Cv; 15] = [
    Cv::U8,
    Cv::S8,
    Cv::U16,
    Cv::S16,
    Cv::U32,
    Cv::S32,
    Cv::U64,
    Cv::S64,
    Cv::F16,
    Cv::BF16,
    Cv::F32,
    Cv::F64,
    Cv::TF32,
    Cv::E4M3,
    Cv::E5M2,
];

impl Cv {
    pub fn is_int(self) -> bool {
        (self as u8) < Cv::F16 as u8
    }
    pub fn bits(self) -> u32 {
        match self {
            Cv::U8 | Cv::S8 | Cv::E4M3 | Cv::E5M2 => 8,
            Cv::U16 | Cv::S16 | Cv::F16 | Cv::BF16 => 16,
            Cv::U32 | Cv::S32 | Cv::F32 | Cv::TF32 => 32,
            Cv::U64 | Cv::S64 | Cv::F64 => 64,
        }
    }
    pub fn signed(self) -> bool {
        self.is_int() && self as u8 & 1 == 1
    }
    fn format(self) -> Option<Format> {
        Some(match self {
            Cv::F16 => num::F16,
            Cv::BF16 => num::BF16,
            Cv::TF32 => num::TF32,
            Cv::E4M3 => num::E4M3,
            Cv::E5M2 => num::E5M2,
            _ => return None,
        })
    }
}

/// How to convert.
#[derive(Debug, Clone, Copy)]
pub struct Conv {
    pub from: Cv,
    pub to: Cv,
    pub rnd: Rnd,
    /// Round to an integral value (`.rni` and friends).
    pub integral: bool,
    pub ftz: bool,
    pub sat: bool,
    pub satfinite: bool,
    pub relu: bool,
}

impl Conv {
    pub fn pack(self) -> i64 {
        self.from as i64
            | (self.to as i64) << 4
            | (self.rnd as i64) << 8
            | i64::from(self.integral) << 11
            | i64::from(self.ftz) << 12
            | i64::from(self.sat) << 13
            | i64::from(self.satfinite) << 14
            | i64::from(self.relu) << 15
    }
    fn unpack(v: i64) -> Self {
        let rnd = [Rnd::Rn, Rnd::Rz, Rnd::Rm, Rnd::Rp, Rnd::Rna, Rnd::Rn, Rnd::Rn, Rnd::Rn][(v >> 8 & 7) as usize];
        let bit = |n: u32| v >> n & 1 == 1;
        Conv {
            from: ALL[(v & 15).min(14) as usize],
            to: ALL[(v >> 4 & 15).min(14) as usize],
            rnd,
            integral: bit(11),
            ftz: bit(12),
            sat: bit(13),
            satfinite: bit(14),
            relu: bit(15),
        }
    }

    /// Converts one value in the low bits of `v`.
    pub fn apply(self, v: u64) -> u64 {
        if self.from.is_int() {
            let bits = self.from.bits();
            let x = if self.from.signed() {
                i128::from((v << (64 - bits)) as i64 >> (64 - bits))
            } else {
                i128::from(v << (64 - bits) >> (64 - bits))
            };
            return match self.to {
                to if to.is_int() => self.int_to_int(x),
                Cv::F64 => directed::from_int(x, self.rnd).to_bits(),
                _ => self.to_float(int_odd(x)),
            };
        }
        let x = self.read(v);
        if self.to.is_int() {
            return self.float_to_int(x);
        }
        if let Some(nan) = self.nan(v).filter(|_| x.is_nan()) {
            return nan;
        }
        let x = if self.integral { integral(x, self.rnd) } else { x };
        self.to_float(x)
    }

    /// The result for a NaN where it is not the canonical NaN, as observed on an H200: conversions between f64 and other types keep some of
    /// its bits, and so do operations that do not change the type.
    fn nan(self, v: u64) -> Option<u64> {
        if self.sat || self.relu {
            return None;
        }
        let (sign, fraction) = (v >> 63, v & !(!0 << 52));
        match (self.from, self.to) {
            (Cv::F64, Cv::F64) => Some(num::quiet(v)),
            (Cv::F64, Cv::F32) => Some(num::nan_to_f32(v).into()),
            (Cv::F64, Cv::F16) => Some(sign << 15 | 0x7e00 | fraction >> 42),
            (Cv::F16, Cv::F64) => Some((v & 0x8000) << 48 | 0x7ff8 << 48 | (v & 0x3ff) << 42),
            (Cv::F32, Cv::F64) if self.ftz => Some(0x7fff_ffff_e000_0000),
            (Cv::F32, Cv::F32) if !self.ftz && !self.integral => Some(v),
            (Cv::F32, Cv::TF32) if self.rnd == Rnd::Rna => Some(v & !0x1fff),
            _ => None,
        }
    }

    fn read(self, v: u64) -> f64 {
        match self.from {
            Cv::F64 => f64::from_bits(v),
            Cv::F32 | Cv::TF32 => {
                let x = f32::from_bits(v as u32);
                f64::from(if self.ftz { num::ftz(x) } else { x })
            }
            other => other.format().unwrap_or(num::F16).decode(v as u32),
        }
    }

    fn int_to_int(self, x: i128) -> u64 {
        let bits = self.to.bits();
        let x = if self.sat { clamp(x, self.to) } else { x };
        (x as u64) << (64 - bits) >> (64 - bits)
    }

    fn float_to_int(self, x: f64) -> u64 {
        let bits = self.to.bits();
        if x.is_nan() {
            // 64 bits on either side give the highest bit alone.
            return if bits == 64 || self.from == Cv::F64 { 1 << (bits - 1) } else { 0 };
        }
        let y = integral(x, self.rnd);
        // A value that does not fit becomes the nearest value that does.
        (clamp(y as i128, self.to) as u64) << (64 - bits) >> (64 - bits)
    }

    fn to_float(self, x: f64) -> u64 {
        let x = if self.sat { if x > 0.0 { x.min(1.0) } else { 0.0 } } else { x };
        let x = if self.relu && !x.is_nan() && x <= 0.0 { 0.0 } else { x };
        match self.to {
            Cv::F64 => x.to_bits(),
            Cv::F32 => {
                let r = num::to_f32(x, if self.integral { Rnd::Rn } else { self.rnd });
                u64::from(num::canon(if self.ftz { num::ftz(r) } else { r }))
            }
            Cv::TF32 => {
                u64::from(num::TF32.encode(x, self.rnd, self.satfinite) << 13 | if x.is_nan() { 0x1fff } else { 0 })
            }
            other => u64::from(other.format().unwrap_or(num::F16).encode(x, self.rnd, self.satfinite)),
        }
    }
}

/// Rounds to an integral value.
fn integral(x: f64, rnd: Rnd) -> f64 {
    match rnd {
        Rnd::Rn => x.round_ties_even(),
        Rnd::Rna => x.round(),
        Rnd::Rz => x.trunc(),
        Rnd::Rm => x.floor(),
        Rnd::Rp => x.ceil(),
    }
}

/// An integer as f64: exact, or with the last bit odd (so that a later rounding to fewer bits is correct).
fn int_odd(x: i128) -> f64 {
    let near = x as f64;
    let err = x - near as i128;
    if err == 0 || near.to_bits() & 1 == 1 {
        return near;
    }
    if err > 0 { near.next_up() } else { near.next_down() }
}

fn clamp(x: i128, to: Cv) -> i128 {
    let bits = to.bits();
    if to.signed() {
        x.clamp(-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        x.clamp(0, (1i128 << bits) - 1)
    }
}

lane! {
    cvt_rr = |r, i, m| { let c = Conv::unpack(i.imm); map1(r, i, m, |a: u32| c.apply(u64::from(a)) as u32) };
    cvt_rq = |r, i, m| { let c = Conv::unpack(i.imm); map1(r, i, m, |a: u32| c.apply(u64::from(a))) };
    cvt_qr = |r, i, m| { let c = Conv::unpack(i.imm); map1(r, i, m, |a: u64| c.apply(a) as u32) };
    cvt_qq = |r, i, m| { let c = Conv::unpack(i.imm); map1(r, i, m, |a: u64| c.apply(a)) };
    /// 64-bit integers to f64 directly.
    cvt_f64_s64 = |r, i, m| map1(r, i, m, |a: u64| (a as i64 as f64).to_bits());
    cvt_f64_u64 = |r, i, m| map1(r, i, m, |a: u64| (a as f64).to_bits());
    /// Two values into one register: `a` high, `b` low.
    cvt_pack2 = |r, i, m| { let c = Conv::unpack(i.imm); let s = c.to.bits(); map2(r, i, m, |a: u32, b: u32| (c.apply(u64::from(a)) as u32) << s | c.apply(u64::from(b)) as u32) };
    /// Both halves of one register, for all widths.
    cvt_unpack2 = |r, i, m| {
        let c = Conv::unpack(i.imm);
        let (f, t) = (c.from.bits(), c.to.bits());
        let keep = (1u64 << f) - 1;
        map1(r, i, m, |a: u32| (c.apply(u64::from(a) >> f & keep) as u32) << t | c.apply(u64::from(a) & keep) as u32)
    };
}
