//! The quantities that lessons count, summed over all launches of a run.

use std::fmt;

use crate::runtime::sim::Profile;

/// Something that the simulator counts.
pub struct Quantity {
    /// What reports call it.
    pub name: &'static str,
    of: fn(&[Profile]) -> f64,
    /// The metrics that Nsight Compute has for it: one, or one divided by another; empty if it has no such count.
    pub ncu: &'static [&'static str],
}

impl Quantity {
    /// The value for these launches.
    pub fn of(&self, launches: &[Profile]) -> f64 {
        (self.of)(launches)
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn sum(launches: &[Profile], metric: &str) -> f64 {
    launches.iter().filter_map(|launch| launch.metric(metric)).sum()
}

/// How often warps executed instructions with that opcode.
fn executed(launches: &[Profile], opcode: &str) -> f64 {
    let of = |launch: &Profile| launch.mix.iter().filter(|(name, _)| name == opcode).map(|(_, n)| *n).sum::<u64>();
    launches.iter().map(of).sum::<u64>() as f64
}

const LOAD_REQUESTS: &str = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum";
const STORED_SECTORS: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum";
const STORE_REQUESTS: &str = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum";
const WAVEFRONTS_OF_LOADS: &str = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum";
const CONFLICTS_OF_LOADS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum";
const LOADED_SECTORS: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum";

/// Kernels launched.
pub(super) static LAUNCHES: Quantity = Quantity { name: "launches", of: |launches| launches.len() as f64, ncu: &[] };

/// Blocks of all grids.
pub(super) static BLOCKS: Quantity = Quantity {
    name: "blocks",
    of: |launches| launches.iter().map(|launch| launch.grid.iter().map(|n| f64::from(*n)).product::<f64>()).sum(),
    ncu: &["launch__grid_size"],
};

/// Sectors that a warp's load touches.
pub(super) static SECTORS_A_LOAD: Quantity = Quantity {
    name: "sectors a load",
    of: |launches| sum(launches, LOADED_SECTORS) / sum(launches, LOAD_REQUESTS),
    ncu: &[LOADED_SECTORS, LOAD_REQUESTS],
};

/// Sectors that a warp's store touches.
pub(super) static SECTORS_A_STORE: Quantity = Quantity {
    name: "sectors a store",
    of: |launches| {
        let sectors = sum(launches, STORED_SECTORS);
        sectors / sum(launches, STORE_REQUESTS)
    },
    ncu: &[STORED_SECTORS, STORE_REQUESTS],
};

/// Bytes that threads requested from global memory.
pub(super) static LOADED: Quantity =
    Quantity { name: "bytes loaded", of: |launches| sum(launches, "loaded bytes"), ncu: &[] };

/// The same, where bytes that several threads of a warp request at once count once.
pub(super) static LOADED_BY_WARPS: Quantity = Quantity {
    name: "bytes loaded, once a warp",
    of: |launches| {
        let share = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct";
        let of = |launch: &Profile| Some(32.0 * launch.metric(LOADED_SECTORS)? * launch.metric(share)? / 100.0);
        launches.iter().filter_map(of).sum::<f64>().round()
    },
    ncu: &["smsp__sass_data_bytes_mem_global_op_ld.sum"],
};

/// Bytes of all sectors that went to and from the multiprocessors.
pub(super) static MOVED: Quantity =
    Quantity { name: "bytes moved", of: |launches| sum(launches, "sector bytes"), ncu: &[] };

/// The minimum bytes that global memory must move: each byte that a kernel touches counts once per kernel.
pub(super) static LEAST: Quantity =
    Quantity { name: "bytes touched", of: |launches| sum(launches, "unique bytes"), ncu: &[] };

/// Floating-point operations, on tensor cores and beside them.
pub(super) static FLOPS: Quantity =
    Quantity { name: "operations", of: |launches| sum(launches, "flops") + sum(launches, "tensor flops"), ncu: &[] };

/// Floating-point operations of the tensor cores.
pub(super) static TENSOR_FLOPS: Quantity =
    Quantity { name: "tensor operations", of: |launches| sum(launches, "tensor flops"), ncu: &[] };

/// Wavefronts of shared memory for loads.
pub(super) static WAVEFRONTS: Quantity = WAVEFRONTS_COUNTED;
const WAVEFRONTS_COUNTED: Quantity = Quantity {
    name: "wavefronts of shared loads",
    of: |launches| sum(launches, WAVEFRONTS_OF_LOADS),
    ncu: &[WAVEFRONTS_OF_LOADS],
};

/// The same for PTX, where the assembler turns loads into fewer, wider ones.
pub(super) static WAVEFRONTS_OF_PTX: Quantity = Quantity { ncu: &[], ..WAVEFRONTS_COUNTED };

/// Wavefronts in excess of those without bank conflicts.
pub(super) static CONFLICTS: Quantity = Quantity {
    name: "bank conflicts of shared loads",
    of: |launches| sum(launches, CONFLICTS_OF_LOADS),
    ncu: &[CONFLICTS_OF_LOADS],
};

/// Multiply-adds, counted once per warp.
pub(super) static MULTIPLY_ADDS: Quantity = Quantity {
    name: "multiply-adds of warps",
    of: |launches| executed(launches, "fma"),
    ncu: &["sass__inst_executed_per_opcode:FFMA"],
};

/// Warps that fit on a multiprocessor.
pub(super) static RESIDENT_WARPS: Quantity = Quantity {
    name: "warps a multiprocessor",
    of: |launches| launches.iter().map(|launch| f64::from(launch.occupancy.warps)).fold(0.0, f64::max),
    ncu: &[],
};
