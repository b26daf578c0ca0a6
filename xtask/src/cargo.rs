//! Running cargo on the workspace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::progress::Progress;

/// The workspace's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// `cargo` with these arguments, in the workspace's folder.
pub(crate) fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a step with its output shown, and prints how long it took.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<()> {
    let start = Instant::now();
    let status = status(what, command)?;
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    eprintln!("    {what}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a step with its output shown, and returns how it ended.
pub(crate) fn status(what: &str, command: &mut Command) -> Result<ExitStatus> {
    eprintln!("==> {what}");
    let _progress = Progress::start(root());
    command.status().with_context(|| cannot_start(what, command))
}

fn cannot_start(what: &str, command: &Command) -> String {
    format!("{what}: cannot start {}", command.get_program().display())
}

/// Runs a step and returns what it prints.
pub(crate) fn output(what: &str, command: &mut Command) -> Result<String> {
    let _progress = Progress::start(root());
    let output = command.stderr(Stdio::inherit()).output().with_context(|| cannot_start(what, command))?;
    if !output.status.success() {
        bail!("{what} failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{what}: the output is not UTF-8"))
}

/// A program that cargo built.
pub(crate) struct Program {
    pub(crate) name: String,
    /// `bin`, `lib`, `test` or `bench`.
    pub(crate) kind: String,
    /// With the test harness.
    pub(crate) test: bool,
    pub(crate) path: PathBuf,
}

/// Builds, and returns every program that was built.
pub(crate) fn build(what: &str, args: &[&str]) -> Result<Vec<Program>> {
    eprintln!("==> {what}");
    let text = output(what, &mut command(args.iter().chain(&["--message-format=json-render-diagnostics"])))?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let built = messages.filter_map(|message| {
        Some(Program {
            name: word(&message["target"]["name"])?,
            kind: word(&message["target"]["kind"][0])?,
            test: message["profile"]["test"].as_bool()?,
            path: PathBuf::from(message["executable"].as_str()?),
        })
    });
    Ok(built.collect())
}

/// Builds the `warpsmith` command, and returns how to start it. It has the features of the whole workspace, so that tests reuse
/// the build.
pub(crate) fn warpsmith(flags: &[&str]) -> Result<Command> {
    let built = build("building warpsmith", &[&["build", "--workspace", "--bin", "warpsmith"], flags].concat())?;
    let program = built.into_iter().find(|program| program.kind == "bin" && program.name == "warpsmith");
    let mut command = Command::new(program.context("cargo says nothing of the command it has built")?.path);
    command.current_dir(root());
    Ok(command)
}
