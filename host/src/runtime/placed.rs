//! Where an operator's arguments are.

use crate::runtime::storage::Storage;
use crate::runtime::view::{View, ViewMut};

/// What lies on a device, or is not there at all.
pub(crate) trait Placed {
    /// The memory, if it is there.
    fn place(&self) -> Option<&Storage>;
}

impl<T> Placed for View<'_, T> {
    fn place(&self) -> Option<&Storage> {
        Some(self.part.storage)
    }
}

impl<T> Placed for ViewMut<'_, T> {
    fn place(&self) -> Option<&Storage> {
        Some(self.part.storage)
    }
}

impl<P: Placed> Placed for Option<P> {
    fn place(&self) -> Option<&Storage> {
        self.as_ref()?.place()
    }
}

impl<P: Placed> Placed for &P {
    fn place(&self) -> Option<&Storage> {
        (*self).place()
    }
}
