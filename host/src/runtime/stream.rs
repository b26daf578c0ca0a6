//! Streams, events and kernel launches.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_std::launch::{Args, Dim3, Kernel};

use crate::runtime::backend::{Backend, Launch, Outcome, RawEvent, RawStream};
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};
use crate::runtime::kernels::KernelSpec;
use crate::runtime::placed::Placed;
use crate::runtime::profile;
use crate::runtime::queue::Queue;
use crate::runtime::storage::Storage;

/// A queue of work on a device, done in order and without the host waiting. Cheap to clone; clones are the same queue.
///
/// # Several streams
/// Streams cannot race in safe code. A tensor remembers which stream wrote it last and which have read it since: a use on another
/// stream waits, on the device, for the uses that it conflicts with. Parts of one tensor count as the whole, so writing one half on a
/// stream and the other half on another happens in turn. Streams that share nothing run side by side, and on one stream this costs
/// nothing.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    device: Device,
    queue: Arc<Queue>,
}

impl Stream {
    pub(crate) fn new(device: Device, queue: Arc<Queue>) -> Self {
        Self(Arc::new(Inner { device, queue }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits until all queued work is done. A kernel that failed shows here at the latest.
    pub fn synchronize(&self) -> Result<()> {
        self.0.device.call(|b| b.synchronize(self.raw()))
    }

    /// Marks this point of the queue.
    pub fn record(&self) -> Result<Event> {
        let event = Event { device: self.0.device.clone(), raw: self.0.device.call(|b| b.create_event(true))? };
        self.record_into(&event)?;
        Ok(event)
    }

    /// Moves an event to this point of the queue.
    pub fn record_into(&self, event: &Event) -> Result<()> {
        self.require_device(&event.device, "record", "event")?;
        self.queued(|b, stream| b.record(event.raw, stream))
    }

    /// Lets everything queued after this wait for the event, on the device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.require_device(&event.device, "wait", "event")?;
        self.queued(|b, stream| b.wait(stream, event.raw))
    }

    /// Queues a kernel with the block size it declares.
    ///
    /// # Safety
    /// Pointers among the arguments have to be valid for every access the kernel makes with these arguments and this grid. They come
    /// from [`View::ptr`](crate::View::ptr) and [`ViewMut::ptr_mut`](crate::ViewMut::ptr_mut) for this stream, from views that are
    /// still borrowed and have not been asked for another stream's pointer since.
    pub unsafe fn launch<K: Kernel>(&self, grid: impl Into<Dim3>, args: K::Args) -> Result<()> {
        self.launch_as(const { &KernelSpec::of::<K>() }, grid.into(), K::BLOCK, &args)
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
        self.launch_as(const { &KernelSpec::of::<K>() }, grid.into(), block.into(), &args)
    }

    /// Compiled once for all kernels with arguments of these types.
    fn launch_as<A: Args>(&self, spec: &KernelSpec, grid: Dim3, block: Dim3, args: &A) -> Result<()> {
        args.with(|args| self.enqueue(spec, [grid.x, grid.y, grid.z], [block.x, block.y, block.z], args))
    }

    fn enqueue(&self, spec: &KernelSpec, grid: [u32; 3], block: [u32; 3], args: &[&[u8]]) -> Result<()> {
        check_extents(spec, grid, block)?;
        let device = &self.0.device;
        let loaded = device.function(spec)?;
        if loaded.image.cooperative {
            let room = device.call(|b| b.blocks_at_once(loaded.function, loaded.image, block))?;
            check_room(spec, grid, block, room)?;
        }
        let launch = Launch {
            function: loaded.function,
            grid,
            block,
            shared_bytes: loaded.image.shared_bytes,
            programmatic: loaded.image.programmatic,
            cooperative: loaded.image.cooperative,
            stream: self.raw(),
            args,
        };
        device.remember(loaded.image);
        profile::launch(self, loaded.image.symbol, [grid, block], || {
            // SAFETY: `Device::function` checked the parameter sizes; the rest is the caller's promise.
            self.queued(|b, _| unsafe { b.launch(&launch) })
        })
    }

    /// Lets another library queue work: `f` gets the driver's stream, whose context is current on this thread. `None` where there is no driver.
    pub(crate) fn lend<T>(&self, f: impl FnOnce(*mut c_void) -> Result<T>) -> Result<Option<T>> {
        self.queued(|b, stream| {
            let raw = b.driver_stream(stream)?;
            Ok(if raw.is_null() { None } else { Some(f(raw)?) })
        })
    }

    /// How long copies of a tensor's size take between pinned memory of the host and it; what it holds is lost. `None` where there is no bus.
    #[cfg(feature = "check")]
    pub(crate) fn time_bus(&self, tensor: &mut crate::Tensor<u8>) -> Result<Option<crate::runtime::backend::Bus>> {
        let (bytes, address) = (tensor.len(), tensor.view_mut().ptr_mut(self)?.addr());
        // SAFETY: the tensor has that many bytes, is borrowed mutably, and was ordered behind its other uses; it is waited for.
        self.queued(|b, stream| unsafe { b.time_bus(stream, address, bytes) })
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0.queue
    }

    fn raw(&self) -> RawStream {
        self.0.queue.raw()
    }

    /// Runs a backend call that queues something, and counts it.
    fn queued<T>(&self, f: impl FnOnce(&dyn Backend, RawStream) -> Outcome<T>) -> Result<T> {
        let done = self.0.device.call(|b| f(b, self.raw()));
        // What failed may have queued a part.
        self.0.queue.advance();
        done
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64> {
        let address = self.0.device.alloc(self.raw(), bytes);
        self.0.queue.advance();
        address
    }

    /// # Safety
    /// The address came from [`alloc`](Self::alloc), all its uses are queued on this stream, and none follows.
    pub(crate) unsafe fn free(&self, address: u64) -> Result<()> {
        // SAFETY: passed on.
        self.queued(|b, stream| unsafe { b.free(stream, address) })
    }

    /// # Safety
    /// `bytes` bytes at `address` have to be inside an allocation of this device.
    pub(crate) unsafe fn forget(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: passed on.
        self.queued(|b, stream| unsafe { b.forget(stream, address, bytes) })
    }

    /// # Safety
    /// `src.len()` bytes at `dst` have to be inside an allocation of this device.
    pub(crate) unsafe fn upload(&self, dst: u64, src: &[u8]) -> Result<()> {
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: passed on.
        self.queued(|b, stream| unsafe { b.upload(stream, dst, src) })
    }

    /// # Safety
    /// `dst.len()` bytes at `src` have to be inside an allocation of this device.
    pub(crate) unsafe fn download(&self, dst: &mut [u8], src: u64) -> Result<()> {
        if dst.is_empty() {
            return self.synchronize();
        }
        // SAFETY: passed on.
        self.queued(|b, stream| unsafe { b.download(stream, dst, src) })
    }

    /// # Safety
    /// `bytes` bytes at both addresses have to be inside allocations of this device.
    pub(crate) unsafe fn copy(&self, dst: u64, src: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: passed on.
        self.queued(|b, stream| unsafe { b.copy(stream, dst, src, bytes) })
    }

    /// # Safety
    /// `count` times `pattern.len()` bytes at `dst` have to be inside an allocation of this device.
    pub(crate) unsafe fn fill(&self, dst: u64, pattern: &[u8], count: usize) -> Result<()> {
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
        self.queued(|b, stream| unsafe { b.fill(stream, dst, pattern, count) })
    }

    /// An error that names operator and argument unless all of these that are there are on this stream's device.
    pub(crate) fn require_devices(&self, op: &'static str, args: &[(&'static str, &dyn Placed)]) -> Result<()> {
        let mut placed = args.iter().filter_map(|(arg, x)| Some((*arg, x.place()?)));
        placed.try_for_each(|(arg, storage)| self.require_storage(storage, op, arg))
    }

    /// An error that names operator and argument unless the memory is on this stream's device. Memory that is missing learns the names.
    pub(crate) fn require_storage(&self, storage: &Storage, op: &'static str, arg: &'static str) -> Result<()> {
        storage.name_missing(op, arg);
        self.require_device(storage.device(), op, arg)
    }

    /// An error that names operator and argument unless `device` is this stream's.
    pub(crate) fn require_device(&self, device: &Device, op: &'static str, arg: &'static str) -> Result<()> {
        if *device == self.0.device {
            return Ok(());
        }
        Err(Error::device_mismatch(op, arg, device, &self.0.device))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.release_queue(&self.queue);
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
            return Err(Error::device_mismatch("elapsed_ms", "end", &end.device, &self.device));
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

/// An error unless the device holds all blocks of the grid at once: a block would wait for ever for one that cannot start.
fn check_room(spec: &KernelSpec, grid: [u32; 3], block: [u32; 3], room: u32) -> Result<()> {
    let blocks: u64 = grid.iter().fold(1, |product: u64, n| product.saturating_mul(u64::from(*n)));
    if blocks <= u64::from(room) {
        return Ok(());
    }
    let reason = format!(
        "its blocks wait for each other, and of grid {grid:?} with blocks {block:?}, which are {blocks}, the device holds {room} at once: \
         `Device::blocks_at_once` is the most"
    );
    Err(Error::Launch { kernel: spec.symbol, reason })
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
        let spec = KernelSpec {
            module: "m",
            symbol: "k",
            block: [128, 2, 1],
            cluster: [2, 1, 1],
            shared_bytes: 0,
            param_sizes: &[],
        };
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
