//! Kernel launches: what a thread's launches use instead of the device's settings, and running one.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use warpsim::{Gpu, Kernel, Module, Options};

use super::{INVALID_VALUE, Profile, Settings, failure, memory_bytes};
use crate::runtime::backend::{Launch, Outcome};
use crate::runtime::error::{Error, Finding, Result};
use crate::runtime::mutex::lock;

/// Where launches report when they have ended.
#[derive(Clone)]
pub(super) struct Reports {
    /// Whether they are profiled, which takes longer.
    metrics: bool,
    ended: Arc<Mutex<Vec<Ended>>>,
}

/// A launch that has ended.
pub(super) struct Ended {
    pub(super) symbol: &'static str,
    /// Warp instructions executed.
    pub(super) instructions: u64,
    pub(super) profile: Option<Profile>,
}

impl Reports {
    pub(super) fn new(metrics: bool) -> Self {
        Self { metrics, ended: Arc::default() }
    }

    pub(super) fn take(&self) -> Vec<Ended> {
        std::mem::take(&mut *lock(&self.ended))
    }
}

thread_local! {
    /// What this thread's launches use in place of the device's settings.
    static SETTINGS: Cell<Option<Settings>> = const { Cell::new(None) };
    /// Where this thread's launches report, while it asks for it.
    static REPORTS: RefCell<Option<Reports>> = const { RefCell::new(None) };
    /// What this thread's launches execute in place of the kernels of those names; the last counts.
    static REPLACED: RefCell<Vec<(&'static str, Kernel)>> = const { RefCell::new(Vec::new()) };
    /// Whether this thread's streams ignore that they have to wait.
    static UNORDERED: Cell<bool> = const { Cell::new(false) };
}

/// Undoes what was set for a closure, also when that panics.
struct Undo<F: FnMut()>(F);

impl<F: FnMut()> Drop for Undo<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What this thread's launches use in place of the device's settings.
pub(super) fn settings() -> Option<Settings> {
    SETTINGS.get()
}

/// Whether this thread's streams ignore that they have to wait.
pub(super) fn is_unordered() -> bool {
    UNORDERED.get()
}

/// Runs `body`, whose launches on this thread use `settings`.
pub(crate) fn with_settings<T>(settings: Settings, body: impl FnOnce() -> T) -> T {
    let before = SETTINGS.replace(Some(settings));
    let _undo = Undo(|| SETTINGS.set(before));
    body()
}

/// Runs `body`, in which this thread's streams ignore that they have to wait for each other.
pub(crate) fn unordered<T>(body: impl FnOnce() -> T) -> T {
    let before = UNORDERED.replace(true);
    let _undo = Undo(|| UNORDERED.set(before));
    body()
}

/// Runs `body`, whose launches of these kernels on this thread execute that PTX.
pub(crate) fn with_kernels<T>(kernels: &[(&'static str, impl AsRef<str>)], body: impl FnOnce() -> T) -> Result<T> {
    let parsed = kernels.iter().map(|(symbol, ptx)| Ok((*symbol, parse(symbol, ptx.as_ref())?)));
    let parsed = parsed.collect::<Result<Vec<_>>>()?;
    let before = REPLACED.with_borrow(Vec::len);
    REPLACED.with_borrow_mut(|replaced| replaced.extend(parsed));
    let _undo = Undo(|| REPLACED.with_borrow_mut(|replaced| replaced.truncate(before)));
    Ok(body())
}

/// Runs `body`, whose launches on this thread add to `reports`.
pub(super) fn reporting<T>(reports: &Reports, body: impl FnOnce() -> T) -> T {
    let mut before = REPORTS.replace(Some(reports.clone()));
    let _undo = Undo(|| REPORTS.set(before.take()));
    body()
}

pub(super) fn parse(symbol: &'static str, ptx: &str) -> Result<Kernel> {
    Module::parse(ptx).and_then(|module| module.kernel(symbol)).map_err(|error| {
        let name = "the simulator does not take its PTX".to_owned();
        Error::KernelLoad { symbol, code: 0, name, log: format!(": {error}") }
    })
}

/// A loaded kernel.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) kernel: Kernel,
    pub(super) symbol: &'static str,
    pub(super) cluster: [u32; 3],
}

/// A launch as it was asked for, with all that it needs later.
pub(super) struct Job {
    function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    programmatic: bool,
    cooperative: bool,
    args: Vec<Vec<u8>>,
    options: Options,
    reports: Option<Reports>,
}

impl Job {
    /// A launch by this thread on that GPU.
    pub(super) fn new(mut function: Function, launch: &Launch<'_>, gpu: warpsim::Device, settings: Settings) -> Self {
        // A thread that ends has neither any more, and may launch all the same: as it drops what it kept for itself.
        let replaced = REPLACED.try_with(|replaced| {
            let replaced = replaced.borrow();
            replaced.iter().rfind(|(symbol, _)| *symbol == function.symbol).map(|(_, kernel)| kernel.clone())
        });
        if let Ok(Some(kernel)) = replaced {
            function.kernel = kernel;
        }
        let reports = REPORTS.try_with(|reports| reports.borrow().clone()).unwrap_or_default();
        let metrics = reports.as_ref().is_some_and(|reports| reports.metrics);
        let options = Options { metrics, device: Some(gpu), ..settings.options() };
        let Launch { grid, block, shared_bytes, programmatic, cooperative, .. } = *launch;
        let args = launch.args.iter().map(|arg| arg.to_vec()).collect();
        Self { function, grid, block, shared_bytes, programmatic, cooperative, args, options, reports }
    }

    /// Whether it reports there.
    pub(super) fn adds_to(&self, reports: &Reports) -> bool {
        self.reports.as_ref().is_some_and(|mine| Arc::ptr_eq(&mine.ended, &reports.ended))
    }

    /// Runs it on a GPU that has handed out `used` bytes.
    pub(super) fn run(&self, gpu: &mut Gpu, used: u64) -> Outcome<()> {
        let args: Vec<&[u8]> = self.args.iter().map(Vec::as_slice).collect();
        let Self { grid, block, shared_bytes, programmatic, cooperative, .. } = *self;
        let cluster = self.function.cluster;
        let what = warpsim::Launch { grid, block, cluster, shared_bytes, cooperative, programmatic, args: &args };
        // A mistake in the simulator must not end the program that uses it.
        let ran = catch_unwind(AssertUnwindSafe(|| gpu.launch(&self.function.kernel, &what, &self.options)));
        let (output, findings) = match ran {
            Ok(Ok(report)) => {
                if let Some(reports) = &self.reports {
                    let (symbol, instructions) = (self.function.symbol, report.instructions);
                    let measured = report.metrics.zip(self.options.device);
                    let profile = measured.map(|(metrics, gpu)| Profile::new(symbol, &what, metrics, gpu));
                    lock(&reports.ended).push(Ended { symbol, instructions, profile });
                }
                (report.output, Finding::all(&report.findings))
            }
            Ok(Err(warpsim::Fault { missing: Some(memory), .. })) => {
                let total = memory_bytes();
                let free = total.saturating_sub(used);
                return Err(Error::OutOfMemory { of: None, requested: memory.bytes, free, total }.into());
            }
            Ok(Err(fault)) => (fault.output.clone(), Finding::of_fault(&fault)),
            Err(_) => return Err(failure("launch", INVALID_VALUE, "the simulator itself failed")),
        };
        if !output.is_empty() {
            // As on a GPU, what a kernel prints is lost where nobody reads it.
            _ = io::stdout().write_all(output.as_bytes());
        }
        if findings.is_empty() { Ok(()) } else { Err(Error::Findings { findings }.into()) }
    }
}
