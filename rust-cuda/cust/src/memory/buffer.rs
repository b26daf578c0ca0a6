//! Owned device memory.

use std::mem::ManuallyDrop;

use super::{
    AsyncCopyDestination, CopyDestination, DeviceCopy, DevicePointer, cuda_free, cuda_free_async, cuda_malloc,
    cuda_malloc_async, memcpy_dtod, memcpy_dtod_async, memcpy_dtoh, memcpy_dtoh_async, memcpy_htod, memcpy_htod_async,
    memset_d8, memset_d8_async,
};
use crate::context::Context;
use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::stream::Stream;

/// A slice in device memory. Freed when dropped; [`drop_async`](Self::drop_async) frees it in stream order.
#[derive(Debug)]
pub struct DeviceBuffer<T: DeviceCopy> {
    pointer: DevicePointer<T>,
    len: usize,
    context: Context,
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// A buffer of unspecified contents.
    ///
    /// # Safety
    /// It must be written before it is read.
    pub unsafe fn uninitialized(len: usize) -> CudaResult<Self> {
        // SAFETY: the buffer keeps the address to itself until it frees it.
        Self::from_allocation(len, || unsafe { cuda_malloc(len) })
    }

    /// [`uninitialized`](Self::uninitialized) in stream order, from the device's pool.
    ///
    /// # Safety
    /// It must be written before it is read, and used only by later work on the stream.
    pub unsafe fn uninitialized_async(len: usize, stream: &Stream) -> CudaResult<Self> {
        // SAFETY: the buffer keeps the address to itself until it frees it.
        Self::from_allocation(len, || unsafe { cuda_malloc_async(stream, len) })
    }

    fn from_allocation(len: usize, alloc: impl FnOnce() -> CudaResult<DevicePointer<T>>) -> CudaResult<Self> {
        let context = Context::current()?;
        // The driver rejects allocations of zero bytes.
        let pointer = if len == 0 || size_of::<T>() == 0 { DevicePointer::null() } else { alloc()? };
        Ok(Self { pointer, len, context })
    }

    /// A buffer of zeros.
    pub fn zeroed(len: usize) -> CudaResult<Self> {
        // SAFETY: written before it is returned.
        let mut buffer = unsafe { Self::uninitialized(len) }?;
        buffer.set_zero()?;
        Ok(buffer)
    }

    /// [`zeroed`](Self::zeroed) in stream order.
    ///
    /// # Safety
    /// It must be used only by later work on the stream.
    pub unsafe fn zeroed_async(len: usize, stream: &Stream) -> CudaResult<Self> {
        // SAFETY: the fill comes next on the stream; the rest is the caller's promise.
        unsafe {
            let mut buffer = Self::uninitialized_async(len, stream)?;
            buffer.set_zero_async(stream)?;
            Ok(buffer)
        }
    }

    /// A buffer with a copy of `values`.
    pub fn from_slice(values: &[T]) -> CudaResult<Self> {
        // SAFETY: written before it is returned.
        let mut buffer = unsafe { Self::uninitialized(values.len()) }?;
        buffer.copy_from(values)?;
        Ok(buffer)
    }

    /// [`from_slice`](Self::from_slice) in stream order.
    ///
    /// # Safety
    /// `values` must not change until the copy has run; the buffer must be used only by later work on the stream.
    pub unsafe fn from_slice_async(values: &[T], stream: &Stream) -> CudaResult<Self> {
        // SAFETY: the copy comes next on the stream; the rest is the caller's promise.
        unsafe {
            let mut buffer = Self::uninitialized_async(values.len(), stream)?;
            buffer.async_copy_from(values, stream)?;
            Ok(buffer)
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of its first element.
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        self.pointer
    }

    /// Copies it to the host.
    pub fn as_host_vec(&self) -> CudaResult<Vec<T>> {
        let mut values = Vec::with_capacity(self.len);
        if self.bytes() != 0 {
            // SAFETY: both sides hold `len` elements.
            unsafe { memcpy_dtoh(values.as_mut_ptr(), self.pointer, self.len) }?;
        }
        // SAFETY: the copy wrote them, and any bytes are values; values without bytes need no copy.
        unsafe { values.set_len(self.len) };
        Ok(values)
    }

    /// Fills it with zero bytes.
    pub fn set_zero(&mut self) -> CudaResult<()> {
        match self.bytes() {
            0 => Ok(()),
            // SAFETY: the buffer's own memory, of which any bytes are values.
            bytes => unsafe { memset_d8(self.pointer.cast(), 0, bytes) },
        }
    }

    /// Queues [`set_zero`](Self::set_zero).
    ///
    /// # Safety
    /// Until the fill has run, only later work on the stream may use the buffer, and it must not be dropped.
    pub unsafe fn set_zero_async(&mut self, stream: &Stream) -> CudaResult<()> {
        match self.bytes() {
            0 => Ok(()),
            // SAFETY: the buffer's own memory; the rest is the caller's promise.
            bytes => unsafe { memset_d8_async(self.pointer.cast(), 0, bytes, stream) },
        }
    }

    /// Frees it in stream order. It must come from a pool, as the results of the `_async` functions do.
    ///
    /// # Safety
    /// All work that uses it must be queued earlier on the stream.
    pub unsafe fn drop_async(self, stream: &Stream) -> CudaResult<()> {
        let mut buffer = ManuallyDrop::new(self);
        let freed = match buffer.pointer.is_null() {
            true => Ok(()),
            // SAFETY: the address is the buffer's, which ends here; the rest is the caller's promise.
            false => unsafe { cuda_free_async(stream, buffer.pointer) },
        };
        buffer.pointer = DevicePointer::null();
        // Releases the context.
        drop(ManuallyDrop::into_inner(buffer));
        freed
    }

    fn bytes(&self) -> usize {
        // It was allocated: this does not overflow.
        self.len * size_of::<T>()
    }

    fn has_len(&self, function: &'static str, len: usize) -> CudaResult<usize> {
        match self.len == len {
            true => Ok(self.bytes()),
            false => Err(CudaError::new(function, ErrorCode::INVALID_VALUE)),
        }
    }
}

impl<T: DeviceCopy> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            // SAFETY: the address is ours; work that uses it was queued by callers who promised to wait for it.
            self.context.end(|| unsafe { cuda_free(self.pointer) });
        }
    }
}

