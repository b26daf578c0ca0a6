//! `cargo xtask package`: the packages as crates.io gets them, and what a stranger does with them.
//!
//! Two crates are built outside the workspace from the packed files: the example of README.md, without a device toolchain, and
//! `template/`, with one. Both run in the simulator. The library's documentation is made from them too, as docs.rs does.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cuda_builder::{Arch, CudaBuilder};
use serde_json::Value;

use crate::cargo;

/// The archive of kernels that travels in the package.
const ARCHIVE: &str = "host/kernels.ptxa";

/// What is not published.
const OWN: [&str; 3] = ["warpsmith-tests", "warpsmith-benches", "xtask"];

/// The largest package that crates.io takes.
const MOST_BYTES: u64 = 10 << 20;

/// The most crates that a program compiles which only calls operators.
const MOST_CRATES: usize = 40;

pub(crate) fn run() -> Result<()> {
    kernels()?;
    let pack = ["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"];
    let left_out = OWN.iter().flat_map(|name| ["--exclude", name]);
    cargo::run("packing", cargo::command(pack).args(left_out))?;
    let folder = tempfile::tempdir()?;
    let packages = unpack(&folder.path().join("packages"))?;
    let target = folder.path().join("target");
    example(&Stranger { folder: folder.path().join("example"), target: &target, packages: &packages })?;
    template(&Stranger { folder: folder.path().join("template"), target: &target, packages: &packages })?;
    documentation(&packages, &target)
}

/// Writes the archive of kernels, of today's sources.
fn kernels() -> Result<()> {
    eprintln!("==> kernels");
    let builder = CudaBuilder::new(cargo::root().join("gpu-kernels")).arch(Arch::Sm80).arch(Arch::Sm90a);
    let archive = cargo::root().join(ARCHIVE);
    builder.clone().archive(&archive).build()?;
    let packed = cuda_builder::ptx_archive::Archive::open(&archive)?;
    ensure!(packed.sources() == builder.sources()?, "{ARCHIVE} is not of today's sources");
    Ok(())
}

/// A package that was packed and unpacked.
struct Package {
    name: String,
    folder: PathBuf,
}

/// Unpacks what `cargo package` has written.
fn unpack(to: &Path) -> Result<Vec<Package>> {
    fs::create_dir_all(to)?;
    let text = cargo::output("metadata", &mut cargo::command(["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let word = |value: &Value| value.as_str().map(str::to_owned).context("cargo metadata has changed");
    let packed = PathBuf::from(word(&metadata["target_directory"])?).join("package");
    let mut packages = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = word(&package["name"])?;
        if OWN.contains(&&*name) {
            continue;
        }
        let stem = format!("{name}-{}", word(&package["version"])?);
        let file = packed.join(format!("{stem}.crate"));
        let bytes = file.metadata().with_context(|| format!("{} was not packed", file.display()))?.len();
        ensure!(bytes <= MOST_BYTES, "{} has {bytes} bytes, and crates.io takes {MOST_BYTES}", file.display());
        let status = Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(to).status()?;
        ensure!(status.success(), "{} cannot be unpacked", file.display());
        let folder = to.join(stem);
        for licence in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
            ensure!(folder.join(licence).is_file(), "{name} is packed without {licence}");
        }
        packages.push(Package { name, folder });
    }
    Ok(packages)
}

/// Somebody's crate, which finds the packages as if they came from crates.io.
struct Stranger<'a> {
    folder: PathBuf,
    target: &'a Path,
    packages: &'a [Package],
}

impl Stranger<'_> {
    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&self.folder))?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Writes the manifest, and the lock of the workspace: what that has downloaded has to do.
    fn manifest(&self, text: &str) -> Result<()> {
        let mut patched = format!("{text}\n[patch.crates-io]\n");
        for Package { name, folder } in self.packages {
            patched += &format!("{name} = {{ path = {:?} }}\n", folder.display().to_string());
        }
        self.write("Cargo.toml", &patched)?;
        fs::copy(cargo::root().join("Cargo.lock"), self.folder.join("Cargo.lock"))?;
        Ok(())
    }

    /// cargo in the crate, in the simulator.
    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = outside(&self.folder, self.target, args);
        command.env("WARPSMITH_BACKEND", "sim");
        command
    }
}

/// cargo in `folder`, with nothing of this workspace in its environment.
fn outside(folder: &Path, target: &Path, args: &[&str]) -> Command {
    let mut command = cargo::command(args);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let ours = ["CARGO_", "WARPSMITH_", "CUDA_"].iter().any(|prefix| text.starts_with(prefix));
        if ours && text != "CARGO_HOME" {
            command.env_remove(&name);
        }
    }
    // The workspace's members ask for all features between them, these for few: what is unused then shows here.
    command.arg("--offline").env("CARGO_TARGET_DIR", target).env("RUSTFLAGS", "-D warnings").current_dir(folder);
    command
}

