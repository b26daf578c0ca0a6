//! Memory that starts as zeroes, takes no room until it is touched, and may not be there.

use std::alloc::{Layout, alloc_zeroed};
use std::fmt;
use std::ptr::slice_from_raw_parts_mut;
use std::sync::atomic::AtomicU64;

/// This machine does not have the memory that simulating takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub bytes: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine does not have another {} bytes of memory", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}

/// A type of which zero bytes are a value.
///
/// # Safety
/// They are.
pub unsafe trait Zero {}

// SAFETY: an integer, of which all zeros is a value.
unsafe impl Zero for u8 {}
// SAFETY: as above.
unsafe impl Zero for AtomicU64 {}
// SAFETY: as above.
unsafe impl<const N: usize> Zero for [AtomicU64; N] {}

/// `count` zeroes. What the program under test chooses the size of is allocated here: a program that asks for too much
/// is told so, and the simulator goes on.
pub fn zeroed<T: Zero>(count: u64) -> Result<Box<[T]>, OutOfMemory> {
    let error = OutOfMemory { bytes: count.saturating_mul(size_of::<T>() as u64) };
    let layout = usize::try_from(count).ok().and_then(|count| Layout::array::<T>(count).ok()).ok_or(error)?;
    if layout.size() == 0 {
        return Ok(Vec::new().into_boxed_slice());
    }
    // SAFETY: the layout has a size.
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
        // Allocations that nobody looks at may be optimised away.
        assert_eq!(black_box(zeroed::<u8>(1 << 60)).err(), Some(OutOfMemory { bytes: 1 << 60 }));
        assert_eq!(zeroed::<u8>(3).as_deref(), Ok(&[0; 3][..]));
        assert!(zeroed::<u8>(0).is_ok_and(|none| none.is_empty()));
    }
}
