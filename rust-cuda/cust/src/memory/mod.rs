//! Device memory, and host memory that devices read and write directly.

mod allocate;
mod buffer;
mod copy;
mod locked;
mod pointer;
mod pool;

pub use allocate::{cuda_free, cuda_free_async, cuda_malloc, cuda_malloc_async, mem_get_info};
pub use buffer::{DeviceBox, DeviceBuffer};
pub use copy::{
    AsyncCopyDestination, CopyDestination, memcpy_dtod, memcpy_dtod_async, memcpy_dtoh, memcpy_dtoh_async, memcpy_htod,
    memcpy_htod_async, memset_d8, memset_d8_async, memset_d16, memset_d16_async, memset_d32, memset_d32_async,
};
pub use locked::LockedBuffer;
pub use pointer::DevicePointer;
pub use pool::MemoryPool;

/// Plain data that may be copied to a device and back, and passed to a kernel.
///
/// # Safety
/// Any bytes of this size must be a valid value, and none of them may stand for a host address.
pub unsafe trait DeviceCopy: Copy + 'static {}

macro_rules! plain {
    ($($ty:ty)*) => {
        $(
            // SAFETY: a number.
            unsafe impl DeviceCopy for $ty {}
        )*
    };
}
plain! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }

#[cfg(feature = "half")]
plain! { half::f16 half::bf16 }

// SAFETY: nothing but values for which it holds.
unsafe impl<T: DeviceCopy, const N: usize> DeviceCopy for [T; N] {}
