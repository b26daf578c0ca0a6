//! Allocations that are not freed automatically.

use super::{DeviceCopy, DevicePointer};
use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::stream::Stream;

/// Free and total bytes of the current context's device.
pub fn mem_get_info() -> CudaResult<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are to live integers.
    unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total)) }?;
    Ok((free, total))
}

/// The bytes of `count` elements.
pub(super) fn bytes_of<T>(function: &'static str, count: usize) -> CudaResult<usize> {
    count.checked_mul(size_of::<T>()).ok_or(CudaError::new(function, ErrorCode::INVALID_VALUE))
}

/// Allocates device memory in the current context, with unspecified contents. An allocation of zero bytes is an error.
///
/// # Safety
/// The call itself is safe; the use of the address is not.
pub unsafe fn cuda_malloc<T: DeviceCopy>(count: usize) -> CudaResult<DevicePointer<T>> {
    let bytes = bytes_of::<T>("cuMemAlloc", count)?;
    let mut address = 0;
    // SAFETY: the pointer is to a live address.
    unsafe { call!(cuMemAlloc_v2(&mut address, bytes)) }?;
    Ok(DevicePointer::from_raw(address))
}

/// [`cuda_malloc`] from the device's current pool, in stream order: later work on the stream, and work that waits for it, may
/// use the memory.
///
/// # Safety
/// As for [`cuda_malloc`].
pub unsafe fn cuda_malloc_async<T: DeviceCopy>(stream: &Stream, count: usize) -> CudaResult<DevicePointer<T>> {
    let bytes = bytes_of::<T>("cuMemAllocAsync", count)?;
    let mut address = 0;
    // SAFETY: the pointer is to a live address, the stream is alive.
    unsafe { call!(cuMemAllocAsync(&mut address, bytes, stream.as_raw())) }?;
    Ok(DevicePointer::from_raw(address))
}

/// Frees memory immediately. The driver may, but need not, wait for work that uses it.
///
/// # Safety
/// The address came from an allocation that has not been freed, and nothing uses the memory any more.
pub unsafe fn cuda_free<T: DeviceCopy>(pointer: DevicePointer<T>) -> CudaResult<()> {
    // SAFETY: passed on.
    unsafe { call!(cuMemFree_v2(pointer.as_raw())) }
}

/// Frees memory of a pool in stream order.
///
/// # Safety
/// The address came from a pool and has not been freed, and only earlier work on the stream uses the memory.
pub unsafe fn cuda_free_async<T: DeviceCopy>(stream: &Stream, pointer: DevicePointer<T>) -> CudaResult<()> {
    // SAFETY: passed on.
    unsafe { call!(cuMemFreeAsync(pointer.as_raw(), stream.as_raw())) }
}
