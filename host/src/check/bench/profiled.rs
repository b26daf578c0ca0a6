//! A recorded step of the perceptron: checks whether the kernels' times add up to the stream's time, and what recording
//! costs per launch.

use std::time::{Duration, Instant};

use super::mlp::{BASE, Mlp, Sizes};
use crate::ops;
use crate::runtime::device::Device;
use crate::runtime::error::Result;
use crate::runtime::profile::{self, Profile};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// The scope of the step that is compared.
pub const STEP: &str = "step";
/// Wide enough that kernels take most of a millisecond: between two kernels a stream idles for a microsecond or two.
const SIZES: Sizes = Sizes { width: 8192, ..BASE };
/// Steps before the recorded one: they fill the queue, and pay the cost of first launches.
const AHEAD: usize = 3;

/// The maximum deviation of the kernels' sum from the stream's time between two events.
pub const APART: f64 = 0.02;
/// The maximum that recording may add to a launch.
pub const MOST_ADDED: Duration = Duration::from_micros(2);

/// A recorded step, and what was measured beside it.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// The perceptron.
    pub sizes: Sizes,
    /// One step forward and back, behind others.
    pub profile: Profile,
    /// The time from an event before the step to one after it, on a stream that always had work.
    pub between_events: Duration,
    /// The sum of its kernels' times.
    pub kernels: Duration,
    /// The minimum time to queue a small kernel: before anything was recorded, during recording, and in between.
    pub launch: [Duration; 3],
}

impl Profiled {
    /// The deviation of the sum of the kernels' times from the stream's time, as a fraction of the latter.
    pub fn apart(&self) -> f64 {
        (self.kernels.as_secs_f64() / self.between_events.as_secs_f64() - 1.0).abs()
    }

    /// The larger of what recording adds to a launch and what it adds afterwards. Launches are compared with those next to them
    /// in time, because processors have slow periods.
    pub fn added(&self) -> Duration {
        let [before, recorded, after] = self.launch;
        recorded.saturating_sub(after).max(after.saturating_sub(before))
    }

    /// Whether both are within their limits.
    pub fn holds(&self) -> bool {
        self.apart() <= APART && self.added() < MOST_ADDED
    }
}

/// Records a step of one of `bench mlp`'s perceptrons.
pub fn profiled(device: &Device) -> Result<Profiled> {
    let stream = device.stream()?;
    let before = launching(&stream)?;
    let mut mlp = Mlp::new(&stream, SIZES)?;
    let mut step = |stream: &Stream| mlp.forward(stream).and_then(|()| mlp.backward(stream));
    step(&stream)?;
    stream.synchronize()?;
    let (events, profile) = profile::record(|| {
        {
            let _ahead = profile::scope("ahead");
            (0..AHEAD).try_for_each(|_| step(&stream))?;
        }
        let start = stream.record()?;
        {
            let _step = profile::scope(STEP);
            step(&stream)?;
        }
        Ok::<_, crate::Error>((start, stream.record()?))
    })?;
    let (start, end) = events?;
    let between_events = Duration::from_secs_f64(f64::from(start.elapsed_ms(&end)?).max(1e-6) / 1e3);
    let rows = profile.rows();
    let kernels = rows.iter().find(|row| row.name == STEP).and_then(|row| row.cuda_total).unwrap_or_default();
    let mut launch = [before, Duration::MAX, Duration::MAX];
    for _ in 0..TURNS {
        let (recorded, _) = profile::record(|| launching(&stream))?;
        launch = [before, launch[1].min(recorded?), launch[2].min(launching(&stream)?)];
    }
    Ok(Profiled { sizes: SIZES, profile, between_events, kernels, launch })
}

/// How often recorded and unrecorded launches alternate: a processor's clock varies over time by more than recording costs.
const TURNS: usize = 10;
/// The number of launches that a queue takes without waiting, and how often they are timed in a turn.
const QUEUED: u32 = 256;
const TIMES: usize = 20;

/// The CPU time to queue a small kernel: the minimum of several runs, because other load on the machine only adds time.
fn launching(stream: &Stream) -> Result<Duration> {
    let x = Tensor::filled(stream, [1024], 0.5f32)?;
    let mut y = Tensor::uninit(stream, [1024])?;
    ops::gelu_into(stream, &x, &mut y)?;
    stream.synchronize()?;
    let mut least = Duration::MAX;
    for _ in 0..TIMES {
        let start = Instant::now();
        for _ in 0..QUEUED {
            ops::gelu_into(stream, &x, &mut y)?;
        }
        least = least.min(start.elapsed() / QUEUED);
        stream.synchronize()?;
    }
    Ok(least)
}
