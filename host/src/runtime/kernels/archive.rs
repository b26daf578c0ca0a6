//! Where this crate's own kernels are.

use ptx_archive::Archive;

use crate::runtime::error::{Error, Result};

/// Names the archive to use instead of any other.
const ENV: &str = "WARPSMITH_KERNELS";

/// Opens the archive of this crate's own kernels.
pub(super) fn open() -> Result<Archive> {
    match std::env::var_os(ENV).filter(|file| !file.is_empty()) {
        Some(file) => at(std::path::Path::new(&file), &format!(" ({ENV} names it)")),
        None => built(),
    }
}

fn at(file: &std::path::Path, why: &str) -> Result<Archive> {
    Archive::open(file).map_err(|error| Error::KernelArchive { reason: format!("{}{why}: {error}", file.display()) })
}

/// The build script sets `warpsmith_kernels` to how it leaves them, and `WARPSMITH_ARCHIVE` to the file.
#[cfg(warpsmith_kernels = "none")]
fn built() -> Result<Archive> {
    Err(Error::KernelsNotBuilt { why: NONE.to_owned() })
}

#[cfg(warpsmith_kernels = "embedded")]
fn built() -> Result<Archive> {
    static BYTES: &[u8] = include_bytes!(env!("WARPSMITH_ARCHIVE"));
    Archive::from_bytes(BYTES).map_err(|error| Error::KernelArchive { reason: error.to_string() })
}

#[cfg(warpsmith_kernels = "file")]
fn built() -> Result<Archive> {
    use std::path::Path;

    let program = std::env::current_exe().unwrap_or_default();
    let beside = distributed(&program).map(|folder| folder.join(ptx_archive::FILE_NAME));
    let places: Vec<_> = beside.into_iter().chain([Path::new(env!("WARPSMITH_ARCHIVE")).to_owned()]).collect();
    match places.iter().find(|file| file.is_file()) {
        Some(file) => at(file, ""),
        None => {
            let places: Vec<_> = places.iter().map(|file| file.display().to_string()).collect();
            let reason = format!(
                "there is no {}; build again, or copy it beside the program, or let {ENV} name it",
                places.join(", no ")
            );
            Err(Error::KernelArchive { reason })
        }
    }
}

/// The folder in which a distribution that holds `program` has its kernels: the one above those of its tests and benches. Above
/// any other, an archive belongs to something else.
#[cfg(warpsmith_kernels = "file")]
pub(super) fn distributed(program: &std::path::Path) -> Option<&std::path::Path> {
    let folder = program.parent()?;
    match folder.ends_with("tests") || folder.ends_with("benches") {
        true => folder.parent(),
        false => Some(folder),
    }
}

#[cfg(warpsmith_kernels = "none")]
const NONE: &str = "it was made for its documentation, or with the feature `no-kernels`";

pub(super) fn not_built() -> Option<&'static str> {
    #[cfg(warpsmith_kernels = "none")]
    return Some(NONE);
    #[cfg(not(warpsmith_kernels = "none"))]
    None
}
