//! The GPUs that a simulated device can stand for.

use std::fmt;
use std::str::FromStr;

use crate::runtime::error::{Error, Result};
use crate::runtime::info::DeviceInfo;

/// Few multiprocessors, so that grids which stay on the device take several turns on small problems as well. It stands for no GPU,
/// and has no clocks.
pub(crate) const SMALL: warpsim::Device = warpsim::Device {
    name: "sm_90a",
    key: "sm_90a",
    multiprocessors: 8,
    clock_khz: 0,
    memory_clock_khz: 0,
    memory_bus_bits: 0,
    ..warpsim::H100
};

/// A GPU that a simulated device stands for: kernels are picked and grids sized as they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "check", derive(serde::Serialize))]
pub struct GpuModel {
    /// What it is called.
    pub name: &'static str,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    #[cfg_attr(feature = "check", serde(skip))]
    limits: warpsim::Device,
}

impl GpuModel {
    /// NVIDIA H100 SXM.
    pub const H100: Self = Self::new(warpsim::H100);
    /// Every model.
    pub const ALL: [Self; warpsim::DEVICES.len()] = {
        let mut all = [Self::H100; warpsim::DEVICES.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = Self::new(warpsim::DEVICES[i]);
            i += 1;
        }
        all
    };

    const fn new(limits: warpsim::Device) -> Self {
        let warpsim::Device { name, compute_capability, multiprocessors, .. } = limits;
        Self { name, compute_capability, multiprocessors, limits }
    }

    /// A model of a device, by its numbers.
    pub fn of(info: &DeviceInfo) -> Self {
        Self::new(warpsim::Device {
            // The name of a model is `'static`, so it is leaked: once for each call, of which there are few.
            name: info.name.clone().leak(),
            key: "",
            compute_capability: info.compute_capability,
            multiprocessors: info.multiprocessors,
            warps: info.threads_per_multiprocessor / 32,
            blocks: info.blocks_per_multiprocessor,
            registers: info.registers_per_multiprocessor,
            shared: info.shared_bytes_per_multiprocessor,
            reserved: info.shared_bytes_per_multiprocessor.saturating_sub(info.shared_bytes_per_block),
            l2_bytes: info.l2_bytes as u32,
            clock_khz: info.clock_khz,
            memory_clock_khz: info.memory_clock_khz,
            memory_bus_bits: info.memory_bus_bits,
        })
    }

    /// The name on the command line: `h100-pcie`.
    pub const fn key(&self) -> &'static str {
        self.limits.key
    }

    pub(crate) const fn limits(&self) -> warpsim::Device {
        self.limits
    }
}

impl fmt::Display for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        write!(f, "{} ({} multiprocessors, compute capability {major}.{minor})", self.name, self.multiprocessors)
    }
}

/// By [`GpuModel::key`], in any case.
impl FromStr for GpuModel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|model| model.key().eq_ignore_ascii_case(text));
        let known = || Self::ALL.map(|model| model.key()).join(", ");
        named.ok_or_else(|| Error::param("simulator", "device", text, format!("one of {}", known())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_a_device_has_its_numbers() {
        for model in GpuModel::ALL {
            let device = crate::sim::open(&model).unwrap();
            let of_it = GpuModel::of(device.info());
            assert_eq!(of_it.name, device.info().name);
            let limits = of_it.limits();
            assert_eq!(limits, warpsim::Device { name: limits.name, key: limits.key, ..model.limits() });
        }
    }

    #[test]
    fn models_go_by_their_keys() {
        assert_eq!("H100".parse(), Ok(GpuModel::H100));
        for model in GpuModel::ALL {
            assert_eq!(model.key().parse(), Ok(model));
        }
        assert_eq!(
            "h1000".parse::<GpuModel>().unwrap_err().to_string(),
            "simulator: parameter `device` = h1000: \
             expected one of h200, h100, h100-pcie, a100, l40s, l4, rtx4090, a10, rtx3090"
        );
        assert_eq!(GpuModel::H100.to_string(), "H100 (132 multiprocessors, compute capability 9.0)");
    }
}
