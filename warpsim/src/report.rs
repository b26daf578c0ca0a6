//! What a launch says: findings, faults, output and counts.

use std::fmt;

use crate::metrics::Metrics;
use crate::zeroed::OutOfMemory;

/// What went wrong. The first group ends the launch; the second only reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The shape or the arguments do not fit the kernel.
    InvalidLaunch,
    /// An access outside every allocation, or outside shared, local or parameter memory.
    OutOfBounds,
    /// An address that is not a multiple of what the access needs.
    Misaligned,
    /// An access to memory that the host has freed, or a thread with `free`.
    UseAfterFree,
    /// A `free` of what `malloc` did not give, or of what was freed before.
    InvalidFree,
    /// The kernel executed `trap`.
    Trap,
    /// A device-side `assert` failed.
    Assert,
    /// No thread can go on, but to poll for what nobody will write.
    Deadlock,
    /// More instructions than [`crate::Options::instruction_limit`] or [`crate::Options::launch_limit`].
    InstructionLimit,
    /// Operands that make the instruction undefined.
    IllegalInstruction,
    /// A read of a register that the lane never wrote.
    UninitialisedRegister,
    /// A read of local memory that the lane never wrote, on which something depends.
    UninitialisedLocal,
    /// A read of shared memory that nobody wrote.
    UninitialisedShared,
    /// A read of global memory that neither host nor kernel wrote.
    UninitialisedGlobal,
    /// An integer divided by zero, on which something depends: no two GPUs need give the same.
    DivisionByZero,
    /// An access at an address that comes from 32-bit arithmetic whose result 32 bits do not hold.
    IndexOverflow,
    /// Two accesses to shared memory, one a write, that nothing orders.
    SharedRace,
    /// The same in global memory.
    GlobalRace,
    /// An asynchronous copy or tensor-core read that nothing waited for.
    AsyncRace,
    /// A generic write, read or overwritten by the asynchronous proxy without `fence.proxy.async` between.
    MissingProxyFence,
    /// A thread or a block that ends while something may still use its shared memory or its registers.
    EarlyExit,
    /// A warp-wide or aligned instruction executed by part of a warp.
    DivergentBarrier,
    /// Memory from `malloc` that nobody has freed: see [`crate::Gpu::leaks`].
    Leak,
    /// Arrivals that disagree about a barrier's number of threads.
    BarrierCount,
    /// Barriers and mbarriers used against their rules.
    BarrierMisuse,
    /// This machine does not have the memory that simulating the launch takes.
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

/// A place in the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// The instruction's opcode.
    pub instruction: String,
    /// Source file and line, when the PTX has `.loc`.
    pub source: Option<(String, u32)>,
    /// The call that this was inlined from, in the function that was not inlined itself.
    pub caller: Option<(String, u32)>,
}

impl Place {
    /// The lines of the source: `kernel.rs:12, inlined from library.rs:70`.
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
    /// Where it happened.
    pub place: Place,
    /// Who: `thread (3,0,0) of block (0,0,0)`, `an asynchronous copy`.
    pub who: String,
    /// It was a write.
    pub write: bool,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of mistake it is.
    pub kind: Kind,
    /// The mistake in words.
    pub message: String,
    /// The kernel's name.
    pub kernel: String,
    /// The instruction; none for what is wrong with the launch as a whole.
    pub place: Place,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// The address: in its own space for shared and local memory.
    pub address: Option<u64>,
    /// The other access of a race.
    pub earlier: Option<Earlier>,
    /// How often the same instruction had the same finding.
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

/// So many bytes, in words.
pub(crate) fn bytes(n: u64) -> String {
    format!("{n} byte{}", if n == 1 { "" } else { "s" })
}

/// A finding that ended the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Why it ended.
    pub finding: Box<Finding>,
    /// What had been found until then.
    pub also: Vec<Finding>,
    /// What the kernel had printed until then.
    pub output: String,
    /// The memory that this machine did not have, if that is what ended the launch.
    pub missing: Option<OutOfMemory>,
}

impl Fault {
    pub(crate) fn new(finding: Finding) -> Self {
        Fault { finding: Box::new(finding), also: vec![], output: String::new(), missing: None }
    }

    /// One for want of memory, for the purpose that is given.
    pub(crate) fn of_memory(kernel: &str, error: OutOfMemory, purpose: &str) -> Self {
        Fault { missing: Some(error), ..Fault::of_launch(kernel, Kind::OutOfMemory, format!("{error} {purpose}")) }
    }

    /// One that no instruction is to blame for.
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
        // An offset that overflowed on its way to this very address says most.
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
    /// What the kernel printed, in the order of its blocks.
    pub output: String,
    /// Counts, if [`crate::Options::metrics`] asked for them.
    pub metrics: Option<Metrics>,
}

impl Report {
    /// True when nothing was found.
    pub fn clean(&self) -> bool {
        self.findings.is_empty()
    }
}
