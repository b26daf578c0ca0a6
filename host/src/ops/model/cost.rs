pub use crate::runtime::roof::Bound;

/// The least that any implementation has to do.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Each input read once, each output written once.
    pub bytes: u64,
    /// Useful floating-point (or integer) operations; zero where bytes are what counts.
    pub flops: u64,
    /// What that makes the limit.
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
