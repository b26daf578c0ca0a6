//! Compiles the kernels, or takes those that came with the package, and says where the library finds them.
//!
//! It sets `cfg(warpsmith_kernels)` to `embedded` or `file`, and `WARPSMITH_ARCHIVE` to the archive; or to `none`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use cuda_builder::ptx_archive::{Archive, FILE_NAME};
use cuda_builder::{Arch, CudaBuilder, Error, toolchain};

/// The device crate, in the repository.
const KERNELS: &str = "../gpu-kernels";

fn main() -> ExitCode {
    println!("cargo::rustc-check-cfg=cfg(warpsmith_kernels, values(\"none\", \"embedded\", \"file\"))");
    println!("cargo::rerun-if-changed=build.rs");
    match kernels() {
        Ok(Some((archive, how))) => {
            println!("cargo::rustc-cfg=warpsmith_kernels=\"{how}\"");
            println!("cargo::rustc-env=WARPSMITH_ARCHIVE={}", archive.display());
        }
        Ok(None) => println!("cargo::rustc-cfg=warpsmith_kernels=\"none\""),
        Err(why) => {
            report("error", &why);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Cargo shows one line a directive.
fn report(level: &str, text: &str) {
    for line in text.lines() {
        println!("cargo::{level}={line}");
    }
}

/// The archive of kernels, and how it gets to the library; nothing in a build that does without.
fn kernels() -> Result<Option<(PathBuf, &'static str)>, String> {
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if env::var_os("DOCS_RS").is_some() || env::var_os("CARGO_FEATURE_NO_KERNELS").is_some() {
        return Ok(None);
    }
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(format!("cargo did not set {name}"));
    let (package, out) = (folder("CARGO_MANIFEST_DIR")?, folder("OUT_DIR")?);
    let prebuilt = package.join(FILE_NAME);
    if prebuilt.is_file() {
        println!("cargo::rerun-if-changed={FILE_NAME}");
    }
    if !package.join(KERNELS).join("Cargo.toml").is_file() {
        return match prebuilt.is_file() {
            true => Ok(Some((prebuilt, "embedded"))),
            false => Err(format!("{} is missing, and so are the kernels' sources", prebuilt.display())),
        };
    }
    // Who works on the kernels builds them often: their programs read the archive, and need not be linked again for it. It lies
    // in one place for all profiles. Everyone else's program has to run wherever it is copied to.
    let (how, archive) = match is_inside_workspace(&package, &out) {
        true => ("file", cuda_builder::target_folder(&package).join(FILE_NAME)),
        false => ("embedded", out.join(FILE_NAME)),
    };
    let builder = CudaBuilder::new(KERNELS).arch(Arch::Sm80).arch(Arch::Sm90a).archive(&archive);
    match builder.clone().build() {
        Ok(output) => {
            output.warnings.iter().for_each(|warning| report("warning", warning));
            Ok(Some((archive, how)))
        }
        Err(Error::Toolchain(why)) => match prebuilt_is_of(&builder, &prebuilt) {
            Ok(()) => Ok(Some((prebuilt, how))),
            Err(but) => Err(format!(
                "Warpsmith's kernels cannot be compiled here, {but}.\nRun this and build again: {}\n{why}\n\
                 The feature `no-kernels` builds without them.",
                toolchain::SETUP
            )),
        },
        Err(error) => Err(error.to_string()),
    }
}

fn is_inside_workspace(package: &Path, out: &Path) -> bool {
    let canonical = |path: &Path| fs::canonicalize(path).ok();
    match (package.parent().and_then(canonical), canonical(out)) {
        (Some(workspace), Some(out)) => out.starts_with(workspace),
        _ => false,
    }
}

/// Whether the archive in the package was built from these very sources; the error says why not.
fn prebuilt_is_of(builder: &CudaBuilder, prebuilt: &Path) -> Result<(), String> {
    if !prebuilt.is_file() {
        return Err("and there are none that were compiled elsewhere".to_owned());
    }
    let archive = Archive::open(prebuilt).map_err(|error| format!("and {} is {error}", prebuilt.display()))?;
    let sources = builder.sources().map_err(|error| format!("and their sources cannot be read: {error}"))?;
    match archive.sources() == sources {
        true => Ok(()),
        false => Err(format!("and {} was built from other sources", prebuilt.display())),
    }
}
