//! A step of the perceptron, recorded: whether the kernels' times add up to the stream's, and what recording costs a launch.

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
/// So wide that kernels take most of a millisecond: between two of them a stream rests for a microsecond or two.
const SIZES: Sizes = Sizes { width: 8192, ..BASE };
/// Steps before that one: they fill the queue, and have what a first launch takes.
const AHEAD: usize = 3;

/// How far the kernels' sum may be from the stream's time between two events.
pub const APART: f64 = 0.02;
/// What recording may add to a launch.
pub const MOST_ADDED: Duration = Duration::from_micros(2);

/// A recorded step, and what was measured beside it.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// The perceptron.
    pub sizes: Sizes,
    /// One step forward and back, behind others.
    pub profile: Profile,
    /// From an event before the step to one behind it, on a stream that always had work.
    pub between_events: Duration,
    /// The sum of its kernels' times.
    pub kernels: Duration,
    /// What queueing a small kernel takes at least: before anything was recorded, while it is, and in between.
    pub launch: [Duration; 3],
}

impl Profiled {
    /// How far the sum of the kernels' times is from the stream's, as a share of that.
    pub fn apart(&self) -> f64 {
        (self.kernels.as_secs_f64() / self.between_events.as_secs_f64() - 1.0).abs()
    }

    /// What recording adds to a launch, or leaves behind, whichever is more. Launches are compared with those next to them: processors have slow
    /// times, which are no one's fault.
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

/// How often launches are recorded and then not, in turns: a processor's clock differs by more from one time to another than recording costs.
const TURNS: usize = 10;
/// Launches that a queue takes without waiting, and how often they are timed in a turn.
const QUEUED: u32 = 256;
const TIMES: usize = 20;

/// What queueing a small kernel takes the CPU: the least of several runs, because whatever else the machine does adds to the others.
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
