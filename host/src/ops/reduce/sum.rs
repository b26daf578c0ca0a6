//! Sums and means.

use gpu_kernels::ops::reduce::sum as gk;

use super::{Args, Fold};
use crate::ops::model::{Tolerance, roundoff};
use crate::ops::rows::{RowPlan, launch_rows};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

struct Folded;

impl Fold for Folded {
    unsafe fn launch<T: Float>(stream: &Stream, plan: RowPlan, args: Args<T>) -> Result<()> {
        // SAFETY: passed on.
        unsafe { launch_rows!(stream, plan, gk::Sum, T, args) }
    }
}

/// Partial sums of n terms of order one are of order √n and rounded n times at random; four standard deviations.
fn sum_tolerance(n: usize) -> Tolerance {
    let abs = 4.0 * n as f64 * roundoff(DType::F32) + 1e-7;
    Tolerance::new(abs, 1e-6, "n additions in f32 of a sum of order √n, at random")
}

fn mean_tolerance(n: usize) -> Tolerance {
    Tolerance::new(sum_tolerance(n).abs / n.max(1) as f64, 1e-6, "an n-th of the error of the sum")
}

/// The functions and entries of sums.
mod sums {
    use super::super::reductions;
    use super::{Folded, gk, sum_tolerance};
    use crate::dispatch;
    use crate::ops::model::{ArgInfo, OpInfo};
    use crate::ops::reduce::Reduction;
    use crate::runtime::dtype::DType;

    reductions! {
        Folded: "Sum", " Of no elements it is 0.";
        sum_rows, sum_rows_into, SUM_ROWS; sum, sum_into, SUM;
        kernels: gk::SUM; math: "y = Σ x"; of_none: Some(0.0); factor: |_| 1.0;
        reference: 0.0, |sum, x| sum + x, |sum, _| sum; tolerance: sum_tolerance;
    }
}

/// The functions and entries of means.
mod means {
    use super::super::reductions;
    use super::{Folded, gk, mean_tolerance};
    use crate::dispatch;
    use crate::ops::model::{ArgInfo, OpInfo};
    use crate::ops::reduce::Reduction;
    use crate::runtime::dtype::DType;

    reductions! {
        Folded: "Mean", "";
        mean_rows, mean_rows_into, MEAN_ROWS; mean, mean_into, MEAN;
        kernels: gk::SUM; math: "y = Σ x / n"; of_none: None::<f32>; factor: |n| 1.0 / n as f32;
        reference: 0.0, |sum, x| sum + x, |sum, n| sum / n as f64; tolerance: mean_tolerance;
    }
}

pub use means::{MEAN, MEAN_ROWS, mean, mean_into, mean_rows, mean_rows_into};
pub use sums::{SUM, SUM_ROWS, sum, sum_into, sum_rows, sum_rows_into};
