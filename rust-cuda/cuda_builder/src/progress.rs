//! The progress of a build, for programs that wait for it: cargo shows no output of a running build script.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::scratch;

const FILE_NAME: &str = "progress";

/// The number of kernels that the running build for `target` (cargo's output folder) has compiled, and the total; `None` if no
/// build is running.
pub fn progress(target: &Path) -> Option<(usize, usize)> {
    let text = fs::read_to_string(target.join("cuda-builder").join(FILE_NAME)).ok()?;
    let (done, all) = text.trim().split_once(' ')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

/// A counter in a file, which is removed on drop. Failures to write it are ignored.
pub(crate) struct Progress {
    file: PathBuf,
    done: AtomicUsize,
    all: usize,
}

impl Progress {
    /// Creates it in `folder`, the builder's own.
    pub(crate) fn new(folder: &Path, all: usize) -> Progress {
        let progress = Progress { file: folder.join(FILE_NAME), done: AtomicUsize::new(0), all };
        progress.add(0);
        progress
    }

    pub(crate) fn add(&self, count: usize) {
        let done = self.done.fetch_add(count, Ordering::Relaxed) + count;
        let _ = scratch::replace(&self.file, format!("{done} {}\n", self.all).as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_there_while_a_build_runs() {
        let target = tempfile::tempdir().unwrap();
        let folder = target.path().join("cuda-builder");
        fs::create_dir(&folder).unwrap();
        assert_eq!(progress(target.path()), None);
        let build = Progress::new(&folder, 7);
        build.add(3);
        assert_eq!(progress(target.path()), Some((3, 7)));
        drop(build);
        assert_eq!(progress(target.path()), None);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
