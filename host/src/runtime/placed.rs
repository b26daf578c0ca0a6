//! On which device an operator's arguments are.

use crate::runtime::device::Device;
use crate::runtime::view::{View, ViewMut};

/// What lies on a device, or is not there at all.
pub(crate) trait Placed {
    /// The device, if it is there.
    fn place(&self) -> Option<&Device>;
}

impl<T> Placed for View<'_, T> {
    fn place(&self) -> Option<&Device> {
        Some(self.device())
    }
}

impl<T> Placed for ViewMut<'_, T> {
    fn place(&self) -> Option<&Device> {
        Some(self.device())
    }
}

impl<P: Placed> Placed for Option<P> {
    fn place(&self) -> Option<&Device> {
        self.as_ref()?.place()
    }
}

impl<P: Placed> Placed for &P {
    fn place(&self) -> Option<&Device> {
        (*self).place()
    }
}
