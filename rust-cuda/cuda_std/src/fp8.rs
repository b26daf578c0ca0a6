//! 8-bit floats: [`struct@f8e4m3`] and [`struct@f8e5m2`], which tensors hold, and [`struct@f8e8m0`], which scales their blocks.
//!
//! The types convert by integer arithmetic, on every architecture and on the host. From sm_89 on there are instructions, for two
//! values at a time: [`array_from_f32`] and [`array_to_f32`], with the same results.
//!
//! Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv:2209.05433); Open Compute Project, "Microscaling Formats (MX)
//! Specification", 1.0.

use core::{cmp::Ordering, fmt, mem::MaybeUninit};

use half::f16;

use crate::float::Half;

macro_rules! conversions {
    ($pack:ident, $unpack:ident, $format:literal, $doc:literal) => {
        #[doc = concat!("Rounds two values to ", $doc, ", `low` in the lower byte; beyond the range they saturate.")]
        #[doc = concat!("\n\nPTX `cvt.rn.satfinite.", $format, ".f32`, sm_89.")]
        #[inline(always)]
        pub fn $pack(low: f32, high: f32) -> u16 {
            let pair: u16;
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    concat!("cvt.rn.satfinite.", $format, ".f32 {}, {}, {};"),
                    out(reg16) pair, in(reg32) high, in(reg32) low,
                    options(pure, nomem, nostack),
                );
            }
            pair
        }

        #[doc = concat!("Two ", $doc, " values as a pair of `f16`, exactly.\n\nPTX `cvt.rn.f16x2.", $format, "`, sm_89.")]
        #[inline(always)]
        pub fn $unpack(pair: u16) -> u32 {
            let halves: u32;
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    concat!("cvt.rn.f16x2.", $format, " {}, {};"),
                    out(reg32) halves, in(reg16) pair,
                    options(pure, nomem, nostack),
                );
            }
            halves
        }
    };
}

conversions!(pack_e4m3, unpack_e4m3, "e4m3x2", "E4M3");
conversions!(pack_e5m2, unpack_e5m2, "e5m2x2", "E5M2");

mod sealed {
    pub trait Sealed {}
}

/// An 8-bit float that a tensor can hold: [`struct@f8e4m3`] or [`struct@f8e5m2`].
pub trait Float8: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Which float this is, in the order of `#[kernel]`'s set `float8`.
    #[doc(hidden)]
    const INDEX: usize;

    /// Whether this is [`struct@f8e4m3`], and not [`struct@f8e5m2`].
    const IS_E4M3: bool = Self::INDEX == 0;

    /// The largest finite value.
    const MAX: f32;

    /// The value, exactly.
    fn to_f32(self) -> f32;

    /// The nearest value, ties to even. What is beyond the largest saturates, infinities too; NaN stays NaN.
    fn from_f32(value: f32) -> Self;

    /// [`from_f32`](Self::from_f32) of two values, `low` in the lower byte. sm_89.
    fn pack(low: f32, high: f32) -> u16;

    /// Two values as a pair of `f16`, exactly. sm_89.
    fn unpack(pair: u16) -> u32;
}

/// [`Float8::from_f32`] of an array, two elements an instruction. sm_89.
#[inline(always)]
pub fn array_from_f32<Q: Float8, const N: usize>(values: [f32; N]) -> [Q; N] {
    const { assert!(N.is_multiple_of(2), "elements are converted in pairs") };
    let mut result = MaybeUninit::<[Q; N]>::uninit();
    let elements = result.as_mut_ptr().cast::<Q>();
    for index in (0..N).step_by(2) {
        // SAFETY: every element is written, inside the array.
        unsafe {
            let pair = Q::pack(*values.as_ptr().add(index), *values.as_ptr().add(index + 1));
            elements.add(index).cast::<u16>().write_unaligned(pair);
        }
    }
    // SAFETY: as above.
    unsafe { result.assume_init() }
}

/// [`Float8::to_f32`] of an array, two elements an instruction. sm_89.
#[inline(always)]
pub fn array_to_f32<Q: Float8, const N: usize>(values: [Q; N]) -> [f32; N] {
    const { assert!(N.is_multiple_of(2), "elements are converted in pairs") };
    let mut result = [0.0; N];
    for index in (0..N).step_by(2) {
        // SAFETY: inside the array.
        let pair = unsafe { values.as_ptr().add(index).cast::<u16>().read_unaligned() };
        let [low, high] = f16::unpack(Q::unpack(pair));
        (result[index], result[index + 1]) = (low, high);
    }
    result
}

