//! `cargo xtask dist`: everything that a GPU machine needs to check and time the operators, in one folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cuda_builder::ptx_archive::FILE_NAME;

use crate::cargo::{self, Program};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder to write, from the workspace's
    #[arg(long, default_value = "dist")]
    out: PathBuf,
}

const GPU_CHECK: &str = include_str!("../templates/gpu-check.sh");

/// Tests that are not packed: those that compile something or read files of the repository, those whose driver is a fake or a
/// simulator, which a GPU does not change, and the one whose cases `warpsmith verify` runs.
const NO_NEED_OF_A_GPU: [&str; 9] =
    ["against_peers", "compile_fail", "correctness", "fake_driver", "lessons", "lines", "models", "pages", "simulator"];

/// Every program contains the library. `tar` and `xz` compress them to a quarter.
const MAX_BYTES: u64 = 256 << 20;

pub(crate) fn run(options: &Options) -> Result<()> {
    let out = cargo::root().join(&options.out);
    if out.exists() && !is_replaceable(&out)? {
        bail!("{} holds something else than a distribution: choose another folder", out.display());
    }
    // A single build for all, so that every dependency is compiled once.
    let packages = ["-p", "warpsmith", "-p", "warpsmith-tests", "-p", "warpsmith-benches"];
    let targets =
        ["test", "--release", "--no-run", "--lib", "--bins", "--tests", "--benches", "--features", "warpsmith/cli"];
    let programs = cargo::build("building command, tests and benches", &[&targets[..], &packages].concat())?;

    // Packed beside the old folder and then swapped, so that a failure leaves no partial folder.
    let parent = out.parent().context("the output has no parent folder")?;
    let staging = tempfile::Builder::new().prefix(".dist-").tempdir_in(parent);
    let staging = staging.with_context(|| format!("cannot write in {}", parent.display()))?;
    let mut copied = 0;
    for program in &programs {
        if let Some(place) = place(program) {
            let to = staging.path().join(place);
            fs::create_dir_all(to.parent().unwrap_or(staging.path()))?;
            fs::copy(&program.path, to).with_context(|| format!("copying {}", program.path.display()))?;
            copied += 1;
        }
    }
    if copied < 4 {
        bail!("only {copied} programs were built");
    }
    // Every program looks for the kernels beside itself, or above `tests` and `benches`. Programs built in a target folder
    // elsewhere embed them.
    let kernels = cuda_builder::target_folder(cargo::root()).join(FILE_NAME);
    if kernels.starts_with(cargo::root()) {
        let to = staging.path().join(FILE_NAME);
        fs::copy(&kernels, to).with_context(|| format!("copying {}", kernels.display()))?;
    }
    let script = staging.path().join("gpu-check");
    fs::write(&script, GPU_CHECK)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    fs::write(staging.path().join("COMMIT"), commit())?;
    let bytes = size(staging.path())?;
    if bytes > MAX_BYTES {
        bail!("{} MiB is more than the {} MiB that are meant to be enough", bytes >> 20, MAX_BYTES >> 20);
    }
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot replace {}", out.display()))?;
    }
    let staging = staging.keep();
    fs::rename(&staging, &out).with_context(|| format!("cannot make {}", out.display()))?;
    fs::set_permissions(&out, fs::Permissions::from_mode(0o755))?;
    println!("{}: {:.1} MiB; on a GPU machine run gpu-check [--out DIR]", out.display(), bytes as f64 / 1048576.0);
    Ok(())
}

/// Whether the folder is empty, or was written by an earlier run.
fn is_replaceable(folder: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.next().is_none() || folder.join("gpu-check").is_file())
}

/// The place of a program; `None` if it is not packed.
fn place(program: &Program) -> Option<String> {
    let name = &program.name;
    match (program.kind.as_str(), program.test) {
        ("bin", false) => Some(name.clone()),
        ("bench", _) => Some(format!("benches/{name}")),
        // The libraries of the other packages are built only for their tests and benches.
        ("lib", true) if name == "warpsmith" => Some("tests/unit".to_owned()),
        ("test", _) if !NO_NEED_OF_A_GPU.contains(&name.as_str()) => Some(format!("tests/{name}")),
        _ => None,
    }
}

/// The commit, with a mark if the tree has other changes; empty outside a repository.
fn commit() -> String {
    let mut git = std::process::Command::new("git");
    let output = git.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(cargo::root()).output();
    output
        .ok()
        .filter(|o| o.status.success())
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default()
}

fn size(folder: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        total += if meta.is_dir() { size(&entry.path())? } else { meta.len() };
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_distribution_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_replaceable(folder.path()).unwrap());
        fs::write(folder.path().join("thesis.tex"), "").unwrap();
        assert!(!is_replaceable(folder.path()).unwrap());
        fs::write(folder.path().join("gpu-check"), "").unwrap();
        assert!(is_replaceable(folder.path()).unwrap());
    }

    #[test]
    fn every_program_has_its_place() {
        let place = |name: &str, kind: &str, test| {
            place(&Program { name: name.to_owned(), kind: kind.to_owned(), test, path: PathBuf::new() })
        };
        assert_eq!(place("warpsmith", "bin", false).as_deref(), Some("warpsmith"));
        assert_eq!(place("warpsmith", "bin", true), None);
        assert_eq!(place("warpsmith", "lib", true).as_deref(), Some("tests/unit"));
        assert_eq!(place("warpsmith_tests", "lib", true), None);
        assert_eq!(place("sizes", "test", true).as_deref(), Some("tests/sizes"));
        assert_eq!(place("compile_fail", "test", true), None);
        assert_eq!(place("operators", "bench", true).as_deref(), Some("benches/operators"));
    }
}
