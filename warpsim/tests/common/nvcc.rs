//! PTX of the CUDA sources in `tests/cuda`, compiled when a test asks for it by an nvcc that comes from PyPI.
//!
//! The compiler and the PTX stay in the target folder. Where there is no Python with pip, no registry or no gcc, a test
//! says so and passes; with `CI` set it fails.
#![allow(dead_code, unreachable_pub)]

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const VERSION: &str = "13.0";
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda");

/// The PTX of `cuda/NAME.cu`; nothing where it cannot be compiled.
pub fn ptx(name: &str) -> Option<String> {
    file(name).map(|path| fs::read_to_string(path).unwrap())
}

/// The file with the PTX of `cuda/NAME.cu`; nothing where it cannot be compiled.
pub fn file(name: &str) -> Option<PathBuf> {
    match compiled(name) {
        Ok(path) => Some(path),
        Err(why) => skipped(&format!("{name}.cu"), &why),
    }
}

/// Says that a test does nothing because its PTX cannot be had. With `CI` set that is a failure.
pub(super) fn skipped<T>(source: &str, why: &str) -> Option<T> {
    assert!(std::env::var_os("CI").is_none_or(|v| v.is_empty()), "no PTX of {source}: {why}");
    let test = std::thread::current().name().unwrap_or(source).to_owned();
    // Not `eprintln!`, which the harness keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "{test}: skipped, no PTX of {source}: {why}");
    None
}

fn compiled(name: &str) -> Result<PathBuf, String> {
    let arch = match name {
        "basic" | "wmma" => "sm_80",
        "tma" | "wgmma" | "remote" => "sm_90a",
        _ => "sm_90",
    };
    let flags = ["-std=c++17", "-arch", arch, "-lineinfo", "-ptx"];
    let mut source = fs::read(format!("{SOURCES}/{name}.cu")).unwrap();
    if arch == "sm_90a" {
        source.extend(fs::read(format!("{SOURCES}/hopper.cuh")).unwrap());
    }
    let mut hash = DefaultHasher::new();
    (&source, flags, VERSION, SOURCES).hash(&mut hash);
    let folder = target().join("cuda-ptx");
    let ptx = folder.join(format!("{name}-{:016x}.ptx", hash.finish()));
    if ptx.exists() {
        return Ok(ptx);
    }
    let home = toolkit().as_ref().map_err(String::clone)?;
    let _lock = lock(name)?;
    if ptx.exists() {
        return Ok(ptx);
    }
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let unfinished = ptx.with_extension("part");
    let mut nvcc = Command::new(home.join("bin/nvcc"));
    nvcc.args(flags).arg(format!("{name}.cu")).arg("-o").arg(&unfinished).current_dir(SOURCES);
    let out = nvcc.output().map_err(|e| format!("nvcc does not start: {e}"))?;
    assert!(out.status.success(), "nvcc rejects {name}.cu: {}", said(&out));
    fs::rename(&unfinished, &ptx).map_err(|e| e.to_string())?;
    Ok(ptx)
}

/// The folder that holds nvcc's `bin`, downloaded by the first to ask.
fn toolkit() -> &'static Result<PathBuf, String> {
    static HOME: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    HOME.get_or_init(|| {
        output(Command::new("gcc").arg("--version"))?;
        let home = target().join(format!("nvcc-{VERSION}"));
        if home.exists() {
            return Ok(home);
        }
        let _lock = lock("fetch")?;
        if home.exists() {
            return Ok(home);
        }
        let unfinished = target().join(format!("nvcc-{VERSION}.part"));
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished).map_err(|e| e.to_string())?;
        let result = output(Command::new("python3").arg(format!("{SOURCES}/fetch.py")).arg(&unfinished))
            .and_then(|_| fs::rename(unfinished.join("nvidia/cu13"), &home).map_err(|e| e.to_string()));
        let _ = fs::remove_dir_all(&unfinished);
        result.map(|()| home)
    })
}

/// Keeps other tests, of this process and of others, from doing the same work. Held until dropped.
fn lock(what: &str) -> Result<File, String> {
    let path = target().join(format!("nvcc-{VERSION}-{what}.lock"));
    let file = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    file.lock().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(file)
}

pub(super) fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

pub(super) fn output(command: &mut Command) -> Result<Output, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(out) if out.status.success() => Ok(out),
        Ok(out) => Err(format!("{program}: {}", said(&out))),
        Err(e) => Err(format!("{program} does not start: {e}")),
    }
}

fn said(out: &Output) -> String {
    [&out.stdout, &out.stderr].map(|t| String::from_utf8_lossy(t).trim().to_owned()).join("\n").trim().to_owned()
}
