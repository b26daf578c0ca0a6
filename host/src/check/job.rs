use std::fmt;

use crate::ops::model::{Case, Operator};

/// One case of one operator.
#[derive(Clone)]
pub struct Job {
    /// The operator.
    pub op: &'static dyn Operator,
    /// The case.
    pub case: Case,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op.info().name, self.case.name)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.to_string()).finish()
    }
}
