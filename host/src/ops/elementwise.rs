//! What elementwise operators share: grid sizes and tolerances.

use crate::ops::model::{OpInfo, Tolerance};
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};

/// Most blocks of a one-dimensional grid.
pub(super) const MAX_BLOCKS: usize = (1 << 31) - 1;

/// Blocks for `n` items at `per_block` each; `None` when there is nothing to do.
pub(super) fn grid(info: &OpInfo, arg: &'static str, n: usize, per_block: usize) -> Result<Option<u32>> {
    match n.div_ceil(per_block) {
        0 => Ok(None),
        blocks if blocks <= MAX_BLOCKS => Ok(Some(blocks as u32)),
        blocks => Err(Error::TooLarge {
            op: info.name,
            arg,
            reason: format!("{n} items need {blocks} blocks, a grid has at most {MAX_BLOCKS}"),
        }),
    }
}

/// Half an ulp of the storage type, as a relative error; zero for integers.
pub(super) fn roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::powi(2.0, -24),
        DType::F16 => f64::powi(2.0, -11),
        DType::BF16 => f64::powi(2.0, -8),
        _ => 0.0,
    }
}

/// For a result that is rounded to storage once, after f32 arithmetic of relative error `arithmetic`.
///
/// The absolute part is what relative error cannot express: half the spacing of f16's subnormals, and for the other
/// types, whose exponent range is that of f32, results that the arithmetic loses below 10⁻⁷.
pub(super) fn tolerance(dtype: DType, arithmetic: f64, why: &'static str) -> Tolerance {
    Tolerance::new(1e-7, roundoff(dtype) + arithmetic, why)
}

/// Matrix sizes as the kernels take them.
pub(super) fn sizes<const N: usize>(info: &OpInfo, sizes: [(&'static str, usize); N]) -> Result<[u32; N]> {
    let mut out = [0; N];
    for (out, (arg, size)) in out.iter_mut().zip(sizes) {
        *out = u32::try_from(size).ok().filter(|s| *s <= i32::MAX as u32).ok_or_else(|| Error::TooLarge {
            op: info.name,
            arg,
            reason: format!("a dimension is {size}, at most {} are supported", i32::MAX),
        })?;
    }
    Ok(out)
}
