//! Lessons: what makes kernels fast or slow. Each is shown on kernels that run, with predictions computed first.
//!
//! A lesson is a file with a claim, and a function that makes a [`Plan`] from a device's own numbers. Its predictions are
//! therefore written down before anything runs, and a test runs every lesson and fails if the simulator counts something else.

mod anatomy;
mod attention;
mod bank_conflicts;
mod bus;
mod coalescing;
mod divergence;
pub mod experiments;
mod fusion;
mod ladder;
mod matrix;
mod ncu;
mod occupancy;
mod plan;
mod precision;
mod quantity;
mod recomputation;
mod results;
mod roofline;
mod run;
mod sgemm;
mod sums;
mod teach;
pub(super) mod text;
mod tiling;
mod waves;

pub use anatomy::of_device;
pub use ladder::{Path, Rung};
pub use ncu::count_by_ncu;
pub use plan::Plan;
pub use quantity::Quantity;
#[cfg(feature = "cli")]
pub(crate) use results::agree;
pub use results::{Count, KernelPlace, Measured, Taught, Time};
pub use run::{Prediction, Run};
pub use teach::{launch_counted, teach};
pub use text::Facts;

use crate::runtime::device::DeviceInfo;
use crate::runtime::error::{Error, Result};

/// A claim about GPUs, and its demonstration.
#[derive(Debug)]
pub struct Lesson {
    /// The name on the command line.
    pub name: &'static str,
    /// The subject, in a few words.
    pub title: &'static str,
    /// The claim.
    pub claim: [&'static str; 2],
    /// What to run and what to expect, from a device's numbers.
    pub plan: fn(&DeviceInfo) -> Result<Plan>,
}

/// Every lesson, in the order in which to take them.
pub static LESSONS: &[&Lesson] = &[
    &anatomy::LESSON,
    &roofline::LESSON,
    &coalescing::LESSON,
    &bank_conflicts::LESSON,
    &divergence::LESSON,
    &occupancy::LESSON,
    &fusion::LESSON,
    &recomputation::LESSON,
    &precision::LESSON,
    &sgemm::LESSON,
    &waves::LESSON,
    &matrix::LESSON,
    &attention::LESSON,
];

/// The lesson called `name`.
pub fn find(name: &str) -> Result<&'static Lesson> {
    LESSONS.iter().copied().find(|lesson| lesson.name == name).ok_or_else(|| {
        let names: Vec<_> = LESSONS.iter().map(|lesson| lesson.name).collect();
        Error::param("lesson", "name", name, format!("one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn lessons_go_by_their_names() {
        let names: HashSet<_> = LESSONS.iter().map(|lesson| lesson.name).collect();
        assert_eq!(names.len(), LESSONS.len());
        assert_eq!(find("fusion").map(|lesson| lesson.name), Ok("fusion"));
        assert!(find("fission").unwrap_err().to_string().contains("expected one of anatomy, "));
    }
}
