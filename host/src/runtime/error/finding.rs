//! What the simulator's checkers found, in this crate's own words.

use std::fmt;

/// One thing that a kernel did wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "check", derive(serde::Serialize))]
pub struct Finding {
    /// The kernel's symbol.
    pub kernel: String,
    /// What it is: `out-of-bounds`, `shared-race`, `uninitialised-global`, `divergent-barrier`…
    pub kind: &'static str,
    /// The values seen.
    pub message: String,
    /// Whether it ended the launch.
    pub fatal: bool,
    /// Line of the PTX, as `warpsmith inspect OP --ptx` prints it; 0 for what is wrong with the launch as a whole.
    pub ptx_line: u32,
    /// The instruction there.
    pub instruction: String,
    /// The lines of the source that it comes from, where the PTX tells.
    pub source: Option<String>,
    /// Block of the thread.
    pub block: [u32; 3],
    /// The thread.
    pub thread: [u32; 3],
    /// The address.
    pub address: Option<u64>,
    /// For a race, the access before.
    pub earlier: Option<String>,
    /// How often the same instruction did the same.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "{}: {},", self.kind, self.message)?;
        if self.ptx_line == 0 {
            return write!(f, " in kernel {}", self.kernel);
        }
        write!(f, " at PTX line {} `{}`", self.ptx_line, self.instruction)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        write!(f, " in kernel {}, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})", self.kernel)?;
        if let Some(address) = self.address {
            write!(f, ", address {address:#x}")?;
        }
        if let Some(earlier) = &self.earlier {
            write!(f, "; before it, a {earlier}")?;
        }
        if self.count > 1 {
            write!(f, "; {} times", self.count)?;
        }
        Ok(())
    }
}

/// Findings in one line: the first, and how many there are.
pub(super) fn text(findings: &[Finding]) -> String {
    match findings {
        [] => "nothing was found".to_owned(),
        [only] => only.to_string(),
        [first, more @ ..] => format!("{first} (and {} more)", more.len()),
    }
}
