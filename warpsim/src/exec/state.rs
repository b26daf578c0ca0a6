//! The state of running warps, blocks and clusters.

use std::collections::VecDeque;

use super::async_copy::{BulkOp, CpEntry};
use super::cp_arrive::Arrival;
use super::early_exit::Guest;
use super::mbarrier_check::Live;
use super::offsets::Offsets;
use super::origins::Origins;
use super::polling::{Held, Watch};
use super::regs::Regs;
use super::shared_check;
use super::undefined_bytes::Parts;
use super::wgmma::WgOp;
use super::wgmma_check::Issued;
use super::wgmma_regs::WgRegs;
use crate::check::clocks::{Clocks, Party};
use crate::check::race::SharedShadow;
use crate::ir::{Program, RESERVED_NAME, Reg};

pub const NO_JOIN: u32 = u32::MAX;

/// The base indices of the running function's registers and local memory.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Bases {
    pub rb: usize,
    pub qb: usize,
    pub pb: usize,
    pub lb: usize,
}

/// A caller to return to.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    pub func: u32,
    pub pc: u32,
    pub bases: Bases,
    pub join: u32,
    pub copies: u32,
}

/// Lanes that run together (a split).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Split {
    pub pc: u32,
    pub mask: u32,
    pub join: u32,
    pub func: u32,
    pub bases: Bases,
    pub stack: Vec<Frame>,
    /// Whether its `mbarrier.try_wait` gives up.
    pub expired: bool,
}

/// A reconvergence point, where lanes wait for the other lanes of their branch.
#[derive(Clone, PartialEq, Eq)]
pub struct Join {
    pub pc: u32,
    pub pending: u32,
    pub arrived: u32,
    pub parent: u32,
    pub used: bool,
    /// Where the merged split continues.
    pub func: u32,
    pub bases: Bases,
    pub stack: Vec<Frame>,
}

/// The condition that a split waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A barrier, and its phase on arrival.
    Bar { id: u32, phase: u32 },
    /// The reduction of a barrier: result to be written on waking.
    BarRed { id: u32, phase: u32, d: Reg, ballot: bool, all: bool },
    /// The cluster barrier's phase on arrival.
    Cluster { phase: u32 },
    /// An mbarrier (block in the cluster, offset), until the parity of its phase differs from this one.
    Mbar { block: u32, off: u32, parity: u32 },
    /// Other lanes at the same warp-wide instruction.
    Lanes { need: u32, sync: bool },
    /// The other warps of the warpgroup, until they have committed as many wgmma groups.
    Warpgroup { target: u32 },
    /// This many registers in the block's pool.
    Registers { need: u32 },
    /// Yields to others.
    Yield,
}

#[derive(Default)]
pub struct Warp {
    pub block: usize,
    pub id: usize,
    pub ctaid: [u32; 3],
    /// Number in the cluster's clocks.
    pub agent: usize,
    pub regs: Regs,
    pub offsets: Offsets,
    /// Local memory, one contiguous range per lane.
    pub local: Vec<u8>,
    pub local_stride: usize,
    /// One entry for each byte of local memory: whether it was written; empty if unchecked.
    pub local_init: Vec<bool>,
    /// Origins of undefined values in its registers.
    pub origins: Origins,
    /// Set once it has received an undefined value that was not predicted statically: from then on, all its registers are tracked.
    pub follows_all: bool,
    /// Details on its undefined registers.
    pub parts: Parts,
    /// Lanes that exist and have not exited.
    pub alive: u32,
    pub ready: Vec<Split>,
    pub blocked: Vec<(Split, Wait)>,
    pub joins: Vec<Join>,
    pub held: Held,
    /// Whether it has only computed and polled since its last fence.
    pub polls: bool,
    /// The state of `cp.async` of each lane.
    pub cp: Vec<CpEntry>,
    pub cp_committed: [u32; 32],
    pub bulk: Vec<BulkOp>,
    pub bulk_committed: [u32; 32],
    pub wg: VecDeque<WgOp>,
    pub wg_committed: u32,
    pub wg_regs: WgRegs,
    pub wg_issued: Issued,
    /// By lane: one more than the phase of the cluster barrier that it arrived in last.
    pub cluster_turn: [u32; 32],
    /// Lanes that have arrived at the cluster barrier and not yet waited.
    pub cluster_arrived: u32,
    /// Where some lanes have executed an `.aligned` arrive or wait, which the other lanes have to reach: turn, function, place.
    pub cluster_aligned: [Option<(u32, u32, u32)>; 2],
    /// Registers per thread, in a block that has a register pool.
    pub registers: u32,
    /// The phase that its last test in vain was for: mbarrier and parity.
    pub tested: Option<(u32, u32, u32)>,
    /// Lanes of several splits that are about to execute one warp-wide instruction together.
    pub group: Option<u32>,
}

