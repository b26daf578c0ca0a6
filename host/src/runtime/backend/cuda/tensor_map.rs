//! Encoding TMA descriptors.

use super::CudaBackend;
use crate::runtime::backend::Outcome;
use crate::runtime::dtype::DType;
use crate::runtime::shape::MAX_RANK;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};
use cuda_std::launch::TensorMap;

impl CudaBackend {
    pub(super) fn encode_tensor_map(&self, desc: &TensorMapDesc<'_>) -> Outcome<TensorMap> {
        let mut map = TensorMap([0; 16]);
        let element_strides = [1u32; MAX_RANK];
        // SAFETY: the descriptor is 64-byte aligned and 128 bytes long, the arrays have `rank` entries (strides: one less), as
        // `TensorMapDesc::check` made sure. The driver does not touch the tensor's memory.
        let code = unsafe {
            (self.driver.cuTensorMapEncodeTiled)(
                map.0.as_mut_ptr().cast(),
                data_type(desc.dtype),
                desc.dims.len() as u32,
                desc.address as *mut _,
                desc.dims.as_ptr(),
                desc.strides_bytes.as_ptr(),
                desc.box_dims.as_ptr(),
                element_strides.as_ptr(),
                0,
                swizzle(desc.swizzle),
                l2_promotion(desc.l2_promotion),
                match desc.oob_fill {
                    OobFill::Zero => 0,
                    OobFill::Nan => 1,
                },
            )
        };
        self.check("cuTensorMapEncodeTiled", code)?;
        Ok(map)
    }
}

/// `CUtensorMapDataType`.
fn data_type(dtype: DType) -> u32 {
    match dtype {
        // There is no signed byte; only the size matters.
        DType::U8 | DType::I8 => 0,
        DType::U32 => 2,
        DType::I32 => 3,
        DType::I64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::BF16 => 9,
    }
}

/// `CUtensorMapSwizzle`.
fn swizzle(swizzle: Swizzle) -> u32 {
    match swizzle {
        Swizzle::None => 0,
        Swizzle::B32 => 1,
        Swizzle::B64 => 2,
        Swizzle::B128 => 3,
    }
}

/// `CUtensorMapL2promotion`.
fn l2_promotion(promotion: L2Promotion) -> u32 {
    match promotion {
        L2Promotion::None => 0,
        L2Promotion::B64 => 1,
        L2Promotion::B128 => 2,
        L2Promotion::B256 => 3,
    }
}
