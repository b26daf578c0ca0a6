//! Theoretical occupancy: how many blocks fit on a multiprocessor, and what limits them.

use std::str::FromStr;

/// A GPU and the limits of one of its multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The device's name.
    pub name: &'static str,
    /// The name used on a command line.
    pub key: &'static str,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Maximum resident warps.
    pub warps: u32,
    /// Maximum resident blocks.
    pub blocks: u32,
    /// Number of 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Bytes of shared memory that the system reserves in each block.
    pub reserved: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: u32,
    /// Maximum clock of the multiprocessors. The simulator does not model time; callers may compute bounds from it.
    pub clock_khz: u32,
    /// Maximum clock of the memory, which transfers data twice per cycle.
    pub memory_clock_khz: u32,
    /// Width of the memory bus.
    pub memory_bus_bits: u32,
}

/// NVIDIA A100 SXM with 40 GB.
pub const A100: Device = Device {
    name: "A100",
    key: "a100",
    compute_capability: (8, 0),
    multiprocessors: 108,
    warps: 64,
    blocks: 32,
    registers: 65536,
    shared: 164 << 10,
    reserved: 1 << 10,
    l2_bytes: 40 << 20,
    clock_khz: 1_410_000,
    memory_clock_khz: 1_215_000,
    memory_bus_bits: 5120,
};
/// NVIDIA GeForce RTX 3090.
pub const RTX_3090: Device = Device {
    name: "RTX 3090",
    key: "rtx3090",
    compute_capability: (8, 6),
    multiprocessors: 82,
    warps: 48,
    blocks: 16,
    shared: 100 << 10,
    l2_bytes: 6 << 20,
    clock_khz: 1_695_000,
    memory_clock_khz: 9_751_000,
    memory_bus_bits: 384,
    ..A100
};
/// NVIDIA A10.
pub const A10: Device =
    Device { name: "A10", key: "a10", multiprocessors: 72, memory_clock_khz: 6_251_000, ..RTX_3090 };
/// NVIDIA GeForce RTX 4090.
pub const RTX_4090: Device = Device {
    name: "RTX 4090",
    key: "rtx4090",
    compute_capability: (8, 9),
    multiprocessors: 128,
    blocks: 24,
    l2_bytes: 72 << 20,
    clock_khz: 2_520_000,
    memory_clock_khz: 10_501_000,
    ..RTX_3090
};
/// NVIDIA L40S.
pub const L40S: Device = Device {
    name: "L40S",
    key: "l40s",
    multiprocessors: 142,
    l2_bytes: 96 << 20,
    memory_clock_khz: 9_001_000,
    ..RTX_4090
};
/// NVIDIA L4.
pub const L4: Device = Device {
    name: "L4",
    key: "l4",
    multiprocessors: 58,
    l2_bytes: 48 << 20,
    clock_khz: 2_040_000,
    memory_clock_khz: 6_251_000,
    memory_bus_bits: 192,
    ..RTX_4090
};
/// NVIDIA H100 SXM.
pub const H100: Device = Device {
    name: "H100",
    key: "h100",
    compute_capability: (9, 0),
    multiprocessors: 132,
    shared: 228 << 10,
    l2_bytes: 50 << 20,
    clock_khz: 1_980_000,
    memory_clock_khz: 2_619_000,
    ..A100
};
/// NVIDIA H100 PCIe.
pub const H100_PCIE: Device = Device {
    name: "H100 PCIe",
    key: "h100-pcie",
    multiprocessors: 114,
    clock_khz: 1_755_000,
    memory_clock_khz: 1_593_000,
    ..H100
};
/// NVIDIA H200.
pub const H200: Device =
    Device { name: "H200", key: "h200", memory_clock_khz: 3_201_000, memory_bus_bits: 6144, ..H100 };

/// Every device that has a name.
pub const DEVICES: [Device; 9] = [H200, H100, H100_PCIE, A100, L40S, L4, RTX_4090, A10, RTX_3090];

