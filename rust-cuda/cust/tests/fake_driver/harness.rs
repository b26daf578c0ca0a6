//! How tests run on the fake driver. Shared by the crates that have such tests, each of which includes this file.

use std::ffi::{CStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const CHILD: &str = "WARPSMITH_FAKE_CHILD";

/// The setting that asks for a fake driver that has libraries.
pub(crate) const LIBRARIES: (&str, &str) = ("FAKE_LIBRARIES", "1");

/// Compiles the fake driver once; `None`, with a line, where there is no compiler.
fn fake_driver(has_libraries: bool) -> Option<&'static Path> {
    static PATHS: [OnceLock<Option<PathBuf>>; 2] = [const { OnceLock::new() }; 2];
    let (name, options): (_, &[_]) =
        if has_libraries { ("libcuda-fake-12.so", &["--cfg", "libraries"]) } else { ("libcuda-fake.so", &[]) };
    PATHS[usize::from(has_libraries)].get_or_init(|| compile(Path::new(crate::FAKE_DRIVER), name, options)).as_deref()
}

/// Compiles the fake CUPTI beside the fake driver; the folder that it is in.
#[allow(dead_code, reason = "not every crate's tests need it")]
pub(crate) fn fake_cupti() -> Option<PathBuf> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    let source = Path::new(crate::FAKE_DRIVER).with_file_name("libcupti.rs");
    let library = PATH.get_or_init(|| compile(&source, "libcupti.so.13", &[])).as_deref()?;
    library.parent().map(Path::to_owned)
}

fn compile(source: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let library = folder.join(name);
    // Other tests may be doing the same: each compiles in a folder of its own, where rustc's objects do not meet, then puts the library in place.
    let own = folder.join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&own).expect("cargo's folder is writable");
    let fresh = own.join(name);
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let output = Command::new(rustc)
        .args(["--edition", "2024", "-A", "warnings", "-o"])
        .args([&fresh, &source])
        .args(options)
        .output()
        .inspect_err(|error| eprintln!("skipped: rustc cannot be run: {error}"))
        .ok()?;
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} does not compile:\n{message}", source.display());
    std::fs::rename(&fresh, &library).expect("both are in the same file system");
    std::fs::remove_dir_all(&own).expect("nobody else uses it");
    Some(library)
}

/// Runs `body` in a process of its own, because a process loads one driver. `name` is the calling test's.
pub(crate) fn with_driver(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let library = match settings.iter().find(|(key, _)| *key == cust::sys::LIBRARY_VARIABLE) {
        Some((_, path)) => Path::new(path),
        None => match fake_driver(settings.contains(&LIBRARIES)) {
            Some(path) => path,
            None => return,
        },
    };
    let output = Command::new(std::env::current_exe().expect("the test has a path"))
        .args(["--exact", name, "--nocapture"])
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env(CHILD, name)
        .env("WARPSMITH_BACKEND", "cuda")
        .envs(settings.iter().copied())
        .env(cust::sys::LIBRARY_VARIABLE, library)
        .output()
        .expect("the child starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed in its child process:\n{text}");
    assert!(text.contains("1 passed"), "{name} did not run:\n{text}");
}

fn symbol(name: &CStr) -> *mut () {
    cust::sys::driver().expect("the fake is loaded").symbol(name).expect("it has this function")
}

/// What the fake has been asked to do since the last call.
#[allow(dead_code, reason = "not every crate's tests look")]
pub(crate) fn calls() -> Vec<String> {
    // SAFETY: the fake's signature.
    let log: extern "C" fn(*mut u8, usize) -> usize = unsafe { std::mem::transmute(symbol(c"fake_log")) };
    let mut text = vec![0; 1 << 16];
    let bytes = log(text.as_mut_ptr(), text.len());
    String::from_utf8_lossy(&text[..bytes]).lines().map(String::from).collect()
}

/// One of the fake's counters.
#[allow(dead_code, reason = "not every crate's tests look")]
fn count(name: &CStr) -> usize {
    // SAFETY: the signature of the fake's counters.
    let count: extern "C" fn() -> usize = unsafe { std::mem::transmute(symbol(name)) };
    count()
}

/// Live allocations.
#[allow(dead_code, reason = "not every crate's tests look")]
pub(crate) fn allocations() -> usize {
    count(c"fake_allocations")
}

/// Live streams, events, modules, functions and graphs.
#[allow(dead_code, reason = "not every crate's tests look")]
pub(crate) fn handles() -> usize {
    count(c"fake_handles")
}

/// Calls of driver functions so far.
#[allow(dead_code, reason = "not every crate's tests look")]
pub(crate) fn driver_calls() -> usize {
    count(c"fake_calls")
}

/// Fails as if another library's kernel had trapped.
#[allow(dead_code, reason = "not every crate's tests need it")]
pub(crate) fn fault() {
    // SAFETY: the fake's signature.
    let fault: extern "C" fn() = unsafe { std::mem::transmute(symbol(c"fake_fault")) };
    fault();
}
