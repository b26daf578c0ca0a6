//! Theoretical occupancy: how many blocks fit on a multiprocessor, and what limits them.

/// Limits of one multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The device's name.
    pub name: &'static str,
    /// Multiprocessors of the whole device.
    pub multiprocessors: u32,
    /// Most resident warps.
    pub warps: u32,
    /// Most resident blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Shared memory that the system takes from each block.
    pub reserved: u32,
}

/// NVIDIA A100.
pub const A100: Device = Device {
    name: "A100",
    multiprocessors: 108,
    warps: 64,
    blocks: 32,
    registers: 65536,
    shared: 167_936,
    reserved: 1024,
};
/// NVIDIA H100 SXM.
pub const H100: Device = Device {
    name: "H100",
    multiprocessors: 132,
    warps: 64,
    blocks: 32,
    registers: 65536,
    shared: 233_472,
    reserved: 1024,
};

/// What keeps more blocks from fitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// Places for warps.
    Warps,
    /// Places for blocks.
    Blocks,
    /// The register file.
    Registers,
    /// Shared memory.
    SharedMemory,
}

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupancy {
    /// What it was computed for.
    pub device: Device,
    /// Blocks on a multiprocessor at once.
    pub blocks_per_sm: u32,
    /// Their warps.
    pub warps_per_sm: u32,
    /// What keeps more from fitting.
    pub limiter: Limiter,
    /// Grid size over what the whole device holds at once.
    pub waves: f64,
    /// Share of the last wave's places that stay empty.
    pub tail: f64,
}

/// `registers` a thread (0: unknown, not a limit), `shared` bytes a block.
pub fn occupancy(device: Device, threads: u32, registers: u32, shared: u32, grid_blocks: u64) -> Occupancy {
    let warps = threads.div_ceil(32).max(1);
    // Registers are handed out to a warp in units of 256.
    let per_warp = (registers * 32).next_multiple_of(256);
    let by_regs = if registers == 0 { u32::MAX } else { device.registers / per_warp / warps };
    let by_shared = device.shared / (shared + device.reserved).next_multiple_of(128);
    let all = [
        (device.warps / warps, Limiter::Warps),
        (device.blocks, Limiter::Blocks),
        (by_regs, Limiter::Registers),
        (by_shared, Limiter::SharedMemory),
    ];
    let (blocks, limiter) = all.into_iter().min_by_key(|b| b.0).unwrap_or((0, Limiter::Warps));
    let room = f64::from(blocks) * f64::from(device.multiprocessors);
    let waves = if room == 0.0 { 0.0 } else { grid_blocks as f64 / room };
    Occupancy {
        device,
        blocks_per_sm: blocks,
        warps_per_sm: blocks * warps,
        limiter,
        waves,
        tail: if waves == 0.0 { 0.0 } else { 1.0 - waves / waves.ceil() },
    }
}
