use cuda_std::launch::Kernel;

use crate::runtime::error::Result;
use crate::runtime::kernels::{self, KernelImage, KernelSpec};

/// What the host believes about a kernel that it launches.
#[derive(Clone, Copy, Debug)]
pub struct KernelInfo {
    spec: KernelSpec,
}

impl KernelInfo {
    /// The facts of kernel type `K`.
    pub const fn of<K: Kernel>() -> Self {
        Self { spec: KernelSpec::of::<K>() }
    }

    /// The entry's name in the PTX.
    pub const fn symbol(&self) -> &'static str {
        self.spec.symbol
    }

    /// Threads a block, at most, in each dimension.
    pub const fn block(&self) -> [u32; 3] {
        self.spec.block
    }

    /// Blocks a cluster, in each dimension; all 1 for a kernel without clusters.
    pub const fn cluster(&self) -> [u32; 3] {
        self.spec.cluster
    }

    /// Dynamic shared memory, in bytes.
    pub const fn shared_bytes(&self) -> usize {
        self.spec.shared_bytes
    }

    /// The embedded code, for every architecture that there is any for.
    pub fn images(&self) -> &'static [KernelImage] {
        kernels::find(kernels::images(), self.spec.symbol)
    }

    /// An error if `image` takes other parameters, blocks, clusters or shared memory than the host launches it with.
    pub fn check(&self, image: &KernelImage) -> Result<()> {
        self.spec.check(image)
    }
}
