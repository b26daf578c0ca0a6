//! Finding a device toolchain: a rustc, its sources, and LLVM's tools.
//!
//! rustc compiles for `nvptx64-nvidia-cuda` by itself, but `core` for it has to be built from source, so the sources
//! must match the compiler; and LLVM's `llvm-dis`, `opt` and `llc` must be of the compiler's LLVM or newer. It is
//! looked for, in this order:
//!
//! 1. in `$WARPSMITH_DEVICE_TOOLCHAIN`, when that is set: then nowhere else;
//! 2. in the active rustup toolchain, with the components `rust-src` and `llvm-tools`;
//! 3. in `.toolchain/device` of the crate's folder, the current folder, or a parent of either: `cargo xtask setup` puts
//!    it there;
//! 4. on the system: Debian's `rustc-web`, `rust-web-src` and `llvm-22`.
//!
//! A toolchain's folder holds `bin/rustc` or `usr/bin/rustc`; the sources are in that compiler's sysroot under
//! `lib/rustlib/src/rust/library`; the tools are in the sysroot's `lib/rustlib/<host>/bin`, in `bin`, or in
//! `lib/llvm-<N>/bin` (`usr/lib/llvm-<N>/bin`). Shared libraries may lie in `lib` and `usr/lib/<host>`.

use std::{
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// The variable that names a device toolchain's folder.
pub const ENV: &str = "WARPSMITH_DEVICE_TOOLCHAIN";

/// The command that fetches a device toolchain.
pub const SETUP: &str = "rustup component add rust-src llvm-tools";

/// Where a toolchain was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// In the folder that `$WARPSMITH_DEVICE_TOOLCHAIN` names.
    Env,
    /// The active rustup toolchain.
    Rustup,
    /// In the project's `.toolchain`.
    Project,
    /// Installed on the system.
    System,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Env => "$WARPSMITH_DEVICE_TOOLCHAIN",
            Origin::Rustup => "the active Rust toolchain",
            Origin::Project => "the project's .toolchain",
            Origin::System => "the system",
        })
    }
}

/// A device toolchain that was found and runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Where it was found.
    pub origin: Origin,
    /// The compiler.
    pub rustc: PathBuf,
    /// Its version, such as `1.95.0`.
    pub rustc_version: String,
    /// The folder of `llvm-dis`, `opt` and `llc`.
    pub llvm: PathBuf,
    /// The major version of those.
    pub llvm_major: u32,
    /// Folders of shared libraries that the system's loader does not know.
    pub libraries: Vec<PathBuf>,
}

/// There is no device toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// Each place that was searched, and why it was rejected.
    pub tried: Vec<(String, String)>,
}

impl std::error::Error for NotFound {}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no device toolchain: compiling kernels takes rustc, its sources and LLVM's llvm-dis, opt and llc.\nLooked in:",
        )?;
        for (place, why) in &self.tried {
            write!(f, "\n  - {place}: {why}")?;
        }
        write!(
            f,
            "\nTo get one, run: {SETUP}\nWithout rustup, on Debian as root: apt-get install rustc-web rust-web-src llvm-22"
        )
    }
}

/// Looks for a toolchain, starting at the current folder: see [`find_from`].
pub fn find() -> Result<Toolchain, NotFound> {
    find_from(&env::current_dir().unwrap_or_default())
}

/// Looks for a toolchain for the crate in `folder`, in the order of the [module](self)'s list.
pub fn find_from(folder: &Path) -> Result<Toolchain, NotFound> {
    let mut tried = Vec::new();
    if let Some(root) = env::var_os(ENV).filter(|value| !value.is_empty()) {
        let root = PathBuf::from(root);
        return at(Origin::Env, &root)
            .map_err(|why| NotFound { tried: vec![(format!("{} (from ${ENV})", root.display()), why)] });
    }
    match rustup(folder) {
        Ok(toolchain) => return Ok(toolchain),
        Err((place, why)) => tried.push((place, why)),
    }
    match project_folder(folder, "device") {
        Some(root) => match at(Origin::Project, &root) {
            Ok(toolchain) => return Ok(toolchain),
            Err(why) => tried.push((root.display().to_string(), why)),
        },
        None => tried
            .push((format!(".toolchain/device of {} and its parents", folder.display()), "there is none".to_owned())),
    }
    match at(Origin::System, Path::new("/usr")) {
        Ok(toolchain) => Ok(toolchain),
        Err(why) => {
            tried.push(("the system, /usr".to_owned(), why));
            Err(NotFound { tried })
        }
    }
}

/// The folder `name` of the `.toolchain` that belongs to `folder`, or else to the current folder.
pub(crate) fn project_folder(folder: &Path, name: &str) -> Option<PathBuf> {
    let current = env::current_dir().unwrap_or_default();
    folder.ancestors().chain(current.ancestors()).map(|dir| dir.join(".toolchain").join(name)).find(|dir| dir.is_dir())
}

/// The toolchain in the folder `root`, laid out as the [module](self) says; the error says what is missing.
pub fn at(origin: Origin, root: &Path) -> Result<Toolchain, String> {
    let rustc = ["bin/rustc", "usr/bin/rustc"]
        .map(|path| root.join(path))
        .into_iter()
        .find(|path| path.is_file())
        .ok_or("it has no bin/rustc and no usr/bin/rustc")?;
    complete(origin, root, rustc)
}

