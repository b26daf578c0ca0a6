//! Copies and fills: of ranges of addresses, and of whole buffers.

use super::allocate::bytes_of;
use super::{DeviceCopy, DevicePointer};
use crate::error::CudaResult;
use crate::stream::Stream;

/// Copies from the host to a device; the source has been read when this returns.
///
/// # Safety
/// `count` elements at `src` can be read; the range at `dst` is inside an allocation and nothing else uses it.
pub unsafe fn memcpy_htod<T: DeviceCopy>(dst: DevicePointer<T>, src: *const T, count: usize) -> CudaResult<()> {
    let bytes = bytes_of::<T>("cuMemcpyHtoD", count)?;
    // SAFETY: the caller's promise.
    unsafe { call!(cuMemcpyHtoD_v2(dst.as_raw(), src.cast(), bytes)) }
}

/// Copies from a device to the host, and waits for the data.
///
/// # Safety
/// `count` elements at `dst` can be written; the range at `src` is inside an allocation and nothing writes to it.
pub unsafe fn memcpy_dtoh<T: DeviceCopy>(dst: *mut T, src: DevicePointer<T>, count: usize) -> CudaResult<()> {
    let bytes = bytes_of::<T>("cuMemcpyDtoH", count)?;
    // SAFETY: the caller's promise.
    unsafe { call!(cuMemcpyDtoH_v2(dst.cast(), src.as_raw(), bytes)) }
}

/// Copies within a device, or between two.
///
/// # Safety
/// Both ranges are inside allocations, nothing writes to `src` and nothing else uses `dst`; they do not overlap.
pub unsafe fn memcpy_dtod<T: DeviceCopy>(dst: DevicePointer<T>, src: DevicePointer<T>, count: usize) -> CudaResult<()> {
    let bytes = bytes_of::<T>("cuMemcpyDtoD", count)?;
    // SAFETY: the caller's promise.
    unsafe { call!(cuMemcpyDtoD_v2(dst.as_raw(), src.as_raw(), bytes)) }
}

/// Queues a copy from the host to a device. If the source is not pinned, it has been read when this returns.
///
/// # Safety
/// As for [`memcpy_htod`], at the time of the copy; pinned memory must not change until then.
pub unsafe fn memcpy_htod_async<T: DeviceCopy>(
    dst: DevicePointer<T>,
    src: *const T,
    count: usize,
    stream: &Stream,
) -> CudaResult<()> {
    let bytes = bytes_of::<T>("cuMemcpyHtoDAsync", count)?;
    // SAFETY: the caller's promise; the stream is alive.
    unsafe { call!(cuMemcpyHtoDAsync_v2(dst.as_raw(), src.cast(), bytes, stream.as_raw())) }
}

/// Queues a copy from a device to the host.
///
/// # Safety
/// As for [`memcpy_dtoh`], at the time of the copy; nothing may read `dst` until then.
pub unsafe fn memcpy_dtoh_async<T: DeviceCopy>(
    dst: *mut T,
    src: DevicePointer<T>,
    count: usize,
    stream: &Stream,
) -> CudaResult<()> {
    let bytes = bytes_of::<T>("cuMemcpyDtoHAsync", count)?;
    // SAFETY: the caller's promise; the stream is alive.
    unsafe { call!(cuMemcpyDtoHAsync_v2(dst.cast(), src.as_raw(), bytes, stream.as_raw())) }
}

/// Queues a copy within a device, or between two.
///
/// # Safety
/// As for [`memcpy_dtod`], at the time of the copy.
pub unsafe fn memcpy_dtod_async<T: DeviceCopy>(
    dst: DevicePointer<T>,
    src: DevicePointer<T>,
    count: usize,
    stream: &Stream,
) -> CudaResult<()> {
    let bytes = bytes_of::<T>("cuMemcpyDtoDAsync", count)?;
    // SAFETY: the caller's promise; the stream is alive.
    unsafe { call!(cuMemcpyDtoDAsync_v2(dst.as_raw(), src.as_raw(), bytes, stream.as_raw())) }
}

macro_rules! memset {
    ($($ty:ty: $now:ident $set:ident $later:ident $set_async:ident;)*) => {
        $(
            #[doc = concat!("Fills `count` values of type `", stringify!($ty), "`.")]
            ///
            /// # Safety
            /// The range is inside an allocation, on a boundary of such values, and nothing else uses it.
            pub unsafe fn $now(dst: DevicePointer<$ty>, value: $ty, count: usize) -> CudaResult<()> {
                // SAFETY: the caller's promise.
                unsafe { call!($set(dst.as_raw(), value, count)) }
            }

            #[doc = concat!("Queues [`", stringify!($now), "`].")]
            ///
            /// # Safety
            #[doc = concat!("As for [`", stringify!($now), "`], when it runs.")]
            pub unsafe fn $later(
                dst: DevicePointer<$ty>,
                value: $ty,
                count: usize,
                stream: &Stream,
            ) -> CudaResult<()> {
                // SAFETY: the caller's promise; the stream is alive.
                unsafe { call!($set_async(dst.as_raw(), value, count, stream.as_raw())) }
            }
        )*
    };
}

memset! {
    u8: memset_d8 cuMemsetD8_v2 memset_d8_async cuMemsetD8Async;
    u16: memset_d16 cuMemsetD16_v2 memset_d16_async cuMemsetD16Async;
    u32: memset_d32 cuMemsetD32_v2 memset_d32_async cuMemsetD32Async;
}

/// Device memory that can be copied to and from `O`. Unequal lengths are an error.
pub trait CopyDestination<O: ?Sized> {
    /// Copies `source` here.
    fn copy_from(&mut self, source: &O) -> CudaResult<()>;

    /// Copies this to `destination`, and waits for it.
    fn copy_to(&self, destination: &mut O) -> CudaResult<()>;
}

/// Device memory that can be copied to and from `O` in stream order. Unequal lengths are an error.
pub trait AsyncCopyDestination<O: ?Sized> {
    /// Queues a copy of `source` here.
    ///
    /// # Safety
    /// Neither may be used or dropped before the copy has run, and no concurrent work may use them.
    unsafe fn async_copy_from(&mut self, source: &O, stream: &Stream) -> CudaResult<()>;

    /// Queues a copy of this to `destination`.
    ///
    /// # Safety
    /// As for [`async_copy_from`](Self::async_copy_from).
    unsafe fn async_copy_to(&self, destination: &mut O, stream: &Stream) -> CudaResult<()>;
}
