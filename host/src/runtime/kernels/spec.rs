//! What the host believes about a kernel, and the image that fits.

use cuda_std::launch::{Instance, Kernel};

use crate::runtime::error::{Error, Result};
use crate::runtime::kernels::{self, Arch, KernelImage};

/// What the type of a kernel says about it, without the type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelSpec {
    pub(crate) module: &'static str,
    pub(crate) symbol: &'static str,
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) shared_bytes: usize,
    pub(crate) param_sizes: &'static [usize],
}

/// The crate of a module.
fn crate_of(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

impl KernelSpec {
    pub(crate) const fn new(kernel: &Instance) -> Self {
        let Instance { module, symbol, block, cluster, shared_bytes, param_sizes, .. } = *kernel;
        let (block, cluster) = ([block.x, block.y, block.z], [cluster.x, cluster.y, cluster.z]);
        Self { module, symbol, block, cluster, shared_bytes, param_sizes }
    }

    pub(crate) const fn of<K: Kernel>() -> Self {
        Self::new(&Instance::of::<K>())
    }

    /// The image to run on a device that runs `archs`: of the sets that were added, or else of this crate's own kernels.
    pub(crate) fn select(&self, added: &[&'static [KernelImage]], archs: &[Arch]) -> Result<&'static KernelImage> {
        let in_set = |set: &'static [KernelImage]| set.iter().filter(|image| image.is(self.module, self.symbol));
        let mut images: Vec<_> = added.iter().flat_map(|set| in_set(set)).collect();
        if images.is_empty() {
            match kernels::images() {
                Ok(own) => images.extend(in_set(own)),
                // The kernel is of a crate that was added, so that it does not matter whether this crate's own kernels are there.
                Err(_) if self.is_of(added) => {}
                Err(error) => return Err(error),
            }
        }
        let found = archs.iter().find_map(|arch| images.iter().find(|image| image.arch == *arch));
        found.copied().ok_or_else(|| Error::MissingKernel {
            symbol: self.symbol,
            module: self.module,
            arch: archs.first().map_or("this GPU", |arch| arch.as_str()),
            hint: match &*images {
                [] => self.absent(&[added, &[kernels::images().unwrap_or_default()]].concat()),
                images => {
                    let others: Vec<_> = images.iter().map(|image| image.arch.as_str()).collect();
                    format!(", only for {}", others.join(" and "))
                }
            },
        })
    }

    /// Whether some of the sets' kernels are of the same crate.
    fn is_of(&self, sets: &[&'static [KernelImage]]) -> bool {
        sets.iter().copied().flatten().any(|image| crate_of(image.module) == crate_of(self.module))
    }

    /// Why there is none for any architecture, as the end of a sentence.
    fn absent(&self, sets: &[&'static [KernelImage]]) -> String {
        let name = crate_of(self.module);
        match self.is_of(sets) {
            true => format!(
                ": what there is of `{name}` has others only; a kernel that names an `arch` is built if `CudaBuilder::arch` was told of it"
            ),
            false => format!(": no kernels of `{name}` were added, as `Device::add_kernels` does"),
        }
    }

    /// A stale or foreign image would read its parameters at the wrong offsets.
    pub(crate) fn check(&self, image: &KernelImage) -> Result<()> {
        let reason = if image.param_sizes != self.param_sizes {
            format!("parameters of {:?} bytes, declared {:?}", image.param_sizes, self.param_sizes)
        } else if image.block != self.block {
            format!("blocks of {:?}, declared {:?}", image.block, self.block)
        } else if image.cluster != self.cluster {
            format!("clusters of {:?}, declared {:?}", image.cluster, self.cluster)
        } else if image.shared_bytes as usize != self.shared_bytes {
            format!("{} bytes of shared memory, declared {}", image.shared_bytes, self.shared_bytes)
        } else {
            return Ok(());
        };
        Err(Error::KernelMismatch { symbol: self.symbol, reason })
    }
}