fn rustup(folder: &Path) -> Result<Toolchain, (String, String)> {
    let place = "the active Rust toolchain".to_owned();
    let Some(sysroot) = active_sysroot(folder) else {
        return Err((place, "there is no rustc that runs".to_owned()));
    };
    let place = format!("{place}, {}", sysroot.display());
    at(Origin::Rustup, &sysroot).map_err(|why| (place, why))
}

/// The folder of the Rust toolchain that cargo uses, or that would be used in `folder`.
pub(crate) fn active_sysroot(folder: &Path) -> Option<PathBuf> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).current_dir(folder).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Fills in the rest of the toolchain whose compiler is `rustc`.
fn complete(origin: Origin, root: &Path, rustc: PathBuf) -> Result<Toolchain, String> {
    let mut toolchain = Toolchain {
        origin,
        rustc,
        rustc_version: String::new(),
        llvm: PathBuf::new(),
        llvm_major: 0,
        libraries: Vec::new(),
    };
    // The loader knows the libraries in /usr, and a rustup toolchain's programs find theirs by themselves.
    if matches!(origin, Origin::Env | Origin::Project) {
        toolchain.libraries = library_folders(root);
    }
    let version = toolchain.output(&toolchain.rustc, &["-vV"])?;
    let field = |name: &str| {
        version
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
            .ok_or_else(|| format!("rustc -vV says no {name}"))
    };
    toolchain.rustc_version = field("release:")?.to_owned();
    let needed = major(field("LLVM version:")?).ok_or("rustc -vV says no LLVM version")?;
    let host = field("host:")?;
    let sysroot = toolchain.output(&toolchain.rustc, &["--print", "sysroot"])?;
    let sysroot = Path::new(sysroot.trim());
    let sources = sysroot.join("lib/rustlib/src/rust/library");
    if !sources.join("core/src/lib.rs").is_file() {
        return Err(format!("Rust's sources are not there ({})", sources.display()));
    }
    toolchain.find_llvm(root, &sysroot.join("lib/rustlib").join(host).join("bin"), needed)?;
    Ok(toolchain)
}

impl Toolchain {
    /// A command for one of its programs, with access to its shared libraries.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(path) = self.library_path() {
            command.env("LD_LIBRARY_PATH", path);
        }
        command
    }

    /// A command for one of LLVM's tools, such as `opt`.
    pub fn llvm_tool(&self, name: &str) -> Command {
        self.command(&self.llvm.join(name))
    }

    /// The `LD_LIBRARY_PATH` its programs need, if they need one.
    pub fn library_path(&self) -> Option<OsString> {
        if self.libraries.is_empty() {
            return None;
        }
        env::join_paths(&self.libraries).ok()
    }

    /// Chooses the tools: those beside the compiler, else an LLVM installation, the oldest sufficient one first.
    fn find_llvm(&mut self, root: &Path, beside: &Path, needed: u32) -> Result<(), String> {
        let mut folders = vec![beside.to_owned(), root.join("bin"), root.join("usr/bin")];
        for lib in [root.join("usr/lib"), root.join("lib"), "/usr/lib".into()] {
            folders.extend(installed_llvm(&lib, needed));
        }
        let mut why = Vec::new();
        for folder in folders {
            if ["llvm-dis", "opt", "llc"].iter().any(|tool| !folder.join(tool).is_file()) {
                continue;
            }
            match self.llvm_version(&folder) {
                Ok(found) if found >= needed => {
                    self.llvm = folder;
                    self.llvm_major = found;
                    return Ok(());
                }
                Ok(found) => why.push(format!(
                    "the LLVM tools in {} are of version {found} and rustc needs {needed}",
                    folder.display()
                )),
                Err(error) => why.push(error),
            }
        }
        if why.is_empty() {
            why.push(format!("LLVM {needed}'s tools are not there ({})", beside.display()));
        }
        Err(why.join("; "))
    }

    fn llvm_version(&self, folder: &Path) -> Result<u32, String> {
        let llc = folder.join("llc");
        let text = self.output(&llc, &["--version"])?;
        if !text.contains("nvptx64") {
            return Err(format!("{} cannot write PTX", llc.display()));
        }
        text.split_once("LLVM version ")
            .and_then(|(_, version)| major(version))
            .ok_or_else(|| format!("{} --version says no version", llc.display()))
    }

    /// The standard output of a program that is quick and must succeed.
    fn output(&self, program: &Path, args: &[&str]) -> Result<String, String> {
        let name = program.display();
        let output =
            self.command(program).args(args).output().map_err(|error| format!("cannot run {name}: {error}"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{name} does not run: {}", stderr.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.trim().parse().ok()
}

/// `llvm-<N>/bin` under `lib`, for every N from `needed` on.
fn installed_llvm(lib: &Path, needed: u32) -> Vec<PathBuf> {
    let entries = lib.read_dir().into_iter().flatten().flatten();
    let mut found = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let number: u32 = name.to_str()?.strip_prefix("llvm-")?.parse().ok()?;
            (number >= needed).then(|| (number, entry.path().join("bin")))
        })
        .collect::<Vec<_>>();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The folders with shared libraries in an unpacked toolchain.
pub fn library_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("lib"), root.join("usr/lib")];
    for parent in [root.join("usr/lib"), root.join("lib")] {
        let entries = parent.read_dir().into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.contains("-linux-")
        }));
    }
    folders.retain(|folder| {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().contains(".so"))
    });
    folders
}
