//! The `warpsmith` command: one module a verb.
//!
//! Exit codes: 0 all is well, 1 a check or the work itself failed (a full disk, no memory), 2 the command or its input is wrong,
//! 3 the machine lacks something: a driver, a GPU, the backend that was asked for, kernels.

mod analyze;
mod bench;
mod cases;
mod doctor;
mod inspect;
mod lesson;
mod list;
mod profile;
mod report;
mod run;
mod sanitize;
mod tune;
mod ui;
mod verify;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};

use crate::runtime::device::{BackendKind, Device};
use crate::runtime::environment::variable;
use crate::runtime::error::{Error, Result, printable};
use crate::runtime::sim::GpuModel;
use ui::Ui;

/// LLM operators whose GPU kernels are written in Rust.
#[derive(Parser)]
#[command(name = "warpsmith", version, arg_required_else_help = true)]
struct Cli {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Say what this machine has and lacks
    Doctor(doctor::Args),
    /// List the operators, or describe some
    List(list::Args),
    /// Run operators on random input and compare them with their references
    Verify(verify::Args),
    /// Time operators on their production shapes
    Bench(bench::Args),
    /// Find faster kernels than the planned ones for products of some sizes, and remember them
    Tune(tune::Args),
    /// Run one operator on tensors from a file
    Run(run::Args),
    /// Show an operator's kernels: their resources and their code
    Inspect(inspect::Args),
    /// Run operators, but no production shapes, in the simulator with every check and list what the checkers find
    Sanitize(sanitize::Args),
    /// Count what an operator's kernels do, in the simulator: memory traffic, bank conflicts, divergence, occupancy
    Analyze(analyze::Args),
    /// List the lessons about GPUs, or run one: what kernels are predicted to do, and what they do
    Lesson(lesson::Args),
    /// Say where a program's time goes: its scopes and kernels, on the CPU and on the GPU
    Profile(profile::Args),
    /// Write results as a page of pictures
    Report(report::Args),
    /// Time opening a device and running a first operator
    #[command(hide = true)]
    ColdStart(bench::ColdStartArgs),
}

/// How a verb ends when it did what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Ok,
    ChecksFailed,
    EnvironmentMissing,
}

impl Outcome {
    fn of(passed: bool) -> Self {
        if passed { Self::Ok } else { Self::ChecksFailed }
    }
}

const CHECKS_FAILED: u8 = 1;
const USAGE: u8 = 2;
const ENVIRONMENT: u8 = 3;

/// Runs the process's command line.
pub fn main() -> ExitCode {
    let terminal = io::stdout().is_terminal();
    let mut ui = Ui::new(io::stdin(), io::stdout(), io::stderr());
    ui.colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    ui.progress = io::stderr().is_terminal();
    ExitCode::from(dispatch(std::env::args_os(), &mut ui))
}

/// Runs a command line (the program's name first) on `input`, with its output going to `out` and `err`; returns the exit code.
pub fn run(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    input: impl Read + 'static,
    out: impl Write + 'static,
    err: impl Write + 'static,
) -> u8 {
    dispatch(args, &mut Ui::new(input, out, err))
}

fn dispatch(args: impl IntoIterator<Item = impl Into<OsString> + Clone>, ui: &mut Ui) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // What was typed is part of the text, so it is printed without the colours that it may contain.
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            text.lines().for_each(|line| ui.note(printable(line)));
            return USAGE;
        }
        Err(help) => {
            let text = if ui.colour { help.render().ansi().to_string() } else { help.render().to_string() };
            ui.print(&text);
            return code(Ok(Outcome::Ok), ui);
        }
    };
    ui.json = cli.json;
    let result = match cli.verb {
        Verb::Doctor(args) => doctor::run(&args, ui),
        Verb::List(args) => list::run(&args, ui),
        Verb::Verify(args) => verify::run(&args, ui),
        Verb::Bench(args) => bench::run(&args, ui),
        Verb::Tune(args) => tune::run(&args, ui),
        Verb::Run(args) => run::run(&args, ui),
        Verb::Inspect(args) => inspect::run(&args, ui),
        Verb::Sanitize(args) => sanitize::run(&args, ui),
        Verb::Analyze(args) => analyze::run(&args, ui),
        Verb::Lesson(args) => lesson::run(&args, ui),
        Verb::Profile(args) => profile::run(&args, ui),
        Verb::Report(args) => report::run(&args, ui),
        Verb::ColdStart(args) => bench::cold_start(&args, ui),
    };
    code(result, ui)
}

