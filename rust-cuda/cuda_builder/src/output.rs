//! The output of a build: the archive and, if requested, readable files.

use std::{fs, io, path::Path};

use ptx_archive::Archive;

use crate::{Arch, Error, Manifest, compile::Done, scratch};

/// Writes the archive atomically, unless it is up to date: a concurrent reader finds the old one or the new one.
pub(crate) fn archive(file: &Path, sources: &str, kernels: &[Done]) -> Result<(), Error> {
    let kernels: Vec<_> = kernels.iter().map(|done| (done.entry.clone(), done.ptx.as_str())).collect();
    let old = fs::read(file).unwrap_or_default();
    let bytes = ptx_archive::write(sources, &kernels, Archive::from_bytes(old.clone()).ok().as_ref());
    if old == bytes {
        return Ok(());
    }
    create(file.parent().unwrap_or(Path::new(".")))?;
    scratch::replace(file, &bytes).map_err(|source| Error::File { path: file.to_owned(), source })
}

/// Writes the PTX and the manifest, and removes the files of an earlier build.
pub(crate) fn files(folder: &Path, manifest: &Manifest, kernels: &[Done]) -> Result<(), Error> {
    for arch in Arch::ALL {
        let stale = folder.join(arch.as_str());
        match fs::remove_dir_all(&stale) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::File { path: stale, source });
            }
            _ => {}
        }
    }
    for kernel in kernels {
        let file = folder.join(kernel.entry.file());
        create(file.parent().unwrap_or(folder))?;
        write_file(&file, &kernel.ptx)?;
        if let Some(ir) = &kernel.ir {
            write_file(&file.with_extension("ll"), ir)?;
        }
    }
    create(folder)?;
    let json = serde_json::to_string_pretty(manifest).map_err(|error| Error::Output(error.to_string()))?;
    write_file(&folder.join("manifest.json"), &json)
}

pub(crate) fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })
}

pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File { path: path.to_owned(), source })
}
