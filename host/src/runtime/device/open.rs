//! Opening devices: each is open once in a process, and lost for good once a kernel has failed on it.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};

use super::{BackendKind, Device, Inner};
use crate::runtime::backend;
use crate::runtime::backend::sim::SimBackend;
use crate::runtime::environment::variable;
use crate::runtime::error::{Error, Result};
use crate::runtime::mutex::lock;

/// Which device of which backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) kind: BackendKind,
    pub(super) ordinal: usize,
}

/// What ended a device. It outlives the device, because no driver call undoes it: only a new process starts afresh.
pub(super) type Fault = OnceLock<Error>;

pub(super) fn fault_of(id: Id) -> &'static Fault {
    static FAULTS: Mutex<Option<HashMap<Id, &'static Fault>>> = Mutex::new(None);
    // One a device of the machine, for as long as the process lives.
    lock(&FAULTS).get_or_insert_default().entry(id).or_insert_with(|| Box::leak(Box::default()))
}

/// Devices of this process that are open or closing.
static OPEN: Mutex<Vec<(Id, Weak<Inner>)>> = Mutex::new(Vec::new());
static CLOSED: Condvar = Condvar::new();

/// Marks a device as open, in [`OPEN`].
pub(super) struct Open(Id);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&OPEN).retain(|(id, _)| *id != self.0);
        CLOSED.notify_all();
    }
}

impl Device {
    /// Opens the first device of the backend that `WARPSMITH_BACKEND` names, otherwise the first GPU, otherwise the simulator.
    /// A driver that `WARPSMITH_LIBCUDA` names has to be there.
    pub fn open() -> Result<Self> {
        Self::open_nth(0)
    }

    /// Opens another device of the backend that [`open`](Self::open) picks; they count from 0.
    pub fn open_nth(ordinal: usize) -> Result<Self> {
        on_default(|kind| Self::open_backend_nth(kind, ordinal))
    }

    /// Opens every device of the backend that [`open`](Self::open) picks.
    pub fn open_all() -> Result<Vec<Self>> {
        // Opening the first says why there is none.
        on_default(|kind| (0..Self::count(kind)?.max(1)).map(|i| Self::open_backend_nth(kind, i)).collect())
    }

    /// How many devices a backend has.
    pub fn count(kind: BackendKind) -> Result<usize> {
        backend::count(kind)
    }

    /// Opens the first device of a backend.
    pub fn open_backend(kind: BackendKind) -> Result<Self> {
        Self::open_backend_nth(kind, 0)
    }

    /// Opens a device of a backend; they count from 0.
    pub fn open_backend_nth(kind: BackendKind, ordinal: usize) -> Result<Self> {
        let id = Id { kind, ordinal };
        let fault = fault_of(id);
        let mut open = lock(&OPEN);
        while let Some((_, weak)) = open.iter().find(|(open, _)| *open == id) {
            if let Some(inner) = weak.upgrade() {
                // Dropping the last handle takes the lock.
                drop(open);
                return fault.get().map_or(Ok(Self(inner)), |fault| Err(fault.clone()));
            }
            open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(fault) = fault.get() {
            return Err(fault.clone());
        }
        let device = Self::new(backend::open(kind, ordinal)?, id, Some(Open(id)));
        open.push((id, Arc::downgrade(&device.0)));
        Ok(device)
    }

    /// A simulated device that opening its backend does not give to others.
    pub(crate) fn unshared(backend: SimBackend) -> Self {
        Self::new(Box::new(backend), Id { kind: BackendKind::Sim, ordinal: 0 }, None)
    }
}

/// Calls `open` for the backend that the environment names, otherwise for GPUs, otherwise for the simulator.
fn on_default<T>(open: impl Fn(BackendKind) -> Result<T>) -> Result<T> {
    match variable("WARPSMITH_BACKEND") {
        Some(name) => open(name.parse()?),
        None => open(BackendKind::Cuda).or_else(|error| match error {
            Error::NoDriver { .. } | Error::NoGpu { .. } => open(BackendKind::Sim),
            error => Err(error),
        }),
    }
}
