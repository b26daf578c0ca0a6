//! Tensor maps of queries, keys, values and results, by which TMA copies tiles of tokens.

use cuda_std::launch::TensorMap;
use gpu_kernels::ops::attention::forward::hopper;

use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;
use crate::runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};

/// The maximum stride that a tensor map holds, in elements of up to two bytes.
const MAX_STRIDE: usize = 1 << 39;

/// Whether a tensor map can describe such a tensor.
pub(super) fn addressable(shape: &Shape, strides: &[usize]) -> bool {
    shape.iter().zip(strides).take(3).all(|(&len, &stride)| len < 2 || (1..MAX_STRIDE).contains(&stride))
}

/// The tensor map of `[batch, heads, tokens, d]`, copied in boxes of `rows` tokens with the 128-byte swizzle.
pub(super) fn tile_map(
    stream: &Stream,
    address: u64,
    dtype: DType,
    shape: &Shape,
    strides: &[usize],
    rows: u32,
) -> Result<TensorMap> {
    boxes(stream, address, dtype, (shape, strides), [hopper::PANEL, rows], Swizzle::B128)
}

/// The tensor map of four dimensions, the last of them contiguous, copied in boxes of these numbers of columns and rows.
pub(super) fn boxes(
    stream: &Stream,
    address: u64,
    dtype: DType,
    (shape, strides): (&Shape, &[usize]),
    [columns, rows]: [u32; 2],
    swizzle: Swizzle,
) -> Result<TensorMap> {
    // Innermost dimension first, as TMA requires. The stride of a single head or token does not matter, but it must be valid.
    let dim = |i: usize| shape[i] as u64;
    let stride = |i: usize| if shape[i] > 1 { (strides[i] * dtype.size()) as u64 } else { 16 };
    stream.device().tensor_map(&TensorMapDesc {
        address,
        dtype,
        dims: &[dim(3), dim(2), dim(1), dim(0)],
        strides_bytes: &[stride(2), stride(1), stride(0)],
        box_dims: &[columns, rows, 1, 1],
        swizzle,
        l2_promotion: L2Promotion::B256,
        oob_fill: OobFill::Zero,
    })
}
