//! Devices: opening them, what they are, and the kernels loaded on them.

mod recent;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use crate::runtime::backend::sim::SimBackend;
use crate::runtime::backend::{self, Backend, Failure, Outcome, RawFunction, RawStream};
use crate::runtime::error::CudaVersion;
use crate::runtime::error::{Error, Result};
use crate::runtime::kernels::{self, Arch, KernelImage, KernelSpec};
use crate::runtime::sim::Simulator;
use crate::runtime::storage::slots;
use crate::runtime::stream::Stream;
use crate::runtime::tensor_map::TensorMapDesc;
use cuda_std::launch::TensorMap;
use recent::Recent;

/// What can run kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// An NVIDIA GPU.
    Cuda,
    /// The PTX simulator.
    Sim,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BackendKind::Cuda => "cuda",
            BackendKind::Sim => "sim",
        })
    }
}

impl FromStr for BackendKind {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "cuda" => Ok(BackendKind::Cuda),
            "sim" => Ok(BackendKind::Sim),
            _ => Err(Error::param("device", "backend", s, "cuda or sim")),
        }
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Marketing name.
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Device memory.
    pub memory_bytes: u64,
    /// Second-level cache.
    pub l2_bytes: u64,
    /// Most shared memory a block can ask for.
    pub shared_bytes_per_block: u32,
    /// The newest CUDA version the driver supports.
    pub driver_version: CudaVersion,
    /// Highest clock of the multiprocessors.
    pub clock_khz: u32,
    /// Highest clock of the memory.
    pub memory_clock_khz: u32,
    /// Width of the memory bus.
    pub memory_bus_bits: u32,
    /// What runs the kernels.
    pub backend: BackendKind,
}

/// A device. Cheap to clone; the device closes when the last clone, stream and tensor is gone.
///
/// All handles of one device in a process share it: opening it again returns another clone. A kernel that fails takes the device
/// from the whole process: see [`Error::KernelFault`].
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    backend: Box<dyn Backend>,
    archs: &'static [Arch],
    images: RwLock<Vec<&'static [KernelImage]>>,
    functions: RwLock<HashMap<&'static str, Loaded>>,
    streams: Mutex<StreamPool>,
    recent: Recent,
    fault: &'static Fault,
    /// Dropped last: others may open the device from then on.
    _open: Option<Open>,
}

/// What ended a backend's device. It outlives the device, because no driver call undoes it: only a new process starts afresh.
type Fault = OnceLock<Error>;

fn fault_of(kind: BackendKind) -> &'static Fault {
    static CUDA: Fault = Fault::new();
    static SIM: Fault = Fault::new();
    match kind {
        BackendKind::Cuda => &CUDA,
        BackendKind::Sim => &SIM,
    }
}

/// A loaded kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub(crate) function: RawFunction,
    pub(crate) image: &'static KernelImage,
}

/// Streams are never destroyed before the device: a slot stays the same stream, so a mask of slots can name a tensor's users.
#[derive(Default)]
struct StreamPool {
    all: Vec<RawStream>,
    free: Vec<usize>,
}

/// Devices of this process that are open or closing.
static OPEN: Mutex<Vec<(BackendKind, Weak<Inner>)>> = Mutex::new(Vec::new());
static CLOSED: Condvar = Condvar::new();

impl Device {
    /// Opens the backend that `WARPSMITH_BACKEND` names, otherwise the GPU, otherwise the simulator.
    pub fn open() -> Result<Self> {
        match std::env::var("WARPSMITH_BACKEND") {
            Ok(name) if !name.is_empty() => Self::open_backend(name.parse()?),
            _ => Self::open_backend(BackendKind::Cuda).or_else(|error| match error {
                Error::NoDriver { .. } | Error::NoGpu { .. } => Self::open_backend(BackendKind::Sim),
                error => Err(error),
            }),
        }
    }

