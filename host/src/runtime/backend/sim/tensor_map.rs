//! TMA descriptors, as the simulator reads them.

use cuda_std::launch::TensorMap;

use super::{INVALID_VALUE, failure};
use crate::runtime::backend::Outcome;
use crate::runtime::dtype::DType;
use crate::runtime::tensor_map::{OobFill, Swizzle, TensorMapDesc};

pub(super) fn encode(desc: &TensorMapDesc<'_>) -> Outcome<TensorMap> {
    let map = warpsim::TensorMap::tiled(
        data_type(desc.dtype),
        desc.address,
        desc.dims,
        desc.strides_bytes,
        desc.box_dims,
        swizzle(desc.swizzle),
    );
    let mut map = map.map_err(|reason| failure("tensor_map", INVALID_VALUE, reason))?;
    map.nan_fill = desc.oob_fill == OobFill::Nan;
    Ok(TensorMap(bytemuck::cast(map.encode())))
}

fn data_type(dtype: DType) -> warpsim::DataType {
    match dtype {
        // Tensor maps know no other type of one byte, and copies depend on the size alone.
        DType::U8 | DType::I8 | DType::F8E4M3 | DType::F8E5M2 | DType::F8E8M0 => warpsim::DataType::U8,
        // The same holds for integers of 16 bits.
        DType::U16 | DType::I16 => warpsim::DataType::U16,
        DType::U32 => warpsim::DataType::U32,
        DType::I32 => warpsim::DataType::I32,
        DType::I64 => warpsim::DataType::I64,
        DType::U64 => warpsim::DataType::U64,
        DType::F64 => warpsim::DataType::F64,
        DType::F16 => warpsim::DataType::F16,
        DType::F32 => warpsim::DataType::F32,
        DType::BF16 => warpsim::DataType::BF16,
    }
}

fn swizzle(swizzle: Swizzle) -> warpsim::Swizzle {
    match swizzle {
        Swizzle::None => warpsim::Swizzle::None,
        Swizzle::B32 => warpsim::Swizzle::B32,
        Swizzle::B64 => warpsim::Swizzle::B64,
        Swizzle::B128 => warpsim::Swizzle::B128,
    }
}
