//! A case on the device, and the code that times its launches.

use std::time::{Duration, Instant};

use super::Timing;
use super::turns::{Contest, ROUNDS, Turns, in_turns};
use crate::check::peers::Cublas;
use crate::check::{Job, Operands, random};
use crate::ops::model::{self, Params, Variant};
use crate::runtime::device::Device;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// The time for the timed launches of a row: as many as fit, within [`MIN_RUNS`] and [`MAX_RUNS`].
pub(super) const BUDGET: Duration = Duration::from_millis(150);
/// At least one in each round.
pub(super) const MIN_RUNS: usize = ROUNDS;
const MAX_RUNS: usize = 200;
pub(super) const WARM_UP: usize = 3;
const MAX_SETS: usize = 16;
const SEED: u64 = 1;

/// A case with everything on the device, ready to be launched over and over.
pub struct Prepared {
    job: Job,
    stream: Stream,
    params: Params,
    /// Sets of tensors to rotate over.
    sets: Vec<Operands>,
    next: usize,
}

/// The implementation that computes a case.
pub(super) enum Contender<'p> {
    /// The operator, with the case's own parameters.
    Own,
    /// The operator, with these parameters.
    Ours(Params),
    /// Another library in place of the operator.
    Peer(&'p Cublas),
}

impl Prepared {
    /// Allocates inputs and outputs.
    pub fn new(device: &Device, timing: &Timing) -> Result<Self> {
        let Job { op, case } = &timing.job;
        let (stream, params) = (device.stream()?, timing.params()?);
        let inputs = random::inputs(*op, case, SEED)?;
        let make = || Operands::of_case(&stream, *op, case, &inputs, &params);
        let first = make()?;
        let count = (2 * device.info().l2_bytes as usize).div_ceil(first.input_bytes().max(1)).clamp(1, MAX_SETS);
        let mut sets = vec![first];
        for _ in 1..count {
            sets.push(make()?);
        }
        stream.synchronize()?;
        Ok(Self { job: timing.job.clone(), stream, params, sets, next: 0 })
    }

    /// Queues one launch, on the next set of tensors.
    pub fn launch(&mut self) -> Result<()> {
        self.launch_by(&Contender::Own)
    }

    fn launch_by(&mut self, who: &Contender<'_>) -> Result<()> {
        let (op, at) = (self.job.op, self.next);
        self.next = (at + 1) % self.sets.len();
        let mut args = self.sets[at].arguments(op)?;
        match who {
            Contender::Own => model::launch(op, &self.stream, &mut args, &self.params),
            Contender::Ours(params) => model::launch(op, &self.stream, &mut args, params),
            Contender::Peer(peer) => peer.launch(&self.stream, op, &mut args, &self.params),
        }
    }

    /// Waits for what was queued.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }

    /// Waits for the results of the first set of tensors, and copies them to the host.
    pub(super) fn result(&self) -> Result<()> {
        self.sets[0].outputs(&self.stream).map(drop)
    }

    /// Device time of `launches` launches one after the other.
    pub fn elapsed(&mut self, launches: u64) -> Result<Duration> {
        let start = self.stream.record()?;
        for _ in 0..launches {
            self.launch()?;
        }
        let end = self.stream.record()?;
        end.synchronize()?;
        Ok(Duration::from_secs_f64(f64::from(start.elapsed_ms(&end)?) / 1e3))
    }

    /// Median and least milliseconds of single launches.
    pub fn time(&mut self) -> Result<(f64, f64)> {
        self.warm_up(&Contender::Own)?;
        let stream = self.stream.clone();
        time(&stream, || self.launch())
    }

    /// Median milliseconds of launches, and of the other library in place of the operator, in turns.
    pub(in crate::check) fn time_beside(&mut self, peer: &Cublas) -> Result<[Option<f64>; 2]> {
        let mut turns = self.in_turns(&[Contender::Own, Contender::Peer(peer)]);
        match turns.failed.pop() {
            Some((_, error)) => Err(error),
            None => Ok([0, 1].map(|which| Some(turns.median_and_least(which)?.0))),
        }
    }

    /// Median milliseconds of launches in a variant, as many as fit `budget`.
    pub(in crate::check) fn time_variant(&mut self, variant: &'static Variant, budget: Duration) -> Result<f64> {
        let who = Contender::Ours(self.params.clone().with_variant(variant.name)?);
        self.warm_up(&who)?;
        let stream = self.stream.clone();
        let times = samples(&stream, budget, || self.launch_by(&who))?;
        Ok(times[times.len() / 2])
    }

    fn warm_up(&mut self, who: &Contender<'_>) -> Result<()> {
        // Fills L2 with lines that nothing here touches, as other programs leave it. Accesses with an evict-first policy do not
        // displace such lines: a kernel that makes no other accesses only gets what is left of L2, and takes up to 5% longer.
        self.stream.scratch::<u8>(2 * self.stream.device().info().l2_bytes as usize)?.clear()?;
        (0..WARM_UP).try_for_each(|_| self.launch_by(who))?;
        self.synchronize()
    }

    /// Times all of them in turns.
    pub(super) fn in_turns(&mut self, contenders: &[Contender<'_>]) -> Turns {
        in_turns(&mut OnDevice { prepared: self, contenders }, contenders.len())
    }
}

struct OnDevice<'p> {
    prepared: &'p mut Prepared,
    contenders: &'p [Contender<'p>],
}

impl Contest for OnDevice<'_> {
    fn warm_up(&mut self, which: usize, busy: Duration) -> Result<usize> {
        let (who, stream) = (&self.contenders[which], self.prepared.stream.clone());
        self.prepared.warm_up(who)?;
        let once = once(&stream, || self.prepared.launch_by(who))?;
        (0..(busy.as_secs_f64() / once) as usize).try_for_each(|_| self.prepared.launch_by(who))?;
        stream.synchronize()?;
        Ok(runs(BUDGET, once))
    }

    fn turn(&mut self, which: usize, launches: usize) -> Result<Vec<f64>> {
        let (who, stream) = (&self.contenders[which], self.prepared.stream.clone());
        series(&stream, launches, || self.prepared.launch_by(who))
    }
}

/// Median and least milliseconds of what `launch` queues.
pub(super) fn time(stream: &Stream, launch: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
    let times = samples(stream, BUDGET, launch)?;
    Ok((times[times.len() / 2], times[0]))
}

/// Milliseconds of many runs of what `launch` queues, in ascending order.
pub(super) fn samples(stream: &Stream, budget: Duration, mut launch: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let once = once(stream, &mut launch)?;
    let mut times = series(stream, runs(budget, once), launch)?;
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Seconds by the host's clock to queue the launch and wait for it.
fn once(stream: &Stream, launch: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    launch()?;
    stream.synchronize()?;
    Ok(start.elapsed().as_secs_f64().max(1e-5))
}

fn runs(budget: Duration, once: f64) -> usize {
    ((budget.as_secs_f64() / once) as usize).clamp(MIN_RUNS, MAX_RUNS)
}

/// Milliseconds of each of `runs` back-to-back runs of what `launch` queues.
fn series(stream: &Stream, runs: usize, mut launch: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut events = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = stream.record()?;
        launch()?;
        events.push((start, stream.record()?));
    }
    stream.synchronize()?;
    events.iter().map(|(start, end)| Ok(f64::from(start.elapsed_ms(end)?))).collect()
}
