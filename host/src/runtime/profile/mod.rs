//! Where a program's time goes: [`record`] runs a part of it, and makes a table and a Chrome trace of every kernel that it launches and of
//! every [`scope`] that it names.
//!
//! ```
//! use warpsmith::{Device, Tensor, ops, profile};
//!
//! # fn main() -> warpsmith::Result<()> {
//! let stream = Device::open()?.stream()?;
//! let x = Tensor::from_slice(&stream, [1024], &[0.5f32; 1024])?;
//! let (y, profile) = profile::record(|| {
//!     let _layer = profile::scope("layer");
//!     ops::gelu(&stream, &x)
//! })?;
//! println!("{profile}");
//! assert_eq!(profile.rows().len(), 2);
//! std::fs::write(std::env::temp_dir().join("trace.json"), profile.chrome_trace()).expect("a trace is written");
//! # y.map(drop)
//! # }
//! ```
//!
//! What is recorded is what the calling thread does. CPU time of a kernel is what queueing its launch takes; CUDA time is what it takes on the
//! device. CUPTI tells it, the library that profilers are built on, where one is found: by the linker, in CUDA's folder, or in the one that
//! `WARPSMITH_CUPTI` names (`off`: nowhere). Otherwise two events on the stream do, and then it includes waiting for what else the device does
//! in between. The table says which; a simulation has no clock, and no CUDA times. Bytes are those of the tensors whose addresses were asked for
//! since the launch before, each once: what a kernel has to move that reads and writes all of them. FLOPs are the useful ones of products and of
//! attention; other operators have too few for their bytes to count. The roof is the larger of the times that both take at the device's peaks,
//! which the datasheet has: its share tells how far a kernel is from what no kernel can do.
//!
//! A launch that nobody records looks at one flag of its thread, and does nothing more.
//!
//! A program that knows nothing of this is recorded from its start to its end, every thread of it, where `WARPSMITH_PROFILE` names a file for the
//! trace: that is how `warpsmith profile PROGRAM` does it.
//!
//! Where a profiler watches the program, Nsight Systems say, it is told of scopes as ranges of NVTX and shows them under the same names, recorded or
//! not. Where none does, that costs a look at one pointer.
//!
//! With the feature `tracing` scopes and launches are spans of that crate as well, recorded or not: of the target `warpsmith`, called `scope`
//! with the field `name`, and `launch` with the fields `kernel`, `grid` and `block`. Who collects a program's spans finds them among these.

mod program;
mod recording;
mod table;
mod trace;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

#[cfg(feature = "cli")]
pub(crate) use program::VARIABLE;
use recording::{Id, Restore};
pub(super) use recording::{launch, operand};
pub use table::Row;

use crate::runtime::backend::nvtx;
use crate::runtime::error::Result;
use crate::runtime::roof::{Bound, Work};

/// Runs `body` and records its scopes and its launches on this thread. Waits for what it has launched.
///
/// When recordings are nested, what happens inside the inner one is recorded there, and not in the outer one.
///
/// # Errors
/// The error of a kernel that failed, which shows when the recording waits for it.
pub fn record<T>(body: impl FnOnce() -> T) -> Result<(T, Profile)> {
    let outer = Restore::start();
    let value = body();
    let recording = outer.stop();
    Ok((value, recording.finish()?))
}

/// Names what this thread does until the result is dropped. Scopes nest. Outside of [`record`] only profilers and tracing subscribers that
/// watch the program see the name.
#[must_use = "a scope ends when it is dropped"]
pub fn scope(name: impl Into<Cow<'static, str>>) -> Scope {
    let name = name.into();
    Scope {
        _range: nvtx::range(&name),
        #[cfg(feature = "tracing")]
        _span: tracing::info_span!(target: "warpsmith", "scope", name = name.as_ref()).entered(),
        id: recording::open(name),
        thread: PhantomData,
    }
}

/// Says what the next launch of this thread computes: `flops` useful operations, by what `bound` names.
pub(crate) fn work(bound: Bound, flops: u64) {
    recording::work(Work { flops, bound });
}

/// A part of a recording that has a name, from [`scope`].
#[derive(Debug)]
pub struct Scope {
    _range: Option<nvtx::Range>,
    #[cfg(feature = "tracing")]
    _span: tracing::span::EnteredSpan,
    id: Option<Id>,
    /// A scope is of the thread that it began on.
    thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            recording::close(id);
        }
    }
}

/// What was recorded, in the order in which it began.
#[derive(Clone, Debug)]
pub struct Profile {
    pub(crate) spans: Vec<Span>,
    /// From its start until what it launched was done.
    pub(crate) wall: Duration,
    pub(crate) clock: Option<Clock>,
}

/// What told when kernels ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CUPTI: each kernel's own beginning and end.
    Cupti,
    /// Events on the stream before and after it.
    Events,
}

/// A scope, or the launch of a kernel.
#[derive(Clone, Debug)]
pub struct Span {
    /// The scope's name, or the kernel's symbol.
    pub name: Cow<'static, str>,
    /// The place of the scope around it.
    pub parent: Option<usize>,
    /// When it began, from the start of the recording.
    pub start: Duration,
    /// How long the CPU was in it.
    pub cpu: Duration,
    /// What was launched; nothing for a scope.
    pub launch: Option<Launch>,
}

/// A launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Which of the recording's streams, counted from 0 in the order of their first launches.
    pub stream: usize,
    /// Bytes of the tensors that it was given, where their addresses were asked for since the launch before.
    pub bytes: u64,
    /// Floating-point (or integer) operations of it, where the operator has many for its bytes: products, attention.
    pub flops: u64,
    /// The least time that its bytes and operations take on such a device; nothing where its peaks are not known.
    pub least: Option<Duration>,
    /// When the device ran it; nothing where there is no clock.
    pub cuda: Option<Cuda>,
}

/// Time of a kernel on its device.
#[derive(Clone, Copy, Debug)]
pub struct Cuda {
    /// When it began. By events, as if the device's first recorded kernel had begun when its launch was queued.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
}

impl Profile {
    /// Scopes and launches in the order in which they began.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// How long it took, from its start until what it launched was done.
    pub fn wall(&self) -> Duration {
        self.wall
    }

    /// What told when kernels ran; nothing where none ran on a GPU.
    pub fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// How long the device was at work: kernels that ran side by side count once. Nothing if some kernel ran where there is no clock.
    pub fn busy(&self) -> Option<Duration> {
        let launches = self.spans.iter().filter_map(|span| span.launch);
        let mut times: Vec<_> = launches.map(|launch| launch.cuda).collect::<Option<_>>()?;
        times.sort_by_key(|cuda| cuda.start);
        let (mut busy, mut until) = (Duration::ZERO, Duration::ZERO);
        for Cuda { start, time } in times {
            let end = start + time;
            busy += end.saturating_sub(start.max(until));
            until = until.max(end);
        }
        Some(busy)
    }
}
