//! `cargo xtask setup`: what it takes to compile kernels, without touching the system.
//!
//! The device toolchain is taken where it already is; otherwise from rustup, which adds two components to the pinned
//! toolchain; otherwise, where that server is out of reach, from Debian's packages, unpacked into `.toolchain/device`.
//! ptxas comes from PyPI into `.toolchain/cuda`, a Chromium that the tests open pages in from Debian's packages into `.toolchain/browser`. All of it can be run again at any time: what is there is kept, and
//! nothing appears under its final name before it is complete.

mod browser;
mod debian;
mod process;
mod ptxas;
mod rustup;

use std::{
    fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use cuda_builder::toolchain;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cargo;

/// Where to set up.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The folder that gets a `.toolchain`
    #[arg(long, value_name = "DIR", default_value_os = cargo::root().as_os_str())]
    pub(crate) root: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Options { root: cargo::root().to_owned() }
    }
}

/// Makes sure that there is a device toolchain, and a ptxas and a Chromium if they can be had.
pub(crate) fn run(options: &Options) -> Result<()> {
    device_toolchain(&options.root)?;
    // ptxas checks kernels; it is not needed to compile them. Where nobody reads the output, its absence must not pass.
    if let Err(error) = ptxas(&options.root) {
        if std::env::var_os("CI").is_some() {
            return Err(error.context("ptxas is required where CI is set"));
        }
        eprintln!("  ptxas: not available, kernels will not be checked for spills ({error:#})");
    }
    match browser::get(&options.root) {
        Ok(found) => eprintln!("  Chromium: {}", found.display()),
        Err(error) if std::env::var_os("CI").is_some() => {
            return Err(error.context("Chromium is required where CI is set"));
        }
        Err(error) => eprintln!("  Chromium: not available, pages will not be looked at ({error:#})"),
    }
    Ok(())
}

fn device_toolchain(root: &Path) -> Result<()> {
    if let Ok(found) = toolchain::find_from(root) {
        report_toolchain(&found);
        return Ok(());
    }
    if let Some(dir) = std::env::var_os(toolchain::ENV).filter(|dir| !dir.is_empty()) {
        // Somebody chose a toolchain; another one would not be used.
        toolchain::find_from(root).with_context(|| format!("{}={} is set", toolchain::ENV, dir.display()))?;
    }
    let mut failures = Vec::new();
    type Source = fn(&Path) -> Result<()>;
    let sources: [(&str, Source); 2] = [("rustup", rustup::add_components), ("Debian's packages", debian::unpack)];
    for (name, source) in sources {
        let result = source(root).and_then(|()| Ok(toolchain::find_from(root)?));
        match result {
            Ok(found) => {
                report_toolchain(&found);
                return Ok(());
            }
            Err(error) => failures.push(format!("  - {name}: {error:#}")),
        }
    }
    bail!(
        "no device toolchain could be fetched:\n{}\n\n\
         Any of these will do instead:\n\
         \x20 - rustup component add rust-src llvm-tools\n\
         \x20 - apt-get install rustc-web rust-web-src llvm-22     (Debian, as root)\n\
         \x20 - {}=<folder with bin/rustc, its sources and LLVM's tools>",
        failures.join("\n"),
        toolchain::ENV,
    )
}

fn report_toolchain(found: &toolchain::Toolchain) {
    eprintln!(
        "  device toolchain: rustc {} with LLVM {}, from {}",
        found.rustc_version, found.llvm_major, found.origin
    );
}

fn ptxas(root: &Path) -> Result<()> {
    if std::env::var_os("PTXAS").is_some_and(|value| value == "off") {
        return Ok(());
    }
    let found = match cuda_builder::ptxas::find_from(root) {
        Some(found) => found,
        None => {
            ptxas::download(root)?;
            cuda_builder::ptxas::find_from(root).context("the downloaded ptxas does not run")?
        }
    };
    let (major, minor) = found.version();
    eprintln!("  ptxas: CUDA {major}.{minor}, {}", found.path().display());
    Ok(())
}

/// A step that takes a while: a spinner on a terminal, a line when it is done.
struct Step {
    bar: ProgressBar,
    what: String,
    start: Instant,
}

impl Step {
    fn start(what: impl Into<String>) -> Step {
        let what = what.into();
        let bar = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("  {spinner} {msg} {elapsed}");
            let bar = ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        } else {
            ProgressBar::hidden()
        };
        bar.set_message(what.clone());
        Step { bar, what, start: Instant::now() }
    }

    fn done(self) {
        self.bar.finish_and_clear();
        eprintln!("  {}: {:.1} s", self.what, self.start.elapsed().as_secs_f64());
    }
}

/// A step around `work`.
fn step<T>(what: impl Into<String>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let step = Step::start(what);
    let result = work();
    match &result {
        Ok(_) => step.done(),
        Err(_) => step.bar.finish_and_clear(),
    }
    result
}

const UNFINISHED: &str = "unfinished-";

/// Makes a folder in `.toolchain` for unfinished work, on the file system of the finished.
fn scratch(root: &Path) -> Result<tempfile::TempDir> {
    let parent = root.join(".toolchain");
    fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    // A set-up that was killed could not clean up; one that runs beside this one is younger.
    for entry in parent.read_dir()?.flatten() {
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
        let old = age.is_some_and(|age| age > Duration::from_secs(3600));
        if old && entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempdir_in(&parent)
        .with_context(|| format!("cannot write in {}", parent.display()))
}

/// Gives finished work its name, in place of what did not work before.
fn install(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot replace {}", to.display()))?;
    }
    fs::rename(from, to).with_context(|| format!("cannot make {}", to.display()))
}
