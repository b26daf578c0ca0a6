//! Functions: kernels that are ready to launch.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::loaded::Loaded;
use crate::memory::DeviceCopy;
use crate::sys::{CUfunction, CUlaunchAttribute, CUlaunchConfig, CUstream, Handle};

macro_rules! extents {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Along x, the fastest.
            pub x: u32,
            /// Along y.
            pub y: u32,
            /// Along z.
            pub z: u32,
        }

        impl $name {
            /// One dimension.
            pub const fn x(x: u32) -> Self {
                Self::xyz(x, 1, 1)
            }

            /// Two dimensions.
            pub const fn xy(x: u32, y: u32) -> Self {
                Self::xyz(x, y, 1)
            }

            /// Three dimensions.
            pub const fn xyz(x: u32, y: u32, z: u32) -> Self {
                Self { x, y, z }
            }
        }

        impl From<u32> for $name {
            fn from(x: u32) -> Self {
                Self::x(x)
            }
        }

        impl From<(u32, u32)> for $name {
            fn from((x, y): (u32, u32)) -> Self {
                Self::xy(x, y)
            }
        }

        impl From<(u32, u32, u32)> for $name {
            fn from((x, y, z): (u32, u32, u32)) -> Self {
                Self::xyz(x, y, z)
            }
        }

        impl From<[u32; 3]> for $name {
            fn from([x, y, z]: [u32; 3]) -> Self {
                Self::xyz(x, y, z)
            }
        }
    };
}

extents! {
    /// Blocks of a grid.
    GridSize
}
extents! {
    /// Threads of a block.
    BlockSize
}
extents! {
    /// Blocks of a cluster.
    ClusterSize
}

/// A kernel of a loaded module. Cheap to clone; it keeps its module loaded.
#[derive(Debug, Clone)]
pub struct Function {
    raw: Handle,
    _module: Arc<Loaded>,
}

impl Function {
    pub(crate) fn from_raw(raw: CUfunction, module: Arc<Loaded>) -> Self {
        Self { raw: Handle(raw), _module: module }
    }

    /// The value of an attribute.
    pub fn get_attribute(&self, attribute: FunctionAttribute) -> CudaResult<i32> {
        let mut value = 0;
        // SAFETY: the handle is alive, the pointer is to a live integer.
        unsafe { call!(cuFuncGetAttribute(&mut value, attribute as u32, self.as_raw())) }?;
        Ok(value)
    }

    /// Changes an attribute that can be set.
    pub fn set_attribute(&self, attribute: FunctionAttribute, value: i32) -> CudaResult<()> {
        // SAFETY: the handle is alive; the driver checks the value.
        unsafe { call!(cuFuncSetAttribute(self.as_raw(), attribute as u32, value)) }
    }

    /// The number of blocks of this size that fit on a multiprocessor at a time.
    pub fn max_active_blocks_per_multiprocessor(&self, block: BlockSize, shared_bytes: usize) -> CudaResult<u32> {
        const FUNCTION: &str = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
        let threads = [block.y, block.z].iter().try_fold(block.x, |threads, n| threads.checked_mul(*n));
        let threads = threads.and_then(|threads| i32::try_from(threads).ok());
        let threads = threads.ok_or(CudaError::new(FUNCTION, ErrorCode::INVALID_VALUE))?;
        let (mut count, function) = (0, self.as_raw());
        // SAFETY: the handle is alive, the pointer is to a live integer.
        unsafe { call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut count, function, threads, shared_bytes)) }?;
        Ok(count.max(0) as u32)
    }

    /// The number of clusters of this size that fit on the device at a time.
    pub fn max_active_clusters(&self, cluster: ClusterSize, block: BlockSize, shared_bytes: u32) -> CudaResult<u32> {
        let attributes = [LaunchAttribute::ClusterDimension(cluster).to_raw()];
        // The driver requires a grid of whole clusters, and ignores its size otherwise.
        let grid = GridSize::xyz(cluster.x, cluster.y, cluster.z);
        let config = launch_config(grid, block, shared_bytes, null_mut(), &attributes);
        let mut count = 0;
        // SAFETY: the handle is alive, the pointers are to a live integer and a live configuration.
        unsafe { call!(cuOccupancyMaxActiveClusters(&mut count, self.as_raw(), &config)) }?;
        Ok(count.max(0) as u32)
    }

    /// The driver's handle, valid as long as the function's module.
    pub fn as_raw(&self) -> CUfunction {
        self.raw.0
    }
}

