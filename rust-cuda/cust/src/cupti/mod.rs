//! CUPTI, the library that profilers are built on: records when kernels ran, by the device's own clock.
//!
//! It is not part of the driver and may be missing. It is loaded when the first [`Tracing`] begins; while one lives, launches
//! and kernels of the whole process leave records. The driver allows one CUPTI user per process: if another profiler is active,
//! starting a tracing returns an error.

mod library;
mod records;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::context::Context;
use library::{CONCURRENT_KERNEL, Cupti, DRIVER, EXTERNAL_CORRELATION};
pub use records::KernelTime;

/// Names the folder to load the library from, if the linker does not find it; `off` disables CUPTI.
pub const FOLDER_VARIABLE: &str = "WARPSMITH_CUPTI";

/// The number of live tracings.
static TRACINGS: Mutex<usize> = Mutex::new(0);

/// Marked launches hold it shared. A request for records holds it exclusively: a launch that runs while buffers are flushed
/// would leave a record without times, and no other.
static LAUNCHES: RwLock<()> = RwLock::new(());

/// Why there are no records: the library is missing, another profiler is active, or the driver does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CuptiError(String);

impl fmt::Display for CuptiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CuptiError {}

/// Kernels leave records while a value of this type lives.
#[derive(Debug)]
pub struct Tracing {
    cupti: &'static Cupti,
    /// Marks of this tracing are at least this number.
    first: u64,
}

impl Tracing {
    /// Starts a tracing. The driver must have been initialised.
    pub fn start() -> Result<Self, CuptiError> {
        let cupti = records::source().map_err(Clone::clone)?;
        let mut tracings = TRACINGS.lock().unwrap_or_else(PoisonError::into_inner);
        if *tracings == 0
            && let Err(error) = enable(cupti)
        {
            disable(cupti);
            return Err(error);
        }
        *tracings += 1;
        Ok(Self { cupti, first: MARKS.load(Ordering::Relaxed) })
    }

    /// The time on the clock of [`KernelTime`], in nanoseconds.
    pub fn now(&self) -> Result<u64, CuptiError> {
        let mut now = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { self.cupti.cuptiGetTimestamp(&mut now) }?;
        Ok(now)
    }

    /// Marks what this thread launches until the result is dropped.
    #[inline]
    pub fn mark(&self) -> Mark {
        let launching = LAUNCHES.read().unwrap_or_else(PoisonError::into_inner);
        let id = MARKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: it takes numbers. If it fails, the launch has no record, which shows.
        let _ = unsafe { self.cupti.cuptiActivityPushExternalCorrelationId(records::OURS, id) };
        Mark { cupti: self.cupti, id, _launching: launching }
    }

    /// The kernels under marks that were set since this tracing began, by [`Mark::id`]. Synchronise first. This waits for the
    /// marks of all threads, and must not be called under a mark. If another tracing lives, it waits for all kernels of the
    /// process as well.
    pub fn kernels(&self) -> Result<BTreeMap<u64, Vec<KernelTime>>, CuptiError> {
        let _alone = LAUNCHES.write().unwrap_or_else(PoisonError::into_inner);
        // A tracing that begins meanwhile sets no mark before this is done.
        if *TRACINGS.lock().unwrap_or_else(PoisonError::into_inner) > 1 {
            Context::synchronize_all();
        }
        // SAFETY: it takes a flag. The records come in through the callbacks.
        unsafe { self.cupti.cuptiActivityFlushAll(library::FORCED) }?;
        Ok(records::since(self.first))
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let mut tracings = TRACINGS.lock().unwrap_or_else(PoisonError::into_inner);
        *tracings -= 1;
        if *tracings == 0 {
            disable(self.cupti);
            records::clear();
        }
    }
}

static MARKS: AtomicU64 = AtomicU64::new(1);

/// Marks the launches of a thread while it lives.
#[derive(Debug)]
pub struct Mark {
    cupti: &'static Cupti,
    id: u64,
    _launching: RwLockReadGuard<'static, ()>,
}

impl Mark {
    /// The key of its kernels in [`Tracing::kernels`].
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Mark {
    #[inline]
    fn drop(&mut self) {
        let mut last = 0;
        // SAFETY: the pointer is to a live integer.
        let _ = unsafe { self.cupti.cuptiActivityPopExternalCorrelationId(records::OURS, &mut last) };
    }
}

/// In this order. The driver-call records carry the marks, all of them or none.
const KINDS: [u32; 3] = [EXTERNAL_CORRELATION, DRIVER, CONCURRENT_KERNEL];

fn enable(cupti: &Cupti) -> Result<(), CuptiError> {
    // SAFETY: it takes a number.
    KINDS.into_iter().try_for_each(|kind| unsafe { cupti.cuptiActivityEnable(kind) })
}

/// Disables the kinds that were enabled.
fn disable(cupti: &Cupti) {
    // SAFETY: they take numbers. What is left in buffers is nobody's.
    unsafe {
        KINDS.into_iter().rev().for_each(|kind| drop(cupti.cuptiActivityDisable(kind)));
        drop(cupti.cuptiActivityFlushAll(library::FORCED));
    }
}
