//! Files and folders that no other process writes to.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// A name that is unique among running threads and processes.
fn own_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("cuda-builder-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Writes a file atomically: a concurrent reader finds the old one or the new one.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = file.with_file_name(own_name());
    let replaced = fs::write(&new, bytes).and_then(|()| fs::rename(&new, file));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

/// A new folder, which is deleted when this value is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new_in(parent: &Path) -> io::Result<Folder> {
        loop {
            let folder = parent.join(own_name());
            match fs::create_dir(&folder) {
                // Left by an earlier process with the same id, or placed there: it is not ours.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Folder(folder)),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_their_owners_and_go_with_them() {
        let parent = tempfile::tempdir().unwrap();
        let folders = [(); 2].map(|()| Folder::new_in(parent.path()).unwrap());
        assert_ne!(folders[0].path(), folders[1].path());
        fs::write(folders[0].path().join("file"), "text").unwrap();
        drop(folders);
        assert_eq!(parent.path().read_dir().unwrap().count(), 0);
        assert!(Folder::new_in(&parent.path().join("none")).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        for text in ["long text", "new"] {
            replace(&file, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        fs::create_dir(parent.path().join("folder")).unwrap();
        assert!(replace(&parent.path().join("folder"), b"text").is_err());
        assert_eq!(parent.path().read_dir().unwrap().count(), 2, "something is left");
    }
}
