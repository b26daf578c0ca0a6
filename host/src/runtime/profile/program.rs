//! Recording a whole program, which knows nothing of it: every thread from its first launch or scope to its end.

use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use super::Profile;
use super::recording::Recording;
use super::trace::document;
use crate::runtime::mutex::lock;

/// Names the file for the trace.
pub(crate) const VARIABLE: &str = "WARPSMITH_PROFILE";

struct Program {
    file: PathBuf,
    zero: Instant,
    /// What has ended.
    threads: Mutex<Vec<Profile>>,
}

/// The program, if it is to be recorded.
fn program() -> Option<&'static Program> {
    static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
    let begin = || {
        let file = env::var_os(VARIABLE).filter(|file| !file.is_empty())?.into();
        Some(Program { file, zero: Instant::now(), threads: Mutex::default() })
    };
    PROGRAM.get_or_init(begin).as_ref()
}

/// The recording that a thread begins with.
pub(super) fn thread() -> Option<Recording> {
    program().map(|program| Recording::new(u64::MAX, program.zero))
}

/// Adds what a thread did, when it ends. Threads that outlive the main one are left out.
pub(super) fn ended(recording: Recording) {
    let Some(program) = program() else { return };
    let mut threads = lock(&program.threads);
    // The thread is at its end and has nobody to return an error to: it is printed, for whoever asked for the trace.
    let written = recording.finish().map_err(|error| error.to_string()).and_then(|profile| {
        threads.push(profile);
        std::fs::write(&program.file, document(&threads)).map_err(|error| error.to_string())
    });
    if let Err(why) = written {
        eprintln!("{VARIABLE}={}: {why}", program.file.display());
    }
}
