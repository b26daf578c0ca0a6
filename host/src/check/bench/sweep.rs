//! Cases of many sizes: one production case, halved and doubled.

use super::Timing;
use crate::check::Job;
use crate::check::job::of_dims;
use crate::ops::model::{Bound, Case, CaseClass, Dims, Operator, TensorMeta, outputs};
use crate::runtime::device::DeviceInfo;
use crate::runtime::error::{Error, Result};

/// The minimum traffic of the smallest case.
const LEAST: u64 = 1 << 20;
/// The minimum traffic of the largest case, as a multiple of the L2 cache.
const CACHES: u64 = 4;
/// Sizes of a product that grow together.
const SIDES: [&str; 3] = ["m", "n", "k"];

/// For each operator, the first production case whose name contains `case`, in sizes from 1 MiB of traffic to several times the
/// L2 cache, with the kernel that the operator selects. Products grow in all dimensions, others in the first size that is
/// greater than one.
pub fn sweep(info: &DeviceInfo, ops: &[&'static dyn Operator], case: Option<&str>) -> Result<Vec<Timing>> {
    let mut timings = Vec::new();
    for &op in ops {
        let mut cases = op.cases().into_iter().filter(|c| c.class == CaseClass::Production);
        let Some(of) = cases.find(|c| case.is_none_or(|text| c.name.contains(text))) else { continue };
        let sizes = sizes(op, &of, CACHES * info.l2_bytes.max(LEAST))?;
        timings.extend(sizes.into_iter().map(|case| Timing { job: Job { op, case }, variant: None }));
    }
    if timings.is_empty() {
        let found = case.unwrap_or("every case");
        return Err(Error::param("bench", "sizes", found, "a production case whose sizes can be halved and doubled"));
    }
    Ok(timings)
}

fn sizes(op: &'static dyn Operator, of: &Case, most: u64) -> Result<Vec<Case>> {
    let product = op.cost(of)?.bound != Bound::Memory && SIDES.iter().all(|side| of.dims.get(side).is_some());
    let first = of.dims.iter().find(|(_, size)| *size > 1).map(|(name, _)| name);
    let grows = |name: &str| if product { SIDES.contains(&name) } else { Some(name) == first };
    let (mut found, mut last) = (Vec::new(), 0);
    for power in -40..=6 {
        let Some(case) = resized(of, &grows, power) else { continue };
        // A case that the operator rejects has no place in the row, and no cost.
        if !accepted(op, &case) {
            continue;
        }
        let bytes = op.cost(&case)?.bytes;
        // Beyond the largest case, sizes would only overflow.
        if bytes > most {
            break;
        }
        if bytes >= LEAST && bytes > last {
            found.push(case);
            last = bytes;
        }
    }
    Ok(found)
}

/// The case with its growing sizes times a power of two. `None` if a size is no longer an integer, or overflows.
fn resized(of: &Case, grows: &dyn Fn(&str) -> bool, power: i32) -> Option<Case> {
    let mut dims = Dims::default();
    for (name, size) in of.dims.iter() {
        let factor = 1usize << power.unsigned_abs();
        let size = match grows(name) {
            false => size,
            true if power >= 0 => size.checked_mul(factor)?,
            true if size % factor == 0 => size / factor,
            true => return None,
        };
        dims.push(name, size);
    }
    Some(of_dims(of, dims))
}

fn accepted(op: &'static dyn Operator, case: &Case) -> bool {
    let Ok(inputs) = op.inputs(case) else { return false };
    let metas: Vec<TensorMeta> = inputs.iter().map(|input| input.meta()).collect();
    outputs(op, &metas, &case.params).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::registry::{OPERATORS, find};
    use crate::runtime::sim::{self, GpuModel};

    #[test]
    fn sizes_double_from_a_mebibyte_to_past_the_cache() {
        let Ok(device) = sim::open(&GpuModel::H100) else { return };
        let of = |name: &str| sweep(device.info(), &[find(name).unwrap()], None).unwrap();
        for name in ["relu", "rms_norm", "gemm_bf16", "attention"] {
            let bytes: Vec<_> = of(name).iter().map(|t| t.job.op.cost(&t.job.case).unwrap().bytes).collect();
            assert!(bytes.len() >= 3 && bytes[0] < 64 << 20, "{name}: {bytes:?}");
            assert!(bytes[bytes.len() - 1] > device.info().l2_bytes, "{name}: {bytes:?}");
        }
        assert_eq!(of("relu")[0].job.case.name, "rows=1 d=131072 float32");
        let mut swept = 0;
        for op in OPERATORS {
            let timings = sweep(device.info(), &[*op], None).unwrap_or_default();
            let mut names: Vec<_> = timings.iter().map(|t| t.job.case.name.as_str()).collect();
            names.dedup();
            assert_eq!(names.len(), timings.len(), "{names:?}");
            swept += usize::from(timings.len() > 4);
        }
        assert!(swept > OPERATORS.len() / 2, "of {swept} operators there are sizes");
    }
}
