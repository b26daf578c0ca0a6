//! Grids: distributes blocks over host threads, and schedules warps in turns.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::ahead::Ahead;
use super::cx::{Cx, Launched};
use super::polling::Watch;
pub use super::prepare::prepare;
use super::start::new_cluster;
use super::state::*;
use super::{coop, polling, run, stuck};
use crate::check::global::GlobalShadow;
use crate::ir::Program;
use crate::launch::{Options, Progress};
use crate::memory::Memory;
use crate::metrics::Collector;
use crate::occupancy::{Device, occupancy};
use crate::report::{Fault, Finding, Kind, Report};

struct Shared<'a> {
    prog: &'a Program,
    mem: &'a Memory,
    launch: &'a Launched,
    opts: &'a Options,
    shadow: Option<&'a GlobalShadow>,
    next: AtomicU64,
    clusters: u64,
    /// Number of clusters that the GPU holds at once.
    room: u64,
    /// Warp instructions of all workers.
    executed: AtomicU64,
    /// Number of clusters that have ended.
    ended: AtomicU64,
    /// Number of actions that other threads can observe.
    effects: AtomicU64,
    /// The number of clusters that poll, and the number of effects at which they were counted.
    polling: Mutex<(u64, u64)>,
    /// Time of the last progress callback, in milliseconds since the start.
    told: AtomicU64,
    start: Instant,
    stop: AtomicBool,
    faults: Mutex<Vec<(u64, Fault)>>,
}

struct Outcome {
    instructions: u64,
    findings: Vec<Finding>,
    output: Vec<(u64, String)>,
    metrics: Option<Box<Collector>>,
}

