//! The device toolchain from Debian's packages, unpacked without installing them and without root.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use cuda_builder::toolchain::{self, Origin};

use super::{install, process, scratch, step};

/// Packages that hold a compiler and its sources, the newest family first.
const FAMILIES: [(&str, &str); 2] = [("rustc-web", "rust-web-src"), ("rustc", "rust-src")];

pub(super) const QUICK: Duration = Duration::from_secs(60);
const SLOW: Duration = Duration::from_secs(900);

/// Unpacks a compiler, its sources and LLVM's tools into `.toolchain/device`.
pub(super) fn unpack(root: &Path) -> Result<()> {
    for program in ["apt-get", "apt-cache", "dpkg-deb", "tar"] {
        ensure!(process::exists(program), "this is not a Debian system ({program} is missing)");
    }
    // Downloads outlive a setup that is interrupted: the next one goes on from there.
    let downloads = root.join(".toolchain/downloads");
    fs::create_dir_all(&downloads).with_context(|| format!("cannot make {}", downloads.display()))?;
    let scratch = scratch(root)?;
    let device = scratch.path().join("device");
    fs::create_dir_all(&device)?;

    let (apt, packages) = download(&downloads, Apt::packages)?;
    step("unpacking the device toolchain", || {
        for package in &packages {
            extract(&downloads, package, &wanted(package), &device)?;
        }
        add_libraries(&apt, &downloads, &device)
    })?;
    toolchain::at(Origin::Project, &device).map_err(|why| anyhow::anyhow!("the unpacked toolchain: {why}"))?;
    install(&device, &root.join(".toolchain/device"))?;
    let _ = fs::remove_dir_all(&downloads);
    Ok(())
}

/// Downloads with the system's package lists when they will do, and otherwise with fresh ones of its own.
pub(super) fn download(downloads: &Path, wanted: impl Fn(&Apt) -> Result<Vec<String>>) -> Result<(Apt, Vec<String>)> {
    let system = Apt::system();
    let first = wanted(&system).and_then(|packages| {
        system.download(&packages, downloads)?;
        Ok(packages)
    });
    match first {
        Ok(packages) => Ok((system, packages)),
        // No lists, lists without the package, or lists so old that what they name is gone.
        Err(_) => {
            let fresh = Apt::private(&downloads.join("apt"))?;
            let packages = wanted(&fresh)?;
            fresh.download(&packages, downloads)?;
            Ok((fresh, packages))
        }
    }
}