impl Warp {
    pub fn done(&self) -> bool {
        self.alive == 0
    }

    /// These lanes, for the checkers.
    #[inline(always)]
    pub fn party(&self, lanes: u32) -> Party {
        Party { agent: self.agent, lanes, whole: lanes == self.alive }
    }
}

/// One of a block's 16 barriers.
#[derive(Clone, Default)]
pub struct Bar {
    pub phase: u32,
    /// Lanes that arrived, by warp.
    pub lanes: Vec<u32>,
    /// Parts of warps that have arrived at an aligned barrier, whose other lanes have to reach the same instruction.
    pub partial: Vec<(usize, Split)>,
    /// Number of expected threads; 0: all.
    pub expected: u32,
    /// The expected threads of the last phase.
    pub last: u32,
    pub open: bool,
    /// Whether the first arrival of this phase was by `bar.red`.
    pub reduces: bool,
    pub popc: u32,
    pub all: bool,
    pub any: bool,
    /// Results of the completed phase.
    pub result: (u32, bool, bool),
}

pub struct Block {
    pub ctaid: [u32; 3],
    pub linear: u64,
    /// Rank in the cluster.
    pub rank: u32,
    pub shared: Vec<u8>,
    /// One bit per byte of shared memory: whether it was written; empty if unchecked.
    pub shared_init: Vec<u64>,
    pub bars: Vec<Bar>,
    pub warps: Vec<Option<Box<Warp>>>,
    pub live: usize,
    /// Arrivals at the grid's barrier.
    pub grid_arrivals: u32,
    /// Whether it has let the next launch start.
    pub released: bool,
    /// Registers that its warps have returned.
    pub pool: u32,
    /// By warp: each executed `setmaxnreg`, as function and program counter, and its time.
    pub resized: Vec<(usize, (u32, u32), u32)>,
    pub shadow: Option<Box<SharedShadow>>,
    /// Where a division by zero first affected a value in its shared memory.
    pub divided: Option<(u32, u32)>,
    pub mbarriers: Live,
    /// Uses of its shared memory by others, which have to be complete when it ends.
    pub guests: Vec<Guest>,
}

impl Block {
    /// The part of shared memory that the system reserves starts as zeros.
    pub fn clear_reserved(&mut self, prog: &Program) {
        for (at, bytes, _) in prog.shared_vars.iter().filter(|(.., name)| name == RESERVED_NAME) {
            let place = *at as usize..(at + bytes) as usize;
            if let Some(memory) = self.shared.get_mut(place.clone()) {
                memory.fill(0);
            }
            if !self.shared_init.is_empty() {
                shared_check::mark(&mut self.shared_init, place.start, place.len());
            }
        }
    }
}

pub struct Cluster {
    pub blocks: Vec<Block>,
    pub bar_phase: u32,
    /// Whether some thread has arrived at the cluster barrier.
    pub bar_open: bool,
    /// Bulk loads that were issued and not yet performed (with late completion).
    pub pending: Vec<BulkOp>,
    /// Copies that arrive at mbarriers when they complete.
    pub arrivals: Vec<Arrival>,
    /// Threads that have tested for a phase that pending copies will complete: mbarrier, agent, lanes.
    pub asked: Vec<((u32, u32), usize, u32)>,
    pub clocks: Option<Box<Clocks>>,
    /// Counts all events that may wake a waiting split.
    pub events: u64,
    /// The value of `events` when no thread could go on, and how often that has happened since.
    pub stalls: (u64, u32),
    /// Warp instructions so far.
    pub executed: u64,
    /// The number before the last effect that other threads can observe.
    pub told: u64,
    pub watch: Watch,
    /// If its threads poll, or wait for threads that do: the number of effects that the launch had had by then.
    pub polling: Option<u64>,
    /// The value of `polling` when the cluster was last counted.
    pub counted: Option<u64>,
}
