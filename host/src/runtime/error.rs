//! The one error type: every message names the operator, the argument and the values seen.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::PathBuf;

use ptx_archive::Arch;

mod cuda_version;
mod finding;

pub use self::cuda_version::CudaVersion;
pub use self::finding::Finding;
use crate::runtime::dtype::DType;

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, from a wrong shape to a kernel that trapped.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument's shape does not fit the operator or the other arguments.
    #[error("{op}: `{arg}` has shape {found}, expected {expected}")]
    Shape {
        /// Operator or function.
        op: &'static str,
        /// Argument.
        arg: &'static str,
        /// The shape that was passed.
        found: String,
        /// What would have been accepted.
        expected: String,
    },
    /// An argument has a data type the operator has no kernel for.
    #[error("{op}: `{arg}` is {found}, expected {expected}")]
    DType {
        /// Operator or function.
        op: &'static str,
        /// Argument.
        arg: &'static str,
        /// The data type that was passed.
        found: DType,
        /// The data types that would have been accepted.
        expected: String,
    },
    /// An argument's strides or alignment are not what the operator needs.
    #[error("{op}: `{arg}` {reason}")]
    Layout {
        /// Operator or function.
        op: &'static str,
        /// Argument.
        arg: &'static str,
        /// What is wrong, as the rest of a sentence about the argument.
        reason: String,
    },
    /// A size exceeds what can be addressed or launched.
    #[error("{op}: `{arg}` is too large: {reason}")]
    TooLarge {
        /// Operator or function.
        op: &'static str,
        /// Argument.
        arg: &'static str,
        /// The size seen and the limit.
        reason: String,
    },
    /// A parameter is outside its range, or not known.
    #[error("{op}: parameter `{}` = {}: expected {expected}", printable(param), printable(found))]
    InvalidParam {
        /// Operator or function.
        op: String,
        /// Parameter.
        param: String,
        /// The value that was passed.
        found: String,
        /// What would have been accepted.
        expected: String,
    },
    /// No operator has this name.
    #[error("no operator is called `{}`{}", printable(name), suggest(nearest))]
    UnknownOperator {
        /// The name that was asked for.
        name: String,
        /// The closest names there are.
        nearest: Vec<String>,
    },
    /// No case of an operator has this name.
    #[error("{op}: no case is called `{}`{}", printable(name), suggest(nearest))]
    UnknownCase {
        /// Operator.
        op: String,
        /// The name that was asked for.
        name: String,
        /// The closest names there are.
        nearest: Vec<String>,
    },
    /// The device has not enough free memory.
    #[error(
        "{}out of device memory: {} requested, {} of {} free",
        of.map(|(op, arg)| format!("{op}: `{arg}`: ")).unwrap_or_default(),
        bytes(*requested), bytes(*free), bytes(*total)
    )]
    OutOfMemory {
        /// The operator, and its result or `workspace`, that the memory was for, if it was for one.
        of: Option<(&'static str, &'static str)>,
        /// Bytes asked for.
        requested: u64,
        /// Bytes free when the request failed.
        free: u64,
        /// Bytes the device has.
        total: u64,
    },
    /// A kernel trapped, ran out of bounds or timed out. This is final: every later call on the device, and opening it, fails the
    /// same way until the process ends.
    #[error(
        "a kernel failed on the device: {name} ({code}); last launched, newest first: {}. \
         A process cannot use the device again after this: restart it",
        if kernels.is_empty() { "none of Warpsmith's".to_owned() } else { kernels.join(", ") }
    )]
    KernelFault {
        /// Symbols of the kernels launched last, newest first; the culprit is normally among them. Empty if code outside this crate
        /// has launched it.
        kernels: Vec<&'static str>,
        /// The driver's error code.
        code: u32,
        /// The driver's name for it.
        name: String,
    },
    /// The simulator ran a kernel and found it at fault. The device goes on.
    #[error("{}", finding::text(findings))]
    Findings {
        /// What it found, what ended the launch first.
        findings: Vec<Finding>,
    },
    /// Grid, block or arguments of a launch are not possible.
    #[error("kernel {kernel} cannot be launched: {reason}")]
    Launch {
        /// Kernel symbol.
        kernel: &'static str,
        /// The values seen and the limit.
        reason: String,
    },
    /// An argument and the stream it is used on are not of the same device.
    #[error("{op}: `{arg}` is on {found}, expected {expected}")]
    DeviceMismatch {
        /// Operator or function.
        op: &'static str,
        /// Argument.
        arg: &'static str,
        /// The argument's device.
        found: String,
        /// The stream's device.
        expected: String,
    },
    /// The CUDA driver's library is not there.
    #[error("no CUDA driver found ({looked_for}): install the NVIDIA driver; the CUDA toolkit is not needed")]
    NoDriver {
        /// The files that were tried and why each failed.
        looked_for: String,
    },
    /// What `WARPSMITH_LIBCUDA` names is not the CUDA driver's library.
    #[error(
        "{variable} names no CUDA driver ({}): let it name the driver's library, or leave it unset",
        printable(looked_for)
    )]
    NamedDriver {
        /// The variable, which a program that ends with the error as it is has to tell as well.
        variable: &'static str,
        /// The file, and what is wrong with it.
        looked_for: String,
    },
    /// The driver works but sees no GPU.
    #[error(
        "the CUDA driver{} finds no GPU (CUDA_VISIBLE_DEVICES is {})",
        version.map(|v| format!(" {v}")).unwrap_or_default(),
        visible.as_deref().unwrap_or("not set")
    )]
    NoGpu {
        /// The driver's CUDA version.
        version: Option<CudaVersion>,
        /// Value of `CUDA_VISIBLE_DEVICES`.
        visible: Option<String>,
    },
    /// The driver is older than the embedded kernels.
    #[error(
        "the CUDA driver is too old: it supports CUDA {found}, the kernels need {needed}; update the NVIDIA driver"
    )]
    DriverTooOld {
        /// The driver's CUDA version.
        found: CudaVersion,
        /// The version the kernels' PTX needs.
        needed: CudaVersion,
    },
    /// The GPU is older than the oldest architecture with kernels.
    #[error(
        "{name} has compute capability {}.{}: the kernels need 8.0 (Ampere) or newer",
        compute_capability.0,
        compute_capability.1
    )]
    UnsupportedDevice {
        /// The GPU's name.
        name: String,
        /// Its compute capability.
        compute_capability: (u32, u32),
    },
    /// No image of this kernel fits the device.
    #[error("there is no kernel {module}::{symbol} for {arch}{hint}")]
    MissingKernel {
        /// The Rust module that declares it.
        module: &'static str,
        /// Kernel symbol.
        symbol: &'static str,
        /// The best architecture that the device runs.
        arch: &'static str,
        /// Where the kernel does exist, as the end of the sentence.
        hint: String,
    },
    /// Kernels of one name were added twice, from different archives.
    #[error("kernel {module}::{symbol} for {arch} was added before, from elsewhere")]
    DuplicateKernel {
        /// The Rust module that declares it.
        module: &'static str,
        /// Kernel symbol.
        symbol: &'static str,
        /// What it was compiled for.
        arch: Arch,
    },
    /// The archive of kernels is not there, or damaged.
    #[error("the kernels cannot be loaded: {reason}")]
    KernelArchive {
        /// What was looked for and where, or what is wrong with it.
        reason: String,
    },
    /// The PTX of a kernel does not match its Rust declaration.
    #[error("kernel {symbol}: the PTX does not match its declaration: {reason}")]
    KernelMismatch {
        /// Kernel symbol.
        symbol: &'static str,
        /// The two values that differ.
        reason: String,
    },
    /// The driver could not compile a kernel's PTX.
    #[error("kernel {symbol} does not compile for this GPU: {name}{}{log}", numbered(*.code))]
    KernelLoad {
        /// Kernel symbol.
        symbol: &'static str,
        /// The driver's error code; 0 of the simulator, which has none.
        code: u32,
        /// The driver's name for it.
        name: String,
        /// The compiler's log.
        log: String,
    },
    /// The crate was built without kernels.
    #[error("this build carries no kernels: {why}")]
    KernelsNotBuilt {
        /// Why they were not built.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {reason}", printable(&path.to_string_lossy()))]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// Writing a file began and could not be finished, on a full disk for example.
    #[error("{}: cannot be written to the end: {reason}", printable(&path.to_string_lossy()))]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A driver call failed in a way that has no variant of its own.
    #[error("{call} failed: {name} ({code})")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The driver's error code.
        code: u32,
        /// The driver's name for it.
        name: String,
    },
    /// The backend that was asked for is not there.
    #[error("backend `{backend}` is not available: {reason}")]
    BackendUnavailable {
        /// The backend that was asked for.
        backend: String,
        /// Why it is not.
        reason: String,
    },
}

