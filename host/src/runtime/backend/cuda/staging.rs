//! Copies between pageable host memory and the device, through pinned buffers so that neither side waits for the other's page faults.

use std::ptr::{NonNull, null_mut};

use libcuda_loader::{CUevent, Driver};

use super::{CudaBackend, EVENT_DISABLE_TIMING, stream_handle};
use crate::runtime::backend::{Outcome, RawStream};

/// Small tensors must not each hold a large buffer until the device gets to them.
const SMALL: Class = Class { bytes: 64 << 10, most: 64 };
const LARGE: Class = Class { bytes: 4 << 20, most: 4 };

#[derive(Clone, Copy)]
struct Class {
    bytes: usize,
    most: usize,
}

/// Pinned buffers that no thread holds. The device may still be using them, until their event.
#[derive(Default)]
pub(super) struct Staging {
    idle: Vec<Buffer>,
    /// Buffers there are, small and large.
    made: [usize; 2],
}

struct Buffer {
    memory: NonNull<u8>,
    bytes: usize,
    event: CUevent,
}

// SAFETY: pinned memory and events belong to the process, not to a thread.
unsafe impl Send for Buffer {}

impl Staging {
    /// # Safety
    /// The device is done with all buffers, and their context is current.
    pub(super) unsafe fn destroy(&mut self, driver: &Driver) {
        for buffer in self.idle.drain(..) {
            // SAFETY: the caller's promise.
            unsafe {
                (driver.cuEventDestroy_v2)(buffer.event);
                (driver.cuMemFreeHost)(buffer.memory.as_ptr().cast());
            }
        }
    }
}

impl CudaBackend {
    /// # Safety
    /// `src.len()` bytes at `dst` are inside an allocation.
    pub(super) unsafe fn staged_upload(&self, stream: RawStream, dst: u64, src: &[u8]) -> Outcome<()> {
        let mut done = 0;
        while done < src.len() {
            let rest = &src[done..];
            let to = dst + done as u64;
            let Some(buffer) = self.take(rest.len())? else {
                // Pageable memory: the driver has read all of it when the call returns.
                // SAFETY: passed on.
                let code = unsafe {
                    let copy = self.driver.cuMemcpyHtoDAsync_v2;
                    copy(to, rest.as_ptr().cast(), rest.len(), stream_handle(stream))
                };
                return self.check("cuMemcpyHtoDAsync", code);
            };
            let bytes = rest.len().min(buffer.bytes);
            // SAFETY: the buffer is ours, holds `bytes`, and stays until its event; the destination is the caller's promise.
            let code = unsafe {
                buffer.memory.copy_from_nonoverlapping(NonNull::from(rest).cast(), bytes);
                let copy = self.driver.cuMemcpyHtoDAsync_v2;
                copy(to, buffer.memory.as_ptr().cast(), bytes, stream_handle(stream))
            };
            self.give_back(buffer, stream)?;
            self.check("cuMemcpyHtoDAsync", code)?;
            done += bytes;
        }
        Ok(())
    }

    /// # Safety
    /// `dst.len()` bytes at `src` are inside an allocation.
    pub(super) unsafe fn staged_download(&self, stream: RawStream, dst: &mut [u8], src: u64) -> Outcome<()> {
        let copy = self.driver.cuMemcpyDtoHAsync_v2;
        let mut queued: Option<(Buffer, &mut [u8])> = None;
        let mut rest = dst;
        let mut from = src;
        while !rest.is_empty() {
            let Some(buffer) = self.take(rest.len())? else {
                break;
            };
            let (piece, tail) = rest.split_at_mut(buffer.bytes.min(rest.len()));
            let to = buffer.memory.as_ptr().cast();
            // SAFETY: the buffer is ours and holds the piece; the source is the caller's promise.
            let code = unsafe { copy(to, from, piece.len(), stream_handle(stream)) };
            self.check("cuMemcpyDtoHAsync", code)?;
            self.mark(&buffer, stream)?;
            from += piece.len() as u64;
            rest = tail;
            // One piece travels while the one before it is copied on.
            if let Some(before) = queued.replace((buffer, piece)) {
                self.land(before)?;
            }
        }
        if let Some(last) = queued {
            self.land(last)?;
        }
        if !rest.is_empty() {
            // SAFETY: as above; into pageable memory, which the driver waits for.
            let code = unsafe { copy(rest.as_mut_ptr().cast(), from, rest.len(), stream_handle(stream)) };
            self.check("cuMemcpyDtoHAsync", code)?;
            // SAFETY: streams live as long as the backend.
            let code = unsafe { (self.driver.cuStreamSynchronize)(stream_handle(stream)) };
            self.check("cuStreamSynchronize", code)?;
        }
        Ok(())
    }

