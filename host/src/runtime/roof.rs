//! The roof of a device: what memory and arithmetic can do at most.

use crate::runtime::dtype::DType;
use crate::runtime::info::DeviceInfo;

/// What limits an operator on an ideal device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Memory bandwidth.
    Memory,
    /// The tensor cores, fed with this dtype.
    Tensor(DType),
    /// The f32 units.
    Fp32,
}

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Useful floating-point (or integer) operations.
    pub(crate) flops: u64,
    /// What does them.
    pub(crate) bound: Bound,
}

impl DeviceInfo {
    /// Bytes a second at the memory's highest clock, which transfers twice a cycle; `None` where the driver does not tell the clock.
    pub fn peak_bandwidth(&self) -> Option<f64> {
        let bytes = f64::from(self.memory_bus_bits) / 8.0;
        Some(2.0 * f64::from(self.memory_clock_khz) * 1e3 * bytes).filter(|rate| *rate > 0.0)
    }

    /// Floating-point operations a second at the highest clock, without sparsity; `None` where they are not known.
    ///
    /// Operations a clock and multiprocessor: NVIDIA's architecture white papers (A100, GA102, AD102, H100).
    pub fn peak_flops(&self, bound: Bound) -> Option<f64> {
        let per_clock = match (bound, self.compute_capability) {
            (Bound::Memory, _) => return None,
            (Bound::Fp32, (8, 0)) => 128,
            (Bound::Fp32, _) => 256,
            (Bound::Tensor(dtype), (8, 0)) => 2048 * 2 / bytes(dtype)?,
            (Bound::Tensor(dtype), (9, 0)) => 4096 * 2 / bytes(dtype)?,
            (Bound::Tensor(dtype), (8, _)) => 1024 * 2 / bytes(dtype)?,
            (Bound::Tensor(_), _) => return None,
        };
        let rate = per_clock as f64 * f64::from(self.multiprocessors) * f64::from(self.clock_khz) * 1e3;
        Some(rate).filter(|rate| *rate > 0.0)
    }

    /// The least seconds that moving so many bytes and some work take on this device, which does both at once; `None` where a peak is not known.
    pub(crate) fn least_seconds(&self, bytes: u64, Work { flops, bound }: Work) -> Option<f64> {
        let moving = bytes as f64 / self.peak_bandwidth()?;
        match bound {
            Bound::Memory => Some(moving),
            bound => Some(moving.max(flops as f64 / self.peak_flops(bound)?)),
        }
    }
}

/// Bytes that decide a tensor core's rate: halving them doubles it. f32 runs as tf32.
fn bytes(dtype: DType) -> Option<u64> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 => {
            Some(dtype.size() as u64)
        }
        _ => None,
    }
}
