//! The GPU architectures a crate can be compiled for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A GPU architecture. PTX built for one runs on it and on everything newer, except for the `a` forms, which use
/// instructions of that one architecture and run nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Arch {
    /// Ampere (A100): `mma.sync` with bf16 and tf32, `cp.async`.
    #[serde(rename = "sm_80")]
    Sm80,
    /// Ampere (RTX 30, A40).
    #[serde(rename = "sm_86")]
    Sm86,
    /// Ada (RTX 40, L4, L40): fp8 `mma.sync`.
    #[serde(rename = "sm_89")]
    Sm89,
    /// Hopper: clusters, `mbarrier`, TMA.
    #[serde(rename = "sm_90")]
    Sm90,
    /// Hopper and nothing else: `wgmma` and `setmaxnreg` as well.
    #[serde(rename = "sm_90a")]
    Sm90a,
}

impl Arch {
    /// Every architecture, oldest first.
    pub const ALL: [Arch; 5] = [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90, Arch::Sm90a];

    /// The name PTX, ptxas and LLVM know it by, such as `sm_90a`. It is also the value of `cfg(cuda_arch = "…")`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Arch::Sm80 => "sm_80",
            Arch::Sm86 => "sm_86",
            Arch::Sm89 => "sm_89",
            Arch::Sm90 => "sm_90",
            Arch::Sm90a => "sm_90a",
        }
    }

    /// The PTX version written into `.version`, as `(major, minor)`: the oldest that has the architecture's
    /// instructions, because a driver refuses PTX newer than itself.
    pub const fn ptx_version(self) -> (u32, u32) {
        match self {
            Arch::Sm80 | Arch::Sm86 => (7, 8),
            Arch::Sm89 => (8, 4),
            Arch::Sm90 | Arch::Sm90a => (8, 0),
        }
    }

    /// The architecture called `name`, such as `sm_80`.
    pub fn from_name(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.as_str() == name)
    }

    /// LLVM's `-mattr` for the PTX version, such as `+ptx80`.
    pub(crate) fn llvm_feature(self) -> String {
        let (major, minor) = self.ptx_version();
        format!("+ptx{major}{minor}")
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