    /// Opens the first device of a backend.
    pub fn open_backend(kind: BackendKind) -> Result<Self> {
        let fault = fault_of(kind);
        let mut open = lock(&OPEN);
        while let Some((_, weak)) = open.iter().find(|(k, _)| *k == kind) {
            if let Some(inner) = weak.upgrade() {
                // Dropping the last handle takes the lock.
                drop(open);
                return fault.get().map_or(Ok(Self(inner)), |fault| Err(fault.clone()));
            }
            open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(fault) = fault.get() {
            return Err(fault.clone());
        }
        let device = Self::new(backend::open(kind)?, Some(Open(kind)));
        open.push((kind, Arc::downgrade(&device.0)));
        Ok(device)
    }

    /// A simulated device that opening its backend does not give to others.
    pub(crate) fn unshared(backend: SimBackend) -> Self {
        Self::new(Box::new(backend), None)
    }

    fn new(backend: Box<dyn Backend>, open: Option<Open>) -> Self {
        let info = backend.info();
        Self(Arc::new(Inner {
            archs: Arch::of_device(info.compute_capability),
            images: RwLock::new(vec![kernels::images()]),
            functions: RwLock::default(),
            streams: Mutex::default(),
            recent: Recent::default(),
            fault: fault_of(info.backend),
            _open: open,
            backend,
        }))
    }

    /// A new stream of work, independent of all others.
    pub fn stream(&self) -> Result<Stream> {
        let mut pool = lock(&self.0.streams);
        let slot = match pool.free.pop() {
            Some(slot) => slot,
            None => {
                let raw = self.call(|b| b.create_stream())?;
                pool.all.push(raw);
                pool.all.len() - 1
            }
        };
        Ok(Stream::new(self.clone(), pool.all[slot], slot as u32))
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        self.backend().info()
    }

    /// The kernel architectures the device runs, best first.
    pub fn archs(&self) -> &'static [Arch] {
        self.0.archs
    }

    /// Whether the device runs `sm_90a` kernels (TMA, wgmma).
    pub fn supports_hopper(&self) -> bool {
        self.0.archs.contains(&Arch::Sm90a)
    }

