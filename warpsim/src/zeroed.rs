//! Zero-initialised memory, which takes no host memory until it is touched. Its allocation may fail.

use std::alloc::{Layout, alloc_zeroed};
use std::fmt;
use std::ptr::slice_from_raw_parts_mut;
use std::sync::atomic::AtomicU64;

/// This machine does not have the memory that the simulation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The requested size.
    pub bytes: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine does not have another {} bytes of memory", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}

/// A type for which all-zero bytes are a valid value.
///
/// # Safety
/// All-zero bytes must be a valid value of the type.
pub unsafe trait Zero {}

// SAFETY: an integer, for which all zeros is a valid value.
unsafe impl Zero for u8 {}
// SAFETY: as above.
unsafe impl Zero for AtomicU64 {}
// SAFETY: as above.
unsafe impl<const N: usize> Zero for [AtomicU64; N] {}

/// Allocates `count` zeroes. The program under test determines the size of these allocations: if it asks for too much, it gets an error, and
/// the simulator goes on.
pub fn zeroed<T: Zero>(count: u64) -> Result<Box<[T]>, OutOfMemory> {
    let error = OutOfMemory { bytes: count.saturating_mul(size_of::<T>() as u64) };
    let layout = usize::try_from(count).ok().and_then(|count| Layout::array::<T>(count).ok()).ok_or(error)?;
    if layout.size() == 0 {
        return Ok(Vec::new().into_boxed_slice());
    }
    // SAFETY: the layout's size is not zero.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if memory.is_null() {
        return Err(error);
    }
    // SAFETY: the global allocator gave it for a `[T]` of that length, and zeroes are values of `T`.
    Ok(unsafe { Box::from_raw(slice_from_raw_parts_mut(memory, count as usize)) })
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn what_is_not_there_is_refused() {
        assert_eq!(zeroed::<AtomicU64>(u64::MAX).err(), Some(OutOfMemory { bytes: u64::MAX }));
        // The compiler may optimise away allocations that are not used.
        assert_eq!(black_box(zeroed::<u8>(1 << 60)).err(), Some(OutOfMemory { bytes: 1 << 60 }));
        assert_eq!(zeroed::<u8>(3).as_deref(), Ok(&[0; 3][..]));
        assert!(zeroed::<u8>(0).is_ok_and(|none| none.is_empty()));
    }
}
