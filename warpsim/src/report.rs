//! The results of a launch: findings, faults, output and counts.

use std::fmt;

use crate::metrics::Metrics;
use crate::zeroed::OutOfMemory;

/// What went wrong. The first group of kinds ends the launch; the second is only reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The shape or the arguments do not fit the kernel.
    InvalidLaunch,
    /// An access outside every allocation, or outside the bounds of shared, local or parameter memory.
    OutOfBounds,
    /// An address that is not aligned as the access requires.
    Misaligned,
    /// An access to memory that was freed, by the host or by a thread with `free`.
    UseAfterFree,
    /// A `free` of a pointer that `malloc` did not return, or that was freed before.
    InvalidFree,
    /// The kernel executed `trap`.
    Trap,
    /// A device-side `assert` failed.
    Assert,
    /// Deadlock: no thread can go on, except to poll for a value that no thread will write.
    Deadlock,
    /// More instructions than [`crate::Options::instruction_limit`] or [`crate::Options::launch_limit`].
    InstructionLimit,
    /// Operands for which the instruction's behaviour is undefined.
    IllegalInstruction,
    /// A read of a register that the lane never wrote.
    UninitialisedRegister,
    /// A read of local memory that the lane never wrote, if the value has an effect.
    UninitialisedLocal,
    /// A read of shared memory that was never written.
    UninitialisedShared,
    /// A read of global memory that neither the host nor a kernel wrote.
    UninitialisedGlobal,
    /// An integer division by zero whose result has an effect: the result may differ between GPUs.
    DivisionByZero,
    /// An access at an address that derives from a 32-bit operation whose result does not fit in 32 bits.
    IndexOverflow,
    /// Two unordered accesses to shared memory, at least one of which is a write.
    SharedRace,
    /// Two unordered accesses to global memory, at least one of which is a write.
    GlobalRace,
    /// A conflict with an asynchronous copy or tensor-core read that no thread waited for.
    AsyncRace,
    /// A generic write that the asynchronous proxy reads or overwrites without a `fence.proxy.async` in between.
    MissingProxyFence,
    /// A thread or block that exits while its shared memory or registers may still be in use.
    EarlyExit,
    /// A warp-wide or aligned instruction that only part of a warp executes.
    DivergentBarrier,
    /// Memory from `malloc` that was never freed: see [`crate::Gpu::leaks`].
    Leak,
    /// Arrivals at one barrier that give different thread counts.
    BarrierCount,
    /// Barriers and mbarriers that are used against their rules.
    BarrierMisuse,
    /// This machine does not have enough memory to simulate the launch.
    OutOfMemory,
    /// A defect of the simulator.
    Internal,
}

impl Kind {
    /// A short name: `out-of-bounds`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::InvalidLaunch => "invalid-launch",
            Kind::OutOfBounds => "out-of-bounds",
            Kind::Misaligned => "misaligned",
            Kind::UseAfterFree => "use-after-free",
            Kind::InvalidFree => "invalid-free",
            Kind::Trap => "trap",
            Kind::Assert => "assert",
            Kind::Deadlock => "deadlock",
            Kind::InstructionLimit => "instruction-limit",
            Kind::IllegalInstruction => "illegal-instruction",
            Kind::UninitialisedRegister => "uninitialised-register",
            Kind::UninitialisedLocal => "uninitialised-local",
            Kind::UninitialisedShared => "uninitialised-shared",
            Kind::UninitialisedGlobal => "uninitialised-global",
            Kind::DivisionByZero => "division-by-zero",
            Kind::IndexOverflow => "index-overflow",
            Kind::SharedRace => "shared-race",
            Kind::GlobalRace => "global-race",
            Kind::AsyncRace => "async-race",
            Kind::MissingProxyFence => "missing-proxy-fence",
            Kind::EarlyExit => "early-exit",
            Kind::DivergentBarrier => "divergent-barrier",
            Kind::Leak => "leak",
            Kind::BarrierCount => "barrier-count",
            Kind::BarrierMisuse => "barrier-misuse",
            Kind::OutOfMemory => "out-of-memory",
            Kind::Internal => "internal",
        }
    }
}

/// A location in the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// The instruction's opcode.
    pub instruction: String,
    /// Source file and line, when the PTX has `.loc`.
    pub source: Option<(String, u32)>,
    /// The outermost call that this code was inlined from, in a function that was not itself inlined.
    pub caller: Option<(String, u32)>,
}

