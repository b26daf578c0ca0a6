//! The PTX simulator: runs the embedded kernels on the CPU and checks every access they make.
//!
//! Streams are in order and immediate: whatever is queued has happened when the call returns.

mod finding;
mod model;
mod profile;
mod settings;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use warpsim::{AccessError, Gpu, Kernel, Module, Options};

use super::{Backend, Failure, Launch, Outcome, RawEvent, RawFunction, RawStream};
use crate::runtime::device::{BackendKind, DeviceInfo};
use crate::runtime::dtype::DType;
use crate::runtime::error::{CudaVersion, Error, Result};
use crate::runtime::kernels::KernelImage;
use crate::runtime::tensor_map::{OobFill, Swizzle, TensorMapDesc};
use cuda_std::launch::TensorMap;

pub use finding::Finding;
pub use model::GpuModel;
pub(crate) use model::SMALL;
pub use profile::{HotLine, Occupancy, Profile};
pub use settings::{AsyncCompletion, Settings};

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;

/// A simulated GPU.
pub(crate) struct SimBackend {
    info: DeviceInfo,
    gpu: warpsim::Device,
    settings: Settings,
    state: Mutex<State>,
}

struct State {
    gpu: Gpu,
    /// Bytes of every live allocation.
    sizes: HashMap<u64, u64>,
    used: u64,
    functions: Vec<Function>,
    streams: usize,
    /// When each event was recorded; freed slots are reused.
    events: Vec<Option<Instant>>,
    free_events: Vec<usize>,
}

