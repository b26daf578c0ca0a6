use std::fmt;

use crate::ops::model::{Case, CaseClass, Dims, Operator};
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};

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

/// The production cases that are to be timed.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only those whose names contain this.
    pub case: Option<String>,
    /// Only those of this type.
    pub dtype: Option<DType>,
    /// The first of these cases of an operator in each of these sizes, instead of all of them: names and sizes.
    pub sizes: Vec<Vec<(String, usize)>>,
}

impl Selection {
    /// Those of an operator. Fails if it lacks a named size; `command` is who asks.
    pub fn of(&self, command: &'static str, op: &'static dyn Operator) -> Result<Vec<Job>> {
        let is_chosen = |case: &Case| {
            case.class == CaseClass::Production
                && self.dtype.is_none_or(|dtype| dtype == case.dtype)
                && self.case.as_deref().is_none_or(|text| case.name.contains(text))
        };
        let mut cases = op.cases().into_iter().filter(is_chosen);
        if self.sizes.is_empty() {
            return Ok(cases.map(|case| Job { op, case }).collect());
        }
        let Some(first) = cases.next() else { return Ok(Vec::new()) };
        self.sizes.iter().map(|sizes| Ok(Job { op, case: resized(command, op, &first, sizes)? })).collect()
    }
}

/// The case with other sizes, which its name shows.
fn resized(command: &'static str, op: &dyn Operator, of: &Case, sizes: &[(String, usize)]) -> Result<Case> {
    if let Some((name, size)) = sizes.iter().find(|(name, _)| of.dims.get(name).is_none()) {
        let known: Vec<_> = of.dims.iter().map(|(name, _)| name).collect();
        let wanted = format!("sizes of {}: {}", op.info().name, known.join(", "));
        return Err(Error::param(command, "size", format!("{name}={size}"), wanted));
    }
    let size = |name, size| sizes.iter().find(|(named, _)| named == name).map_or(size, |(_, size)| *size);
    let mut dims = Dims::default();
    of.dims.iter().for_each(|(name, old)| dims.push(name, size(name, old)));
    Ok(of_dims(of, dims))
}

/// The case with these sizes in place of its own, in its name too.
pub(super) fn of_dims(of: &Case, dims: Dims) -> Case {
    let params = of.params.info().params;
    let kept = |word: &&str| match word.split_once('=') {
        Some((name, _)) => params.iter().any(|param| param.name == name),
        None => !word.starts_with(|c: char| c.is_ascii_digit()),
    };
    let words: Vec<_> = of.name.split_whitespace().filter(kept).collect();
    let name = format!("{dims} {}", words.join(" ")).trim_end().to_owned();
    let mut case = of.clone();
    (case.name, case.dims) = (name, dims);
    case
}
