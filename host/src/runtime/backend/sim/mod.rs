//! The PTX simulator: runs the embedded kernels on the CPU and checks every access they make.

mod finding;
mod launch;
mod model;
mod profile;
mod settings;
mod streams;
mod tensor_map;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use cuda_std::launch::TensorMap;

use super::{Backend, Failure, Launch, Outcome, RawEvent, RawFunction, RawStream};
use crate::runtime::error::{CudaVersion, Error, Result};
use crate::runtime::info::{BackendKind, DeviceInfo};
use crate::runtime::kernels::KernelImage;
use crate::runtime::mutex::lock;
use crate::runtime::tensor_map::TensorMapDesc;
use launch::{Function, Job};
use streams::{Machine, Op, access};

pub(crate) use launch::{unordered, with_kernels, with_settings};
pub use model::GpuModel;
pub(crate) use model::SMALL;
pub use profile::{HotLine, Occupancy, Profile};
pub(crate) use settings::device_count;
pub use settings::{AsyncCompletion, Settings};

const INVALID_VALUE: u32 = 1;
const INVALID_HANDLE: u32 = 400;

/// A simulated GPU.
pub(crate) struct SimBackend {
    info: DeviceInfo,
    gpu: warpsim::Device,
    settings: Settings,
    functions: Mutex<Vec<Function>>,
    machine: Mutex<Machine>,
}

impl SimBackend {
    /// A simulated `gpu` with the settings of the environment.
    pub(crate) fn open(gpu: warpsim::Device) -> Result<Self> {
        let info = DeviceInfo {
            name: format!("warpsim (simulated {})", gpu.name),
            compute_capability: gpu.compute_capability,
            multiprocessors: gpu.multiprocessors,
            memory_bytes: memory_bytes(),
            l2_bytes: gpu.l2_bytes.into(),
            threads_per_multiprocessor: 32 * gpu.warps,
            blocks_per_multiprocessor: gpu.blocks,
            registers_per_multiprocessor: gpu.registers,
            shared_bytes_per_multiprocessor: gpu.shared,
            shared_bytes_per_block: gpu.shared_per_block(),
            driver_version: CudaVersion(13_000),
            // The clocks of the GPU that it stands for. The simulation itself has no clock.
            clock_khz: gpu.clock_khz,
            memory_clock_khz: gpu.memory_clock_khz,
            memory_bus_bits: gpu.memory_bus_bits,
            backend: BackendKind::Sim,
        };
        Ok(Self { info, gpu, settings: Settings::from_env()?, functions: Mutex::default(), machine: Mutex::default() })
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    /// How this thread's launches run.
    pub(crate) fn settings(&self) -> Settings {
        launch::settings().unwrap_or(self.settings)
    }

    fn seed(&self) -> u64 {
        self.settings().seed
    }

    fn submit(&self, stream: RawStream, op: Op<'_>) -> Outcome<()> {
        self.machine().submit(stream, op, self.seed())
    }

    /// Runs `body` and measures its launches on this thread.
    pub(crate) fn measured<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<Profile>) {
        let (value, ended) = self.reported(true, body);
        (value, ended.into_iter().filter_map(|launch| launch.profile).collect())
    }

    /// Runs `body` and counts the warp instructions of its launches on this thread: the kernels' symbols, in order.
    pub(crate) fn counted<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<(&'static str, u64)>) {
        let (value, ended) = self.reported(false, body);
        (value, ended.into_iter().map(|launch| (launch.symbol, launch.instructions)).collect())
    }

    fn reported<T>(&self, metrics: bool, body: impl FnOnce() -> T) -> (T, Vec<launch::Ended>) {
        let reports = launch::Reports::new(metrics);
        let value = launch::reporting(&reports, body);
        self.machine().finish_reports(&reports, self.seed());
        (value, reports.take())
    }
}

/// Half of what the machine, or the container, has, and no more than a large GPU.
fn memory_bytes() -> u64 {
    let total = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
    };
    let container = || std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse::<u64>().ok();
    let bytes = total().into_iter().chain(container()).min();
    bytes.map_or(4 << 30, |bytes| bytes / 2).min(80 << 30)
}

fn failure(call: &'static str, code: u32, name: impl Into<String>) -> Failure {
    Failure::Other(Error::Driver { call, code, name: name.into() })
}