/// apt, with the system's state or with its own.
pub(super) struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn system() -> Apt {
        Apt { options: Vec::new() }
    }

    /// apt with lists of its own under `folder`: updating them takes no root and leaves the system's alone.
    fn private(folder: &Path) -> Result<Apt> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let set = |name: &str, value: &Path| format!("-o{name}={}", value.display());
        let apt = Apt {
            options: vec![
                set("Dir::State::Lists", &folder.join("lists")),
                set("Dir::Cache", &folder.join("cache")),
                // Hooks are for the system's own lists.
                "-oAPT::Update::Post-Invoke::=true".to_owned(),
            ],
        };
        step("reading Debian's package lists", || process::output(apt.command("apt-get").arg("update"), SLOW))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // As root apt would download as a user of its own, who cannot write into the project.
        command.env("LC_ALL", "C").arg("-oAPT::Sandbox::User=root").args(&self.options);
        command
    }

    /// The version that would be installed, and what it depends on.
    fn show(&self, package: &str) -> Result<(String, Vec<String>)> {
        let mut command = self.command("apt-cache");
        let text = process::output(command.args(["show", "--no-all-versions", package]), QUICK)?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let version = field("Version:").to_owned();
        ensure!(!version.is_empty(), "there is no package {package}");
        Ok((version, dependencies(field("Depends:"))))
    }

    /// What to download: a compiler that is new enough, its libraries and sources, and the tools of its LLVM.
    fn packages(&self) -> Result<Vec<String>> {
        let needed = env!("CARGO_PKG_RUST_VERSION");
        let mut why = Vec::new();
        for (compiler, sources) in FAMILIES {
            match self.show(compiler) {
                Ok((version, _)) if is_at_least(&version, needed) => return self.closure(compiler, sources),
                Ok((version, _)) => why.push(format!("{compiler} is of version {version}, and {needed} is needed")),
                Err(error) => why.push(error.to_string()),
            }
        }
        bail!(why.join("; "))
    }

    /// These packages and what they need, as far as the system lacks it.
    pub(super) fn missing(&self, packages: &[&str]) -> Result<Vec<String>> {
        let mut command = self.command("apt-get");
        let simulated = command.args(["install", "--simulate", "--no-install-recommends"]).args(packages);
        let text = process::output(simulated, QUICK)?;
        let installed = text.lines().filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next());
        Ok(installed.map(str::to_owned).collect())
    }

    fn closure(&self, compiler: &str, sources: &str) -> Result<Vec<String>> {
        let mut packages = vec![compiler.to_owned()];
        let mut done = 0;
        while done < packages.len() {
            let (_, depends) = self.show(&packages[done])?;
            done += 1;
            for name in depends {
                let wanted = name.starts_with("libstd-rust") || name.starts_with("libllvm");
                if wanted && !packages.contains(&name) {
                    packages.push(name);
                }
            }
        }
        let llvm = packages.iter().find_map(|name| name.strip_prefix("libllvm"));
        let llvm = format!("llvm-{}", llvm.context("the compiler comes without an LLVM library")?);
        packages.extend([sources.to_owned(), llvm]);
        Ok(packages)
    }

    fn download(&self, packages: &[String], folder: &Path) -> Result<()> {
        let what = format!("downloading {} from Debian", packages.join(", "));
        step(what, || {
            let mut command = self.command("apt-get");
            process::output(command.arg("download").args(packages).current_dir(folder), SLOW)
        })
        .map(drop)
    }
}

/// The parts of a package that compiling kernels takes; the rest is a great deal.
fn wanted(package: &str) -> Vec<String> {
    if package.starts_with("rustc") {
        vec!["./usr/bin/rustc".to_owned()]
    } else if package.ends_with("-src") {
        vec!["./usr/src/*/library/*".to_owned(), "./usr/lib/rustlib/*".to_owned()]
    } else if package.starts_with("llvm-") {
        ["opt", "llc", "llvm-link"].map(|tool| format!("./usr/lib/{package}/bin/{tool}")).to_vec()
    } else {
        vec!["./usr/lib/*".to_owned()]
    }
}

/// Unpacks what `patterns` name from a downloaded package.
pub(super) fn extract(downloads: &Path, package: &str, patterns: &[String], into: &Path) -> Result<()> {
    let file = downloaded(downloads, package)?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("--fsys-tarfile").arg(&file);
    let mut tar = Command::new("tar");
    tar.args(["-x", "--wildcards", "--no-same-owner", "-C"]).arg(into).args(patterns);
    process::pipe(&mut unpack, &mut tar).with_context(|| format!("cannot unpack {}", file.display()))
}

fn downloaded(downloads: &Path, package: &str) -> Result<PathBuf> {
    let prefix = format!("{package}_");
    let mut files = fs::read_dir(downloads)?.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&prefix) && name.ends_with(".deb")
    });
    // An interrupted set-up may have left an older version.
    files.sort_by_key(|file| file.metadata().and_then(|data| data.modified()).ok());
    files.pop().with_context(|| format!("{package} was not downloaded"))
}

/// Adds the shared libraries that this machine does not have.
fn add_libraries(apt: &Apt, downloads: &Path, device: &Path) -> Result<()> {
    // A library may miss others.
    for _ in 0..8 {
        let missing = missing_libraries(device)?;
        if missing.is_empty() {
            return Ok(());
        }
        let packages = missing.iter().map(|library| package_of(library)).collect::<BTreeSet<_>>();
        let packages = packages.into_iter().collect::<Vec<_>>();
        apt.download(&packages, downloads)?;
        for package in &packages {
            let patterns = ["*.so.*".to_owned()];
            extract(downloads, package, &patterns, device)?;
        }
    }
    bail!("shared libraries are missing: {}", missing_libraries(device)?.join(", "))
}

