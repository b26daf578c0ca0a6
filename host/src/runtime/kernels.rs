//! The kernels embedded in this build, as PTX.

use std::fmt;

use crate::runtime::error::{Error, Result};
use cuda_std::launch::{Dim3, Instance, Kernel};

/// An architecture that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Arch {
    /// Ampere and everything newer.
    Sm80,
    /// Hopper only: TMA and wgmma.
    Sm90a,
}

impl Arch {
    /// All of them.
    pub const ALL: &'static [Arch] = &[Arch::Sm80, Arch::Sm90a];

    /// `sm_80` or `sm_90a`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Arch::Sm80 => "sm_80",
            Arch::Sm90a => "sm_90a",
        }
    }

    /// The architectures a GPU of this compute capability runs, best first.
    pub const fn of_device(compute_capability: (u32, u32)) -> &'static [Arch] {
        match compute_capability {
            (9, 0) => &[Arch::Sm90a, Arch::Sm80],
            (8.., _) => &[Arch::Sm80],
            _ => &[],
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One kernel compiled for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelImage {
    /// Entry point.
    pub symbol: &'static str,
    /// Rust module that declares it.
    pub module: &'static str,
    /// Architecture.
    pub arch: Arch,
    /// The code.
    pub ptx: &'static str,
    /// Most threads of a block, per dimension.
    pub block: [u32; 3],
    /// Blocks of a cluster, per dimension.
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Bytes of each parameter.
    pub param_sizes: &'static [usize],
}

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// Every embedded kernel, sorted by symbol, then architecture.
pub fn images() -> &'static [KernelImage] {
    embedded::IMAGES
}

/// Why this build carries no kernels, if it was made where no device toolchain was found.
pub fn not_built() -> Option<&'static str> {
    embedded::NOT_BUILT
}

/// The embedded images of a kernel, for every architecture that there is any for.
pub fn images_of(kernel: &Instance) -> &'static [KernelImage] {
    find(images(), kernel.symbol)
}

/// An error if `image` takes other parameters, blocks, clusters or shared memory than the host launches it with.
pub fn check(kernel: &Instance, image: &KernelImage) -> Result<()> {
    KernelSpec::from(kernel).check(image)
}

/// The images of one kernel among those sorted by symbol.
pub(crate) fn find<'a>(images: &'a [KernelImage], symbol: &str) -> &'a [KernelImage] {
    let start = images.partition_point(|image| image.symbol < symbol);
    let end = images.partition_point(|image| image.symbol <= symbol);
    &images[start..end]
}

/// What the type of a kernel says about it, without the type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelSpec {
    pub(crate) symbol: &'static str,
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) shared_bytes: usize,
    pub(crate) param_sizes: &'static [usize],
}

impl From<&Instance> for KernelSpec {
    fn from(kernel: &Instance) -> Self {
        let Instance { symbol, block, cluster, shared_bytes, param_sizes, .. } = *kernel;
        let extents = |dim: Dim3| [dim.x, dim.y, dim.z];
        Self { symbol, block: extents(block), cluster: extents(cluster), shared_bytes, param_sizes }
    }
}

impl KernelSpec {
    pub(crate) const fn of<K: Kernel>() -> Self {
        let (block, cluster) = (K::BLOCK, K::CLUSTER);
        Self {
            symbol: K::SYMBOL,
            block: [block.x, block.y, block.z],
            cluster: [cluster.x, cluster.y, cluster.z],
            shared_bytes: K::SHARED_BYTES,
            param_sizes: <K::Args as cuda_std::launch::Args>::SIZES,
        }
    }

    /// The image to run on a device that runs `archs`.
    pub(crate) fn select(&self, sets: &[&'static [KernelImage]], archs: &[Arch]) -> Result<&'static KernelImage> {
        let candidates = || sets.iter().flat_map(|set| find(set, self.symbol));
        let found = archs.iter().find_map(|arch| candidates().find(|image| image.arch == *arch));
        let Some(image) = found else {
            if let Some(why) = not_built()
                && candidates().next().is_none()
            {
                return Err(Error::KernelsNotBuilt { why: why.into() });
            }
            let others: Vec<_> = candidates().map(|image| image.arch.as_str()).collect();
            return Err(Error::MissingKernel {
                symbol: self.symbol,
                arch: archs.iter().map(|a| a.as_str()).collect::<Vec<_>>().join(" or "),
                hint: match others.is_empty() {
                    true => String::new(),
                    false => format!(", only for {}", others.join(" and ")),
                },
            });
        };
        Ok(image)
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn image(symbol: &'static str, arch: Arch) -> KernelImage {
        KernelImage {
            symbol,
            module: "test",
            arch,
            ptx: "",
            block: [128, 1, 1],
            cluster: [1, 1, 1],
            shared_bytes: 0,
            param_sizes: &[8, 4],
        }
    }

    static IMAGES: &[KernelImage] =
        &[image("both", Arch::Sm80), image("both", Arch::Sm90a), image("hopper", Arch::Sm90a)];

    fn spec(symbol: &'static str) -> KernelSpec {
        KernelSpec { symbol, block: [128, 1, 1], cluster: [1, 1, 1], shared_bytes: 0, param_sizes: &[8, 4] }
    }

    #[test]
    fn the_best_image_is_selected() {
        let pick = |symbol, cc| spec(symbol).select(&[IMAGES], Arch::of_device(cc));
        assert_eq!(pick("both", (9, 0)).unwrap().arch, Arch::Sm90a);
        assert_eq!(pick("both", (8, 6)).unwrap().arch, Arch::Sm80);
        assert_eq!(pick("both", (12, 0)).unwrap().arch, Arch::Sm80);
        assert_eq!(
            pick("hopper", (10, 0)).unwrap_err().to_string(),
            "kernel hopper is not embedded for sm_80, only for sm_90a"
        );
        assert!(Arch::of_device((7, 5)).is_empty());
    }

    #[test]
    fn images_that_differ_from_their_declaration_are_refused() {
        let other = KernelSpec { param_sizes: &[8, 8], ..spec("both") };
        let image = other.select(&[IMAGES], &[Arch::Sm80]).unwrap();
        assert_eq!(
            other.check(image).unwrap_err().to_string(),
            "kernel both: the embedded PTX does not match its declaration: \
             parameters of [8, 4] bytes, declared [8, 8]"
        );
    }

    #[test]
    fn embedded_images_are_sorted() {
        assert!(images().is_sorted_by_key(|image| (image.symbol, image.arch)));
    }
}