impl<T: DeviceCopy, O: AsRef<[T]> + AsMut<[T]> + ?Sized> CopyDestination<O> for DeviceBuffer<T> {
    fn copy_from(&mut self, source: &O) -> CudaResult<()> {
        let source = source.as_ref();
        match self.has_len("cuMemcpyHtoD", source.len())? {
            0 => Ok(()),
            // SAFETY: both sides hold `len` elements.
            _ => unsafe { memcpy_htod(self.pointer, source.as_ptr(), self.len) },
        }
    }

    fn copy_to(&self, destination: &mut O) -> CudaResult<()> {
        let destination = destination.as_mut();
        match self.has_len("cuMemcpyDtoH", destination.len())? {
            0 => Ok(()),
            // SAFETY: both sides hold `len` elements.
            _ => unsafe { memcpy_dtoh(destination.as_mut_ptr(), self.pointer, self.len) },
        }
    }
}

impl<T: DeviceCopy> CopyDestination<DeviceBuffer<T>> for DeviceBuffer<T> {
    fn copy_from(&mut self, source: &DeviceBuffer<T>) -> CudaResult<()> {
        match self.has_len("cuMemcpyDtoD", source.len)? {
            0 => Ok(()),
            // SAFETY: two buffers of `len` elements.
            _ => unsafe { memcpy_dtod(self.pointer, source.pointer, self.len) },
        }
    }

    fn copy_to(&self, destination: &mut DeviceBuffer<T>) -> CudaResult<()> {
        destination.copy_from(self)
    }
}

impl<T: DeviceCopy, O: AsRef<[T]> + AsMut<[T]> + ?Sized> AsyncCopyDestination<O> for DeviceBuffer<T> {
    unsafe fn async_copy_from(&mut self, source: &O, stream: &Stream) -> CudaResult<()> {
        let source = source.as_ref();
        match self.has_len("cuMemcpyHtoDAsync", source.len())? {
            0 => Ok(()),
            // SAFETY: both sides hold `len` elements; the rest is the caller's promise.
            _ => unsafe { memcpy_htod_async(self.pointer, source.as_ptr(), self.len, stream) },
        }
    }

    unsafe fn async_copy_to(&self, destination: &mut O, stream: &Stream) -> CudaResult<()> {
        let destination = destination.as_mut();
        match self.has_len("cuMemcpyDtoHAsync", destination.len())? {
            0 => Ok(()),
            // SAFETY: both sides hold `len` elements; the rest is the caller's promise.
            _ => unsafe { memcpy_dtoh_async(destination.as_mut_ptr(), self.pointer, self.len, stream) },
        }
    }
}

impl<T: DeviceCopy> AsyncCopyDestination<DeviceBuffer<T>> for DeviceBuffer<T> {
    unsafe fn async_copy_from(&mut self, source: &DeviceBuffer<T>, stream: &Stream) -> CudaResult<()> {
        match self.has_len("cuMemcpyDtoDAsync", source.len)? {
            0 => Ok(()),
            // SAFETY: two buffers of `len` elements; the rest is the caller's promise.
            _ => unsafe { memcpy_dtod_async(self.pointer, source.pointer, self.len, stream) },
        }
    }

    unsafe fn async_copy_to(&self, destination: &mut DeviceBuffer<T>, stream: &Stream) -> CudaResult<()> {
        // SAFETY: passed on.
        unsafe { destination.async_copy_from(self, stream) }
    }
}

/// One value in device memory. Freed when dropped.
#[derive(Debug)]
pub struct DeviceBox<T: DeviceCopy>(DeviceBuffer<T>);

impl<T: DeviceCopy> DeviceBox<T> {
    /// A box with a copy of `value`.
    pub fn new(value: &T) -> CudaResult<Self> {
        DeviceBuffer::from_slice(std::slice::from_ref(value)).map(Self)
    }

    /// A box of zero bytes.
    pub fn zeroed() -> CudaResult<Self> {
        DeviceBuffer::zeroed(1).map(Self)
    }

    /// The value.
    pub fn as_host_value(&self) -> CudaResult<T> {
        let mut values = self.0.as_host_vec()?;
        values.pop().ok_or(CudaError::new("cuMemcpyDtoH", ErrorCode::INVALID_VALUE))
    }

    /// Replaces the value.
    pub fn set(&mut self, value: &T) -> CudaResult<()> {
        self.0.copy_from(std::slice::from_ref(value))
    }

    /// Its address.
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        self.0.as_device_ptr()
    }
}
