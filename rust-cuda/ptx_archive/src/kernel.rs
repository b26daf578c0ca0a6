//! What is known of a kernel besides its code.

use std::fmt;
use std::path::PathBuf;

use crate::Arch;

/// One kernel, compiled for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Kernel {
    /// The name of the PTX `.entry`.
    pub symbol: String,
    /// The Rust module that declares it, such as `gpu_kernels::ops::gelu`.
    pub module: String,
    /// What it was compiled for.
    pub arch: Arch,
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
    /// Whether it waits for the launch ahead in its stream before anything else, and so may be launched before that one has ended.
    pub programmatic: bool,
    /// Whether its blocks wait for each other, so that all of a grid have to be on the device at once.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cooperative: bool,
    /// The level at which the driver's compiler is to optimise it, from 0 to 3; `None` leaves it to the driver.
    #[cfg_attr(feature = "serde", serde(default))]
    pub opt_level: Option<u32>,
    /// The parameters, in order.
    pub params: Vec<Param>,
    /// What ptxas says about it; `None` when no ptxas was found.
    pub resources: Option<Resources>,
}

impl Kernel {
    /// Where its PTX goes when it is written to a file of its own: `sm_80/gelu_f32.ptx`.
    pub fn file(&self) -> PathBuf {
        [self.arch.as_str(), &format!("{}.ptx", self.symbol)].iter().collect()
    }

    /// What archives sort kernels by, and tell them apart by.
    pub fn key(&self) -> (&str, &str, Arch) {
        (&self.module, &self.symbol, self.arch)
    }
}

/// A kernel parameter as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Param {
    /// Size.
    pub bytes: u32,
    /// Alignment.
    pub align: u32,
    /// What it holds.
    pub kind: ParamKind,
}

/// What a kernel parameter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
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

impl ParamKind {
    pub(crate) const ALL: [ParamKind; 5] =
        [ParamKind::Pointer, ParamKind::Integer, ParamKind::Float, ParamKind::TensorMap, ParamKind::Bytes];
}

/// What ptxas says about one kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resources {
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory in bytes; dynamic shared memory is not in it.
    pub shared_bytes: u32,
    /// Constant memory in bytes, parameters included.
    pub constant_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Bytes of local memory for arrays and spills.
    pub stack_bytes: u32,
    /// Bytes stored because registers ran out.
    pub spill_stores: u32,
    /// Bytes loaded back.
    pub spill_loads: u32,
    /// Everything ptxas warns of, such as serialised `wgmma`.
    pub notes: Vec<String>,
}

impl Resources {
    /// Whether the kernel keeps everything in registers and its `wgmma` asynchronous.
    pub fn is_clean(&self) -> bool {
        self.stack_bytes == 0
            && self.spill_stores == 0
            && self.spill_loads == 0
            && !self.notes.iter().any(|note| note.contains("Performance Loss"))
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} registers, {} bytes stack, {} bytes spill stores, {} bytes spill loads",
            self.registers, self.stack_bytes, self.spill_stores, self.spill_loads
        )?;
        self.notes.iter().try_for_each(|note| write!(f, "\n{note}"))
    }
}
