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
use super::wgmma_regs::WgRegs;
use crate::check::clocks::{Clocks, Party};
use crate::check::race::SharedShadow;
use crate::ir::{Program, RESERVED_NAME, Reg};

pub const NO_JOIN: u32 = u32::MAX;

/// Where the registers and the local memory of the running function begin.
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

/// Lanes that run together.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Split {
    pub pc: u32,
    pub mask: u32,
    pub join: u32,
    pub func: u32,
    pub bases: Bases,
    pub stack: Vec<Frame>,
    /// Its `mbarrier.try_wait` gives up.
    pub expired: bool,
}

/// A place where lanes wait for the others of their branch.
#[derive(Clone, PartialEq, Eq)]
pub struct Join {
    pub pc: u32,
    pub pending: u32,
    pub arrived: u32,
    pub parent: u32,
    pub used: bool,
    /// What the merged split runs in.
    pub func: u32,
    pub bases: Bases,
    pub stack: Vec<Frame>,
}

/// What a split waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Barrier and the phase it had on arrival.
    Bar { id: u32, phase: u32 },
    /// The reduction of a barrier: result to be written on waking.
    BarRed { id: u32, phase: u32, d: Reg, ballot: bool, all: bool },
    /// Cluster-barrier phase on arrival.
    Cluster { phase: u32 },
    /// mbarrier (block in the cluster, offset) until its phase parity is no longer this.
    Mbar { block: u32, off: u32, parity: u32 },
    /// Other lanes at the same warp-wide instruction.
    Lanes { need: u32, sync: bool },
    /// The other warps of the warpgroup to commit as many wgmma groups.
    Warpgroup { target: u32 },
    /// So many registers in the block's pool.
    Registers { need: u32 },
    /// Gives others a turn.
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
    /// Local memory, one stretch a lane.
    pub local: Vec<u8>,
    pub local_stride: usize,
    /// A byte for each of local memory: written; empty when unchecked.
    pub local_init: Vec<bool>,
    /// Where what is undefined in its registers came from.
    pub origins: Origins,
    /// Since it has got something undefined that could not be known before, all its registers are followed.
    pub follows_all: bool,
    /// What is known of registers that are undefined.
    pub parts: Parts,
    /// Lanes that exist and have not exited.
    pub alive: u32,
    pub ready: Vec<Split>,
    pub blocked: Vec<(Split, Wait)>,
    pub joins: Vec<Join>,
    pub held: Held,
    /// It has fenced, and since then only computed and polled.
    pub polls: bool,
    /// Per-lane `cp.async` state.
    pub cp: Vec<CpEntry>,
    pub cp_committed: [u32; 32],
    pub bulk: Vec<BulkOp>,
    pub bulk_committed: [u32; 32],
    pub wg: VecDeque<WgOp>,
    pub wg_committed: u32,
    pub wg_regs: WgRegs,
    /// By lane: one more than the phase of the cluster barrier that it arrived in last.
    pub cluster_turn: [u32; 32],
    /// Lanes that have arrived at the cluster barrier and not yet waited.
    pub cluster_arrived: u32,
    /// Where some lanes arrived and waited by an `.aligned` instruction, which the others have to come to: turn, function, place.
    pub cluster_aligned: [Option<(u32, u32, u32)>; 2],
    /// Registers of its threads, in a block that has a pool of them.
    pub registers: u32,
    /// Lanes of several splits about to run one warp-wide instruction together.
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
    /// Parts of warps that arrived at an aligned barrier, whose other lanes have to come to the same place.
    pub partial: Vec<(usize, Split)>,
    /// Threads expected; 0: everybody.
    pub expected: u32,
    /// Of the last phase.
    pub last: u32,
    pub open: bool,
    /// Who came first to this phase did so by `bar.red`.
    pub reduces: bool,
    pub popc: u32,
    pub all: bool,
    pub any: bool,
    /// Results of the finished phase.
    pub result: (u32, bool, bool),
}

pub struct Block {
    pub ctaid: [u32; 3],
    pub linear: u64,
    /// Rank in the cluster.
    pub rank: u32,
    pub shared: Vec<u8>,
    /// One bit a byte of shared memory: written; empty when unchecked.
    pub shared_init: Vec<u64>,
    pub bars: Vec<Bar>,
    pub warps: Vec<Option<Box<Warp>>>,
    pub live: usize,
    /// Arrivals at the grid's barrier.
    pub grid_arrivals: u32,
    /// It has let the launch behind start.
    pub released: bool,
    /// Registers that its warps have given back.
    pub pool: u32,
    /// By warp: the `setmaxnreg` that have been executed, function and program counter.
    pub resized: Vec<(usize, (u32, u32))>,
    pub shadow: Option<Box<SharedShadow>>,
    /// Where something that its shared memory was given had been divided by zero.
    pub divided: Option<(u32, u32)>,
    pub mbarriers: Live,
    /// Uses of its shared memory by others, which have to be over when it ends.
    pub guests: Vec<Guest>,
}

impl Block {
    /// What the system reserves of shared memory begins as zeros.
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
    /// Somebody has arrived at the cluster barrier.
    pub bar_open: bool,
    /// Bulk loads that were issued and have not yet happened (latest completion).
    pub pending: Vec<BulkOp>,
    /// Copies that arrive at mbarriers when they are done.
    pub arrivals: Vec<Arrival>,
    /// Threads that have asked whether a phase is over which copies under way end: mbarrier, agent, lanes.
    pub asked: Vec<((u32, u32), usize, u32)>,
    pub clocks: Option<Box<Clocks>>,
    /// Counts everything that may wake a waiting split.
    pub events: u64,
    /// What `events` was when nobody could go on, and how often since.
    pub stalls: (u64, u32),
    /// Warp instructions so far.
    pub executed: u64,
    /// Those before the last that others may see the effect of.
    pub told: u64,
    pub watch: Watch,
    /// Its threads poll, or wait for those who do: how many effects the launch had had by then.
    pub polling: Option<u64>,
    /// The same when it was counted last.
    pub counted: Option<u64>,
}