/// What errors of memory and of shapes that nobody has named call their operator.
const UNNAMED: [&str; 3] = ["tensor", "scratch", "shape"];

impl Error {
    /// An [`Error::Shape`].
    pub fn shape(op: &'static str, arg: &'static str, found: &[usize], expected: impl Into<String>) -> Self {
        Self::Shape { op, arg, found: format!("{found:?}"), expected: expected.into() }
    }

    /// An [`Error::DType`].
    pub fn dtype(op: &'static str, arg: &'static str, found: DType, expected: impl Into<String>) -> Self {
        Self::DType { op, arg, found, expected: expected.into() }
    }

    /// An [`Error::Layout`]; `reason` continues a sentence about the argument.
    pub fn layout(op: &'static str, arg: &'static str, reason: impl Into<String>) -> Self {
        Self::Layout { op, arg, reason: reason.into() }
    }

    /// An [`Error::TooLarge`].
    pub fn too_large(op: &'static str, arg: &'static str, reason: impl Into<String>) -> Self {
        Self::TooLarge { op, arg, reason: reason.into() }
    }

    /// Names the operator and the argument whose memory or shape there is not or cannot be counted, unless that is named already.
    pub(crate) fn name(&mut self, op: &'static str, arg: &'static str) {
        match self {
            Self::OutOfMemory { of, .. } => {
                of.get_or_insert((op, arg));
            }
            Self::TooLarge { op: of, arg: its, .. } | Self::Shape { op: of, arg: its, .. } if UNNAMED.contains(of) => {
                (*of, *its) = (op, arg);
            }
            _ => {}
        }
    }

