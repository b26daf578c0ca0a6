//! Pools: memory that is allocated and freed in the order of streams.

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

/// A pool of a device's memory. Its addresses go back with [`cuda_free_async`](super::cuda_free_async).
#[derive(Debug)]
pub struct MemoryPool {
    raw: Handle,
    owned: bool,
}

impl MemoryPool {
    /// The pool that a device has from the start, and that [`cuda_malloc_async`](super::cuda_malloc_async) takes from.
    pub fn default_of(device: Device) -> CudaResult<Self> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a live handle.
        unsafe { call!(cuDeviceGetDefaultMemPool(&mut raw, device.as_raw())) }?;
        Ok(Self { raw: Handle(raw), owned: false })
    }

    /// A pool of its own, of as much of the device's memory as is needed. What was allocated from it outlives it.
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

    /// Allocates in the order of the stream: later work on it, and what waits for that, may use the memory.
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

    /// Keeps this many bytes when streams are waited for; what is free beyond them goes back to the system.
    pub fn set_release_threshold(&self, bytes: u64) -> CudaResult<()> {
        self.set(RELEASE_THRESHOLD, bytes)
    }

    /// Bytes that it keeps.
    pub fn release_threshold(&self) -> CudaResult<u64> {
        self.get(RELEASE_THRESHOLD)
    }

    /// Bytes that it has from the system.
    pub fn reserved(&self) -> CudaResult<u64> {
        self.get(RESERVED_MEM_CURRENT)
    }

    /// Bytes that are allocated from it.
    pub fn used(&self) -> CudaResult<u64> {
        self.get(USED_MEM_CURRENT)
    }

    /// The most bytes that were allocated from it at a time, since the last [`reset_used_high`](Self::reset_used_high).
    pub fn used_high(&self) -> CudaResult<u64> {
        self.get(USED_MEM_HIGH)
    }

    /// Starts [`used_high`](Self::used_high) again, at what is allocated now.
    pub fn reset_used_high(&self) -> CudaResult<()> {
        self.set(USED_MEM_HIGH, 0)
    }

    /// Gives what is free back to the system, but for this many bytes.
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