/// What every type here has.
macro_rules! byte {
    ($name:ident) => {
        impl $name {
            /// The value with these bits.
            #[inline(always)]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The value's bits.
            #[inline(always)]
            pub const fn to_bits(self) -> u8 {
                self.0
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), formatter)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), formatter)
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> Self {
                value.to_f32()
            }
        }

        // SAFETY: a byte of which every pattern is a value.
        #[cfg(feature = "bytemuck")]
        unsafe impl bytemuck::Zeroable for $name {}
        // SAFETY: as above.
        #[cfg(feature = "bytemuck")]
        unsafe impl bytemuck::Pod for $name {}
    };
}

macro_rules! float8 {
    (
        $(#[$doc:meta])* $name:ident, $index:literal;
        mantissa: $mantissa:literal, bias: $bias:literal, max: $max:literal, not_finite: $not_finite:literal;
        $pack:ident, $unpack:ident
    ) => {
        $(#[$doc])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        byte!($name);

        impl $name {
            /// The largest finite value.
            pub const MAX: Self = Self($not_finite - 1);
            /// The NaN that conversions give.
            pub const NAN: Self = Self(0x7f);

            /// The value, exactly.
            #[inline(always)]
            pub fn to_f32(self) -> f32 {
                let magnitude = u32::from(self.0 & 0x7f) << (23 - $mantissa);
                // As an f32 with a smaller exponent: the product is exact, of subnormals too.
                let value = f32::from_bits(magnitude) * f32::from_bits((254 - $bias) << 23);
                let bits = if self.0 & 0x7f >= $not_finite { magnitude | 0x7f80_0000 } else { value.to_bits() };
                f32::from_bits(bits | u32::from(self.0 >> 7) << 31)
            }

            /// The nearest value, ties to even. What is beyond the largest saturates, infinities too; NaN stays NaN.
            #[inline(always)]
            pub fn from_f32(value: f32) -> Self {
                /// Bits of an f32's mantissa that are rounded away.
                const DROPPED: u32 = 23 - $mantissa;
                const LEAST_NORMAL: u32 = (128 - $bias) << 23;
                /// Where neighbours in f32 are as far apart as subnormals are here.
                const ANCHOR: u32 = (127 + 24 - $bias - $mantissa) << 23;
                if value.is_nan() {
                    return Self::NAN;
                }
                let magnitude = value.abs().min($max);
                let bits = magnitude.to_bits();
                let code = if bits < LEAST_NORMAL {
                    // The sum rounds to a whole number of subnormals.
                    (magnitude + f32::from_bits(ANCHOR)).to_bits() - ANCHOR
                } else {
                    let half = (1 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
                    ((bits + half) >> DROPPED) - ((127 - $bias) << $mantissa)
                };
                Self((value.to_bits() >> 31 << 7 | code) as u8)
            }
        }

        impl sealed::Sealed for $name {}

        impl Float8 for $name {
            const INDEX: usize = $index;
            const MAX: f32 = $max;

            #[inline(always)]
            fn to_f32(self) -> f32 {
                Self::to_f32(self)
            }

            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                Self::from_f32(value)
            }

            #[inline(always)]
            fn pack(low: f32, high: f32) -> u16 {
                $pack(low, high)
            }

            #[inline(always)]
            fn unpack(pair: u16) -> u32 {
                $unpack(pair)
            }
        }
    };
}

float8! {
    /// 8-bit float with 4 bits of exponent and 3 of mantissa: up to 448, without infinities. PyTorch's `float8_e4m3fn`.
    f8e4m3, 0;
    mantissa: 3, bias: 7, max: 448.0, not_finite: 0x7f;
    pack_e4m3, unpack_e4m3
}

float8! {
    /// 8-bit float with 5 bits of exponent and 2 of mantissa: up to 57344, with infinities, which conversions never give.
    /// PyTorch's `float8_e5m2`.
    f8e5m2, 1;
    mantissa: 2, bias: 15, max: 57344.0, not_finite: 0x7c;
    pack_e5m2, unpack_e5m2
}

/// A power of two from 2⁻¹²⁷ to 2¹²⁷, or NaN: the scale of a block. PyTorch's `float8_e8m0fnu`.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct f8e8m0(u8);

byte!(f8e8m0);

impl f8e8m0 {
    /// The only NaN.
    pub const NAN: Self = Self(0xff);

    /// The value, exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        // The least is half of the least normal number.
        let bits = (u32::from(self.0) << 23).max(0x0040_0000);
        if self.0 == 0xff { f32::NAN } else { f32::from_bits(bits) }
    }

    /// The nearest power of two, the greater of two that are; those beyond either end, 0 and infinity too, saturate. NaN and what is negative become
    /// NaN.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        if value.is_nan() || value < 0.0 {
            return Self::NAN;
        }
        let bits = value.abs().to_bits();
        // The least, 2⁻¹²⁷, is a subnormal of f32: its exponent is that of 0.
        let exponent = if bits < 0x0060_0000 { 0 } else { (bits + 0x0040_0000) >> 23 };
        Self(exponent.min(0xfe) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a code, by the definition.
    fn value(code: u8, mantissa: i32, bias: i32) -> f64 {
        let (exponent, fraction) = (i32::from(code & 0x7f) >> mantissa, i32::from(code) & ((1 << mantissa) - 1));
        let (exponent, fraction) = if exponent == 0 { (1, fraction) } else { (exponent, fraction | 1 << mantissa) };
        f64::from(fraction) * 2f64.powi(exponent - bias - mantissa) * if code < 128 { 1.0 } else { -1.0 }
    }

    fn check<Q: Float8>(mantissa: i32, bias: i32, largest: u8, code: fn(Q) -> u8, of: fn(u8) -> Q) {
        for sign in [0, 0x80] {
            for bits in (0..=largest).map(|bits| bits | sign) {
                let exact = value(bits, mantissa, bias);
                assert_eq!(f64::from(of(bits).to_f32()), exact, "{bits:#x}");
                assert_eq!(code(Q::from_f32(exact as f32)), bits);
                if bits & 0x7f == largest {
                    assert_eq!(exact.abs(), f64::from(Q::MAX));
                    continue;
                }
                // Half-way to the next, and a little off.
                let tie = ((exact + value(bits + 1, mantissa, bias)) / 2.0) as f32;
                let (down, up) = (f32::from_bits(tie.to_bits() - 1), f32::from_bits(tie.to_bits() + 1));
                assert_eq!(code(Q::from_f32(tie)), bits + (bits & 1), "the tie after {bits:#x}");
                assert_eq!(code(Q::from_f32(down)), bits);
                assert_eq!(code(Q::from_f32(up)), bits + 1);
            }
            let signed = |magnitude: f32| if sign == 0 { magnitude } else { -magnitude };
            for beyond in [Q::MAX * 1.01, Q::MAX * 2.0, f32::MAX, f32::INFINITY] {
                assert_eq!(code(Q::from_f32(signed(beyond))), largest | sign);
            }
            assert_eq!(code(Q::from_f32(signed(f32::from_bits(1)))), sign);
        }
        for bits in largest + 1..=0x7f {
            let infinite = mantissa == 2 && bits == 0x7c;
            assert_eq!((of(bits).to_f32().is_nan(), of(bits).to_f32() == f32::INFINITY), (!infinite, infinite));
        }
        assert!(Q::from_f32(f32::NAN).to_f32().is_nan() && Q::from_f32(-f32::NAN).to_f32().is_nan());
    }

    #[test]
    fn every_code_and_every_tie() {
        check(3, 7, 0x7e, f8e4m3::to_bits, f8e4m3::from_bits);
        check(2, 15, 0x7b, f8e5m2::to_bits, f8e5m2::from_bits);
    }

    #[test]
    fn scales_are_powers_of_two() {
        for bits in 0..=0xfe {
            let scale = f8e8m0::from_bits(bits);
            assert_eq!(f64::from(scale.to_f32()), 2f64.powi(i32::from(bits) - 127));
            assert_eq!(f8e8m0::from_f32(scale.to_f32()).to_bits(), bits);
            if bits < 0xfe {
                let tie = 1.5 * scale.to_f32();
                assert_eq!(f8e8m0::from_f32(tie).to_bits(), bits + 1);
                assert_eq!(f8e8m0::from_f32(f32::from_bits(tie.to_bits() - 1)).to_bits(), bits);
            }
        }
        assert!(f8e8m0::NAN.to_f32().is_nan());
        let bits = [0.0, -0.0, f32::from_bits(1), f32::MAX, f32::INFINITY, f32::NAN, -1.0];
        assert_eq!(bits.map(|x| f8e8m0::from_f32(x).to_bits()), [0, 0, 0, 0xfe, 0xfe, 0xff, 0xff]);
    }

    #[test]
    fn values_compare_and_print_as_numbers() {
        let [one, two] = [1.0, 2.0].map(f8e4m3::from_f32);
        assert!(one < two && f8e4m3::NAN != f8e4m3::NAN && f8e4m3::from_bits(0x80) == f8e4m3::from_bits(0));
        assert_eq!(std::format!("{one:?} {}", f8e5m2::MAX), "1.0 57344");
    }
}
