//! Copies between pageable host memory and the device, through pinned buffers so that neither side waits for the other's page faults.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};
use cust::memory::{DevicePointer, LockedBuffer, memcpy_dtoh_async, memcpy_htod_async};
use cust::stream::Stream;

use crate::runtime::backend::Outcome;

/// Small tensors must not each hold a large buffer until the device gets to them. A copy that finds this much under way waits for the
/// oldest of it.
const SMALL: Class = Class { bytes: 64 << 10, most: 1024 };
const LARGE: Class = Class { bytes: 4 << 20, most: 64 };

/// Buffers that are asked whether the device is done with them, before another one is made.
const PROBES: usize = 4;

#[derive(Clone, Copy)]
struct Class {
    bytes: usize,
    most: usize,
}

/// Pinned buffers, and copies that go through them.
#[derive(Default)]
pub(super) struct Staging(Mutex<Shelf>);

/// Buffers that no thread holds. The device may still be using them, until their event.
#[derive(Default)]
struct Shelf {
    idle: Vec<Buffer>,
    /// Buffers there are, small and large.
    made: [usize; 2],
}

/// A pinned buffer, and the event behind its last use. Dropping it leaks the memory: the device may not be done with it.
struct Buffer {
    memory: ManuallyDrop<LockedBuffer<u8>>,
    event: ManuallyDrop<Event>,
}

impl Staging {
    /// Frees the buffers.
    ///
    /// # Safety
    /// The device is done with all of them.
    pub(super) unsafe fn destroy(&mut self) {
        let shelf = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for Buffer { memory, event } in shelf.idle.drain(..) {
            drop((ManuallyDrop::into_inner(memory), ManuallyDrop::into_inner(event)));
        }
    }

    /// # Safety
    /// `src.len()` bytes at `dst` are inside an allocation.
    pub(super) unsafe fn upload(&self, stream: &Stream, dst: u64, src: &[u8]) -> Outcome<()> {
        let mut to = DevicePointer::<u8>::from_raw(dst);
        let mut rest = src;
        while !rest.is_empty() {
            let Some(buffer) = self.take(rest.len())? else {
                // Pageable memory: the driver has read all of it when the call returns.
                // SAFETY: passed on.
                return Ok(unsafe { memcpy_htod_async(to, rest.as_ptr(), rest.len(), stream) }?);
            };
            let (piece, tail) = rest.split_at(rest.len().min(buffer.memory.len()));
            let from = buffer.memory.as_ptr();
            // SAFETY: the buffer is ours, holds the piece, and stays until its event; the destination is the caller's promise.
            let queued = unsafe {
                from.copy_from_nonoverlapping(NonNull::from(piece).cast(), piece.len());
                memcpy_htod_async(to, from.as_ptr(), piece.len(), stream)
            };
            // Taken again once the device has passed this point. One that cannot be marked is lost instead.
            buffer.event.record(stream)?;
            self.shelve(buffer);
            queued?;
            (to, rest) = (to.wrapping_add(piece.len()), tail);
        }
        Ok(())
    }

    /// # Safety
    /// `dst.len()` bytes at `src` are inside an allocation.
    pub(super) unsafe fn download(&self, stream: &Stream, dst: &mut [u8], src: u64) -> Outcome<()> {
        let mut queued: Option<(Buffer, &mut [u8])> = None;
        let mut from = DevicePointer::<u8>::from_raw(src);
        let mut rest = dst;
        while !rest.is_empty() {
            let Some(buffer) = self.take(rest.len())? else {
                break;
            };
            let (piece, tail) = rest.split_at_mut(buffer.memory.len().min(rest.len()));
            // SAFETY: the buffer is ours and holds the piece; the source is the caller's promise.
            unsafe { memcpy_dtoh_async(buffer.memory.as_ptr().as_ptr(), from, piece.len(), stream) }?;
            buffer.event.record(stream)?;
            (from, rest) = (from.wrapping_add(piece.len()), tail);
            // One piece travels while the one before it is copied on.
            if let Some(before) = queued.replace((buffer, piece)) {
                self.land(before)?;
            }
        }
        if let Some(last) = queued {
            self.land(last)?;
        }
        if !rest.is_empty() {
            // SAFETY: as above; into pageable memory, which is waited for.
            unsafe { memcpy_dtoh_async(rest.as_mut_ptr(), from, rest.len(), stream) }?;
            stream.synchronize()?;
        }
        Ok(())
    }

    /// Waits for a downloaded piece and copies it to where it belongs.
    fn land(&self, (buffer, piece): (Buffer, &mut [u8])) -> Outcome<()> {
        buffer.event.synchronize()?;
        // SAFETY: the device has filled this much, and is done.
        unsafe { NonNull::from(&mut *piece).cast().copy_from_nonoverlapping(buffer.memory.as_ptr(), piece.len()) };
        self.shelve(buffer);
        Ok(())
    }

    fn shelve(&self, buffer: Buffer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).idle.push(buffer);
    }

    /// A buffer that the device is done with; `None` if the system cannot pin more memory.
    fn take(&self, bytes: usize) -> Outcome<Option<Buffer>> {
        let (class, kind) = if bytes <= SMALL.bytes { (SMALL, 0) } else { (LARGE, 1) };
        let done = |buffer: &Buffer| buffer.event.query() == Ok(EventStatus::Ready);
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Oldest first: they are the likeliest to be done.
        let mut fitting = (0..shelf.idle.len()).filter(|&at| shelf.idle[at].memory.len() == class.bytes);
        let oldest = fitting.clone().next();
        let free = fitting.by_ref().take(PROBES).find(|&at| done(&shelf.idle[at]));
        match (free, oldest) {
            (Some(at), _) => Ok(Some(shelf.idle.remove(at))),
            (None, Some(at)) if shelf.made[kind] >= class.most => {
                let oldest = shelf.idle.remove(at);
                drop(shelf);
                oldest.event.synchronize()?;
                Ok(Some(oldest))
            }
            _ => {
                drop(shelf);
                let Ok(buffer) = make(class.bytes) else { return Ok(None) };
                self.0.lock().unwrap_or_else(PoisonError::into_inner).made[kind] += 1;
                Ok(Some(buffer))
            }
        }
    }
}

fn make(bytes: usize) -> Result<Buffer, CudaError> {
    // SAFETY: only pointers to it are used.
    let memory = unsafe { LockedBuffer::uninitialized(bytes) }?;
    let event = Event::new(EventFlags::DISABLE_TIMING)?;
    Ok(Buffer { memory: ManuallyDrop::new(memory), event: ManuallyDrop::new(event) })
}