/// What the loader does not find for the programs in `device`.
fn missing_libraries(device: &Path) -> Result<Vec<String>> {
    let mut programs = vec![device.join("usr/bin/rustc")];
    for entry in fs::read_dir(device.join("usr/lib"))? {
        let opt = entry?.path().join("bin/opt");
        if opt.is_file() {
            programs.push(opt);
        }
    }
    let folders = toolchain::library_folders(device);
    let path = std::env::join_paths(folders)?;
    let mut missing = BTreeSet::new();
    for program in programs {
        let mut ldd = Command::new("ldd");
        let text = process::output(ldd.arg(&program).env("LD_LIBRARY_PATH", &path), QUICK)?;
        missing.extend(not_found(&text).map(str::to_owned));
    }
    Ok(missing.into_iter().collect())
}

fn not_found(ldd: &str) -> impl Iterator<Item = &str> {
    ldd.lines().filter(|line| line.contains("not found")).filter_map(|line| line.split_whitespace().next())
}

/// Debian's package of a shared library, by its rule of naming: `libz3.so.4` is in `libz3-4`.
fn package_of(library: &str) -> String {
    let (name, version) = library.split_once(".so.").unwrap_or((library, ""));
    match name {
        "libz" => "zlib1g".to_owned(),
        "libicuuc" | "libicudata" | "libicui18n" => format!("libicu{version}"),
        "libgcc_s" => format!("libgcc-s{version}"),
        // libxml2.so.2 is older than the rule.
        "libxml2" if version == "2" => "libxml2".to_owned(),
        _ => {
            let name = name.replace('_', "-");
            let dash = if name.ends_with(|c: char| c.is_ascii_digit()) { "-" } else { "" };
            format!("{name}{dash}{version}")
        }
    }
}

/// The names in a `Depends:` field.
fn dependencies(field: &str) -> Vec<String> {
    let names = field.split([',', '|']).filter_map(|part| part.split_whitespace().next());
    names.map(|name| name.split(':').next().unwrap_or(name).to_owned()).collect()
}

/// Whether a package version such as `1.96.0+dfsg1-1` is at least `needed`.
fn is_at_least(version: &str, needed: &str) -> bool {
    let numbers = |text: &str| {
        let upstream = text.split_once(':').map_or(text, |(_, rest)| rest);
        let numbers = upstream.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        numbers.take(2).collect::<Vec<_>>()
    };
    numbers(version) >= numbers(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_s_fields_are_read() {
        assert_eq!(
            dependencies(
                "libc6 (>= 2.34), libstd-rust-web-dev (= 1.96.0+dfsg1-1), gcc, libc6-dev | libc-dev, python3:any"
            ),
            ["libc6", "libstd-rust-web-dev", "gcc", "libc6-dev", "libc-dev", "python3"]
        );
        assert!(is_at_least("1.96.0+dfsg1-1~deb12u2", "1.95") && is_at_least("1:2.0-1", "1.95"));
        assert!(is_at_least("1.95.0", "1.95") && !is_at_least("1.85.0+dfsg3-1", "1.95"));
    }

    #[test]
    fn libraries_are_found_in_packages() {
        for (library, package) in [
            ("libz3.so.4", "libz3-4"),
            ("libz.so.1", "zlib1g"),
            ("libedit.so.2", "libedit2"),
            ("libicudata.so.72", "libicu72"),
            ("libxml2.so.2", "libxml2"),
            ("libzstd.so.1", "libzstd1"),
            ("libstdc++.so.6", "libstdc++6"),
            ("libgcc_s.so.1", "libgcc-s1"),
        ] {
            assert_eq!(package_of(library), package);
        }
        let ldd = "\tlibz3.so.4 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n";
        assert_eq!(not_found(ldd).collect::<Vec<_>>(), ["libz3.so.4"]);
    }
}
