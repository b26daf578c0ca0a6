//! Cooperative launches: all blocks are resident at once, so that they may wait for each other.
//!
//! The code of `this_grid().sync()` finds a workspace of the driver through `%envreg1` (the upper half of its address) and `%envreg2`. The
//! second word of the workspace is the grid's barrier. One thread of each block adds to it, where block 0 adds the amount that makes the
//! complete sum flip the top bit, and then polls until that bit has changed. If there is no workspace, the code traps.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cx::{Cx, Launched, block_of};
use super::mem_ops::lanes;
use super::state::{Cluster, Split, Warp};
use crate::ir::{Init, Program, Special};
use crate::launch::Launch;
use crate::occupancy::{Device, occupancy};
use crate::report::{Fault, Kind};

/// Size of the workspace in bytes.
pub const WORKSPACE: usize = 64;
/// Length of a warp's turn in instructions: short, because most turns may be spent on polling.
pub const TURN: u64 = 256;

/// The barrier of a cooperative launch.
pub struct GridBarrier {
    pub workspace: u64,
    /// The block with the fewest arrivals among those that have ended: its number of arrivals in the upper half, its index in the lower half.
    ended: AtomicU64,
}

impl GridBarrier {
    pub fn new(workspace: u64) -> Self {
        GridBarrier { workspace, ended: AtomicU64::new(u64::MAX) }
    }

    fn word(&self) -> u64 {
        self.workspace + 4
    }
}

/// Number of blocks that the device holds at once.
pub fn room(prog: &Program, l: &Launched, device: Option<Device>) -> u64 {
    let device = device.unwrap_or_else(|| Device::for_target(&prog.target));
    let fits = occupancy(device, l.threads, l.registers, l.shared_bytes, 1);
    u64::from(fits.blocks_per_sm) * u64::from(device.multiprocessors)
}

/// Whether the device holds the whole grid at once.
pub fn admit(
    prog: &Program,
    l: &Launch<'_>,
    device: Option<Device>,
    registers: u32,
    shared: u32,
) -> Result<(), String> {
    let product = |v: [u32; 3]| v.iter().map(|x| u64::from(*x)).product::<u64>();
    let device = device.unwrap_or_else(|| Device::for_target(&prog.target));
    let (blocks, threads) = (product(l.grid), product(l.block) as u32);
    let fits = occupancy(device, threads, registers, shared, blocks);
    let (each, multiprocessors) = (fits.blocks_per_sm, device.multiprocessors);
    let room = u64::from(each) * u64::from(multiprocessors);
    if blocks <= room {
        return Ok(());
    }
    Err(format!(
        "too many blocks in a cooperative launch: {blocks}, and {} holds {room} at once, {each} of {threads} threads and {shared} \
         bytes of shared memory on each of {multiprocessors} multiprocessors, for want of {}",
        device.name,
        fits.limiter.name()
    ))
}

/// The hint for a kernel that looked for the grid's barrier and did not find it.
pub fn advice(cx: &Cx<'_>) -> &'static str {
    let looks =
        || cx.prog.funcs.iter().flat_map(|f| &f.consts).any(|c| matches!(c.1, Init::Special(Special::EnvReg(_))));
    if cx.launch.grid_barrier.is_some() || !looks() {
        return "";
    }
    ": it looks for the barrier of the grid, which a cooperative launch alone has: launch it as one (cuLaunchCooperativeKernel, \
     `Launch::cooperative`, `--cooperative`)"
}

/// A block executes an atomic at `addr`: this is an arrival, if the barrier lies there.
#[inline(always)]
pub fn arrive(cx: &Cx<'_>, cl: &mut Cluster, w: &Warp, addr: u64) {
    if cx.launch.grid_barrier.as_ref().is_some_and(|g| g.word() == addr) {
        cl.blocks[w.block].grid_arrivals += 1;
    }
}

/// A block has ended.
pub fn ended(cx: &Cx<'_>, cl: &Cluster, block: usize) {
    if let Some(g) = &cx.launch.grid_barrier {
        let b = &cl.blocks[block];
        g.ended.fetch_min(u64::from(b.grid_arrivals) << 32 | b.linear & 0xffff_ffff, Relaxed);
    }
}

/// A strong read by a waiting thread: reports a wait for a block that has ended with fewer arrivals.
pub fn poll(cx: &Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, addr: &[u64; 32], m: u32) -> Result<(), Fault> {
    let Some(g) = &cx.launch.grid_barrier else { return Ok(()) };
    let Some(lane) = lanes(m).find(|l| addr[*l] == g.word()) else { return Ok(()) };
    let (ended, mine) = (g.ended.load(Relaxed), cl.blocks[w.block].grid_arrivals);
    let theirs = ended >> 32;
    if theirs >= u64::from(mine) {
        return Ok(());
    }
    let [x, y, z] = block_of(cx.launch.grid, ended & 0xffff_ffff);
    let message = format!(
        "waits at the grid's barrier for the {mine}. time, and block ({x},{y},{z}) has ended after {theirs}: let every block come to \
         every grid.sync()"
    );
    cx.fault(w, s, lane as u32, Kind::Deadlock, message, None)
}
