pub use crate::runtime::roof::Bound;

/// The minimum work of any implementation.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Bytes of traffic: each input read once, each output written once.
    pub bytes: u64,
    /// Useful floating-point (or integer) operations; zero if only bytes count.
    pub flops: u64,
    /// The resource that limits the operator.
    pub bound: Bound,
}

impl Cost {
    /// Bound by memory traffic.
    pub const fn memory(bytes: u64) -> Self {
        Self { bytes, flops: 0, bound: Bound::Memory }
    }

    /// Bound by arithmetic.
    pub const fn compute(bytes: u64, flops: u64, bound: Bound) -> Self {
        Self { bytes, flops, bound }
    }
}
