//! Everything that can go wrong in a build.

use std::{fmt, path::PathBuf};

pub use crate::ir::{PanicSite, Unresolved};
use crate::{Arch, ptxas::Resources, toolchain::NotFound};

/// A build that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No device toolchain was found.
    #[error(transparent)]
    Toolchain(#[from] NotFound),
    /// The folder is not a crate.
    #[error(
        "there is no crate of kernels in {} (seen from {}): {reason}; the builder takes the folder that a crate's Cargo.toml is in",
        folder.display(),
        from.display()
    )]
    NoCrate {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The base of a relative folder.
        from: PathBuf,
    },
    /// Cargo could not be run.
    #[error("cannot run {program}: {source}")]
    Run {
        /// The program.
        program: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The crate does not compile.
    #[error("the kernels do not compile:\n{0}")]
    Compile(String),
    /// Cargo could not report the crate's dependencies.
    #[error("cargo metadata failed:\n{0}")]
    Metadata(String),
    /// rustc's output is not what the builder expects.
    #[error("unexpected compiler output: {0}")]
    Output(String),
    /// The crate, and those it depends on, define a symbol twice.
    #[error("the symbol `{0}` is defined twice")]
    Link(String),
    /// Bitcode could not be read.
    #[error("llvm-dis failed:\n{0}")]
    Bitcode(String),
    /// Some kernels are broken; the others are not written either.
    #[error("{}", list(.0))]
    Kernels(Vec<KernelError>),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// A kernel that was rejected.
#[derive(Debug)]
#[non_exhaustive]
pub struct KernelError {
    /// The PTX entry.
    pub kernel: String,
    /// The Rust module that declares it; empty when it is not known.
    pub module: String,
    /// The architectures that it was compiled for.
    pub arches: Vec<Arch>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a kernel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The entry was not declared with `#[kernel]`.
    NoMarker,
    /// The marker of the entry is invalid.
    Marker(String),
    /// It calls functions that are not defined.
    Unresolved(Vec<Unresolved>),
    /// It can panic.
    Panics(Vec<PanicSite>),
    /// It declares `no_spills`, but ptxas reports spills.
    Spills(Resources),
    /// A tool fails, or its output is not understood.
    Tool {
        /// The tool.
        tool: &'static str,
        /// The tool's message.
        message: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NoMarker => f.write_str("is an `extern \"ptx-kernel\"` function without #[kernel(...)]"),
            Problem::Marker(message) => write!(f, "has a launch declaration that is not valid: {message}"),
            Problem::Unresolved(functions) => {
                f.write_str("calls what is defined nowhere:")?;
                functions.iter().try_for_each(|function| write!(f, "\n    {function}"))
            }
            Problem::Panics(sites) => {
                f.write_str("can panic, and a GPU cannot unwind; rule these out or use unchecked forms:")?;
                sites.iter().try_for_each(|site| write!(f, "\n    {site}"))
            }
            Problem::Spills(resources) => {
                write!(f, "declares no_spills and does not fit in registers: {}", indent(&resources.to_string()))
            }
            Problem::Tool { tool, message } => write!(f, "fails in {tool}:\n    {}", indent(message)),
        }
    }
}

fn indent(text: &str) -> String {
    text.replace('\n', "\n    ")
}

/// One paragraph per kernel and problem, even if it affects several architectures.
fn list(errors: &[KernelError]) -> String {
    let mut grouped: Vec<(&KernelError, String, Vec<&str>)> = Vec::new();
    for error in errors {
        let text = error.problem.to_string();
        match grouped.iter_mut().find(|(first, other, _)| first.kernel == error.kernel && *other == text) {
            Some((_, _, arches)) => arches.extend(error.arches.iter().map(|arch| arch.as_str())),
            None => grouped.push((error, text, error.arches.iter().map(|arch| arch.as_str()).collect())),
        }
    }
    let paragraphs = grouped.iter().map(|(error, text, arches)| {
        let place = match error.module.as_str() {
            "" => String::new(),
            module => format!(" in {module}"),
        };
        format!("kernel `{}`{place} ({}) {text}", error.kernel, arches.join(", "))
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_problem_is_told_once() {
        let error = |kernel: &str, arch| KernelError {
            kernel: kernel.to_owned(),
            module: "k::ops".to_owned(),
            arches: vec![arch],
            problem: Problem::NoMarker,
        };
        let text =
            Error::Kernels(vec![error("a", Arch::Sm80), error("b", Arch::Sm80), error("a", Arch::Sm90a)]).to_string();
        assert!(text.starts_with("kernel `a` in k::ops (sm_80, sm_90a) is an `extern"), "{text}");
        assert_eq!(text.matches("kernel `").count(), 2);
    }
}
