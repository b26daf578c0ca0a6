//! Encoding TMA descriptors.

use cuda_std::launch::TensorMap;
use cust::memory::DevicePointer;
use cust::tensor_map::{TensorMapDataType, TensorMapFloatOobFill, TensorMapL2Promotion, TensorMapSwizzle, Tiled};

use crate::runtime::backend::Outcome;
use crate::runtime::dtype::DType;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};

/// Encodes what `TensorMapDesc::check` has accepted.
pub(super) fn encode(desc: &TensorMapDesc<'_>) -> Outcome<TensorMap> {
    let map = cust::tensor_map::TensorMap::encode_tiled(&Tiled {
        data_type: data_type(desc.dtype),
        address: DevicePointer::from_raw(desc.address),
        dims: desc.dims,
        strides_bytes: desc.strides_bytes,
        box_dims: desc.box_dims,
        swizzle: match desc.swizzle {
            Swizzle::None => TensorMapSwizzle::None,
            Swizzle::B32 => TensorMapSwizzle::B32,
            Swizzle::B64 => TensorMapSwizzle::B64,
            Swizzle::B128 => TensorMapSwizzle::B128,
        },
        l2_promotion: match desc.l2_promotion {
            L2Promotion::None => TensorMapL2Promotion::None,
            L2Promotion::B64 => TensorMapL2Promotion::B64,
            L2Promotion::B128 => TensorMapL2Promotion::B128,
            L2Promotion::B256 => TensorMapL2Promotion::B256,
        },
        oob_fill: match desc.oob_fill {
            OobFill::Zero => TensorMapFloatOobFill::Zero,
            OobFill::Nan => TensorMapFloatOobFill::Nan,
        },
    })?;
    Ok(TensorMap(map.to_raw()))
}

fn data_type(dtype: DType) -> TensorMapDataType {
    match dtype {
        // Tensor maps know no other type of one byte, and copies depend on the size alone.
        DType::U8 | DType::I8 | DType::F8E4M3 | DType::F8E5M2 | DType::F8E8M0 => TensorMapDataType::Uint8,
        // The same holds for integers of 16 bits.
        DType::U16 | DType::I16 => TensorMapDataType::Uint16,
        DType::U32 => TensorMapDataType::Uint32,
        DType::I32 => TensorMapDataType::Int32,
        DType::I64 => TensorMapDataType::Int64,
        DType::U64 => TensorMapDataType::Uint64,
        DType::F64 => TensorMapDataType::Float64,
        DType::F16 => TensorMapDataType::Float16,
        DType::F32 => TensorMapDataType::Float32,
        DType::BF16 => TensorMapDataType::Bfloat16,
    }
}
