//! Runs cargo for the device, possibly from inside a build script of another cargo.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use crate::{Error, Options, archive, toolchain::Toolchain};

/// rustc's name for the device.
pub(crate) const TARGET: &str = "nvptx64-nvidia-cuda";

/// The flags of every device crate, including `core`, separated as cargo requires.
///
/// MIR has no notion of convergence. Its jump threading copies a call, and the barrier in it, into both sides of a
/// branch; its simplification of matches merges two calls into one. LLVM does both later, for the calls that allow it.
const RUSTFLAGS: &str = "-Cno-prepopulate-passes\x1f-Zmir-enable-passes=-JumpThreading,-MatchBranchSimplification";

/// The results of cargo's build of the crate.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// A name for the set of flags, so that builds with different flags do not overwrite each other.
    pub(crate) kind: String,
    /// The modules of bitcode: of the crate itself and of what it depends on, `core` included.
    pub(crate) bitcode: Vec<Vec<u8>>,
    /// rustc's warnings about these crates, as it prints them.
    pub(crate) warnings: Vec<String>,
}

/// Compiles the crate in `folder` to unoptimised bitcode.
///
/// The bitcode is the same for every architecture. MIR is optimised; LLVM's passes wait until the kernels have been split.
/// With the option `lines`, it has line information; code inlined from other crates gets the line of the call. With
/// `only`, rustc sees no other entries, compiles only what these reach, and then reports nothing about the rest.
pub(crate) fn compile(
    toolchain: &Toolchain,
    folder: &Path,
    target: &Path,
    options: &Options,
    only: Option<&BTreeSet<String>>,
) -> Result<Compiled, Error> {
    let mut kind = "kernels".to_owned();
    let mut flags = vec!["--check-cfg".to_owned(), "cfg(cuda_only, values(any()))".to_owned()];
    if options.lines {
        kind += "-lines";
        flags.push("-Cdebuginfo=line-directives-only".to_owned());
    }
    for feature in &options.features {
        kind += "-";
        kind += &feature.replace('/', "-");
    }
    if let Some(only) = only {
        kind += "-only";
        flags.push("--cap-lints=allow".to_owned());
        flags.extend(["--cfg".to_owned(), "cuda_only".to_owned()]);
        flags.extend(only.iter().flat_map(|symbol| ["--cfg".to_owned(), format!("cuda_only=\"{symbol}\"")]));
    }
    let _alone = alone(target);
    let output = command(toolchain)
        .current_dir(folder)
        // Neither linked nor used by another crate: metadata would take rustc a fifth of its time after an edit.
        .args(["rustc", "--lib", "--crate-type", "staticlib", "--release"])
        .args(features(&options.features))
        .args(["--target", TARGET, "-Zbuild-std=core", "--message-format=json", "--target-dir"])
        .arg(target)
        .arg("--")
        // After an edit, only the changed part is recompiled. By itself, incremental compilation would also turn off MIR inlining.
        .arg(format!("-Cincremental={}", target.join("incremental").join(&kind).display()))
        .args(["-Ccodegen-units=256", "-Zinline-mir=yes"])
        .args(flags)
        .output()
        .map_err(|source| Error::Run { program: "cargo".to_owned(), source })?;
    let messages = read_messages(&String::from_utf8_lossy(&output.stdout));
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let errors = messages.errors.concat();
        // If rustc reported no errors, cargo's own messages explain the failure.
        let messages = if errors.is_empty() { stderr.into_owned() } else { errors };
        return Err(Error::Compile(explained(messages.trim_end())));
    }
    let Messages { archive, warnings, .. } = messages;
    let archive = archive.ok_or_else(|| Error::Output("cargo reports no library".to_owned()))?;
    Ok(Compiled { kind, bitcode: archive::bitcode(&archive)?, warnings })
}

