use crate::runtime::dtype::DType;

/// An output passes where |out − ref| ≤ abs + rel·|ref|.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Absolute part.
    pub abs: f64,
    /// Relative part.
    pub rel: f64,
    /// The justification of these numbers.
    pub why: &'static str,
}

impl Tolerance {
    /// Bitwise equality.
    pub const EXACT: Self = Self::new(0.0, 0.0, "exact");

    /// A tolerance with its justification.
    pub const fn new(abs: f64, rel: f64, why: &'static str) -> Self {
        Self { abs, rel, why }
    }

    /// The tolerance of a result that is rounded to `dtype` once, after f32 arithmetic with relative error `rel` and
    /// absolute error `abs`.
    ///
    /// It adds what a relative error cannot express: half the spacing of f16's subnormals, and for the other types, whose
    /// exponent range is that of f32, results below 10⁻⁷ that the arithmetic loses.
    pub fn rounded(dtype: DType, abs: f64, rel: f64, why: &'static str) -> Self {
        Self::new(abs + 1e-7, roundoff(dtype) + rel, why)
    }
}

/// Half an ulp of the storage type, as a relative error; zero for integers.
pub fn roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::powi(2.0, -24),
        DType::F64 => f64::powi(2.0, -53),
        DType::F16 => f64::powi(2.0, -11),
        DType::BF16 => f64::powi(2.0, -8),
        DType::F8E4M3 => f64::powi(2.0, -4),
        DType::F8E5M2 => f64::powi(2.0, -3),
        DType::F8E8M0 => 1.0 / 3.0,
        _ => 0.0,
    }
}