thread_local! {
    /// What this thread's launches use in place of the device's settings.
    static SETTINGS: Cell<Option<Settings>> = const { Cell::new(None) };
    /// What this thread's launches have measured, while it asks for it.
    static PROFILES: RefCell<Option<Vec<Profile>>> = const { RefCell::new(None) };
    /// What this thread's launches execute in place of the kernel of that name.
    static REPLACED: RefCell<Option<(&'static str, Kernel)>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct Function {
    kernel: Kernel,
    symbol: &'static str,
    cluster: [u32; 3],
}

impl SimBackend {
    /// A simulated `gpu` with the settings of the environment.
    pub(crate) fn open(gpu: warpsim::Device) -> Result<Self> {
        let info = DeviceInfo {
            name: format!("warpsim (simulated {})", gpu.name),
            compute_capability: gpu.compute_capability,
            multiprocessors: gpu.multiprocessors,
            memory_bytes: memory_bytes(),
            l2_bytes: 50 << 20,
            shared_bytes_per_block: gpu.shared_per_block(),
            driver_version: CudaVersion(13_000),
            // There is no clock: nothing that takes time is simulated.
            clock_khz: 0,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
            backend: BackendKind::Sim,
        };
        let state = State {
            gpu: Gpu::new(),
            sizes: HashMap::new(),
            used: 0,
            functions: Vec::new(),
            streams: 0,
            events: Vec::new(),
            free_events: Vec::new(),
        };
        Ok(Self { info, gpu, settings: Settings::from_env()?, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How this thread's launches run.
    pub(crate) fn settings(&self) -> Settings {
        SETTINGS.get().unwrap_or(self.settings)
    }
}

/// Runs `body`, whose launches on this thread use `settings`.
pub(crate) fn with_settings<T>(settings: Settings, body: impl FnOnce() -> T) -> T {
    struct Restore(Option<Settings>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SETTINGS.set(self.0);
        }
    }
    let _restore = Restore(SETTINGS.replace(Some(settings)));
    body()
}

/// Runs `body`, whose launches of `symbol` on this thread execute `ptx`.
pub(crate) fn with_kernel<T>(symbol: &'static str, ptx: &str, body: impl FnOnce() -> T) -> Result<T> {
    struct Restore(Option<(&'static str, Kernel)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            REPLACED.set(self.0.take());
        }
    }
    let _restore = Restore(REPLACED.replace(Some((symbol, parse(symbol, ptx)?))));
    Ok(body())
}

fn parse(symbol: &'static str, ptx: &str) -> Result<Kernel> {
    Module::parse(ptx).and_then(|module| module.kernel(symbol)).map_err(|error| {
        let name = "the simulator does not take its PTX".to_owned();
        Error::KernelLoad { symbol, code: 0, name, log: format!(": {error}") }
    })
}

/// Runs `body` and measures its launches on this thread.
pub(crate) fn measured<T>(body: impl FnOnce() -> T) -> (T, Vec<Profile>) {
    struct Restore(Option<Vec<Profile>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            PROFILES.set(self.0.take());
        }
    }
    let restore = Restore(PROFILES.replace(Some(Vec::new())));
    let value = body();
    let profiles = PROFILES.take().unwrap_or_default();
    drop(restore);
    (value, profiles)
}

/// Half of what the machine has, and no more than a large GPU.
fn memory_bytes() -> u64 {
    let total = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    total().map_or(4 << 30, |kib| (kib << 10) / 2).min(80 << 30)
}

fn failure(call: &'static str, code: u32, name: impl Into<String>) -> Failure {
    Failure::Other(Error::Driver { call, code, name: name.into() })
}

/// A range that the caller should have kept inside an allocation.
fn access(call: &'static str) -> impl Fn(AccessError) -> Failure {
    move |error| {
        let name = match error {
            AccessError::OutOfBounds => "outside every allocation",
            AccessError::Freed => "freed memory",
        };
        failure(call, INVALID_VALUE, name)
    }
}

impl Backend for SimBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Outcome<(u64, u64)> {
        let total = self.info.memory_bytes;
        Ok((total - self.state().used.min(total), total))
    }

    fn alloc(&self, _: RawStream, bytes: usize) -> Outcome<u64> {
        let (mut state, bytes64) = (self.state(), bytes as u64);
        if bytes64 > self.info.memory_bytes.saturating_sub(state.used) {
            return Err(Failure::OutOfMemory);
        }
        let address = state.gpu.try_alloc(bytes, "a tensor").map_err(|_| Failure::OutOfMemory)?;
        state.used += bytes64;
        state.sizes.insert(address, bytes64);
        Ok(address)
    }

    unsafe fn free(&self, _: RawStream, address: u64) -> Outcome<()> {
        let mut state = self.state();
        state.gpu.free(address).map_err(access("free"))?;
        let bytes = state.sizes.remove(&address).unwrap_or_default();
        state.used -= bytes;
        Ok(())
    }

    fn name(&self, address: u64, name: &str) {
        // Only messages depend on it.
        let _ = self.state().gpu.rename(address, name);
    }

    unsafe fn forget(&self, address: u64, bytes: usize) -> Outcome<()> {
        self.state().gpu.forget(address, bytes).map_err(access("forget"))
    }

    unsafe fn upload(&self, _: RawStream, dst: u64, src: &[u8]) -> Outcome<()> {
        self.state().gpu.write(dst, src).map_err(access("upload"))
    }

    unsafe fn download(&self, _: RawStream, dst: &mut [u8], src: u64) -> Outcome<()> {
        self.state().gpu.read(src, dst).map_err(access("download"))
    }

    unsafe fn copy(&self, _: RawStream, dst: u64, src: u64, bytes: usize) -> Outcome<()> {
        self.state().gpu.copy(dst, src, bytes).map_err(access("copy"))
    }

    unsafe fn fill(&self, _: RawStream, dst: u64, pattern: &[u8], count: usize) -> Outcome<()> {
        self.state().gpu.fill(dst, pattern, count).map_err(access("fill"))
    }

    fn create_stream(&self) -> Outcome<RawStream> {
        let mut state = self.state();
        state.streams += 1;
        Ok(RawStream(state.streams))
    }

    fn synchronize(&self, _: RawStream) -> Outcome<()> {
        Ok(())
    }

    fn create_event(&self, _: bool) -> Outcome<RawEvent> {
        let mut state = self.state();
        let slot = state.free_events.pop().unwrap_or_else(|| {
            state.events.push(None);
            state.events.len() - 1
        });
        Ok(RawEvent(slot))
    }

    fn destroy_event(&self, event: RawEvent) {
        let mut state = self.state();
        if let Some(slot) = state.events.get_mut(event.0) {
            *slot = None;
            state.free_events.push(event.0);
        }
    }

    fn record(&self, event: RawEvent, _: RawStream) -> Outcome<()> {
        match self.state().events.get_mut(event.0) {
            Some(slot) => *slot = Some(Instant::now()),
            None => return Err(failure("record", INVALID_HANDLE, "no such event")),
        }
        Ok(())
    }

    fn wait(&self, _: RawStream, _: RawEvent) -> Outcome<()> {
        Ok(())
    }

    fn synchronize_event(&self, _: RawEvent) -> Outcome<()> {
        Ok(())
    }

    fn is_done(&self, _: RawEvent) -> Outcome<bool> {
        Ok(true)
    }

    /// Time on the wall: what the simulation took.
    fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Outcome<f32> {
        let state = self.state();
        let at = |event: RawEvent| state.events.get(event.0).copied().flatten();
        match (at(start), at(end)) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(start).as_secs_f32() * 1e3),
            _ => Err(failure("elapsed_ms", INVALID_HANDLE, "the event was not recorded")),
        }
    }

    fn load(&self, image: &KernelImage) -> Outcome<RawFunction> {
        let kernel = parse(image.symbol, image.ptx)?;
        let mut state = self.state();
        state.functions.push(Function { kernel, symbol: image.symbol, cluster: image.cluster });
        Ok(RawFunction(state.functions.len() - 1))
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Outcome<()> {
        let mut state = self.state();
        let Some(mut function) = state.functions.get(launch.function.0).cloned() else {
            return Err(failure("launch", INVALID_HANDLE, "no such kernel"));
        };
        REPLACED.with_borrow(|replaced| match replaced {
            Some((symbol, kernel)) if *symbol == function.symbol => function.kernel = kernel.clone(),
            _ => {}
        });
        let metrics = PROFILES.with_borrow(Option::is_some);
        let options = Options { metrics, device: Some(self.gpu), ..self.settings().options() };
        let what = warpsim::Launch {
            grid: launch.grid,
            block: launch.block,
            cluster: function.cluster,
            shared_bytes: launch.shared_bytes,
            args: launch.args,
        };
        // A mistake in the simulator must not end the program that uses it.
        let ran = catch_unwind(AssertUnwindSafe(|| state.gpu.launch(&function.kernel, &what, &options)));
        let (output, findings) = match ran {
            Ok(Ok(report)) => {
                if let Some(metrics) = report.metrics {
                    let profile = Profile::new(function.symbol, launch, metrics, self.gpu);
                    PROFILES.with_borrow_mut(|all| all.get_or_insert_default().push(profile));
                }
                (report.output, Finding::all(&report.findings))
            }
            Ok(Err(warpsim::Fault { missing: Some(memory), .. })) => {
                let total = self.info.memory_bytes;
                let free = total.saturating_sub(state.used);
                return Err(Error::OutOfMemory { requested: memory.bytes, free, total }.into());
            }
            Ok(Err(fault)) => (fault.output.clone(), Finding::of_fault(&fault)),
            Err(_) => return Err(failure("launch", INVALID_VALUE, "the simulator itself failed")),
        };
        if !output.is_empty() {
            print!("{output}");
        }
        if findings.is_empty() { Ok(()) } else { Err(Error::Findings { findings }.into()) }
    }

    fn tensor_map(&self, desc: &TensorMapDesc<'_>) -> Outcome<TensorMap> {
        let refused = |reason| failure("tensor_map", INVALID_VALUE, reason);
        let map = warpsim::TensorMap::tiled(
            data_type(desc.dtype),
            desc.address,
            desc.dims,
            desc.strides_bytes,
            desc.box_dims,
            swizzle(desc.swizzle),
        );
        let mut map = map.map_err(refused)?;
        map.nan_fill = desc.oob_fill == OobFill::Nan;
        Ok(TensorMap(bytemuck::cast(map.encode())))
    }

    fn simulator(&self) -> Option<&SimBackend> {
        Some(self)
    }

    fn close(&mut self) -> Outcome<()> {
        Ok(())
    }
}

fn data_type(dtype: DType) -> warpsim::DataType {
    match dtype {
        // There is no signed byte; only the size matters.
        DType::U8 | DType::I8 => warpsim::DataType::U8,
        DType::U32 => warpsim::DataType::U32,
        DType::I32 => warpsim::DataType::I32,
        DType::I64 => warpsim::DataType::I64,
        DType::F16 => warpsim::DataType::F16,
        DType::F32 => warpsim::DataType::F32,
        DType::BF16 => warpsim::DataType::BF16,
    }
}

fn swizzle(swizzle: Swizzle) -> warpsim::Swizzle {
    match swizzle {
        Swizzle::None => warpsim::Swizzle::None,
        Swizzle::B32 => warpsim::Swizzle::B32,
        Swizzle::B64 => warpsim::Swizzle::B64,
        Swizzle::B128 => warpsim::Swizzle::B128,
    }
}

impl fmt::Debug for SimBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimBackend").field("info", &self.info).finish_non_exhaustive()
    }
}