/// Keeps others who build into `target` waiting until it is dropped: the name of the library does not depend on the flags.
fn alone(target: &Path) -> Option<File> {
    fs::create_dir_all(target).ok()?;
    let file = File::create(target.join("library.lock")).ok()?;
    // Where files cannot be locked, cargo does not lock its own either.
    file.lock().ok()?;
    Some(file)
}

/// The arguments that enable features of the crate.
pub(crate) fn features(features: &[String]) -> impl Iterator<Item = String> {
    features.iter().map(|feature| format!("--features={feature}"))
}

/// Cargo's messages, with advice if sources are vendored: core is compiled too, and cargo needs the dependencies of all crates
/// beside it.
fn explained(messages: &str) -> String {
    let library = messages.split(['(', '`']).find_map(|word| Some(&word[..word.find("/library/")? + "/library".len()]));
    match library.filter(|_| messages.contains("no matching package")) {
        Some(library) => format!(
            "{messages}\nhelp: core is compiled from source, whose dependencies are to be vendored as well: cargo vendor --sync {library}/Cargo.toml"
        ),
        None => messages.to_owned(),
    }
}

fn command(toolchain: &Toolchain) -> Command {
    let mut command = clean(toolchain.command(&program()));
    // A build script has the libraries of the outer rustc on its path, which would be loaded instead of the correct ones.
    if toolchain.library_path().is_none() {
        command.env_remove("LD_LIBRARY_PATH");
    }
    command.env("RUSTC", &toolchain.rustc).envs([
        // -Zbuild-std, the ptx-kernel ABI and assembly for this target are not stable.
        ("RUSTC_BOOTSTRAP", "1"),
        ("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS),
        ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
        // The crates behind `#[kernel]`: with several codegen units they would be optimised once more across these, which
        // takes half as long again.
        ("CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_CODEGEN_UNITS", "1"),
        ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
        ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
        ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false"),
        ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false"),
        ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false"),
        ("CARGO_TERM_COLOR", "never"),
    ]);
    command
}

/// A cargo command that compiles nothing.
pub(crate) fn plain() -> Command {
    clean(Command::new(program()))
}

fn program() -> PathBuf {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into()
}

fn clean(mut command: Command) -> Command {
    for (name, _) in env::vars_os().filter(|(name, _)| is_inherited(name)) {
        command.env_remove(name);
    }
    command
}

/// Whether a variable belongs to the host build that this build runs in.
fn is_inherited(name: &OsStr) -> bool {
    const KEPT: [&str; 6] =
        ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTRY", "CARGO_REGISTRIES_", "CARGO_TERM_"];
    const DROPPED: [&str; 14] = [
        "CARGO_",
        "__CARGO",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "CLIPPY_",
        "DEP_",
        "OUT_DIR",
        "TARGET",
        "HOST",
        "NUM_JOBS",
        "OPT_LEVEL",
        "MAKEFLAGS",
        "MFLAGS",
    ];
    let name = name.to_string_lossy();
    let starts = |prefix: &&str| name.starts_with(prefix);
    let exact = ["PROFILE", "DEBUG"].contains(&&*name);
    (exact || DROPPED.iter().any(starts)) && !KEPT.iter().any(starts)
}

/// A line of `cargo --message-format=json`.
#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-artifact")]
    Artifact { filenames: Vec<PathBuf> },
    #[serde(rename = "compiler-message")]
    Diagnostic { package_id: String, message: Diagnostic },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
    code: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    spans: Vec<serde::de::IgnoredAny>,
}

#[derive(Default)]
struct Messages {
    archive: Option<PathBuf>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

fn read_messages(stdout: &str) -> Messages {
    let mut all = Messages::default();
    for message in stdout.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match message {
            Message::Artifact { filenames } => {
                let archive = filenames.into_iter().find(|file| has_extension(file, "a") && is_device(file));
                all.archive = archive.or(all.archive);
            }
            Message::Diagnostic { package_id, message } => {
                let Some(text) = message.rendered else { continue };
                // Messages without a location only count the others.
                let counts = message.code.is_none() && message.spans.is_empty();
                if message.level.starts_with("error") {
                    if !counts || all.errors.is_empty() {
                        all.errors.push(text);
                    }
                } else if package_id.starts_with("path+") && !counts {
                    all.warnings.push(text);
                }
            }
            Message::Other => {}
        }
    }
    all
}

fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension() == Some(OsStr::new(extension))
}

/// Whether an artifact is for the device: build scripts and procedural macros are for the host.
fn is_device(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == TARGET)
}

/// The folder of cargo's output, without asking cargo: the one around a build script's `OUT_DIR`, or the one the
/// workspace around `folder` uses.
pub fn target_folder(folder: &Path) -> PathBuf {
    if let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) {
        return around(&out).to_owned();
    }
    if let Some(target) = env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        return target.into();
    }
    workspace(folder).join("target")
}

/// The folder of cargo's output around a build script's `out`. It may be the workspace's own or anywhere else.
fn around(out: &Path) -> &Path {
    // Cargo tags the folder as a cache if it creates it. A folder that existed before, such as a mounted one, is recognised by
    // `profile/build/package/out`.
    let tagged = out.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    let build = out.ancestors().nth(2).filter(|dir| dir.ends_with("build"));
    tagged.or_else(|| build?.ancestors().nth(2)).unwrap_or(out)
}

/// The workspace of the crate in `folder`, found by its lock file; the folder itself if there is none yet.
pub(crate) fn workspace(folder: &Path) -> &Path {
    folder.ancestors().find(|dir| dir.join("Cargo.lock").is_file()).unwrap_or(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_found_around_a_build_script_s() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("x86_64/debug/build/name-0123/out");
        std::fs::create_dir_all(&out).unwrap();
        assert_eq!(around(&out), folder.path().join("x86_64"));
        std::fs::write(folder.path().join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(around(&out), folder.path());
        assert_eq!(around(Path::new("/some/out")), Path::new("/some/out"));
    }

    #[test]
    fn the_outer_build_does_not_leak_in() {
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC_WRAPPER",
            "RUSTC",
            "CARGO_MAKEFLAGS",
            "CARGO_BUILD_TARGET",
            "CARGO_TARGET_DIR",
            "CARGO_PROFILE_RELEASE_LTO",
            "TARGET",
            "CLIPPY_ARGS",
            "DEBUG",
            "PROFILE",
            "CARGO_MANIFEST_DIR",
            "CARGO",
            "RUSTDOCFLAGS",
        ] {
            assert_eq!(is_inherited(OsStr::new(name)), name != "CARGO", "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_TOOLCHAIN", "CARGO_NET_OFFLINE", "HTTPS_PROXY"] {
            assert!(!is_inherited(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn vendored_sources_are_to_have_what_core_lies_beside() {
        let cargo = "error: no matching package named `x` found\nrequired by package `proc_macro v0.0.0 (/r/src/rust/library/proc_macro)`";
        assert!(explained(cargo).ends_with("vendored as well: cargo vendor --sync /r/src/rust/library/Cargo.toml"));
        for other in ["error: no matching package named `x` found", "error: at /r/library/core"] {
            assert_eq!(explained(other), other);
        }
    }

    #[test]
    fn the_device_s_library_is_told_from_the_host_s() {
        let artifact = |id: &str, path: &str, file: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"{path}/Cargo.toml","target":{{}},"filenames":["{file}"]}}"#
            )
        };
        let lines = [
            artifact("path+file:///r/core", "/t/lib/rustlib/src/core", "/x/nvptx64-nvidia-cuda/libcore-1.rmeta"),
            artifact("path+file:///w/k", "/w/k", "/x/nvptx64-nvidia-cuda/release/libk.a"),
            artifact("registry+x#c", "/c/c", "/x/release/libc.a"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let messages = read_messages(&lines.join("\n"));
        assert_eq!(messages.archive.as_deref(), Some(Path::new("/x/nvptx64-nvidia-cuda/release/libk.a")));
    }
}
