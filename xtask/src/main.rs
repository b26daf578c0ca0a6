//! The project's chores: `cargo xtask --help`.

mod book;
mod cargo;
mod compare;
mod dist;
mod new_op;
mod package;
mod progress;
mod setup;
mod tidy;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Get what compiling kernels needs
    Setup(setup::Options),
    /// Set up, build, and check every operator against its reference
    Verify {
        /// Passed on to `warpsmith verify`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Set up, build, and run every test
    Test {
        /// Passed on to `cargo test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Set up, build, and time every operator
    Bench {
        /// Passed on to `warpsmith bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Pack command, tests and benches for a GPU machine without Rust
    Dist(dist::Options),
    /// Pack the crates for crates.io, and build a stranger's programs with them
    Package,
    /// Put bench rows beside those of other libraries
    Compare(compare::Options),
    /// Write the places of a new operator
    NewOp(new_op::Options),
    /// Make pages of the book, in target/book
    Book,
    /// Check what compilers do not
    Tidy {
        /// Renew the book's table of operators
        #[arg(long)]
        fix: bool,
    },
    /// Everything a change has to pass
    Ci,
}

fn main() -> ExitCode {
    match run(Cli::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<ExitCode> {
    match chore {
        Chore::Verify { args } => return warpsmith(&[], "verify", args),
        Chore::Bench { args } => return warpsmith(&["--release"], "bench", args),
        Chore::Setup(options) => setup::run(&options),
        Chore::Test { args } => {
            set_up()?;
            cargo::run("tests", cargo::command(["test", "--workspace"]).args(args))
        }
        Chore::Dist(options) => {
            set_up()?;
            dist::run(&options)
        }
        Chore::Package => {
            set_up()?;
            package::run()
        }
        Chore::Compare(options) => compare::run(&options),
        Chore::NewOp(options) => new_op::run(&options),
        Chore::Book => book::run(),
        Chore::Tidy { fix } => tidy::run(fix),
        Chore::Ci => ci(),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn set_up() -> Result<()> {
    setup::run(&setup::Options::default())
}

/// Runs our command, built with `flags`. It says itself what is wrong, and its exit code means something.
fn warpsmith(flags: &[&str], verb: &str, args: Vec<OsString>) -> Result<ExitCode> {
    set_up()?;
    let status = cargo::status(verb, cargo::warpsmith(flags)?.arg(verb).args(args))?;
    let code =
        status.code().and_then(|code| u8::try_from(code).ok()).with_context(|| format!("{verb} failed ({status})"))?;
    Ok(ExitCode::from(code))
}

fn ci() -> Result<()> {
    cargo::run("formatting", &mut cargo::command(["fmt", "--all", "--check"]))?;
    set_up()?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo::run("clippy", &mut cargo::command(clippy))?;
    new_op::check_templates()?;
    let doc = ["doc", "--workspace", "--no-deps"];
    cargo::run("documentation", cargo::command(doc).env("RUSTDOCFLAGS", "-D warnings"))?;
    tidy::run(false)?;
    cargo::run("tests", &mut cargo::command(["test", "--workspace"]))?;
    package::run()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
