//! Versions of CUDA.

/// A CUDA version as the driver counts them: 12.4 is 12040.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion(pub u32);

impl CudaVersion {
    /// That of the CUDA release that came with a PTX version.
    pub(crate) const fn of_ptx(version: (u32, u32)) -> Self {
        let (major, minor) = ptx_archive::cuda_of_ptx(version);
        Self(major * 1000 + minor * 10)
    }

    /// The 12 of 12.4.
    pub const fn major(self) -> u32 {
        self.0 / 1000
    }

    /// The 4 of 12.4.
    pub const fn minor(self) -> u32 {
        self.0 % 1000 / 10
    }
}

impl std::fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}