/// Attributes of a function; some of them can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum FunctionAttribute {
    /// Maximum number of threads per block, given the registers that it uses.
    MaxThreadsPerBlock = 0,
    /// Bytes of static shared memory.
    SharedMemorySizeBytes = 1,
    /// Bytes of constants.
    ConstSizeBytes = 2,
    /// Bytes of local memory per thread: spills and stack.
    LocalSizeBytes = 3,
    /// Registers per thread.
    NumRegisters = 4,
    /// PTX version, 10 × major + minor.
    PtxVersion = 5,
    /// The compute capability that it was compiled for, 10 × major + minor.
    BinaryVersion = 6,
    /// Whether global loads are kept in L1.
    CacheModeCa = 7,
    /// Bytes of dynamic shared memory that a launch may ask for. Can be set.
    MaxDynamicSharedSizeBytes = 8,
    /// Percentage of L1 to use as shared memory. Can be set.
    PreferredSharedMemoryCarveout = 9,
    /// Whether launches must specify the cluster size.
    ClusterSizeMustBeSet = 10,
    /// Blocks of a cluster along x, if the kernel declares it.
    RequiredClusterWidth = 11,
    /// Blocks of a cluster along y, if the kernel declares it.
    RequiredClusterHeight = 12,
    /// Blocks of a cluster along z, if the kernel declares it.
    RequiredClusterDepth = 13,
    /// Whether clusters of more than 8 blocks are allowed. Can be set.
    NonPortableClusterSizeAllowed = 14,
}

/// Options of a launch beyond grid, block and shared memory; see [`Stream::launch_with`](crate::stream::Stream::launch_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchAttribute {
    /// All blocks are resident at the same time.
    Cooperative,
    /// Blocks run in clusters of this size. A kernel that declares its cluster size needs no attribute.
    ClusterDimension(ClusterSize),
    /// Blocks may start before the previous kernel has ended; they wait for it with `griddepcontrol.wait`.
    ProgrammaticStreamSerialization,
    /// The launch's own priority.
    Priority(i32),
}

impl LaunchAttribute {
    /// The maximum number of attributes per launch.
    pub const MOST: usize = 4;

    pub(crate) fn to_raw(self) -> CUlaunchAttribute {
        let (id, [a, b, c]) = match self {
            Self::Cooperative => (2, [1, 0, 0]),
            Self::ClusterDimension(size) => (4, [size.x, size.y, size.z]),
            Self::ProgrammaticStreamSerialization => (6, [1, 0, 0]),
            Self::Priority(priority) => (8, [priority.cast_unsigned(), 0, 0]),
        };
        let mut raw = CUlaunchAttribute { id, ..Default::default() };
        raw.value[..3].copy_from_slice(&[a, b, c]);
        raw
    }
}

pub(crate) fn launch_config(
    grid: GridSize,
    block: BlockSize,
    shared_bytes: u32,
    stream: CUstream,
    attributes: &[CUlaunchAttribute],
) -> CUlaunchConfig {
    CUlaunchConfig {
        grid: [grid.x, grid.y, grid.z],
        block: [block.x, block.y, block.z],
        shared_bytes,
        stream,
        attributes: attributes.as_ptr(),
        count: attributes.len() as u32,
    }
}

/// The pointer that [`launch!`](crate::launch!) passes for an argument.
#[doc(hidden)]
pub fn argument<T: DeviceCopy>(value: &T) -> *mut c_void {
    // The driver only reads through it.
    (&raw const *value).cast_mut().cast()
}