/// Runs a launch. Returns, with its report, what the next launch may overlap with, if that is to be checked.
pub fn run(
    prog: &Arc<Program>,
    mem: &Memory,
    launch: Launched,
    opts: &Options,
) -> Result<(Report, Option<Ahead>), Fault> {
    let blocks: u64 = launch.grid.iter().map(|v| u64::from(*v)).product();
    let per: u64 = launch.cluster.iter().map(|v| u64::from(*v)).product();
    let sizes = (0..mem.count()).map(|k| if mem.get(k).live { mem.get(k).size } else { 0 });
    let clusters = blocks / per;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = (if opts.threads == 0 { cores } else { opts.threads }).min(clusters as usize).max(1);
    let shadow = opts.checks.race.then(|| GlobalShadow::new(sizes, prog.global_grain, threads > 1));
    let shadow = shadow.transpose().map_err(|error| Fault::of_memory(&prog.kernel, error, "for the check of races"))?;
    let sh = Shared {
        prog,
        mem,
        launch: &launch,
        opts,
        shadow: shadow.as_ref(),
        next: AtomicU64::new(0),
        clusters,
        room: (coop::room(prog, &launch, opts.device) / per).max(1),
        executed: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        effects: AtomicU64::new(0),
        polling: Mutex::default(),
        told: AtomicU64::new(0),
        start: Instant::now(),
        stop: AtomicBool::new(false),
        faults: Mutex::new(vec![]),
    };
    // A defect of the simulator must neither lose blocks silently nor unwind into the caller.
    let guarded = || {
        catch_unwind(AssertUnwindSafe(|| worker(&sh))).unwrap_or_else(|panic| {
            fail(&sh, u64::MAX, broken(prog, &*panic));
            Outcome { instructions: 0, findings: vec![], output: vec![], metrics: None }
        })
    };
    let outcomes: Vec<Outcome> = if threads == 1 {
        vec![guarded()]
    } else {
        std::thread::scope(|s| {
            let handles: Vec<_> = (0..threads).map(|_| s.spawn(guarded)).collect();
            handles.into_iter().map(|h| h.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    };
    let faults = sh.faults.into_inner().unwrap_or_else(|e| e.into_inner());
    let report = merge(prog, mem, &launch, opts, outcomes, blocks);
    match faults.into_iter().min_by_key(|f| f.0) {
        Some((_, f)) => Err(Fault { also: report.findings, output: report.output, ..f }),
        None => Ok((report, shadow.map(|shadow| Ahead::behind(launch, prog, shadow)))),
    }
}

/// A panic of the simulator, as a fault.
pub fn broken(prog: &Program, panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let message = format!("the simulator failed: {}", text.unwrap_or("see its message on standard error"));
    Fault::of_launch(&prog.kernel, Kind::Internal, message)
}

fn merge(
    prog: &Program,
    mem: &Memory,
    launch: &Launched,
    opts: &Options,
    outcomes: Vec<Outcome>,
    blocks: u64,
) -> Report {
    let mut report = Report::default();
    let mut output = vec![];
    let mut metrics: Option<Box<Collector>> = None;
    for o in outcomes {
        report.instructions += o.instructions;
        output.extend(o.output);
        for f in o.findings {
            match report.findings.iter_mut().find(|g| g.kind == f.kind && g.place == f.place) {
                Some(g) => {
                    g.count += f.count;
                    if (f.block, f.thread) < (g.block, g.thread) {
                        let count = g.count;
                        *g = Finding { count, ..f };
                    }
                }
                None => report.findings.push(f),
            }
        }
        match (&mut metrics, o.metrics) {
            (Some(m), Some(c)) => m.merge(*c),
            (m, Some(c)) => *m = Some(c),
            _ => {}
        }
    }
    report.findings.sort_by_key(|a| (a.kind, a.place.ptx_line));
    output.sort_by_key(|o: &(u64, String)| o.0);
    report.output = output.into_iter().map(|o| o.1).collect();
    report.metrics = metrics.map(|m| {
        let cx = Cx::new(prog, mem, launch, opts, None);
        let mut m = m.finish(prog, |f, pc| cx.place(f, pc));
        let device = opts.device.unwrap_or_else(|| Device::for_target(&prog.target));
        m.occupancy = Some(occupancy(device, launch.threads, opts.registers, launch.shared_bytes, blocks));
        m
    });
    report
}

/// Instructions that a cluster executes before other clusters of the same host thread get a turn: enough for most clusters to end. The first
/// cluster gets as many as all others together, so that an endless loop is detected in one cluster long before all clusters have executed as
/// much.
const SLICE: u64 = 4_000_000;
/// Number of clusters that one host thread keeps active when they wait for each other. If they poll, it keeps as many as the GPU holds.
const RESIDENT: usize = 64;
/// The same with a seed, where clusters see each other's unfinished work: few, to save memory.
const BESIDE: usize = 4;
/// log₂ of the maximum instructions that a cluster then executes before others get a turn, while it has effects that they can observe. All
/// magnitudes are equally likely.
const MIXED: u64 = 13;
/// The same for the turns of warps.
const WARP_MIXED: u64 = 9;

fn worker(sh: &Shared<'_>) -> Outcome {
    let mut cx = Cx::new(sh.prog, sh.mem, sh.launch, sh.opts, sh.shadow);
    let mut live: VecDeque<(u64, Cluster, String)> = VecDeque::new();
    let mut output = vec![];
    let mut pool = vec![];
    // Blocks of a cooperative launch may all wait for each other.
    let (together, seeded) = (sh.launch.grid_barrier.is_some(), sh.opts.seed != 0 && sh.clusters > 1);
    let (resident, slice) = match together {
        true => (usize::MAX, 1),
        false => (if seeded { BESIDE } else { RESIDENT }, SLICE),
    };
    while !sh.stop.load(Relaxed) {
        let polls = !together && !live.is_empty() && live.iter().all(|c| c.1.polling.is_some());
        if let Some(k) = (polls || live.len() < resident).then(|| begin(sh)).flatten() {
            match new_cluster(&mut cx, k, &mut pool) {
                Ok(c) => live.push_front((k, c, String::new())),
                Err(f) => fail(sh, k, f),
            }
        }
        // Polling clusters are examined again when no other cluster can go on; each time, more turns are needed to recognise them.
        let busy = if seeded { live.iter().position(|c| c.1.polling.is_none()) } else { None };
        let Some((k, mut c, mut text)) = live.remove(busy.unwrap_or(0)) else { break };
        let left = sh.opts.launch_limit.saturating_sub(sh.executed.load(Relaxed));
        if left == 0 {
            fail(sh, k, over_limit(sh, k));
            break;
        }
        let before = cx.instructions;
        let turns = if seeded && !together && c.executed - c.told < 1 << MIXED {
            1 << (cx.random() % MIXED)
        } else if live.iter().all(|c| c.0 > k) {
            slice * (live.len() as u64 + 1)
        } else {
            slice
        };
        let ran = match run_cluster(&mut cx, &mut c, [turns, left], &sh.effects) {
            Ok(_) if polled(sh, &mut c) => stuck::hopeless(&mut cx, &mut c, left_out(sh)),
            ran => ran,
        };
        sh.executed.fetch_add(cx.instructions - before, Relaxed);
        sh.ended.fetch_add(u64::from(matches!(ran, Ok(true))), Release);
        if let Some(tell) = sh.opts.progress {
            progress(sh, tell);
        }
        match ran {
            Err(f) => {
                text.push_str(&std::mem::take(&mut cx.output));
                output.push((k, text));
                fail(sh, k, f);
            }
            Ok(done) => {
                text.push_str(&std::mem::take(&mut cx.output));
                if done {
                    pool.extend(c.blocks.into_iter().flat_map(|b| b.warps).flatten());
                    if !text.is_empty() {
                        output.push((k, text));
                    }
                } else {
                    live.push_back((k, c, text));
                }
            }
        }
    }
    Outcome { instructions: cx.instructions, findings: cx.findings, output, metrics: cx.metrics }
}

/// Calls the progress callback, if enough time has passed.
fn progress(sh: &Shared<'_>, tell: fn(Progress)) {
    const PAUSE: u64 = 500;
    let (now, last) = (sh.start.elapsed().as_millis() as u64, sh.told.load(Relaxed));
    if now < last + PAUSE || sh.told.compare_exchange(last, now, Relaxed, Relaxed).is_err() {
        return;
    }
    let per: u64 = sh.launch.cluster.iter().map(|v| u64::from(*v)).product();
    let (ended, blocks) = (sh.ended.load(Relaxed) * per, sh.clusters * per);
    tell(Progress { ended, blocks, instructions: sh.executed.load(Relaxed) });
}

/// Starts the next cluster, if one is left and the GPU has room for it.
fn begin(sh: &Shared<'_>) -> Option<u64> {
    // Another host thread may have started clusters in the meantime, so that more have ended than had started; then the test is repeated.
    let fits = |next: u64| next < sh.clusters && next.saturating_sub(sh.ended.load(Acquire)) < sh.room;
    sh.next.fetch_update(AcqRel, Acquire, |next| fits(next).then_some(next + 1)).ok()
}

/// Number of clusters that have started and not ended.
fn begun(sh: &Shared<'_>) -> u64 {
    (sh.clusters - left_out(sh)).saturating_sub(sh.ended.load(Acquire))
}

/// Number of clusters that have not started.
fn left_out(sh: &Shared<'_>) -> u64 {
    sh.clusters.saturating_sub(sh.next.load(Relaxed))
}

/// Counts a cluster that polls. Returns whether all other clusters poll, have ended, or find no room.
fn polled(sh: &Shared<'_>, c: &mut Cluster) -> bool {
    let Some(effects) = c.polling else { return false };
    let mut polling = sh.polling.lock().unwrap_or_else(|e| e.into_inner());
    // Another host thread has seen more effects, and this one will see them too.
    if effects < polling.0 {
        return false;
    }
    if effects > polling.0 {
        *polling = (effects, 0);
    }
    if c.counted != Some(effects) {
        c.counted = Some(effects);
        polling.1 += 1;
    }
    let live = begun(sh);
    polling.1 == live && (left_out(sh) == 0 || live >= sh.room) && sh.effects.load(Acquire) == effects
}

fn over_limit(sh: &Shared<'_>, k: u64) -> Fault {
    let (limit, clusters) = (sh.opts.launch_limit, sh.clusters);
    let message = format!(
        "the limit of {limit} warp instructions a launch is reached before cluster {k} of {clusters} has ended"
    );
    Fault::of_launch(&sh.prog.kernel, Kind::InstructionLimit, message)
}

fn fail(sh: &Shared<'_>, k: u64, f: Fault) {
    sh.stop.store(true, Relaxed);
    sh.faults.lock().unwrap_or_else(|e| e.into_inner()).push((k, f));
}

/// Runs a cluster for about `slice` instructions, and at most `left`, or until it only polls. Returns true if all its threads have exited.
fn run_cluster(cx: &mut Cx<'_>, cl: &mut Cluster, most: [u64; 2], effects: &AtomicU64) -> Result<bool, Fault> {
    let ([slice, left], mut spent) = (most, 0);
    cl.polling = None;
    let mut order: Vec<(usize, usize)> =
        (0..cl.blocks.len()).flat_map(|b| (0..cl.blocks[b].warps.len()).map(move |k| (b, k))).collect();
    while spent < slice.min(left) {
        if cx.opts.seed != 0 {
            for k in (1..order.len()).rev() {
                order.swap(k, (cx.random() % (k as u64 + 1)) as usize);
            }
        }
        let (mut ran, mut live) = (0, false);
        for &(b, k) in &order {
            let Some(mut w) = cl.blocks[b].warps[k].take() else { continue };
            if !w.done() {
                let together = cx.launch.grid_barrier.is_some();
                let budget = match cx.opts.seed {
                    0 if together => coop::TURN,
                    0 => 4096,
                    _ if together => 1 << (cx.random() % WARP_MIXED),
                    // A warp whose turn were longer than its cluster's would end, or come to a barrier, before another cluster got a turn.
                    _ => (1 << (cx.random() % WARP_MIXED)).min(slice.max(16)),
                };
                let result = run::run_warp(cx, cl, &mut w, budget.min(left.saturating_sub(spent + ran)));
                live |= !w.done();
                cl.blocks[b].warps[k] = Some(w);
                ran += result?;
            } else {
                cl.blocks[b].warps[k] = Some(w);
            }
        }
        let polling = polling::turned(cx, cl, effects);
        if !live {
            return Ok(true);
        }
        spent += ran;
        cl.executed += ran;
        if ran == 0 || polling.is_some() {
            if stuck::part(cl) || stuck::expire(cl) {
                cl.watch = Watch::default();
            } else if ran == 0 {
                return stuck::fault(cx, cl, Kind::Deadlock, "no thread can go on");
            } else {
                cl.polling = polling;
                return Ok(false);
            }
        }
        stuck::endless(cx, cl)?;
    }
    Ok(false)
}
