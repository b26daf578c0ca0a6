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
    Folded: "Euclidean norm", " Squares beyond f32 give +∞; NaN gives NaN.";
    l2_norm_rows, l2_norm_rows_into, L2_NORM_ROWS; l2_norm, l2_norm_into, L2_NORM;
    kernels: gk::L2_NORM; math: "y = √Σ x²"; of_none: Some(0.0); factor: |_| 1.0;
    reference: 0.0, |sum, x| sum + x * x, |sum, _| sum.sqrt(); tolerance: tolerance;
}
