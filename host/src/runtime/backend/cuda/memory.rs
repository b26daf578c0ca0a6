//! Device memory: stream-ordered where the driver has pools.

use cust::context::CurrentContext;
use cust::error::ErrorCode;
use cust::memory::{DevicePointer, cuda_free, cuda_free_async, cuda_malloc, cuda_malloc_async};
use cust::stream::Stream;

use super::CudaBackend;
use crate::runtime::backend::{Failure, Outcome};

impl CudaBackend {
    pub(super) fn alloc_memory(&self, stream: &Stream, bytes: usize) -> Outcome<u64> {
        // More than the device has cannot succeed, and drivers answer absurd sizes with different errors.
        if bytes as u64 > self.info.memory_bytes {
            return Err(Failure::OutOfMemory);
        }
        if let Some(address) = self.try_alloc(stream, bytes)? {
            return Ok(address);
        }
        // Memory whose freeing is only queued, and memory that the pool keeps, still counts as used: wait for the first and give back the second.
        CurrentContext::synchronize()?;
        if let Some(pool) = &self.owned.pool {
            pool.trim_to(0)?;
        }
        self.try_alloc(stream, bytes)?.ok_or(Failure::OutOfMemory)
    }

    /// `None` when there is not enough memory.
    fn try_alloc(&self, stream: &Stream, bytes: usize) -> Outcome<Option<u64>> {
        // SAFETY: the address is the caller's, who frees it when nothing uses it any more.
        let allocated: Result<DevicePointer<u8>, _> = unsafe {
            match self.owned.pool {
                Some(_) => cuda_malloc_async(stream, bytes),
                None => cuda_malloc(bytes),
            }
        };
        match allocated {
            Ok(pointer) => Ok(Some(pointer.as_raw())),
            Err(error) if error.code() == ErrorCode::OUT_OF_MEMORY => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// # Safety
    /// The address came from [`alloc_memory`](Self::alloc_memory), and its last use is queued ahead on `stream`.
    pub(super) unsafe fn free_memory(&self, stream: &Stream, address: u64) -> Outcome<()> {
        let pointer = DevicePointer::<u8>::from_raw(address);
        if self.owned.pool.is_some() {
            // SAFETY: passed on.
            return Ok(unsafe { cuda_free_async(stream, pointer) }?);
        }
        // Without a pool, freeing is not ordered: the stream has to be done first.
        stream.synchronize()?;
        // SAFETY: passed on.
        Ok(unsafe { cuda_free(pointer) }?)
    }
}
