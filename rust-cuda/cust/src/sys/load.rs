//! Finding and loading the driver's library.

use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;

use libloading::Library;

use super::{Driver, LIBRARY_VARIABLE};

/// Where to look when nothing else is said: the linker's own search, then WSL, then NixOS.
#[cfg(not(windows))]
const PLACES: &[&str] = &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1"];
#[cfg(windows)]
const PLACES: &[&str] = &["nvcuda.dll"];

/// The driver, loaded on first use and kept for the life of the process.
pub fn driver() -> Result<&'static Driver, &'static LoadError> {
    static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref()
}

fn load() -> Result<Driver, LoadError> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    let candidates = named.map_or_else(|| PLACES.iter().map(OsString::from).collect(), |path| vec![path]);
    let mut tried = Vec::new();
    for path in candidates {
        let name = path.to_string_lossy().into_owned();
        // SAFETY: loading a driver runs its initialisers, which is what it is asked for.
        let why = match unsafe { Library::new(&path) } {
            Ok(library) => match Driver::new(library, name.clone()) {
                driver if driver.cuInit.is_some() => return Ok(driver),
                _ => "has no cuInit: not a CUDA driver".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        tried.push((name, why));
    }
    Err(LoadError { tried })
}

/// No driver library could be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    tried: Vec<(String, String)>,
}

impl LoadError {
    /// Each file that was tried, and why it failed.
    pub fn tried(&self) -> &[(String, String)] {
        &self.tried
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (file, reason)) in self.tried.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            // dlopen repeats the name in most of its messages.
            let reason = reason.strip_prefix(&format!("{file}: ")).unwrap_or(reason);
            write!(f, "{file}: {reason}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}
