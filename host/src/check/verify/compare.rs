//! Compares computed values with expected ones.

use crate::ops::model::Tolerance;
use crate::runtime::dtype::DType;
use crate::runtime::host_tensor::HostTensor;

/// The deviation of values from their reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The number of values compared.
    pub elements: usize,
    /// The maximum of |out − ref|; infinite if one is NaN or infinite and the other is not.
    pub max_abs: f64,
    /// The maximum error as a fraction of the tolerance: the check fails above 1.
    pub max_share: f64,
    /// The number of values outside the tolerance.
    pub wrong: usize,
    /// The worst of them.
    pub worst: Option<Mismatch>,
}

/// A wrong value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mismatch {
    /// Its index in the tensor.
    pub index: usize,
    /// The computed value.
    pub got: f64,
    /// The value of the reference.
    pub want: f64,
}

impl Comparison {
    /// Adds one value to the comparison.
    pub fn push(&mut self, index: usize, got: f64, want: f64, tolerance: &Tolerance, dtype: DType) {
        let (abs, share) = error(got, want, tolerance, dtype);
        self.elements += 1;
        self.max_abs = self.max_abs.max(abs);
        if share > 1.0 {
            self.wrong += 1;
        }
        if share > self.max_share {
            self.max_share = share;
            if share > 1.0 {
                self.worst = Some(Mismatch { index, got, want });
            }
        }
    }

    /// Both comparisons as one.
    pub fn merge(self, other: Self) -> Self {
        let worse = if other.max_share > self.max_share { &other } else { &self };
        Self {
            elements: self.elements + other.elements,
            max_abs: self.max_abs.max(other.max_abs),
            max_share: self.max_share.max(other.max_share),
            wrong: self.wrong + other.wrong,
            worst: worse.worst,
        }
    }

    /// Whether all values are within the tolerance.
    pub fn passed(&self) -> bool {
        self.wrong == 0
    }
}

/// |got − want|, and the same as a fraction of the tolerance. NaN equals only NaN; an infinity equals itself, and a
/// finite reference that overflows the output's dtype.
fn error(got: f64, want: f64, tolerance: &Tolerance, dtype: DType) -> (f64, f64) {
    let wrong = (f64::INFINITY, f64::INFINITY);
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() { (0.0, 0.0) } else { wrong };
    }
    if got == want {
        return (0.0, 0.0);
    }
    let allowed = tolerance.abs + tolerance.rel * want.abs();
    if got.is_infinite() && want.is_finite() {
        let farthest = want + allowed.copysign(got);
        let rounded = HostTensor::from_f64(dtype, [1], &[farthest]).map(|t| t.to_f64());
        return if rounded.is_ok_and(|r| r == [got]) { (0.0, 0.0) } else { wrong };
    }
    let abs = (got - want).abs();
    if abs == f64::INFINITY {
        return wrong;
    }
    (abs, if allowed > 0.0 { abs / allowed } else { f64::INFINITY })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance::new(1e-3, 1e-2, "a test");

    fn compare(got: &[f64], want: &[f64]) -> Comparison {
        let mut c = Comparison::default();
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            c.push(i, *got, *want, &TOLERANCE, DType::F16);
        }
        c
    }

    #[test]
    fn nan_passes_only_where_the_reference_is_nan() {
        assert!(!compare(&[1.0, f64::NAN], &[1.0, 1.0]).passed());
        assert!(!compare(&[1.0, 1.0], &[1.0, f64::NAN]).passed());
        assert!(!compare(&[f64::NAN], &[f64::INFINITY]).passed());
        assert!(compare(&[f64::NAN], &[f64::NAN]).passed());
    }

    #[test]
    fn one_bad_element_among_many_is_found() {
        let want: Vec<f64> = (0..10_000).map(f64::from).collect();
        let mut got = want.clone();
        got[7_777] += 79.0;
        let c = compare(&got, &want);
        assert_eq!((c.wrong, c.elements), (1, 10_000));
        assert_eq!(c.worst, Some(Mismatch { index: 7_777, got: 7_856.0, want: 7_777.0 }));
        got[7_777] -= 2.0;
        assert!(compare(&got, &want).passed(), "within 1 %");
    }

    #[test]
    fn a_nan_is_the_worst_even_among_other_errors_and_after_merging() {
        let a = compare(&[5.0, f64::NAN, 9.0], &[1.0, 1.0, 1.0]);
        let b = compare(&[3.0], &[1.0]);
        for c in [a.merge(b), b.merge(a)] {
            assert_eq!((c.wrong, c.elements, c.max_abs), (4, 4, f64::INFINITY));
            assert!(c.worst.unwrap().got.is_nan());
        }
    }

    #[test]
    fn infinities_are_equal_only_to_themselves_and_to_overflow() {
        assert!(compare(&[f64::INFINITY], &[f64::INFINITY]).passed());
        assert!(!compare(&[f64::NEG_INFINITY], &[f64::INFINITY]).passed());
        assert!(!compare(&[f64::INFINITY], &[1.0]).passed());
        assert!(compare(&[f64::INFINITY], &[70_000.0]).passed(), "overflows float16");
        assert!(!compare(&[f64::NEG_INFINITY], &[70_000.0]).passed());
        assert!(!compare(&[65_504.0], &[f64::INFINITY]).passed());
    }

    #[test]
    fn zero_tolerance_means_equal() {
        let exact = Tolerance::new(0.0, 0.0, "integers");
        let mut c = Comparison::default();
        c.push(0, 3.0, 3.0, &exact, DType::I32);
        c.push(1, -0.0, 0.0, &exact, DType::F32);
        assert!(c.passed());
        c.push(2, 3.0, 4.0, &exact, DType::I32);
        assert_eq!((c.wrong, c.max_share), (1, f64::INFINITY));
    }
}
