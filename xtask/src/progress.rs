//! How far the kernels are while cargo builds: it shows nothing of what a build script does, and the first time that takes minutes.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(10);

/// A line now and then, until this is dropped.
pub(crate) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    pub(crate) fn start(workspace: &Path) -> Progress {
        let (end, ended) = mpsc::channel();
        let target = cuda_builder::target_folder(workspace);
        // What a build that was killed has left stays as it is.
        let mut last = cuda_builder::progress(&target);
        // On a terminal it stands where cargo's bar is.
        let start = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        let thread = thread::spawn(move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let now = cuda_builder::progress(&target);
                if let Some((done, all)) = now.filter(|_| now != last) {
                    eprintln!("{start}    kernels: {done} of {all} compiled");
                }
                last = now;
            }
        });
        Progress(Some((end, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}
