//! Tile shapes as types, so that a kernel is generic over them and the host names the same shape.

/// A tile of `M` rows and `N` columns of the result, `K` deep: `types(S: Tile<128, 256, 64>, Tile<64, 128, 64>)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tile<const M: u32, const N: u32, const K: u32>;

/// The extents of a [`Tile`], for kernels that are generic over it.
pub trait Shape: Copy + 'static {
    /// Rows of the result.
    const M: u32;
    /// Columns of the result.
    const N: u32;
    /// Depth of a step.
    const K: u32;
}

impl<const M: u32, const N: u32, const K: u32> Shape for Tile<M, N, K> {
    const M: u32 = M;
    const N: u32 = N;
    const K: u32 = K;
}
