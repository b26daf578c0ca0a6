//! The GPU architectures that PTX is made for.

use std::fmt;

/// A GPU architecture. PTX built for one runs on it and on everything newer, except for the `a` forms, which use
/// instructions of that one architecture and run nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Arch {
    /// Ampere (A100): `mma.sync` with bf16 and tf32, `cp.async`.
    #[cfg_attr(feature = "serde", serde(rename = "sm_80"))]
    Sm80,
    /// Ampere (RTX 30, A40).
    #[cfg_attr(feature = "serde", serde(rename = "sm_86"))]
    Sm86,
    /// Ada (RTX 40, L4, L40): fp8 `mma.sync`.
    #[cfg_attr(feature = "serde", serde(rename = "sm_89"))]
    Sm89,
    /// Hopper: clusters, `mbarrier`, TMA.
    #[cfg_attr(feature = "serde", serde(rename = "sm_90"))]
    Sm90,
    /// Hopper and nothing else: `wgmma` and `setmaxnreg` as well.
    #[cfg_attr(feature = "serde", serde(rename = "sm_90a"))]
    Sm90a,
}

impl Arch {
    /// Every architecture, oldest first.
    pub const ALL: [Arch; 5] = [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90, Arch::Sm90a];

    /// The name PTX, ptxas and LLVM know it by, such as `sm_90a`.
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
            // 8.0 has wgmma, 8.1 `st.async`: CUDA 12.1.
            Arch::Sm90 | Arch::Sm90a => (8, 1),
        }
    }

    /// The architecture called `name`, such as `sm_80`.
    pub fn from_name(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.as_str() == name)
    }

    /// The architectures whose PTX a GPU of this compute capability runs, best first.
    pub const fn of_device(compute_capability: (u32, u32)) -> &'static [Arch] {
        use Arch::*;
        match compute_capability {
            (9, 0) => &[Sm90a, Sm90, Sm89, Sm86, Sm80],
            (9.., _) => &[Sm90, Sm89, Sm86, Sm80],
            (8, 9) => &[Sm89, Sm86, Sm80],
            (8, 6..) => &[Sm86, Sm80],
            (8, _) => &[Sm80],
            _ => &[],
        }
    }
}

/// The CUDA release, `(major, minor)`, that came with a PTX version: drivers and ptxas before it refuse such PTX.
pub const fn cuda_of_ptx(version: (u32, u32)) -> (u32, u32) {
    match version {
        (..=6, _) => (10, 0),
        (7, minor) => (11, minor),
        (8, minor @ ..=5) => (12, minor),
        // 8.6 belongs to 12.7, of which there was only a driver.
        (8, minor) => (12, minor + 1),
        (major, minor) => (major + 4, minor),
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_runs_what_is_older() {
        assert_eq!(Arch::of_device((8, 0)), [Arch::Sm80]);
        assert_eq!(Arch::of_device((8, 6)), [Arch::Sm86, Arch::Sm80]);
        assert_eq!(Arch::of_device((9, 0))[0], Arch::Sm90a);
        // The `a` forms run on their own architecture only.
        assert_eq!(Arch::of_device((12, 0))[0], Arch::Sm90);
        assert!(Arch::of_device((7, 5)).is_empty());
    }

    #[test]
    fn names_are_read_back() {
        for arch in Arch::ALL {
            assert_eq!(Arch::from_name(arch.as_str()), Some(arch));
        }
    }
}
