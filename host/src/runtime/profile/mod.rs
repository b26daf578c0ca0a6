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
//! What is recorded is what the calling thread does. CPU time of a kernel is what queueing its launch takes; CUDA time is what it takes
//! on the device, between two events on its stream, so that it includes waiting for what else the device does in between. A simulation
//! has no clock, and no CUDA times. A launch that nobody records looks at one flag of its thread, and does nothing more.
//!
//! With the feature `tracing` scopes and launches are spans of that crate as well, recorded or not: of the target `warpsmith`, called `scope`
//! with the field `name`, and `launch` with the fields `kernel`, `grid` and `block`. Who collects a program's spans finds them among these.

mod recording;
mod table;
mod trace;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

pub(super) use recording::launch;
use recording::{Id, Restore};
pub use table::Row;

use crate::runtime::error::Result;

/// Runs `body` and records its scopes and its launches on this thread. Waits for what it has launched.
///
/// Of recordings inside each other the inner one has what is inside it, and the outer one has not.
///
/// # Errors
/// What a failed kernel makes of waiting for it.
pub fn record<T>(body: impl FnOnce() -> T) -> Result<(T, Profile)> {
    let outer = Restore::start();
    let value = body();
    let recording = outer.stop();
    Ok((value, recording.finish()?))
}

/// Names what this thread does until the result is dropped. Scopes nest. Outside of [`record`] it does nothing.
#[must_use = "a scope ends when it is dropped"]
pub fn scope(name: impl Into<Cow<'static, str>>) -> Scope {
    let name = name.into();
    Scope {
        #[cfg(feature = "tracing")]
        _span: tracing::info_span!(target: "warpsmith", "scope", name = name.as_ref()).entered(),
        id: recording::open(name),
        thread: PhantomData,
    }
}

/// A part of a recording that has a name, from [`scope`].
#[derive(Debug)]
pub struct Scope {
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
    spans: Vec<Span>,
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
    /// When the device ran it; nothing where there is no clock.
    pub cuda: Option<Cuda>,
}

/// Time of a kernel on its device.
#[derive(Clone, Copy, Debug)]
pub struct Cuda {
    /// When it began, as if the device's first recorded kernel had begun when its launch was queued.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
}

impl Profile {
    /// Scopes and launches in the order in which they began.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
}
