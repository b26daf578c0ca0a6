//! Streams, events and kernel launches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::backend::{Launch, RawEvent, RawStream};
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};
use crate::runtime::kernels::KernelSpec;
use cuda_std::launch::{Args, Dim3, Kernel};

/// A queue of work on a device, done in order and without the host waiting. Cheap to clone; clones are the same queue.
#[derive(Debug, Clone)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    raw: RawStream,
    slot: u32,
    /// An error found where none could be returned; the next launch or copy returns it.
    deferred: Mutex<Option<Error>>,
    has_deferred: AtomicBool,
}

impl Stream {
    pub(crate) fn new(device: Device, raw: RawStream, slot: u32) -> Self {
        Self(Arc::new(Inner { device, raw, slot, deferred: Mutex::new(None), has_deferred: AtomicBool::new(false) }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits until all queued work is done. A kernel that failed shows here at the latest.
    pub fn synchronize(&self) -> Result<()> {
        self.ready()?;
        self.0.device.call(|b| b.synchronize(self.0.raw))
    }

    /// Marks this point of the queue.
    pub fn record(&self) -> Result<Event> {
        self.ready()?;
        let event = Event { device: self.0.device.clone(), raw: self.0.device.call(|b| b.create_event(true))? };
        self.record_into(&event)?;
        Ok(event)
    }

    /// Moves an event to this point of the queue.
    pub fn record_into(&self, event: &Event) -> Result<()> {
        self.same_device(&event.device, "record")?;
        self.0.device.call(|b| b.record(event.raw, self.0.raw))
    }

    /// Lets everything queued after this wait for the event, on the device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.same_device(&event.device, "wait")?;
        self.0.device.call(|b| b.wait(self.0.raw, event.raw))
    }

    /// Queues a kernel with the block size it declares.
    ///
    /// # Safety
    /// Pointers among the arguments have to be valid for every access the kernel makes with these arguments and this grid.
    pub unsafe fn launch<K: Kernel>(&self, grid: impl Into<Dim3>, args: K::Args) -> Result<()> {
        // SAFETY: passed on.
        unsafe { self.launch_with::<K>(grid, K::BLOCK, args) }
    }

    /// Queues a kernel with a block size of at most what it declares, in each dimension.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch); and the kernel has to allow other block sizes than the one it declares.
    pub unsafe fn launch_with<K: Kernel>(
        &self,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        args: K::Args,
    ) -> Result<()> {
        let (grid, block) = (grid.into(), block.into());
        let spec = const { &KernelSpec::of::<K>() };
        args.with(|args| self.enqueue(spec, [grid.x, grid.y, grid.z], [block.x, block.y, block.z], args))
    }

    fn enqueue(&self, spec: &KernelSpec, grid: [u32; 3], block: [u32; 3], args: &[&[u8]]) -> Result<()> {
        self.ready()?;
        check_extents(spec, grid, block)?;
        let device = &self.0.device;
        let loaded = device.function(spec)?;
        let launch = Launch {
            function: loaded.function,
            grid,
            block,
            shared_bytes: loaded.image.shared_bytes,
            stream: self.0.raw,
            args,
        };
        device.remember(loaded.image);
        // SAFETY: `select` checked the parameter sizes; the rest is the caller's promise.
        device.call(|b| unsafe { b.launch(&launch) })
    }

    pub(crate) fn is(&self, other: &Stream) -> bool {
        self.0.raw == other.0.raw && self.0.device == other.0.device
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.0.raw
    }

    pub(crate) fn slot(&self) -> u32 {
        self.0.slot
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64> {
        self.ready()?;
        self.0.device.alloc(self.0.raw, bytes)
    }

    /// # Safety
    /// `bytes` bytes at `address` have to be inside an allocation of this device.
    pub(crate) unsafe fn forget(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: passed on.
        self.0.device.call(|b| unsafe { b.forget(address, bytes) })
    }

    /// # Safety
    /// `src.len()` bytes at `dst` have to be inside an allocation of this device.
    pub(crate) unsafe fn upload(&self, dst: u64, src: &[u8]) -> Result<()> {
        self.ready()?;
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: passed on.
        let upload = |b: &dyn crate::runtime::backend::Backend| unsafe { b.upload(self.0.raw, dst, src) };
        self.0.device.call(upload)
    }

    /// # Safety
    /// `dst.len()` bytes at `src` have to be inside an allocation of this device.
    pub(crate) unsafe fn download(&self, dst: &mut [u8], src: u64) -> Result<()> {
        self.ready()?;
        if dst.is_empty() {
            return self.synchronize();
        }
        // SAFETY: passed on.
        self.0.device.call(|b| unsafe { b.download(self.0.raw, dst, src) })
    }

    /// # Safety
    /// `bytes` bytes at both addresses have to be inside allocations of this device.
    pub(crate) unsafe fn copy(&self, dst: u64, src: u64, bytes: usize) -> Result<()> {
        self.ready()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: passed on.
        self.0.device.call(|b| unsafe { b.copy(self.0.raw, dst, src, bytes) })
    }

    /// # Safety
    /// `count` times `pattern.len()` bytes at `dst` have to be inside an allocation of this device.
    pub(crate) unsafe fn fill(&self, dst: u64, pattern: &[u8], count: usize) -> Result<()> {
        self.ready()?;
        if count == 0 {
            return Ok(());
        }
        let (pattern, count) = shorten(pattern, count);
        if pattern.len() > 4 {
            // No driver call sets 8-byte patterns: copy the first, then double what is there.
            // SAFETY: each range is inside the one the caller vouches for.
            unsafe {
                self.upload(dst, pattern)?;
                let total = pattern.len() * count;
                let mut done = pattern.len();
                while done < total {
                    let bytes = done.min(total - done);
                    self.copy(dst + done as u64, dst, bytes)?;
                    done += bytes;
                }
            }
            return Ok(());
        }
        // SAFETY: passed on.
        self.0.device.call(|b| unsafe { b.fill(self.0.raw, dst, pattern, count) })
    }

    /// Keeps an error for the next call that can return one.
    #[cold]
    pub(crate) fn defer(&self, error: Error) {
        let mut deferred = self.0.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        deferred.get_or_insert(error);
        self.0.has_deferred.store(true, Ordering::Release);
    }

    fn ready(&self) -> Result<()> {
        if !self.0.has_deferred.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut deferred = self.0.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.has_deferred.store(false, Ordering::Release);
        deferred.take().map_or(Ok(()), Err)
    }

    fn same_device(&self, device: &Device, op: &'static str) -> Result<()> {
        self.ready()?;
        if *device == self.0.device {
            return Ok(());
        }
        Err(Error::DeviceMismatch { op })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.release_stream(self.slot);
    }
}

/// A point in a stream's queue.
#[derive(Debug)]
pub struct Event {
    device: Device,
    raw: RawEvent,
}

impl Event {
    /// Waits until the work before the event is done.
    pub fn synchronize(&self) -> Result<()> {
        self.device.call(|b| b.synchronize_event(self.raw))
    }

    /// Whether the work before the event is done.
    pub fn is_done(&self) -> Result<bool> {
        self.device.call(|b| b.is_done(self.raw))
    }

    /// Milliseconds of device time from this event to a later one, both already reached.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f32> {
        if self.device != end.device {
            return Err(Error::DeviceMismatch { op: "elapsed_ms" });
        }
        self.device.call(|b| b.elapsed_ms(self.raw, end.raw))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.device.call(|b| {
            b.destroy_event(self.raw);
            Ok(())
        });
    }
}

/// The same bytes as a shorter pattern repeated more often, where there is one: zeros of any width become single bytes.
fn shorten(mut pattern: &[u8], mut count: usize) -> (&[u8], usize) {
    while pattern.len().is_multiple_of(2) {
        let (head, tail) = pattern.split_at(pattern.len() / 2);
        if head != tail {
            break;
        }
        pattern = head;
        count *= 2;
    }
    (pattern, count)
}

fn check_extents(spec: &KernelSpec, grid: [u32; 3], block: [u32; 3]) -> Result<()> {
    const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
    let fail = |reason| Err(Error::Launch { kernel: spec.symbol, reason });
    for i in 0..3 {
        if grid[i] == 0 || block[i] == 0 {
            return fail(format!("grid {grid:?} of blocks {block:?} is empty"));
        }
        if grid[i] > MAX_GRID[i] {
            return fail(format!("grid {grid:?} exceeds {MAX_GRID:?}"));
        }
        if block[i] > spec.block[i] {
            return fail(format!("block {block:?} exceeds the declared {:?}", spec.block));
        }
        if !grid[i].is_multiple_of(spec.cluster[i].max(1)) {
            return fail(format!("grid {grid:?} does not consist of clusters of {:?}", spec.cluster));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_shorten() {
        assert_eq!(shorten(&[0; 8], 3), (&[0][..], 24));
        assert_eq!(shorten(&[1, 2, 1, 2], 3), (&[1, 2][..], 6));
        assert_eq!(shorten(&[1, 2, 3, 4], 3), (&[1, 2, 3, 4][..], 3));
    }

    #[test]
    fn impossible_grids_are_refused() {
        let spec =
            KernelSpec { symbol: "k", block: [128, 2, 1], cluster: [2, 1, 1], shared_bytes: 0, param_sizes: &[] };
        let check = |grid, block| check_extents(&spec, grid, block).map_err(|e| e.to_string());
        assert_eq!(check([2, 1, 1], [128, 2, 1]), Ok(()));
        assert_eq!(
            check([2, 0, 1], [128, 1, 1]).unwrap_err(),
            "kernel k cannot be launched: grid [2, 0, 1] of blocks [128, 1, 1] is empty"
        );
        assert!(check([3, 1, 1], [128, 1, 1]).unwrap_err().contains("clusters of [2, 1, 1]"));
        assert!(check([2, 65_536, 1], [128, 1, 1]).unwrap_err().contains("exceeds"));
        assert!(check([u32::MAX, 1, 1], [128, 1, 1]).is_err());
        assert!(check([2, 1, 1], [129, 1, 1]).unwrap_err().contains("declared [128, 2, 1]"));
        assert!(check([2, 1, 1], [0, 1, 1]).is_err());
    }
}
