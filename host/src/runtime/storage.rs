//! Device memory with an owner: freed in stream order, after every stream that used it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::device::Device;

use crate::runtime::error::{Error, Result};

use crate::runtime::stream::Stream;

/// Streams whose slot does not fit the bit mask share its last bit.
const SHARED_SLOT: u32 = 63;

/// One allocation. Freeing is queued on `home`, so it never waits for the device.
#[derive(Debug)]
pub(crate) struct Storage {
    home: Stream,
    address: u64,
    bytes: usize,
    /// Slots of the streams, other than `home`, that the memory was handed to.
    users: AtomicU64,
}

impl Storage {
    pub(crate) fn new(home: &Stream, bytes: usize) -> Result<Self> {
        let address = match bytes {
            // The driver refuses empty allocations, and nothing ever reads this address.
            0 => 0,
            _ => home.alloc(bytes)?,
        };
        Ok(Self { home: home.clone(), address, bytes, users: AtomicU64::new(0) })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn set_name(&self, name: &str) {
        if self.bytes > 0 {
            let _ = self.device().call(|b| {
                b.name(self.address, name);
                Ok(())
            });
        }
    }

    pub(crate) fn device(&self) -> &Device {
        self.home.device()
    }

    /// Orders `stream` behind the allocation on first use, and the later free behind `stream`.
    pub(crate) fn mark_used(&self, stream: &Stream) {
        if stream.is(&self.home) || self.bytes == 0 {
            return;
        }
        if stream.device() != self.device() {
            stream.defer(Error::DeviceMismatch { op: "launch" });
            return;
        }
        let slot = stream.slot().min(SHARED_SLOT);
        let bit = 1 << slot;
        if slot < SHARED_SLOT && self.users.load(Ordering::Acquire) & bit != 0 {
            return;
        }
        if let Err(error) = self.device().order(&self.home, stream) {
            stream.defer(error);
            return;
        }
        self.users.fetch_or(bit, Ordering::AcqRel);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let users = *self.users.get_mut();
            self.device().free(&self.home, users, self.address);
        }
    }
}

/// The slots that a mask of users stands for, among `count` streams.
pub(crate) fn slots(users: u64, count: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |&slot| users >> slot.min(SHARED_SLOT as usize) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bit_stands_for_all_later_streams() {
        assert_eq!(slots(0b101, 10).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(slots(1 << 63, 66).collect::<Vec<_>>(), [63, 64, 65]);
        assert_eq!(slots(0, 100).count(), 0);
    }
}
