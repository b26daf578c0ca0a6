//! Maxima.

use gpu_kernels::ops::reduce::max as gk;

use super::{Args, Fold, Reduction, reductions};
use crate::dispatch;
use crate::ops::model::{ArgInfo, OpInfo, Tolerance};
use crate::ops::rows::{RowPlan, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

struct Folded;

impl Fold for Folded {
    unsafe fn launch<T: Float>(stream: &Stream, plan: RowPlan, args: Args<T>) -> Result<()> {
        // SAFETY: passed on.
        unsafe { launch_rows!(stream, plan, gk::Max, T, args) }
    }
}

/// The greater of two; NaN if either is.
fn greater(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

reductions! {
    Folded: "Maximum", " NaN wins over everything, as in PyTorch.";
    max_rows, max_rows_into, MAX_ROWS; max, max_into, MAX;
    kernels: gk::MAX; math: "y = max x"; of_none: None::<f32>; factor: |_| 1.0;
    reference: f64::NEG_INFINITY, greater, |max, _| max; tolerance: |_| Tolerance::EXACT;
}
