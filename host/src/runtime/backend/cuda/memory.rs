//! Device memory: stream-ordered where the driver has pools.

use super::{CudaBackend, code, stream_handle};
use crate::runtime::backend::{Failure, Outcome, RawStream};

impl CudaBackend {
    pub(super) fn alloc_memory(&self, stream: RawStream, bytes: usize) -> Outcome<u64> {
        // No use asking, and what the driver answers to absurd sizes varies.
        if bytes as u64 > self.info.memory_bytes {
            return Err(Failure::OutOfMemory);
        }
        if let Some(address) = self.try_alloc(stream, bytes)? {
            return Ok(address);
        }
        // What streams have queued to free, and what the pool keeps in other sizes, counts as used until now.
        // SAFETY: waiting and trimming touch no memory that is in use.
        unsafe {
            let code = (self.driver.cuCtxSynchronize)();
            self.check("cuCtxSynchronize", code)?;
            if let Some(pool) = self.pool {
                (self.driver.cuMemPoolTrimTo)(pool.0, 0);
            }
        }
        self.try_alloc(stream, bytes)?.ok_or(Failure::OutOfMemory)
    }

    /// `None` when there is not enough memory.
    fn try_alloc(&self, stream: RawStream, bytes: usize) -> Outcome<Option<u64>> {
        let mut address = 0;
        // SAFETY: the pointer is to a live address.
        let code = unsafe {
            match self.pool {
                Some(_) => (self.driver.cuMemAllocAsync)(&mut address, bytes, stream_handle(stream)),
                None => (self.driver.cuMemAlloc_v2)(&mut address, bytes),
            }
        };
        match code {
            code::OUT_OF_MEMORY => Ok(None),
            code => self.check("cuMemAlloc", code).map(|()| Some(address)),
        }
    }

    /// # Safety
    /// The address came from [`alloc_memory`](Self::alloc_memory), and its last use is queued ahead on `stream`.
    pub(super) unsafe fn free_memory(&self, stream: RawStream, address: u64) -> Outcome<()> {
        let (d, stream) = (self.driver, stream_handle(stream));
        // SAFETY: passed on.
        unsafe {
            if self.pool.is_some() {
                return self.check("cuMemFreeAsync", (d.cuMemFreeAsync)(address, stream));
            }
            // Without a pool, freeing is not ordered: the stream has to be done first.
            self.check("cuStreamSynchronize", (d.cuStreamSynchronize)(stream))?;
            self.check("cuMemFree", (d.cuMemFree_v2)(address))
        }
    }
}
