//! How many kernels are compiled, for whoever waits for them: cargo shows nothing of what a build script does.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::scratch;

const FILE_NAME: &str = "progress";

/// Kernels that the build that writes into `target` (cargo's folder of output) has compiled, and how many it compiles; nothing while none does.
pub fn progress(target: &Path) -> Option<(usize, usize)> {
    let text = fs::read_to_string(target.join("cuda-builder").join(FILE_NAME)).ok()?;
    let (done, all) = text.trim().split_once(' ')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

/// A count in a file, which goes with it. That it cannot be written is nobody's concern.
pub(crate) struct Progress {
    file: PathBuf,
    done: AtomicUsize,
    all: usize,
}

impl Progress {
    /// In `folder`, the builder's own.
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
