use std::fmt;
use std::marker::PhantomData;

use super::DeviceCopy;
use crate::sys::CUdeviceptr;

/// An address of device memory. It owns nothing and keeps nothing alive; only device code dereferences it.
#[repr(transparent)]
pub struct DevicePointer<T>(CUdeviceptr, PhantomData<*mut T>);

// SAFETY: an address that the host never dereferences.
unsafe impl<T> Send for DevicePointer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for DevicePointer<T> {}

// SAFETY: an address of the device; the host never dereferences it, so any value is valid.
unsafe impl<T: 'static> DeviceCopy for DevicePointer<T> {}

impl<T> DevicePointer<T> {
    /// The pointer with this address.
    pub const fn from_raw(address: CUdeviceptr) -> Self {
        Self(address, PhantomData)
    }

    /// The null pointer.
    pub const fn null() -> Self {
        Self::from_raw(0)
    }

    /// The address.
    pub const fn as_raw(self) -> CUdeviceptr {
        self.0
    }

    /// Whether it is null.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The pointer offset by `count` elements, which may be negative; wraps around.
    #[must_use]
    pub const fn wrapping_offset(self, count: isize) -> Self {
        Self::from_raw(self.0.wrapping_add_signed((count as i64).wrapping_mul(size_of::<T>() as i64)))
    }

    /// The pointer offset by `count` elements; wraps around.
    #[must_use]
    pub const fn wrapping_add(self, count: usize) -> Self {
        Self::from_raw(self.0.wrapping_add((count as u64).wrapping_mul(size_of::<T>() as u64)))
    }

    /// The same address, pointing to another type.
    pub const fn cast<U>(self) -> DevicePointer<U> {
        DevicePointer::from_raw(self.0)
    }
}

impl<T> Clone for DevicePointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePointer<T> {}

impl<T> PartialEq for DevicePointer<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for DevicePointer<T> {}

impl<T> fmt::Debug for DevicePointer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePointer({:#x})", self.0)
    }
}
