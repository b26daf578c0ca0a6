//! Device memory with an owner, which knows who used it: uses that conflict are ordered, and it is freed after all of them.

use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};
use crate::runtime::mutex::lock;
use crate::runtime::queue::Queue;
use crate::runtime::stream::Stream;

/// One allocation. Freeing is queued on `home`, so it never waits for the device.
#[derive(Debug)]
pub(crate) struct Storage {
    home: Stream,
    address: u64,
    bytes: usize,
    uses: Mutex<Vec<Use>>,
    /// Why there is no memory, if there is none.
    missing: Option<Mutex<Error>>,
}

/// What an address is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// One stream's last write and last read.
#[derive(Debug)]
struct Use {
    queue: Arc<Queue>,
    write: u64,
    read: u64,
}

/// The position of a use that has not happened: work that waits for it waits for nothing.
const NEVER: u64 = 0;
/// The position of a use whose launch may not be queued yet, because an address is handed out before the launch that needs it. It counts
/// as the end of the queue when another stream asks.
const OPEN: u64 = u64::MAX;

impl Use {
    fn new(queue: &Arc<Queue>, access: Access) -> Self {
        let mut new = Self { queue: queue.clone(), write: NEVER, read: NEVER };
        new.set_open(access);
        new
    }

    fn set_open(&mut self, access: Access) {
        match access {
            Access::Read => self.read = OPEN,
            Access::Write => self.write = OPEN,
        }
    }
}

impl Storage {
    pub(crate) fn new(home: &Stream, bytes: usize) -> Result<Self> {
        let address = match bytes {
            // The driver refuses empty allocations, and nothing ever reads this address.
            0 => 0,
            _ => home.alloc(bytes)?,
        };
        // The allocation counts as a write, so that uses on other streams come after it.
        let uses = vec![Use::new(home.queue(), Access::Write)];
        Ok(Self { home: home.clone(), address, bytes, uses: Mutex::new(uses), missing: None })
    }

    /// As [`new`](Self::new), for the result of an operator. If there is not enough memory, or no memory could have these bytes, the error comes
    /// only when the address is asked for. Until then the operator can check its arguments, since a wrong one may be the reason, and can name the
    /// result in the error.
    pub(crate) fn of_result(home: &Stream, bytes: Result<usize>) -> Result<Self> {
        match bytes.and_then(|bytes| Self::new(home, bytes)) {
            Err(error @ (Error::OutOfMemory { .. } | Error::TooLarge { .. })) => {
                let mut nothing = Self::new(home, 0)?;
                nothing.missing = Some(Mutex::new(error));
                Ok(nothing)
            }
            storage => storage,
        }
    }

    /// Whether there is memory behind it.
    pub(crate) fn is_there(&self) -> bool {
        self.missing.is_none()
    }

    /// Names the operator and the argument in the error of memory that is missing, unless it has names already.
    pub(crate) fn name_missing(&self, op: &'static str, arg: &'static str) {
        if let Some(missing) = &self.missing {
            lock(missing).name(op, arg);
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn home(&self) -> &Stream {
        &self.home
    }

    pub(crate) fn device(&self) -> &Device {
        self.home.device()
    }

    pub(crate) fn set_name(&self, name: &str) {
        self.device().name(self.address, name);
    }

    /// Makes `stream` wait for the uses that conflict with this one, and remembers this one.
    ///
    /// Earlier uses are queued by now, because the borrows they were made through have ended, except if the view is `split` from
    /// another one: that one may have been asked for its address and not have launched yet. Its use then stays to be ordered by
    /// whoever comes once all parts are whole again.
    pub(crate) fn order(&self, stream: &Stream, access: Access, split: bool) -> Result<()> {
        stream.require_device(self.device(), "ptr", "self")?;
        if let Some(missing) = &self.missing {
            return Err(lock(missing).clone());
        }
        if self.bytes == 0 {
            return Ok(());
        }
        let me = stream.queue();
        let mut uses = lock(&self.uses);
        if let [only] = &mut uses[..]
            && Arc::ptr_eq(&only.queue, me)
        {
            only.set_open(access);
            return Ok(());
        }
        for other in uses.iter_mut().filter(|other| !Arc::ptr_eq(&other.queue, me)) {
            let now = other.queue.position();
            let write = other.write.min(now);
            let until = match access {
                Access::Read => write,
                Access::Write => other.read.min(now).max(write),
            };
            self.device().call(|b| me.come_after(b, &other.queue, until))?;
            if !split {
                other.write = write;
            }
        }
        if access == Access::Write && !split {
            // This stream comes after all others, so it stands for them.
            uses.retain(|only| Arc::ptr_eq(&only.queue, me));
        }
        match uses.iter_mut().find(|mine| Arc::ptr_eq(&mine.queue, me)) {
            Some(mine) => mine.set_open(access),
            None => uses.push(Use::new(me, access)),
        }
        Ok(())
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Errors have nowhere to go from a drop; a fault shows again at the next call.
        let _ = self.home.device().call(|b| {
            let home = self.home.queue();
            for used in uses.iter() {
                home.come_after(b, &used.queue, used.write.max(used.read).min(used.queue.position()))?;
            }
            // SAFETY: nothing else has the address, and all who used it come first.
            let freed = unsafe { b.free(home.raw(), self.address) };
            home.advance();
            freed
        });
    }
}