impl Place {
    /// The source lines: `kernel.rs:12, inlined from library.rs:70`.
    pub fn sources(&self) -> Option<String> {
        let (file, line) = self.source.as_ref()?;
        Some(match &self.caller {
            Some((outer, call)) => format!("{outer}:{call}, inlined from {file}:{line}"),
            None => format!("{file}:{line}"),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {} `{}`", self.ptx_line, self.instruction)?;
        match self.sources() {
            Some(sources) => write!(f, " ({sources})"),
            None => Ok(()),
        }
    }
}

/// The other access of a race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// Where the access happened.
    pub place: Place,
    /// Who made the access: `thread (3,0,0) of block (0,0,0)`, `an asynchronous copy`.
    pub who: String,
    /// Whether the access was a write.
    pub write: bool,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind of mistake.
    pub kind: Kind,
    /// The message.
    pub message: String,
    /// The kernel's name.
    pub kernel: String,
    /// The instruction; `None` if the finding concerns the launch as a whole.
    pub place: Place,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// The address; for shared and local memory, the address within that space.
    pub address: Option<u64>,
    /// The other access of a race.
    pub earlier: Option<Earlier>,
    /// How often this instruction had this finding.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        if self.place == Place::default() {
            return write!(f, "\n  in `{}`", self.kernel);
        }
        write!(f, "\n  at {} in `{}`, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})", self.place, self.kernel)?;
        if let Some(a) = self.address {
            write!(f, ", address {a:#x}")?;
        }
        if let Some(e) = &self.earlier {
            write!(f, "\n  earlier {} by {}", if e.write { "write" } else { "read" }, e.who)?;
            if e.place != Place::default() {
                write!(f, " at {}", e.place)?;
            }
        }
        if self.count > 1 {
            write!(f, "\n  {} times", self.count)?;
        }
        Ok(())
    }
}

/// Formats a number of bytes.
pub(crate) fn bytes(n: u64) -> String {
    format!("{n} byte{}", if n == 1 { "" } else { "s" })
}

/// A fault: a finding that ended the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The finding that ended the launch.
    pub finding: Box<Finding>,
    /// The findings recorded before the fault.
    pub also: Vec<Finding>,
    /// The kernel's output before the fault.
    pub output: String,
    /// The host allocation that failed, if that ended the launch.
    pub missing: Option<OutOfMemory>,
}

impl Fault {
    pub(crate) fn new(finding: Finding) -> Self {
        Fault { finding: Box::new(finding), also: vec![], output: String::new(), missing: None }
    }

    /// A fault for lack of host memory; the purpose says what for.
    pub(crate) fn of_memory(kernel: &str, error: OutOfMemory, purpose: &str) -> Self {
        Fault { missing: Some(error), ..Fault::of_launch(kernel, Kind::OutOfMemory, format!("{error} {purpose}")) }
    }

    /// A fault that no instruction caused.
    pub(crate) fn of_launch(kernel: &str, kind: Kind, message: String) -> Self {
        Fault::new(Finding {
            kind,
            message,
            kernel: kernel.to_string(),
            place: Place::default(),
            block: [0; 3],
            thread: [0; 3],
            address: None,
            earlier: None,
            count: 1,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.finding.fmt(f)?;
        // An offset that overflowed on the way to this very address is the most informative message.
        let cause = |a: &&Finding| a.kind == Kind::IndexOverflow && a.place == self.finding.place;
        let (first, rest) = (self.also.iter().filter(cause), self.also.iter().filter(|a| !cause(a)));
        first.chain(rest).try_for_each(|a| write!(f, "\nbefore that, {a}"))
    }
}

impl std::error::Error for Fault {}

/// The result of a launch that ran to its end.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Warp instructions executed.
    pub instructions: u64,
    /// What the checkers found, one entry for each instruction and kind.
    pub findings: Vec<Finding>,
    /// The kernel's output, in the order of its blocks.
    pub output: String,
    /// Counts, if [`crate::Options::metrics`] is set.
    pub metrics: Option<Metrics>,
}

impl Report {
    /// True when nothing was found.
    pub fn clean(&self) -> bool {
        self.findings.is_empty()
    }
}