    /// Waits for a downloaded piece and copies it to where it belongs.
    fn land(&self, (buffer, piece): (Buffer, &mut [u8])) -> Outcome<()> {
        // SAFETY: the event is the buffer's.
        let code = unsafe { (self.driver.cuEventSynchronize)(buffer.event) };
        self.check("cuEventSynchronize", code)?;
        // SAFETY: the device has filled this much, and is done.
        unsafe {
            NonNull::from(&mut *piece).cast().copy_from_nonoverlapping(buffer.memory, piece.len());
        }
        self.shelve(buffer);
        Ok(())
    }

    fn mark(&self, buffer: &Buffer, stream: RawStream) -> Outcome<()> {
        // SAFETY: both handles are alive.
        let code = unsafe { (self.driver.cuEventRecord)(buffer.event, stream_handle(stream)) };
        self.check("cuEventRecord", code)
    }

    /// Lets the buffer be taken again once the device has passed this point. One that cannot be marked is lost instead.
    fn give_back(&self, buffer: Buffer, stream: RawStream) -> Outcome<()> {
        self.mark(&buffer, stream)?;
        self.shelve(buffer);
        Ok(())
    }

    fn shelve(&self, buffer: Buffer) {
        if let Ok(mut staging) = self.staging.lock() {
            staging.idle.push(buffer);
        }
    }

    /// A buffer that the device is done with; `None` if the system cannot pin more memory.
    fn take(&self, bytes: usize) -> Outcome<Option<Buffer>> {
        let (class, kind) = if bytes <= SMALL.bytes { (SMALL, 0) } else { (LARGE, 1) };
        let oldest = {
            let Ok(mut staging) = self.staging.lock() else {
                return Ok(None);
            };
            // Oldest first: they are the likeliest to be done.
            let fits = |b: &Buffer| b.bytes == class.bytes;
            // SAFETY: the event is the buffer's.
            let done = |b: &Buffer| unsafe { (self.driver.cuEventQuery)(b.event) } == 0;
            let any = staging.idle.iter().position(fits);
            let free = staging.idle.iter().position(|b| fits(b) && done(b));
            match (free, any) {
                (Some(at), _) => return Ok(Some(staging.idle.remove(at))),
                (None, Some(at)) if staging.made[kind] >= class.most => staging.idle.remove(at),
                _ => {
                    drop(staging);
                    let buffer = self.make(class.bytes)?;
                    if buffer.is_some()
                        && let Ok(mut staging) = self.staging.lock()
                    {
                        staging.made[kind] += 1;
                    }
                    return Ok(buffer);
                }
            }
        };
        // SAFETY: the event is the buffer's.
        let code = unsafe { (self.driver.cuEventSynchronize)(oldest.event) };
        self.check("cuEventSynchronize", code)?;
        Ok(Some(oldest))
    }

    fn make(&self, bytes: usize) -> Outcome<Option<Buffer>> {
        let (mut memory, mut event) = (null_mut(), null_mut());
        // SAFETY: the pointers are to live handles.
        unsafe {
            if (self.driver.cuMemHostAlloc)(&mut memory, bytes, 0) != 0 {
                return Ok(None);
            }
            let code = (self.driver.cuEventCreate)(&mut event, EVENT_DISABLE_TIMING);
            if let Err(failure) = self.check("cuEventCreate", code) {
                (self.driver.cuMemFreeHost)(memory);
                return Err(failure);
            }
        }
        Ok(NonNull::new(memory.cast()).map(|memory| Buffer { memory, bytes, event }))
    }
}