impl Device {
    /// Maximum bytes of shared memory of one block.
    pub const fn shared_per_block(&self) -> u32 {
        self.shared - self.reserved
    }

    /// The device that code for `.target` most likely runs on: an H100 from `sm_90` on, an A100 before.
    pub fn for_target(target: &str) -> Device {
        let digits = target.trim_start_matches("sm_").trim_end_matches(|c: char| !c.is_ascii_digit());
        if digits.parse().is_ok_and(|n: u32| n >= 90) { H100 } else { A100 }
    }
}

/// Finds a device by [`Device::key`], ignoring case.
impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = DEVICES.into_iter().find(|d| d.key.eq_ignore_ascii_case(text));
        named.ok_or_else(|| format!("no device `{text}`: one of {}", DEVICES.map(|d| d.key).join(", ")))
    }
}

/// The resource that limits the number of resident blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// Warp slots.
    Warps,
    /// Block slots.
    Blocks,
    /// The register file.
    Registers,
    /// Shared memory.
    SharedMemory,
}

impl Limiter {
    /// The resource's name: `shared memory`.
    pub fn name(self) -> &'static str {
        match self {
            Limiter::Warps => "warps",
            Limiter::Blocks => "blocks",
            Limiter::Registers => "registers",
            Limiter::SharedMemory => "shared memory",
        }
    }
}

/// The theoretical occupancy of a launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupancy {
    /// The device it was computed for.
    pub device: Device,
    /// Resident blocks per multiprocessor.
    pub blocks_per_sm: u32,
    /// Resident warps per multiprocessor.
    pub warps_per_sm: u32,
    /// The resource that limits the number of resident blocks.
    pub limiter: Limiter,
    /// Waves: grid size divided by the blocks that the whole device holds at once; 0 if no block fits.
    pub waves: f64,
    /// Fraction of the block slots that stay empty in the last wave.
    pub tail: f64,
}

/// Partitions of a multiprocessor, each with a quarter of the registers: a warp's registers come from one partition.
const PARTS: u32 = 4;

