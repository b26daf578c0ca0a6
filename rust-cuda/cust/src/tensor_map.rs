//! Tensor maps: how the bulk copies of a kernel (TMA) see a tensor in global memory. Compute capability 9.0 and newer.

use std::fmt;

use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::memory::{DeviceCopy, DevicePointer};

/// An encoded tensor map. A kernel takes it by value, as a `__grid_constant__` parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

// SAFETY: numbers.
unsafe impl DeviceCopy for TensorMap {}

impl TensorMap {
    /// Encodes a tensor that is copied in boxes. The driver checks the hardware's rules; it does not touch the tensor's memory, which has
    /// to be there when kernels use the map.
    pub fn encode_tiled(tensor: &Tiled<'_>) -> CudaResult<Self> {
        let rank = tensor.dims.len();
        let lengths = [tensor.strides_bytes.len() + 1, tensor.box_dims.len()];
        if !(1..=Tiled::MAX_RANK).contains(&rank) || lengths != [rank; 2] {
            return Err(CudaError::new("cuTensorMapEncodeTiled", ErrorCode::INVALID_VALUE));
        }
        let mut map = Self([0; 16]);
        let element_strides = [1u32; Tiled::MAX_RANK];
        // One dimension has none, and is given memory for them all the same.
        let mut strides = [0u64; Tiled::MAX_RANK];
        strides[..rank - 1].copy_from_slice(tensor.strides_bytes);
        // SAFETY: the map is 128 bytes on a boundary of 64, the arrays have `rank` entries (strides: one less).
        unsafe {
            call!(cuTensorMapEncodeTiled(
                map.0.as_mut_ptr().cast(),
                tensor.data_type as u32,
                rank as u32,
                tensor.address.as_raw() as *mut _,
                tensor.dims.as_ptr(),
                strides.as_ptr(),
                tensor.box_dims.as_ptr(),
                element_strides.as_ptr(),
                0,
                tensor.swizzle as u32,
                tensor.l2_promotion as u32,
                tensor.oob_fill as u32,
            ))
        }?;
        Ok(map)
    }

    /// Its 128 bytes.
    pub const fn to_raw(self) -> [u64; 16] {
        self.0
    }
}

impl fmt::Debug for TensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TensorMap(..)")
    }
}

/// A tensor that is copied in boxes. Dimensions are listed **innermost first**, as the hardware counts them.
#[derive(Debug, Clone, Copy)]
pub struct Tiled<'a> {
    /// Type of the elements.
    pub data_type: TensorMapDataType,
    /// First element; a multiple of 16.
    pub address: DevicePointer<u8>,
    /// Extents; 1 to 5 of them.
    pub dims: &'a [u64],
    /// Bytes from one entry to the next of each dimension but the innermost; multiples of 16.
    pub strides_bytes: &'a [u64],
    /// Extents of the box that one copy moves; each at most 256.
    pub box_dims: &'a [u32],
    /// Permutation in shared memory.
    pub swizzle: TensorMapSwizzle,
    /// How much L2 fetches around each access.
    pub l2_promotion: TensorMapL2Promotion,
    /// What is outside the tensor.
    pub oob_fill: TensorMapFloatOobFill,
}

impl Tiled<'_> {
    /// The most dimensions.
    pub const MAX_RANK: usize = 5;
}

/// Types of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
#[allow(missing_docs, reason = "names of types")]
pub enum TensorMapDataType {
    /// Any type of one byte.
    Uint8 = 0,
    Uint16 = 1,
    Uint32 = 2,
    Int32 = 3,
    Uint64 = 4,
    Int64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
    /// `f32` whose subnormals become zero.
    Float32Ftz = 10,
    /// `f32` rounded to tf32.
    TFloat32 = 11,
    /// `f32` rounded to tf32, subnormals to zero.
    TFloat32Ftz = 12,
}

/// How a box's bytes are permuted in shared memory, so that columns meet no bank conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
#[non_exhaustive]
pub enum TensorMapSwizzle {
    /// Not at all.
    #[default]
    None = 0,
    /// Within 32-byte rows.
    B32 = 1,
    /// Within 64-byte rows.
    B64 = 2,
    /// Within 128-byte rows.
    B128 = 3,
}

/// How much of a line L2 fetches around each access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum TensorMapL2Promotion {
    /// What is accessed.
    #[default]
    None = 0,
    /// 64 bytes.
    B64 = 1,
    /// 128 bytes.
    B128 = 2,
    /// 256 bytes.
    B256 = 3,
}

/// What elements outside the tensor read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum TensorMapFloatOobFill {
    /// Zero.
    #[default]
    Zero = 0,
    /// NaN; floating-point types only.
    Nan = 1,
}