    /// The same error with [these names](Self::name).
    pub(crate) fn of(mut self, op: &'static str, arg: &'static str) -> Self {
        self.name(op, arg);
        self
    }

    /// An [`Error::DeviceMismatch`].
    pub(crate) fn device_mismatch(
        op: &'static str,
        arg: &'static str,
        found: impl Display,
        expected: impl Display,
    ) -> Self {
        let (mut found, expected) = (found.to_string(), expected.to_string());
        if found == expected {
            // Simulators of their own all have the number 0, so that both names are equal.
            found.insert_str(0, "another ");
        }
        Self::DeviceMismatch { op, arg, found, expected }
    }

    /// An [`Error::InvalidParam`].
    pub fn param(
        op: impl Into<String>,
        param: impl Into<String>,
        found: impl Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::InvalidParam { op: op.into(), param: param.into(), found: found.to_string(), expected: expected.into() }
    }

    /// An [`Error::File`].
    pub fn file(path: impl Into<PathBuf>, reason: impl Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }

    /// The machine lacks something (driver, GPU, kernels, backend), as opposed to wrong input or a failure.
    pub fn is_environment(&self) -> bool {
        matches!(
            self,
            Self::NoDriver { .. }
                | Self::NamedDriver { .. }
                | Self::NoGpu { .. }
                | Self::DriverTooOld { .. }
                | Self::UnsupportedDevice { .. }
                | Self::KernelsNotBuilt { .. }
                | Self::KernelArchive { .. }
                | Self::BackendUnavailable { .. }
        )
    }
}

/// Text from elsewhere as a message can carry it: what moves a terminal's cursor, colours it, starts a line or turns the direction of
/// text is escaped.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

fn suggest(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}

/// A code in brackets, where there is one.
fn numbered(code: u32) -> String {
    if code == 0 { String::new() } else { format!(" ({code})") }
}

fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests;
