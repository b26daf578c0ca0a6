//! Values that host threads hold back: of two that are about to store to one place each waits for the other's value, to see whether it is the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::view::Far;

/// What a lane stores, 32 bytes at most, with zeros behind it.
pub type Value = [u8; 32];

/// The warps that wait, with the addresses that they are about to store to and what.
#[derive(Debug, Default)]
pub struct Held(Mutex<Vec<(Far, u64, Value)>>);

impl Held {
    /// Shows what a warp is about to store.
    pub fn show(&self, warp: Far, values: impl Iterator<Item = (u64, Value)>) {
        self.all().extend(values.map(|(addr, value)| (warp, addr, value)));
    }

    /// Takes back what it has shown.
    pub fn take_back(&self, warp: Far) {
        self.all().retain(|(who, ..)| *who != warp);
    }

    /// Whether a warp is about to store this there.
    pub fn has(&self, warp: Far, addr: u64, value: Value) -> bool {
        self.all().contains(&(warp, addr, value))
    }

    fn all(&self) -> MutexGuard<'_, Vec<(Far, u64, Value)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
