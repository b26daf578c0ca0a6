//! Euclidean norms.

use gpu_kernels::ops::reduce::l2_norm as gk;

use super::{Args, Fold, Reduction, reductions};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo, Tolerance, roundoff};
use crate::ops::rows::{RowPlan, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

struct Folded;

impl Fold for Folded {
    unsafe fn launch<T: Float>(stream: &Stream, plan: RowPlan, args: Args<T>) -> Result<()> {
        // SAFETY: passed on.
        unsafe { launch_rows!(stream, plan, gk::L2Norm, T, args) }
    }
}

/// A sum of n positive f32 terms errs by less than √n·2⁻²⁴ relative at random, of which the root takes half.
fn tolerance(n: usize) -> Tolerance {
    let rel = (n as f64).sqrt() * roundoff(DType::F32) + 1e-6;
    Tolerance::new(1e-7, rel, "√n·2⁻²⁴ of the f32 sum of squares, 2⁻²² of each stage's root")
}

reductions! {
    Folded: "Euclidean norm", " Squares are summed in f32: a norm beyond 1.8·10¹⁹ gives +∞, elements below 10⁻¹⁹ lose digits, and those below 2.6·10⁻²³ count as 0. NaN gives NaN.";
    l2_norm_rows, l2_norm_rows_into, L2_NORM_ROWS; l2_norm, l2_norm_into, L2_NORM;
    kernels: gk::L2_NORM; math: "y = √Σ x²"; of_none: Some(0.0); factor: |_| 1.0;
    reference: 0.0, |sum, x| sum + x * x, |sum, _| sum.sqrt(); tolerance: tolerance;
}

#[cfg(test)]
mod tests {
    use crate::{Device, Tensor, ops};

    #[test]
    fn squares_are_as_large_and_as_small_as_is_said() {
        let Ok(device) = Device::open() else { return };
        let stream = device.stream().unwrap();
        let norms = |x: &[f32]| {
            let x = Tensor::from_slice(&stream, [1, x.len()], x).unwrap();
            let rows = ops::l2_norm_rows(&stream, &x).unwrap().to_vec(&stream).unwrap();
            let whole = ops::l2_norm(&stream, &x).unwrap().to_vec(&stream).unwrap();
            assert_eq!(rows[0].to_bits(), whole[0].to_bits());
            f64::from(rows[0])
        };
        let near = |found: f64, expected: f64, digits: f64| (found / expected - 1.0).abs() < digits;
        assert!(near(norms(&[1.8e19]), 1.8e19, 1e-6) && norms(&[1.9e19]).is_infinite());
        assert!(near(norms(&[1.4e19, 1.1e19]), 1.4e19f64.hypot(1.1e19), 1e-6) && norms(&[1.4e19; 2]).is_infinite());
        assert!(near(norms(&[2e-19]), 2e-19, 1e-6) && near(norms(&[1e-21]), 1e-21, 1e-2));
        assert_eq!([norms(&[2.6e-23]), norms(&[0.0, 2e-23])], [0.0; 2]);
        assert!(norms(&[1.9e19, f32::NAN]).is_nan());
    }
}
