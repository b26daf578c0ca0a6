//! Many cases, one after the other.

use serde::Serialize;

use super::{Filter, Job, Row, device};
use crate::runtime::device::Device;

/// What came of many cases.
#[derive(Clone, Debug)]
pub struct Run {
    /// A row for every variant of every case that had its turn.
    pub rows: Vec<Row>,
    /// The cases that had none.
    pub not_run: Option<NotRun>,
}

/// Cases that could not be run, because a kernel failed before.
#[derive(Clone, Debug, Serialize)]
pub struct NotRun {
    /// The cases, each with its operator.
    pub cases: Vec<String>,
    /// What happened.
    pub why: String,
}

impl NotRun {
    fn new(failed: &Job, rest: &[Job]) -> Option<Self> {
        let cases: Vec<_> = rest.iter().map(Job::to_string).collect();
        let why = format!("not run: {}", device::lost(failed));
        (!cases.is_empty()).then_some(Self { cases, why })
    }
}

/// Runs `jobs` on `device`, telling `each` about every job that comes to its turn. A kernel that fails takes the device from the
/// whole process: nothing is run after it.
pub fn all(device: &Device, jobs: &[Job], filter: &Filter, mut each: impl FnMut(&Job)) -> Run {
    let mut rows = Vec::new();
    for (done, job) in (1..).zip(jobs) {
        each(job);
        let checked = device::check(device, job, filter);
        rows.extend(checked.rows);
        if checked.lost_device {
            return Run { rows, not_run: NotRun::new(job, &jobs[done..]) };
        }
    }
    Run { rows, not_run: None }
}
