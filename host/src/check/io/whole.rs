//! Atomic file writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::runtime::error::{Error, Result};

/// Replaces a file atomically: a new file is written beside it, and renamed when it is complete. Symbolic links stay and their
/// target is replaced; the new file has the permissions of the old one.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let refused = |e: io::Error| Error::file(path, format!("cannot be written: {e}"));
    let unfinished = |e: io::Error| Error::Unwritten { path: path.to_owned(), reason: e.to_string() };
    let target = behind_links(path);
    let old = match OpenOptions::new().write(true).open(&target) {
        Ok(old) => Some(old),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(refused(e)),
    };
    let old = old.map(|file| file.metadata().map(|data| (file, data))).transpose().map_err(refused)?;
    if let Some((device, _)) = old.as_ref().filter(|(_, data)| !data.is_file()) {
        // A device or a pipe, such as /dev/stdout, must not be replaced by a file.
        let mut device: &File = device;
        return device.write_all(bytes).map_err(unfinished);
    }
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = beside(folder).map_err(refused)?;
    file.write_all(bytes).map_err(unfinished)?;
    if let Some((_, data)) = old {
        file.as_file().set_permissions(data.permissions()).map_err(refused)?;
    }
    file.persist(&target).map_err(|e| refused(e.error))?;
    Ok(())
}

fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // The permissions of an ordinary new file: temporary ones are readable only by their owner.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// The target of symbolic links, whether or not it exists yet. Circular links are left for opening to reject.
fn behind_links(path: &Path) -> PathBuf {
    const MOST: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..MOST {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => break,
        }
    }
    target
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn links_are_followed_and_permissions_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        symlink("sub/second", at("first")).unwrap();
        symlink("file", at("sub/second")).unwrap();
        write(&at("first"), b"new").unwrap();
        assert_eq!(fs::read(at("sub/file")).unwrap(), b"new");
        fs::set_permissions(at("sub/file"), fs::Permissions::from_mode(0o640)).unwrap();
        write(&at("first"), b"newer").unwrap();
        assert_eq!((fs::read(at("sub/file")).unwrap(), mode(&at("sub/file"))), (b"newer".to_vec(), 0o640));
        assert!(at("first").is_symlink() && at("sub/second").is_symlink());
        assert_eq!(fs::read_dir(at("sub")).unwrap().count(), 2, "nothing else is left");

        symlink("circle", at("circle")).unwrap();
        assert!(matches!(write(&at("circle"), b""), Err(Error::File { .. })));
        assert!(matches!(write(folder.path(), b""), Err(Error::File { .. })), "a folder");
        assert!(matches!(write(&at("none/file"), b""), Err(Error::File { .. })));
    }

    #[test]
    fn devices_are_written_to_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        symlink("/dev/null", &link).unwrap();
        write(&link, b"gone").unwrap();
        assert!(link.metadata().unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_full_disk_is_no_mistake_in_the_command() {
        let full = Path::new("/dev/full");
        if full.exists() {
            let error = write(full, b"more").unwrap_err();
            assert!(matches!(error, Error::Unwritten { .. }), "{error}");
            assert!(error.to_string().starts_with("/dev/full: cannot be written to the end: "), "{error}");
        }
    }
}
