//! What a build produced: the manifest, which lies beside the PTX when that is written to files.

use ptx_archive::{Arch, Kernel};
use serde::{Deserialize, Serialize};

/// Every kernel of a build, sorted by architecture and then by symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// One entry per kernel and architecture that it was compiled for.
    pub kernels: Vec<Kernel>,
}

impl Manifest {
    /// The entry of `symbol` that a GPU of `arch` runs: the one for `arch`, else the one for the latest architecture before it.
    pub fn get(&self, arch: Arch, symbol: &str) -> Option<&Kernel> {
        let runs = self.kernels.iter().filter(|kernel| kernel.arch <= arch && kernel.symbol == symbol);
        runs.max_by_key(|kernel| kernel.arch)
    }
}
