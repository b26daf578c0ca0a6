//! Devices: opening them, what they are, and the kernels loaded on them.

mod open;
mod recent;
mod tuned;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::runtime::backend::{Backend, Failure, Outcome, RawFunction, RawStream};
use crate::runtime::error::{Error, Result};
pub use crate::runtime::info::{BackendKind, DeviceInfo};
use crate::runtime::kernels::{self, Arch, KernelImage, KernelSpec, Kernels};
use crate::runtime::mutex::lock;
use crate::runtime::queue::{Queue, Queues};
use crate::runtime::sim::Simulator;
use crate::runtime::stream::Stream;
use crate::runtime::tensor_map::TensorMapDesc;
use cuda_std::launch::{Kernel, TensorMap};
use open::{Fault, Id, Open};
use recent::Recent;
#[cfg(feature = "check")]
pub(crate) use recent::launched;

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
    functions: RwLock<HashMap<Name, Loaded>>,
    /// Held by who loads a kernel.
    turns: Mutex<HashMap<Name, Arc<Mutex<()>>>>,
    queues: Mutex<Queues>,
    recent: Recent,
    tuned: tuned::Loaded,
    id: Id,
    fault: &'static Fault,
    /// Dropped last: others may open the device from then on.
    _open: Option<Open>,
}

/// A kernel's module and symbol.
type Name = (&'static str, &'static str);

/// A loaded kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub(crate) function: RawFunction,
    pub(crate) image: &'static KernelImage,
}

impl Device {
    fn new(backend: Box<dyn Backend>, id: Id, open: Option<Open>) -> Self {
        let info = backend.info();
        Self(Arc::new(Inner {
            archs: Arch::of_device(info.compute_capability),
            images: RwLock::default(),
            functions: RwLock::default(),
            turns: Mutex::default(),
            queues: Mutex::default(),
            recent: Recent::default(),
            tuned: tuned::Loaded::default(),
            id,
            fault: open::fault_of(id),
            _open: open,
            backend,
        }))
    }

    /// A new stream of work, independent of all others.
    pub fn stream(&self) -> Result<Stream> {
        let queue = lock(&self.0.queues).take(|| self.call(|b| b.create_stream()))?;
        Ok(Stream::new(self.clone(), queue))
    }

    /// Which of its backend's devices this is.
    pub fn ordinal(&self) -> usize {
        self.0.id.ordinal
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

    /// Bytes of tensors and workspace, of what this process has on the device: those that are allocated, and the most that were at a time since
    /// the device was opened or [`reset_peak`](Self::reset_peak) was called.
    ///
    /// ```
    /// # use warpsmith::{Device, Tensor};
    /// # fn main() -> warpsmith::Result<()> {
    /// let device = Device::open()?;
    /// let stream = device.stream()?;
    /// let before = device.allocated()?.0;
    /// device.reset_peak()?;
    /// drop(Tensor::<f32>::zeros(&stream, [256, 256])?);
    /// assert!(device.allocated()?.1 >= before + 256 * 256 * 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A driver without memory pools does not count.
    pub fn allocated(&self) -> Result<(u64, u64)> {
        self.call(|b| b.allocated())
    }

    /// Starts the peak of [`allocated`](Self::allocated) again, at what is allocated now.
    ///
    /// # Errors
    /// As of [`allocated`](Self::allocated).
    pub fn reset_peak(&self) -> Result<()> {
        self.call(|b| b.reset_peak())
    }

    /// Adds the kernels of another crate, which can then be launched like Warpsmith's own; those that were added before, nothing happens to.
    /// An error if a kernel of this name and module is there already, from elsewhere.
    pub fn add_kernels(&self, kernels: &'static Kernels) -> Result<()> {
        self.add_images(kernels.images()?)
    }

    /// Adds kernels whose PTX does not come from an archive.
    pub fn add_images(&self, images: &'static [KernelImage]) -> Result<()> {
        kernels::add(&mut self.0.images.write().unwrap_or_else(PoisonError::into_inner), images)
    }

    /// Whether there is a kernel of this type for the device: one of a crate of kernels depends on what the crate was compiled for.
    pub(crate) fn has_kernel<K: Kernel>(&self) -> Result<bool> {
        let sets = self.0.images.read().unwrap_or_else(PoisonError::into_inner);
        match const { KernelSpec::of::<K>() }.select(&sets, self.0.archs) {
            Ok(_) => Ok(true),
            Err(Error::MissingKernel { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many blocks of this kernel the device holds at once, of as many threads as it declares: the largest grid that a cooperative
    /// kernel can be launched with, and one that keeps the whole device busy for any other. 0 if not one has room.
    pub fn blocks_at_once<K: Kernel>(&self) -> Result<u32> {
        let spec = const { &KernelSpec::of::<K>() };
        let Loaded { function, image } = self.function(spec)?;
        self.call(|b| b.blocks_at_once(function, image, spec.block))
    }

    /// How many clusters of this kernel the device holds at once, at least 1: those of a grid that stays.
    pub(crate) fn clusters_at_once<K: Kernel>(&self) -> Result<u32> {
        let Loaded { function, image } = self.function(const { &KernelSpec::of::<K>() })?;
        Ok(self.call(|b| b.clusters_at_once(function, image))?.max(1))
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
                Error::OutOfMemory { of: None, requested: requested as u64, free, total }
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

    /// What findings call the allocation that starts there.
    pub(crate) fn name(&self, address: u64, name: &str) {
        self.backend().name(address, name);
    }

    pub(crate) fn release_queue(&self, queue: &Arc<Queue>) {
        lock(&self.0.queues).give_back(queue.clone());
    }

    /// The loaded kernel, loading it on first use.
    pub(crate) fn function(&self, spec: &KernelSpec) -> Result<Loaded> {
        let name = (spec.module, spec.symbol);
        let functions = &self.0.functions;
        let known = || functions.read().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
        if let Some(loaded) = known() {
            // Two declarations can claim one name.
            return spec.check(loaded.image).map(|()| loaded);
        }
        // A kernel is compiled once, while others are compiled and launched.
        let turn = lock(&self.0.turns).entry(name).or_default().clone();
        let _turn = lock(&turn);
        if let Some(loaded) = known() {
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
        functions.write().unwrap_or_else(PoisonError::into_inner).insert(name, loaded);
        lock(&self.0.turns).remove(&name);
        Ok(loaded)
    }

    pub(crate) fn remember(&self, image: &'static KernelImage) {
        self.0.recent.push(image);
    }
}

impl Inner {
    fn blame(&self, code: u32, name: String) -> &'static Error {
        self.fault.get_or_init(|| Error::KernelFault { kernels: self.recent.newest_first(), code, name })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What faulted is left to the driver to clean up when the process ends.
        if self.fault.get().is_some() {
            return;
        }
        let queues = self.queues.get_mut().unwrap_or_else(PoisonError::into_inner);
        queues.all().iter().for_each(|queue| queue.close(&*self.backend));
        if let Err(Failure::Fault { code, name }) = self.backend.close() {
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
        write!(f, "Device({self})")
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ({})", self.0.id.kind, self.0.id.ordinal, self.info().name)
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
