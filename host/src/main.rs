//! The `warpsmith` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith::cli::main()
}
