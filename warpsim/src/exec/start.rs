//! Creation of clusters, blocks and warps.

use super::cx::{Cx, block_of};
use super::misc;
use super::state::*;
use crate::check::clocks::Clocks;
use crate::check::race::SharedShadow;
use crate::report::Fault;

/// Cluster `k` of the grid.
pub fn new_cluster(cx: &mut Cx<'_>, k: u64, pool: &mut Vec<Box<Warp>>) -> Result<Cluster, Fault> {
    let l = cx.launch;
    let shape: [u32; 3] = std::array::from_fn(|d| l.grid[d] / l.cluster[d]);
    let origin = block_of(shape, k);
    let per: u32 = l.cluster.iter().product();
    let warps = l.threads.div_ceil(32) as usize;
    let race = cx.opts.checks.race;
    let mut blocks = vec![];
    for rank in 0..per {
        let within = super::cx::thread_of(l.cluster, rank);
        let ctaid: [u32; 3] = std::array::from_fn(|d| origin[d] * l.cluster[d] + within[d]);
        let linear = u64::from(ctaid[0])
            + u64::from(l.grid[0]) * (u64::from(ctaid[1]) + u64::from(l.grid[1]) * u64::from(ctaid[2]));
        let bytes = l.shared_span as usize;
        let mut block = Block {
            ctaid,
            linear,
            rank,
            // Not zero: uninitialised memory should not look like valid data.
            shared: vec![0xff; bytes],
            shared_init: if cx.opts.checks.init { vec![0; bytes / 64 + 2] } else { vec![] },
            bars: vec![Bar::default(); 16],
            warps: vec![],
            live: warps,
            grid_arrivals: 0,
            released: false,
            pool: 0,
            resized: vec![],
            shadow: race.then(|| Box::new(SharedShadow::new(bytes, cx.prog.shared_grain))),
            divided: None,
            mbarriers: Default::default(),
            guests: vec![],
        };
        block.clear_reserved(cx.prog);
        for id in 0..warps {
            let mask = u32::MAX >> (32 - (l.threads as usize - 32 * id).min(32));
            block.warps.push(Some(new_warp(cx, pool.pop(), rank, id, ctaid, warps, mask)?));
        }
        blocks.push(block);
    }
    let clocks = race.then(|| Box::new(Clocks::new(per as usize, warps, cx.prog.in_step)));
    Ok(Cluster {
        blocks,
        bar_phase: 0,
        bar_open: false,
        pending: vec![],
        arrivals: vec![],
        asked: vec![],
        clocks,
        events: 0,
        stalls: (0, 0),
        executed: 0,
        told: 0,
        watch: Default::default(),
        polling: None,
        counted: None,
    })
}

fn new_warp(
    cx: &mut Cx<'_>,
    old: Option<Box<Warp>>,
    rank: u32,
    id: usize,
    ctaid: [u32; 3],
    warps: usize,
    mask: u32,
) -> Result<Box<Warp>, Fault> {
    let mut w = old.unwrap_or_default();
    let regs = std::mem::take(&mut w.regs);
    let (local, local_init) = (std::mem::take(&mut w.local), std::mem::take(&mut w.local_init));
    let local_stride = w.local_stride;
    *w = Warp {
        block: rank as usize,
        id,
        ctaid,
        agent: rank as usize * warps + id,
        regs,
        local,
        local_stride,
        local_init,
        alive: mask,
        registers: cx.launch.registers,
        ..Warp::default()
    };
    let s = Split { pc: 0, mask, join: NO_JOIN, ..Split::default() };
    if let Err((kind, message)) = misc::enter(cx, &mut w, rank, 0, Bases::default(), mask) {
        return cx.fault(&w, &s, 0, kind, message, None);
    }
    w.ready.push(s);
    Ok(w)
}
