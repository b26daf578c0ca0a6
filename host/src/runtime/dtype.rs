//! Element types: [`DType`] at run time, [`Dtype`] in the type system.

use std::fmt;

use bytemuck::Pod;
use cuda_std::fp8::{f8e4m3, f8e5m2, f8e8m0};
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that tensors can hold.
pub trait Dtype: sealed::Sealed + Pod + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static {
    /// The same type at run time.
    const DTYPE: DType;

    /// The value in double precision, exactly (for `i64` and `u64`: rounded).
    fn to_f64(self) -> f64;

    /// The nearest value: ties to even for floats, of which those of 8 bits saturate; integers saturate and NaN becomes 0.
    fn from_f64(value: f64) -> Self;
}

/// `x` as an `f32` that rounds to any narrower float as `x` itself would: inexact values get an odd last bit, so that they stay
/// off the ties. (`half`'s own conversions from `f64` drop the low bits first.)
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || !x.is_finite() || !nearest.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    if (back < x) == (x > 0.0) { f32::from_bits(nearest.to_bits() + 1) } else { f32::from_bits(nearest.to_bits() - 1) }
}

/// Calls a macro with the table of all element types: variant, Rust type, name.
macro_rules! for_each_dtype {
    ($callback:ident) => {
        $callback! {
            (F32, f32, "float32", "32-bit IEEE 754.", |x| f64::from(x), |x| x as f32),
            (F64, f64, "float64", "64-bit IEEE 754.", |x| x, |x| x),
            (F16, f16, "float16", "16-bit IEEE 754.", |x| x.to_f64(), |x| f16::from_f32(round_to_odd(x))),
            (BF16, bf16, "bfloat16", "The upper half of a `float32`.", |x| x.to_f64(), |x| bf16::from_f32(round_to_odd(x))),
            (F8E4M3, f8e4m3, "float8_e4m3fn", "8-bit float up to 448.", |x| x.to_f32().into(), |x| f8e4m3::from_f32(round_to_odd(x))),
            (F8E5M2, f8e5m2, "float8_e5m2", "8-bit float up to 57344.", |x| x.to_f32().into(), |x| f8e5m2::from_f32(round_to_odd(x))),
            (F8E8M0, f8e8m0, "float8_e8m0fnu", "8-bit power of two: the scale of a block.", |x| x.to_f32().into(), |x| f8e8m0::from_f32(round_to_odd(x))),
            (I8, i8, "int8", "8-bit signed integer.", |x| f64::from(x), |x| x.round_ties_even() as i8),
            (U8, u8, "uint8", "8-bit unsigned integer.", |x| f64::from(x), |x| x.round_ties_even() as u8),
            (I16, i16, "int16", "16-bit signed integer.", |x| f64::from(x), |x| x.round_ties_even() as i16),
            (U16, u16, "uint16", "16-bit unsigned integer.", |x| f64::from(x), |x| x.round_ties_even() as u16),
            (I32, i32, "int32", "32-bit signed integer.", |x| f64::from(x), |x| x.round_ties_even() as i32),
            (U32, u32, "uint32", "32-bit unsigned integer.", |x| f64::from(x), |x| x.round_ties_even() as u32),
            (I64, i64, "int64", "64-bit signed integer.", |x| x as f64, |x| x.round_ties_even() as i64),
            (U64, u64, "uint64", "64-bit unsigned integer.", |x| x as f64, |x| x.round_ties_even() as u64),
        }
    };
}
pub(crate) use for_each_dtype;

macro_rules! define {
    ($(($variant:ident, $ty:ty, $name:literal, $doc:literal, $to:expr, $from:expr),)*) => {
        /// An element type at run time.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $(#[doc = $doc] $variant,)*
        }

        impl DType {
            /// All element types.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The name used in reports, files and on the command line, such as `bfloat16`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Bytes of one element.
            pub const fn size(self) -> usize {
                match self { $(DType::$variant => size_of::<$ty>(),)* }
            }
        }

        $(
            impl sealed::Sealed for $ty {}

            impl Dtype for $ty {
                const DTYPE: DType = DType::$variant;

                fn to_f64(self) -> f64 {
                    let convert: fn($ty) -> f64 = $to;
                    convert(self)
                }

                fn from_f64(value: f64) -> Self {
                    let convert: fn(f64) -> $ty = $from;
                    convert(value)
                }
            }
        )*
    };
}
for_each_dtype!(define);