/// Computes the occupancy with `registers` per thread (0: unknown, no limit) and `shared` bytes per block.
pub fn occupancy(device: Device, threads: u32, registers: u32, shared: u32, grid_blocks: u64) -> Occupancy {
    let warps = threads.div_ceil(32).max(1);
    // Registers are allocated to a warp in units of 256.
    let per_warp = (registers.min(device.registers) * 32).next_multiple_of(256);
    let by_regs = if registers == 0 { u32::MAX } else { device.registers / PARTS / per_warp * PARTS / warps };
    let by_shared = device.shared / (shared + device.reserved).next_multiple_of(128);
    let all = [
        (device.warps / warps, Limiter::Warps),
        (device.blocks, Limiter::Blocks),
        (by_regs, Limiter::Registers),
        (by_shared, Limiter::SharedMemory),
    ];
    let (blocks, limiter) = all.into_iter().min_by_key(|b| b.0).unwrap_or((0, Limiter::Warps));
    let room = u64::from(blocks) * u64::from(device.multiprocessors);
    let last = grid_blocks.checked_rem(room).unwrap_or(0);
    Occupancy {
        device,
        blocks_per_sm: blocks,
        warps_per_sm: blocks * warps,
        limiter,
        waves: if room == 0 { 0.0 } else { grid_blocks as f64 / room as f64 },
        tail: if last == 0 { 0.0 } else { 1.0 - last as f64 / room as f64 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_go_by_their_keys() {
        for device in DEVICES {
            assert_eq!(device.key.to_uppercase().parse(), Ok(device));
            // Shared memory of a block: 163, 99 and 227 KiB, as the programming guide's table has it.
            let kib = match device.compute_capability {
                (8, 0) => 163,
                (8, _) => 99,
                _ => 227,
            };
            assert_eq!(device.shared_per_block(), kib << 10, "{}", device.name);
        }
        let error = "h1000".parse::<Device>().unwrap_err();
        assert_eq!(error, "no device `h1000`: one of h200, h100, h100-pcie, a100, l40s, l4, rtx4090, a10, rtx3090");
    }

    #[test]
    fn clocks_give_the_rates_of_the_data_sheets() {
        // GB/s of memory, and TFLOP/s of f32 with 64 multiply-adds a cycle on an A100's multiprocessor and 128 on the others'.
        for (device, bandwidth, flops) in [
            (H200, 4_800.0, 67.0),
            (H100, 3_350.0, 67.0),
            (H100_PCIE, 2_039.0, 51.0),
            (A100, 1_555.0, 19.5),
            (L40S, 864.0, 91.6),
            (L4, 300.0, 30.3),
            (RTX_4090, 1_008.0, 82.6),
            (A10, 600.0, 31.2),
            (RTX_3090, 936.0, 35.6),
        ] {
            let bytes = 2.0 * f64::from(device.memory_clock_khz) * f64::from(device.memory_bus_bits) / 8.0 / 1e6;
            let each = if device.compute_capability == (8, 0) { 128 } else { 256 };
            let f32 = f64::from(each * device.multiprocessors) * f64::from(device.clock_khz) / 1e9;
            assert!((bytes / bandwidth - 1.0).abs() < 0.03, "{}: {bytes} GB/s", device.name);
            assert!((f32 / flops - 1.0).abs() < 0.01, "{}: {f32} TFLOP/s", device.name);
        }
    }

    #[test]
    fn code_is_for_the_device_of_its_generation() {
        for (target, device) in [("sm_80", A100), ("sm_89", A100), ("sm_90a", H100), ("sm_100a", H100), ("", A100)] {
            assert_eq!(Device::for_target(target), device, "{target}");
        }
    }

    #[test]
    fn blocks_are_limited_by_what_runs_out_first() {
        for (device, threads, registers, shared, blocks, limiter) in [
            (H100, 1024, 0, 0, 2, Limiter::Warps),
            (L4, 1024, 0, 0, 1, Limiter::Warps),
            (H100, 32, 0, 0, 32, Limiter::Blocks),
            (RTX_4090, 32, 0, 0, 24, Limiter::Blocks),
            (A10, 32, 0, 0, 16, Limiter::Blocks),
            (A100, 256, 128, 0, 2, Limiter::Registers),
            (H100, 128, 0, 100 << 10, 2, Limiter::SharedMemory),
            (A100, 128, 0, 100 << 10, 1, Limiter::SharedMemory),
            (RTX_3090, 128, 0, 100 << 10, 0, Limiter::SharedMemory),
            // 100 registers are 13 units of 256 a warp: 4 warps fit in each quarter of the registers, not 19 in all of them.
            (H100, 32, 100, 0, 16, Limiter::Registers),
            (H100, 96, 100, 0, 5, Limiter::Registers),
        ] {
            let found = occupancy(device, threads, registers, shared, 1);
            assert_eq!((found.blocks_per_sm, found.limiter), (blocks, limiter), "{} {threads}", device.name);
            assert_eq!(found.warps_per_sm, blocks * threads / 32);
        }
    }

    #[test]
    fn the_tail_is_what_the_last_wave_leaves_empty() {
        // Two blocks a multiprocessor: 264 places on an H100.
        for (grid, waves, tail) in [
            (264, 1.0, 0.0),
            (132, 0.5, 0.5),
            (396, 1.5, 0.5),
            (528, 2.0, 0.0),
            (264 * 9 + 66, 9.25, 0.75),
            (0, 0.0, 0.0),
        ] {
            let found = occupancy(H100, 1024, 0, 0, grid);
            assert_eq!((found.waves, found.tail), (waves, tail), "{grid} blocks");
        }
        assert_eq!(occupancy(H100_PCIE, 1024, 0, 0, 342).waves, 1.5);
        let none = occupancy(A10, 128, 0, 100 << 10, 64);
        assert_eq!((none.waves, none.tail), (0.0, 0.0));
    }
}
