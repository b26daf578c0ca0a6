//! What a build produced: the manifest, which lies beside the PTX when that is written to files.

use ptx_archive::{Arch, Kernel};
use serde::{Deserialize, Serialize};

/// Every kernel of a build, sorted by architecture and then by symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// One entry a kernel and architecture.
    pub kernels: Vec<Kernel>,
}

impl Manifest {
    /// The entry of `symbol` for `arch`.
    pub fn get(&self, arch: Arch, symbol: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.arch == arch && kernel.symbol == symbol)
    }
}