impl Backend for SimBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Outcome<(u64, u64)> {
        let total = self.info.memory_bytes;
        Ok((total - self.machine().used().min(total), total))
    }

    fn allocated(&self) -> Outcome<(u64, u64)> {
        Ok(self.machine().allocated())
    }

    fn reset_peak(&self) -> Outcome<()> {
        self.machine().reset_peak();
        Ok(())
    }

    fn alloc(&self, _: RawStream, bytes: usize) -> Outcome<u64> {
        self.machine().alloc(bytes, self.info.memory_bytes, self.seed())
    }

    unsafe fn free(&self, stream: RawStream, address: u64) -> Outcome<()> {
        self.submit(stream, Op::Free { address })
    }

    fn name(&self, address: u64, name: &str) {
        // Only messages depend on it.
        let _ = self.machine().gpu.rename(address, name);
    }

    unsafe fn forget(&self, stream: RawStream, address: u64, bytes: usize) -> Outcome<()> {
        self.submit(stream, Op::Forget { address, bytes })
    }

    unsafe fn upload(&self, stream: RawStream, dst: u64, src: &[u8]) -> Outcome<()> {
        self.submit(stream, Op::Upload { dst, src: Cow::Borrowed(src) })
    }

    unsafe fn download(&self, stream: RawStream, dst: &mut [u8], src: u64) -> Outcome<()> {
        let mut machine = self.machine();
        machine.finish(stream, self.seed());
        machine.check(stream)?;
        machine.gpu.read(src, dst).map_err(access("download"))
    }

    unsafe fn copy(&self, stream: RawStream, dst: u64, src: u64, bytes: usize) -> Outcome<()> {
        self.submit(stream, Op::Copy { dst, src, bytes })
    }

    unsafe fn fill(&self, stream: RawStream, dst: u64, pattern: &[u8], count: usize) -> Outcome<()> {
        self.submit(stream, Op::Fill { dst, pattern: pattern.to_vec(), count })
    }

    fn create_stream(&self) -> Outcome<RawStream> {
        Ok(self.machine().create_stream())
    }

    fn synchronize(&self, stream: RawStream) -> Outcome<()> {
        let mut machine = self.machine();
        machine.finish(stream, self.seed());
        machine.check(stream)
    }

    fn create_event(&self, _: bool) -> Outcome<RawEvent> {
        Ok(self.machine().create_event())
    }

    fn destroy_event(&self, event: RawEvent) {
        self.machine().destroy_event(event);
    }

    fn record(&self, event: RawEvent, stream: RawStream) -> Outcome<()> {
        self.submit(stream, Op::Record(event))
    }

    fn wait(&self, stream: RawStream, event: RawEvent) -> Outcome<()> {
        let mut machine = self.machine();
        match machine.wait_for(event) {
            Some(wait) if !launch::is_unordered() => machine.submit(stream, wait, self.seed()),
            _ => Ok(()),
        }
    }

    fn synchronize_event(&self, event: RawEvent) -> Outcome<()> {
        self.machine().reach(event, self.seed()).map(drop)
    }

    /// Runs the work that precedes the event. Queued work may otherwise wait for the host, and a loop that polls the event would never end.
    fn is_done(&self, event: RawEvent) -> Outcome<bool> {
        self.synchronize_event(event).map(|()| true)
    }

    /// Time on the wall: what the simulation took.
    fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Outcome<f32> {
        let mut machine = self.machine();
        let (start, end) = (machine.reach(start, self.seed())?, machine.reach(end, self.seed())?);
        Ok(end.saturating_duration_since(start).as_secs_f32() * 1e3)
    }

    fn load(&self, image: &KernelImage) -> Outcome<RawFunction> {
        let kernel = launch::parse(image.symbol, &image.ptx()?)?;
        let mut functions = lock(&self.functions);
        functions.push(Function { kernel, symbol: image.symbol, cluster: image.cluster });
        Ok(RawFunction(functions.len() - 1))
    }

    fn blocks_at_once(&self, _: RawFunction, image: &KernelImage, block: [u32; 3]) -> Outcome<u32> {
        let fits = warpsim::occupancy(self.gpu, block.iter().product(), 0, image.shared_bytes, 1);
        Ok(fits.blocks_per_sm.saturating_mul(self.info.multiprocessors))
    }

    fn clusters_at_once(&self, _: RawFunction, image: &KernelImage) -> Outcome<u32> {
        Ok(self.info.multiprocessors / image.cluster.iter().product::<u32>().max(1))
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Outcome<()> {
        let function = lock(&self.functions).get(launch.function.0).cloned();
        let function = function.ok_or_else(|| failure("launch", INVALID_HANDLE, "no such kernel"))?;
        let job = Job::new(function, launch, self.gpu, self.settings());
        self.submit(launch.stream, Op::Launch(Box::new(job)))
    }

    fn tensor_map(&self, desc: &TensorMapDesc<'_>) -> Outcome<TensorMap> {
        tensor_map::encode(desc)
    }

    fn simulator(&self) -> Option<&SimBackend> {
        Some(self)
    }

    fn close(&mut self) -> Outcome<()> {
        Ok(())
    }
}

impl fmt::Debug for SimBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimBackend").field("info", &self.info).finish_non_exhaustive()
    }
}
