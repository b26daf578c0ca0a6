//! Pinned memory.

use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};

use super::DeviceCopy;
use super::allocate::bytes_of;
use crate::context::Context;
use crate::error::{CudaError, CudaResult, ErrorCode};

/// A slice in pinned host memory, which devices copy from and to directly, while the host continues. Freed when dropped.
#[derive(Debug)]
pub struct LockedBuffer<T: DeviceCopy> {
    memory: NonNull<T>,
    len: usize,
    context: Context,
}

// SAFETY: pinned memory belongs to the process, and so does what is in it.
unsafe impl<T: DeviceCopy + Send> Send for LockedBuffer<T> {}
// SAFETY: shared access reads.
unsafe impl<T: DeviceCopy + Sync> Sync for LockedBuffer<T> {}

impl<T: DeviceCopy> LockedBuffer<T> {
    /// A buffer with `len` copies of a value.
    pub fn new(value: &T, len: usize) -> CudaResult<Self> {
        // SAFETY: written next.
        let buffer = unsafe { Self::uninitialized(len) }?;
        for i in 0..len {
            // SAFETY: inside the allocation.
            unsafe { buffer.memory.add(i).write(*value) };
        }
        Ok(buffer)
    }

    /// A buffer with a copy of `values`.
    pub fn from_slice(values: &[T]) -> CudaResult<Self> {
        // SAFETY: written next.
        let buffer = unsafe { Self::uninitialized(values.len()) }?;
        // SAFETY: both hold as many values, and the buffer is new.
        unsafe { buffer.memory.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        Ok(buffer)
    }

    /// A buffer of unspecified contents.
    ///
    /// # Safety
    /// It must be written, through [`as_ptr`](Self::as_ptr) or by a device, before it is used as a slice.
    pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
        const FUNCTION: &str = "cuMemHostAlloc";
        let context = Context::current()?;
        let bytes = bytes_of::<T>(FUNCTION, len)?;
        if bytes == 0 {
            return Ok(Self { memory: NonNull::dangling(), len, context });
        }
        let mut memory = null_mut();
        // SAFETY: the pointer is to a live pointer; 0 asks for nothing special.
        unsafe { call!(cuMemHostAlloc(&mut memory, bytes, 0)) }?;
        let memory = NonNull::new(memory.cast()).ok_or(CudaError::new(FUNCTION, ErrorCode::OUT_OF_MEMORY))?;
        Ok(Self { memory, len, context })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of its first element, valid for reads and writes of all of them.
    pub fn as_ptr(&self) -> NonNull<T> {
        self.memory
    }
}

impl<T: DeviceCopy> Deref for LockedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` values, written as `uninitialized` demands; copies from a device into them are the callers' promise.
        unsafe { &*slice_from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl<T: DeviceCopy> DerefMut for LockedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { &mut *slice_from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl<T: DeviceCopy> AsRef<[T]> for LockedBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: DeviceCopy> AsMut<[T]> for LockedBuffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: DeviceCopy> Drop for LockedBuffer<T> {
    fn drop(&mut self) {
        if self.len * size_of::<T>() != 0 {
            // SAFETY: the memory is ours, and is not used again.
            self.context.end(|| unsafe { call!(cuMemFreeHost(self.memory.as_ptr().cast())) });
        }
    }
}