/// The exit code, once all output is written.
fn code(result: Result<Outcome>, ui: &mut Ui) -> u8 {
    match result.and_then(|outcome| ui.finish().map(|()| outcome)) {
        Ok(Outcome::Ok) => 0,
        Ok(Outcome::ChecksFailed) => CHECKS_FAILED,
        Ok(Outcome::EnvironmentMissing) => ENVIRONMENT,
        Err(error) => {
            ui.error(&error);
            exit_code(&error)
        }
    }
}

fn exit_code(error: &Error) -> u8 {
    match error {
        e if e.is_environment() => ENVIRONMENT,
        Error::Shape { .. }
        | Error::DType { .. }
        | Error::Layout { .. }
        | Error::TooLarge { .. }
        | Error::InvalidParam { .. }
        | Error::UnknownOperator { .. }
        | Error::UnknownCase { .. }
        | Error::File { .. } => USAGE,
        _ => CHECKS_FAILED,
    }
}

/// The program's name without its folder, and its arguments.
fn command_line() -> String {
    let mut args: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    if let Some(first) = args.first_mut() {
        *first = first.rsplit('/').next().unwrap_or_default().to_owned();
    }
    args.join(" ")
}

/// Sizes by their names, as in `m=4096,n=11008`.
type Sizes = Vec<(String, usize)>;

fn sizes(text: &str) -> Result<Sizes, String> {
    let size = |part: &str| {
        let (name, size) = part.split_once('=')?;
        let size = size.trim().parse().ok().filter(|size| (1..=i32::MAX as usize).contains(size))?;
        Some((name.trim().to_owned(), size))
    };
    let wanted = "names and sizes above 0, as in m=4096,n=4096,k=4096";
    text.split(',').map(|part| size(part).ok_or_else(|| wanted.to_owned())).collect()
}

/// Whether a file can be there: found out now rather than after minutes of work.
fn writable(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    if folder.is_some_and(|f| !f.is_dir()) {
        return Err(Error::file(path, "cannot be written: its folder does not exist"));
    }
    if path.is_dir() {
        return Err(Error::file(path, "cannot be written: it is a folder"));
    }
    Ok(())
}

/// `--backend`, shared by the verbs that need a device.
#[derive(clap::Args, Clone, Debug)]
struct BackendArg {
    /// What runs the kernels: cuda or sim [default: a GPU if there is one]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<BackendKind>,
}

impl BackendArg {
    /// Whether a backend was asked for, here or by the environment, which may also name a driver.
    fn is_forced(&self) -> bool {
        self.backend.is_some()
            || ["WARPSMITH_BACKEND", "WARPSMITH_LIBCUDA"].into_iter().any(|name| variable(name).is_some())
    }

    fn open(&self) -> Result<Device> {
        match self.backend {
            Some(kind) => Device::open_backend(kind),
            None => Device::open(),
        }
    }
}

/// A GPU that can be simulated, by its name on the command line.
fn gpu() -> impl TypedValueParser<Value = GpuModel> {
    PossibleValuesParser::new(GpuModel::ALL.map(|model| model.key())).try_map(|key| key.parse())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_that_cannot_be_written_is_an_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(run(["warpsmith", "--help"], io::empty(), Full, io::sink()), CHECKS_FAILED);
    }
}
