//! What a build produced: the manifest beside the PTX.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Arch, ptxas::Resources};

/// Every kernel of a build, sorted by architecture and then by symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// One entry a kernel and architecture.
    pub kernels: Vec<KernelEntry>,
}

impl Manifest {
    /// The entry of `symbol` for `arch`.
    pub fn get(&self, arch: Arch, symbol: &str) -> Option<&KernelEntry> {
        self.kernels.iter().find(|kernel| kernel.arch == arch && kernel.symbol == symbol)
    }
}

/// One kernel, compiled for one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// The name of the PTX `.entry`.
    pub symbol: String,
    /// What it was compiled for.
    pub arch: Arch,
    /// Its PTX, relative to the manifest.
    pub file: PathBuf,
    /// The Rust module that declares it, such as `gpu_kernels::ops::gelu`.
    pub module: String,
    /// The largest block it may be launched with (`.maxntid`).
    pub block: [u32; 3],
    /// Blocks that must fit on a multiprocessor at once (`.minnctapersm`); 0 says nothing.
    pub min_blocks: u32,
    /// Blocks in a cluster; 1, 1, 1 without one.
    pub cluster: [u32; 3],
    /// Dynamic shared memory a launch has to ask for.
    pub shared_bytes: u32,
    /// Whether the kernel declares that it keeps everything in registers. Held against ptxas when there is one.
    pub no_spills: bool,
    /// The parameters, in order.
    pub params: Vec<Param>,
    /// What ptxas says about it; `None` when no ptxas was found.
    pub resources: Option<Resources>,
}

/// A kernel parameter as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    /// Size.
    pub bytes: u32,
    /// Alignment.
    pub align: u32,
    /// What it holds.
    pub kind: ParamKind,
}

/// What a kernel parameter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// An address.
    Pointer,
    /// An integer of either sign.
    Integer,
    /// An IEEE float.
    Float,
    /// A TMA descriptor, by value.
    TensorMap,
    /// Any other aggregate, by value.
    Bytes,
}
