//! Objects of cust as the numbers that the rest of the library knows them by: their addresses.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Gives an object away for its handle.
pub(super) fn give<T>(object: T) -> usize {
    Box::into_raw(Box::new(object)).expose_provenance()
}

/// The object.
///
/// # Safety
/// The handle came from [`give`] with this type, and the object has not been taken back for as long as it is borrowed.
pub(super) unsafe fn object<'a, T>(handle: usize) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*with_exposed_provenance(handle) }
}

/// Takes an object back.
///
/// # Safety
/// The handle came from [`give`] with this type, and is not used again.
pub(super) unsafe fn take<T>(handle: usize) -> T {
    // SAFETY: the caller's promise.
    *unsafe { Box::from_raw(with_exposed_provenance_mut(handle)) }
}
