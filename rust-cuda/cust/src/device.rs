//! Devices: enumeration and properties.

use std::ffi::CStr;
use std::ops::Range;

use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::sys::CUdevice;

/// A GPU that the driver shows to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device(CUdevice);

impl Device {
    /// The number of devices.
    pub fn num_devices() -> CudaResult<u32> {
        let mut count = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { call!(cuDeviceGetCount(&mut count)) }?;
        Ok(count.max(0) as u32)
    }

    /// The device with this number, counted from 0.
    pub fn get_device(ordinal: u32) -> CudaResult<Self> {
        let ordinal = ordinal.try_into().map_err(|_| CudaError::new("cuDeviceGet", ErrorCode::INVALID_DEVICE))?;
        let mut device = 0;
        // SAFETY: the pointer is to a live integer; the driver checks the ordinal.
        unsafe { call!(cuDeviceGet(&mut device, ordinal)) }?;
        Ok(Self(device))
    }

    /// All devices.
    pub fn devices() -> CudaResult<Devices> {
        Ok(Devices { ordinals: 0..Self::num_devices()? })
    }

    /// Bytes of memory.
    pub fn total_memory(self) -> CudaResult<usize> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { call!(cuDeviceTotalMem_v2(&mut bytes, self.0)) }?;
        Ok(bytes)
    }

    /// Marketing name.
    pub fn name(self) -> CudaResult<String> {
        let mut name = [0u8; 256];
        // SAFETY: the pointer is to this many live bytes.
        unsafe { call!(cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, self.0)) }?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// The value of an attribute.
    pub fn get_attribute(self, attribute: DeviceAttribute) -> CudaResult<i32> {
        let mut value = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { call!(cuDeviceGetAttribute(&mut value, attribute as i32, self.0)) }?;
        Ok(value)
    }

    /// The driver's number of the device.
    pub const fn as_raw(self) -> CUdevice {
        self.0
    }
}

/// See [`Device::devices`].
#[derive(Debug, Clone)]
pub struct Devices {
    ordinals: Range<u32>,
}

impl Iterator for Devices {
    type Item = CudaResult<Device>;

    fn next(&mut self) -> Option<Self::Item> {
        self.ordinals.next().map(Device::get_device)
    }
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// Attributes of a device. Boolean ones are 1 or 0.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum DeviceAttribute {
            $($(#[$doc])* $name = $value,)*
        }
    };
}

attributes! {
    /// Maximum number of threads per block.
    MaxThreadsPerBlock = 1,
    /// Maximum block size along x.
    MaxBlockDimX = 2,
    /// Maximum block size along y.
    MaxBlockDimY = 3,
    /// Maximum block size along z.
    MaxBlockDimZ = 4,
    /// Maximum grid size along x.
    MaxGridDimX = 5,
    /// Maximum grid size along y.
    MaxGridDimY = 6,
    /// Maximum grid size along z.
    MaxGridDimZ = 7,
    /// Bytes of shared memory that a block can use without opting in to more.
    MaxSharedMemoryPerBlock = 8,
    /// Bytes of constant memory.
    TotalConstantMemory = 9,
    /// Threads of a warp.
    WarpSize = 10,
    /// Maximum number of registers per block.
    MaxRegistersPerBlock = 12,
    /// Highest clock of the multiprocessors in kHz.
    ClockRate = 13,
    /// Streaming multiprocessors.
    MultiprocessorCount = 16,
    /// Whether kernels have a run-time limit.
    KernelExecTimeout = 17,
    /// Whether it shares the host's memory.
    Integrated = 18,
    /// Whether it can map the host's memory.
    CanMapHostMemory = 19,
    /// Who may use the device.
    ComputeMode = 20,
    /// Whether kernels run at the same time.
    ConcurrentKernels = 31,
    /// Whether memory errors are corrected.
    EccEnabled = 32,
    /// Its PCI bus.
    PciBusId = 33,
    /// Its device number on the PCI bus.
    PciDeviceId = 34,
    /// Highest clock of the memory in kHz.
    MemoryClockRate = 36,
    /// Bits of the memory bus.
    GlobalMemoryBusWidth = 37,
    /// Bytes of the second-level cache.
    L2CacheSize = 38,
    /// Maximum number of resident threads per multiprocessor.
    MaxThreadsPerMultiprocessor = 39,
    /// Number of copy engines that run concurrently with kernels.
    AsyncEngineCount = 40,
    /// Whether host and device share an address space.
    UnifiedAddressing = 41,
    /// Its PCI domain.
    PciDomainId = 50,
    /// The 9 of compute capability 9.0.
    ComputeCapabilityMajor = 75,
    /// The 0 of compute capability 9.0.
    ComputeCapabilityMinor = 76,
    /// Whether streams have priorities.
    StreamPrioritiesSupported = 78,
    /// Bytes of shared memory per multiprocessor.
    MaxSharedMemoryPerMultiprocessor = 81,
    /// Registers per multiprocessor.
    MaxRegistersPerMultiprocessor = 82,
    /// Whether it has managed memory.
    ManagedMemory = 83,
    /// Whether it is on a board with others.
    MultiGpuBoard = 84,
    /// Whether it reads pageable memory of the host.
    PageableMemoryAccess = 88,
    /// Whether cooperative launches work.
    CooperativeLaunch = 95,
    /// Bytes of shared memory that a block can opt in to.
    MaxSharedMemoryPerBlockOptin = 97,
    /// Maximum number of resident blocks per multiprocessor.
    MaxBlocksPerMultiprocessor = 106,
    /// Maximum bytes of L2 that can be reserved for persisting accesses.
    MaxPersistingL2CacheSize = 108,
    /// Bytes of shared memory per block that the system reserves.
    ReservedSharedMemoryPerBlock = 111,
    /// Whether it has stream-ordered pools.
    MemoryPoolsSupported = 115,
    /// Whether it has clusters.
    ClusterLaunch = 120,
    /// Whether it takes tensor maps.
    TensorMapAccessSupported = 127,
}