    /// Free and total bytes of device memory.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.call(|b| b.memory())
    }

    /// Adds kernels of another crate, sorted by symbol: they can then be launched like the embedded ones.
    pub fn add_images(&self, images: &'static [KernelImage]) {
        let mut sets = self.0.images.write().unwrap_or_else(PoisonError::into_inner);
        sets.push(images);
    }

    /// Encodes a TMA descriptor. The caller keeps the memory alive while kernels use it.
    pub fn tensor_map(&self, desc: &TensorMapDesc<'_>) -> Result<TensorMap> {
        desc.check()?;
        self.call(|b| b.tensor_map(desc))
    }

    /// What only the simulator can do, if this is it.
    pub fn simulator(&self) -> Option<Simulator<'_>> {
        self.backend().simulator().map(Simulator::new)
    }

    fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// Runs a backend call, unless a kernel has failed before; remembers if one is now found to have failed.
    pub(crate) fn call<T>(&self, f: impl FnOnce(&dyn Backend) -> Outcome<T>) -> Result<T> {
        if let Some(fault) = self.0.fault.get() {
            return Err(fault.clone());
        }
        f(self.backend()).map_err(|failure| self.explain(failure, 0))
    }

    #[cold]
    fn explain(&self, failure: Failure, requested: usize) -> Error {
        match failure {
            Failure::Other(error) => error,
            Failure::OutOfMemory => {
                let (free, total) = self.backend().memory().unwrap_or((0, 0));
                Error::OutOfMemory { requested: requested as u64, free, total }
            }
            Failure::Fault { code, name } => self.0.blame(code, name).clone(),
        }
    }

    pub(crate) fn alloc(&self, stream: RawStream, bytes: usize) -> Result<u64> {
        if let Some(fault) = self.0.fault.get() {
            return Err(fault.clone());
        }
        self.backend().alloc(stream, bytes).map_err(|failure| self.explain(failure, bytes))
    }

    /// Queues the free on `home`, behind all of `users`.
    pub(crate) fn free(&self, home: &Stream, users: u64, address: u64) {
        // Errors have nowhere to go from a drop; a fault shows again at the next call.
        let _ = self.call(|b| {
            if users != 0 {
                let all = lock(&self.0.streams).all.clone();
                for slot in slots(users, all.len()).filter(|&slot| slot != home.slot() as usize) {
                    order(b, all[slot], home.raw())?;
                }
            }
            // SAFETY: the storage that owned the address is gone, and all its users come first.
            unsafe { b.free(home.raw(), address) }
        });
    }

    /// Makes `then` wait for what is queued on `first`.
    pub(crate) fn order(&self, first: &Stream, then: &Stream) -> Result<()> {
        self.call(|b| order(b, first.raw(), then.raw()))
    }

    pub(crate) fn release_stream(&self, slot: u32) {
        lock(&self.0.streams).free.push(slot as usize);
    }

    /// The loaded kernel, loading it on first use.
    pub(crate) fn function(&self, spec: &KernelSpec) -> Result<Loaded> {
        let cached = |map: &HashMap<&'static str, Loaded>| map.get(spec.symbol).copied();
        let functions = &self.0.functions;
        if let Some(loaded) = cached(&functions.read().unwrap_or_else(PoisonError::into_inner)) {
            // Two declarations can claim one symbol.
            return spec.check(loaded.image).map(|()| loaded);
        }
        // Held while loading, so that a kernel is compiled once.
        let mut functions = functions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = cached(&functions) {
            return spec.check(loaded.image).map(|()| loaded);
        }
        let sets = self.0.images.read().unwrap_or_else(PoisonError::into_inner);
        let image = spec.select(&sets, self.0.archs)?;
        spec.check(image)?;
        let limit = self.info().shared_bytes_per_block;
        if image.shared_bytes > limit {
            return Err(Error::Launch {
                kernel: spec.symbol,
                reason: format!("it needs {} bytes of shared memory, this GPU has {limit}", image.shared_bytes),
            });
        }
        let function = self.call(|b| b.load(image))?;
        let loaded = Loaded { function, image };
        functions.insert(spec.symbol, loaded);
        Ok(loaded)
    }

    pub(crate) fn remember(&self, image: &'static KernelImage) {
        self.0.recent.push(image);
    }
}

/// Event by event, because one stream can only wait for an event.
fn order(b: &dyn Backend, first: RawStream, then: RawStream) -> Outcome<()> {
    let event = b.create_event(false)?;
    let done = b.record(event, first).and_then(|()| b.wait(then, event));
    b.destroy_event(event);
    done
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn blame(&self, code: u32, name: String) -> &'static Error {
        self.fault.get_or_init(|| Error::KernelFault { kernels: self.recent.newest_first(), code, name })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What faulted is left to the driver to clean up when the process ends.
        if self.fault.get().is_none()
            && let Err(Failure::Fault { code, name }) = self.backend.close()
        {
            self.blame(code, name);
        }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.info().name).finish()
    }
}

/// Marks a backend's device as open, in [`OPEN`].
struct Open(BackendKind);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&OPEN).retain(|(kind, _)| *kind != self.0);
        CLOSED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_go_by_their_names() {
        let device = Device::open_backend("sim".parse().unwrap()).unwrap();
        assert_eq!((device.info().backend, device.info().backend.to_string()), (BackendKind::Sim, "sim".to_owned()));
        assert!(device.supports_hopper() && device.simulator().is_some());
        assert_eq!(
            "gpu".parse::<BackendKind>().unwrap_err().to_string(),
            "device: parameter `backend` = gpu: expected cuda or sim"
        );
    }

    #[test]
    fn devices_streams_and_tensors_cross_threads() {
        fn check<T: Send + Sync>() {}
        check::<Device>();
        check::<Stream>();
        check::<crate::runtime::stream::Event>();
        check::<crate::runtime::tensor::Tensor<f32>>();
        check::<crate::runtime::view::View<'static, half::f16>>();
        check::<crate::runtime::view::ViewMut<'static, half::f16>>();
    }
}
