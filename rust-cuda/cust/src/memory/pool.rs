//! Pools: memory that is allocated and freed in stream order.

use std::ptr::null_mut;

use super::allocate::bytes_of;
use super::{DeviceCopy, DevicePointer};
use crate::device::Device;
use crate::error::CudaResult;
use crate::stream::Stream;
use crate::sys::{CUmemPoolProps, CUmemoryPool, Handle};

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_MEM_CURRENT: u32 = 5;
const USED_MEM_CURRENT: u32 = 7;
const USED_MEM_HIGH: u32 = 8;

const ALLOCATION_PINNED: u32 = 1;
const LOCATION_DEVICE: u32 = 1;

/// A pool of a device's memory. Its addresses are freed with [`cuda_free_async`](super::cuda_free_async).
#[derive(Debug)]
pub struct MemoryPool {
    raw: Handle,
    owned: bool,
}

impl MemoryPool {
    /// The device's default pool, from which [`cuda_malloc_async`](super::cuda_malloc_async) allocates.
    pub fn default_of(device: Device) -> CudaResult<Self> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a live handle.
        unsafe { call!(cuDeviceGetDefaultMemPool(&mut raw, device.as_raw())) }?;
        Ok(Self { raw: Handle(raw), owned: false })
    }

    /// A new pool, which takes as much of the device's memory as is needed. Allocations from it outlive it.
    pub fn new(device: Device) -> CudaResult<Self> {
        let properties = CUmemPoolProps {
            allocation_type: ALLOCATION_PINNED,
            handle_types: 0,
            location_type: LOCATION_DEVICE,
            location: device.as_raw(),
            security_attributes: null_mut(),
            max_bytes: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut raw = null_mut();
        // SAFETY: the pointers are to a live handle and live properties.
        unsafe { call!(cuMemPoolCreate(&mut raw, &properties)) }?;
        Ok(Self { raw: Handle(raw), owned: true })
    }

    /// Allocates in stream order: later work on the stream, and work that waits for it, may use the memory.
    ///
    /// # Safety
    /// As for [`cuda_malloc`](super::cuda_malloc).
    pub unsafe fn alloc_async<T: DeviceCopy>(&self, stream: &Stream, count: usize) -> CudaResult<DevicePointer<T>> {
        let bytes = bytes_of::<T>("cuMemAllocFromPoolAsync", count)?;
        let mut address = 0;
        // SAFETY: the pointer is to a live address, the handles are alive.
        unsafe { call!(cuMemAllocFromPoolAsync(&mut address, bytes, self.as_raw(), stream.as_raw())) }?;
        Ok(DevicePointer::from_raw(address))
    }

    /// Sets how many bytes it keeps when a stream is synchronised; free memory beyond that is returned to the system.
    pub fn set_release_threshold(&self, bytes: u64) -> CudaResult<()> {
        self.set(RELEASE_THRESHOLD, bytes)
    }

    /// The number of bytes that it keeps.
    pub fn release_threshold(&self) -> CudaResult<u64> {
        self.get(RELEASE_THRESHOLD)
    }

    /// The number of bytes that it holds from the system.
    pub fn reserved(&self) -> CudaResult<u64> {
        self.get(RESERVED_MEM_CURRENT)
    }

    /// The number of bytes that are allocated from it.
    pub fn used(&self) -> CudaResult<u64> {
        self.get(USED_MEM_CURRENT)
    }

    /// The maximum number of bytes allocated from it at a time, since the last [`reset_used_high`](Self::reset_used_high).
    pub fn used_high(&self) -> CudaResult<u64> {
        self.get(USED_MEM_HIGH)
    }

    /// Resets [`used_high`](Self::used_high) to what is allocated now.
    pub fn reset_used_high(&self) -> CudaResult<()> {
        self.set(USED_MEM_HIGH, 0)
    }

    /// Returns free memory to the system, except this many bytes.
    pub fn trim_to(&self, bytes_to_keep: usize) -> CudaResult<()> {
        // SAFETY: the handle is alive; what is in use stays.
        unsafe { call!(cuMemPoolTrimTo(self.as_raw(), bytes_to_keep)) }
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUmemoryPool {
        self.raw.0
    }

    fn set(&self, attribute: u32, value: u64) -> CudaResult<()> {
        let mut value = value;
        // SAFETY: the handle is alive, the pointer is to a live number of the attribute's type.
        unsafe { call!(cuMemPoolSetAttribute(self.as_raw(), attribute, (&raw mut value).cast())) }
    }

    /// One of its attributes of 64 bits.
    fn get(&self, attribute: u32) -> CudaResult<u64> {
        let mut value = 0u64;
        // SAFETY: the handle is alive, the pointer is to a live number of the attribute's type.
        unsafe { call!(cuMemPoolGetAttribute(self.as_raw(), attribute, (&raw mut value).cast())) }?;
        Ok(value)
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the handle is ours; the driver keeps the memory until what is allocated has been freed.
            let _ = unsafe { call!(cuMemPoolDestroy(self.as_raw())) };
        }
    }
}
