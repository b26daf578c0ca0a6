//! Many cases.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

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

/// Runs `jobs` on `device`, so many at once, telling `each` about every job that comes to its turn. The rows are in the order of the jobs.
///
/// Cases at once share a GPU whose work for most of them is a fraction of what the host does: random input, references, comparisons. Those whose
/// tensors fill a device's memory, and those that found it full, run by themselves. A kernel that fails takes the device from the whole process:
/// nothing is run after it.
pub fn all(device: &Device, jobs: &[Job], filter: &Filter, at_once: usize, each: impl Fn(&Job) + Sync) -> Run {
    let cases =
        Cases { device, jobs, filter, rows: jobs.iter().map(|_| OnceLock::new()).collect(), lost: Mutex::default() };
    let (alone, together): (Vec<_>, Vec<_>) = (0..jobs.len()).partition(|at| at_once < 2 || jobs[*at].case.huge);
    let (next, full) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let turns = || {
        while let Some(at) = together.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !cases.are_over()) {
            each(&jobs[*at]);
            if !cases.check(*at, true) {
                full.lock().unwrap_or_else(PoisonError::into_inner).push(*at);
            }
        }
    };
    thread::scope(|scope| (0..at_once.min(together.len())).for_each(|_| drop(scope.spawn(turns))));
    // Those that found it full have had their turn.
    let again = full.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().map(|at| (at, true));
    for (at, told) in again.chain(alone.into_iter().map(|at| (at, false))) {
        if cases.are_over() {
            break;
        }
        if !told {
            each(&jobs[at]);
        }
        cases.check(at, false);
    }
    cases.run()
}

struct Cases<'a> {
    device: &'a Device,
    jobs: &'a [Job],
    filter: &'a Filter,
    rows: Vec<OnceLock<Vec<Row>>>,
    /// Those in which a kernel failed: of several at once, one is to blame.
    lost: Mutex<Vec<usize>>,
}

impl Cases<'_> {
    fn are_over(&self) -> bool {
        !self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Runs a case. `false`, and nothing noted, if the memory that others hold was missing.
    fn check(&self, at: usize, others_run: bool) -> bool {
        let mut checked = device::check(self.device, &self.jobs[at], self.filter, &OnceCell::new());
        if checked.lost_device {
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        } else if checked.out_of_memory && others_run {
            return false;
        }
        if others_run {
            checked.rows.iter_mut().for_each(|row| row.ms = None);
        }
        self.rows[at].set(checked.rows).is_ok()
    }

    fn run(self) -> Run {
        let Self { jobs, rows, lost, .. } = self;
        let names = |these: &[usize]| these.iter().map(|at| jobs[*at].to_string()).collect::<Vec<_>>();
        let lost = lost.into_inner().unwrap_or_else(PoisonError::into_inner);
        let left: Vec<_> = (0..jobs.len()).filter(|at| rows[*at].get().is_none()).collect();
        let not_run = (!left.is_empty()).then(|| NotRun {
            cases: names(&left),
            why: format!("not run: {}", device::lost(&names(&lost).join(" or "))),
        });
        Run { rows: rows.into_iter().filter_map(OnceLock::into_inner).flatten().collect(), not_run }
    }
}