/// The library's documentation, from its package, as its manifest asks docs.rs to make it: without a device toolchain and without kernels.
fn documentation(packages: &[Package], target: &Path) -> Result<()> {
    let library = packages.iter().find(|package| package.name == "warpsmith").context("warpsmith was not packed")?;
    fs::remove_file(library.folder.join("kernels.ptxa"))?;
    let mut doc = outside(&library.folder, target, &["doc", "--lib", "--no-deps", "--all-features", "--quiet"]);
    for Package { name, folder } in packages.iter().filter(|package| package.name != "warpsmith") {
        doc.arg(format!("--config=patch.crates-io.{name}.path={:?}", folder.display().to_string()));
    }
    cargo::run("documentation, packed", doc.env("DOCS_RS", "1").env("WARPSMITH_DEVICE_TOOLCHAIN", "/none"))?;
    let page = target.join("doc/warpsmith/ops/index.html");
    ensure!(page.is_file(), "there is no {}", page.display());
    Ok(())
}

/// README.md's example. It needs no device toolchain, and few crates.
fn example(crate_: &Stranger<'_>) -> Result<()> {
    let readme = fs::read_to_string(cargo::root().join("README.md"))?;
    let dependencies = block(&readme, "```toml\n[dependencies]")?;
    let package = "[package]\nname = \"example\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n";
    crate_.write("src/main.rs", block(&readme, "```rust,no_run\n")?)?;
    crate_.manifest(&format!("{package}{dependencies}"))?;
    let mut build = crate_.cargo(&["build", "--message-format=json"]);
    let messages = cargo::output("README's example, packed", build.env("WARPSMITH_DEVICE_TOOLCHAIN", "/none"))?;
    let compiled = crates(&messages);
    ensure!(compiled.len() <= MOST_CRATES, "{} crates are compiled, not {MOST_CRATES}: {compiled:?}", compiled.len());
    let mut run = crate_.cargo(&["run", "--quiet"]);
    let printed = cargo::output("running it", run.env("WARPSMITH_DEVICE_TOOLCHAIN", "/none"))?;
    // 256 products of 0.5 and 0.25 are 32, which gelu leaves as it is.
    ensure!(printed.trim() == "[32.0, 32.0, 32.0, 32.0]", "README's example prints {printed}");
    println!("README's example: {} crates", compiled.len());
    Ok(())
}

/// The packages that a build compiled.
fn crates(messages: &str) -> HashSet<String> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let artifacts = messages.filter(|message| message["reason"] == "compiler-artifact");
    artifacts.filter_map(|message| message["package_id"].as_str().map(str::to_owned)).collect()
}

/// The crate that users copy, with a kernel of its own.
fn template(crate_: &Stranger<'_>) -> Result<()> {
    let files = ["build.rs", "src/main.rs", "kernels/Cargo.toml", "kernels/src/lib.rs"];
    let read = |file: &str| fs::read_to_string(cargo::root().join("template").join(file));
    for file in files {
        crate_.write(file, &read(file)?)?;
    }
    crate_.manifest(&read("Cargo.toml")?)?;
    let mut test = crate_.cargo(&["test", "--quiet"]);
    // What `cargo xtask setup` fetches where rustup has no components to add.
    let fetched = cargo::root().join(".toolchain/device");
    if fetched.is_dir() {
        test.env("WARPSMITH_DEVICE_TOOLCHAIN", fetched);
    }
    cargo::run("template", &mut test)
}

/// The text of a fenced block that starts like this, from its second line on; of one that starts with a table's heading, with it.
fn block<'a>(text: &'a str, start: &str) -> Result<&'a str> {
    let (_, rest) = text.split_once(start).with_context(|| format!("README.md has no block {start:?}"))?;
    let (body, _) = rest.split_once("```").context("a block of README.md does not end")?;
    let heading = start.trim_end().rsplit_once('\n').map_or(0, |(_, line)| line.len());
    let from = text.len() - rest.len() - heading;
    Ok(&text[from..from + heading + body.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_the_readme_are_found() {
        let text = "a\n```toml\n[dependencies]\nx = 1\n```\n```rust,no_run\nfn main() {}\n```\n";
        assert_eq!(block(text, "```toml\n[dependencies]").unwrap(), "[dependencies]\nx = 1\n");
        assert_eq!(block(text, "```rust,no_run\n").unwrap(), "fn main() {}\n");
        assert!(block(text, "```c\n").is_err());
    }

    #[test]
    fn a_package_counts_once() {
        let line = |reason: &str, id: &str| format!("{{\"reason\":{reason:?},\"package_id\":{id:?}}}\n");
        let messages = ["a", "b", "a"].map(|id| line("compiler-artifact", id)).concat() + &line("build-finished", "c");
        assert_eq!(crates(&messages).len(), 2);
    }
}