/// A float that kernels compute with: `f32`, [`struct@f16`] or [`struct@bf16`]. What generic callers of operators ask for.
pub trait Float: Dtype + cuda_std::float::Element {}
impl<T: Dtype + cuda_std::float::Element> Float for T {}

/// A float of 16 bits: [`struct@f16`] or [`struct@bf16`]. What generic callers of products and attention ask for.
pub trait Half: Float + cuda_std::float::Half {}
impl<T: Float + cuda_std::float::Half> Half for T {}

/// An 8-bit float: [`struct@f8e4m3`] or [`struct@f8e5m2`]. What generic callers of quantization ask for.
pub trait Float8: Dtype + cuda_std::fp8::Float8 {}
impl<Q: Dtype + cuda_std::fp8::Float8> Float8 for Q {}

impl DType {
    /// The types that are a [`Float`].
    pub const FLOATS: &'static [DType] = &[DType::F32, DType::F16, DType::BF16];
    /// The types that are a [`Float8`].
    pub const FLOAT8S: &'static [DType] = &[DType::F8E4M3, DType::F8E5M2];

    /// Whether this is a [`Float`].
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Accepts the full name and the usual short ones: `bfloat16`, `bf16`, `i8`.
impl std::str::FromStr for DType {
    type Err = crate::runtime::error::Error;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let wanted = s.to_ascii_lowercase();
        DType::ALL.iter().copied().find(|d| d.name() == wanted || d.short_name() == wanted).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
            crate::runtime::error::Error::param("dtype", "dtype", s, names.join(", "))
        })
    }
}

impl DType {
    /// The Rust type's name, such as `bf16`.
    pub const fn short_name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E8M0 => "f8e8m0",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_round_and_saturate() {
        assert_eq!(i8::from_f64(300.0), 127);
        assert_eq!(u8::from_f64(-1.0), 0);
        assert_eq!(i32::from_f64(f64::NAN), 0);
        assert_eq!(i8::from_f64(2.5), 2);
        assert_eq!((i16::from_f64(-1e9), u16::from_f64(65_535.4), u64::from_f64(1e30)), (i16::MIN, u16::MAX, u64::MAX));
        assert_eq!(f64::from_f64(0.1).to_f64(), 0.1);
        // Generic code, so that the trait's conversions are meant and not the types' own.
        fn stored<T: Dtype>(x: f64) -> f64 {
            T::from_f64(x).to_f64()
        }
        assert!(stored::<f16>(f64::NAN).is_nan());
        assert_eq!(stored::<f16>(1e9), f64::INFINITY);
        assert_eq!(stored::<f16>(1e-300), 0.0);
        let (one, next) = (1.0, 1.0 + 1.0 / 128.0);
        let tie = f64::midpoint(one, next);
        assert_eq!(stored::<bf16>(tie), one);
        // Off the tie by less than an f32 can tell.
        assert_eq!(stored::<bf16>(tie + 1e-12), next);
        assert_eq!(stored::<bf16>(-tie - 1e-12), -next);
        assert_eq!(stored::<bf16>(tie - 1e-12), one);
        assert_eq!(stored::<bf16>(next + (tie - one) - 1e-12), next);
        assert_eq!([17.0, 17.0 + 1e-12, 1e300, f64::NEG_INFINITY].map(stored::<f8e4m3>), [16.0, 18.0, 448.0, -448.0]);
        assert_eq!([1e300, -1e-300].map(stored::<f8e5m2>), [57344.0, 0.0]);
        assert!(stored::<f8e5m2>(f64::NAN).is_nan() && stored::<f8e8m0>(-1.0).is_nan());
        assert_eq!([3.0 - 1e-12, 3.0, 0.0].map(stored::<f8e8m0>), [2.0, 4.0, 2f64.powi(-127)]);
    }

    #[test]
    fn names_parse_back() {
        for &d in DType::ALL {
            assert_eq!(d.name().parse::<DType>(), Ok(d));
            assert_eq!(d.short_name().parse::<DType>(), Ok(d));
        }
        assert!("float8".parse::<DType>().is_err());
    }
}
