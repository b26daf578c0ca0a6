//! The facts of a case that do not depend on the implementation: its inputs, and its expected outputs.

use std::cell::OnceCell;

use super::placement::Placement;
use super::{Expected, Job, has_ordinary_input};
use crate::check::{buffers, random};
use crate::ops::model::{self, TensorMeta};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// The inputs of a case, and its expected outputs.
pub(in crate::check) struct Known {
    seed: u64,
    pub(super) inputs: Vec<(&'static str, HostTensor)>,
    pub(super) outputs: Vec<TensorMeta>,
    /// Evaluated for the first launch that succeeds: a reference may take far longer.
    expected: OnceCell<Result<Vec<Expected>>>,
    pub(super) finite_input: bool,
}

impl Known {
    pub(super) fn new(job: &Job, seed: u64) -> Result<Self> {
        let (mut inputs, mut metas) = (Vec::new(), Vec::new());
        for (name, tensor) in random::inputs(job.op, &job.case, seed)? {
            let meta = TensorMeta::of(name, &tensor);
            inputs.push((name, Placement::new(&meta, job.case.arrangement(name)).effective(tensor)?));
            metas.push(meta);
        }
        let outputs = model::outputs(job.op, &metas, &job.case.params)?;
        let finite_input = has_ordinary_input(job)?;
        Ok(Self { seed, inputs, outputs, expected: OnceCell::new(), finite_input })
    }

    pub(super) fn expected(&self, job: &Job) -> Result<&[Expected]> {
        let expected = || Expected::all(job, &self.inputs, self.outputs.clone(), self.seed);
        self.expected.get_or_init(expected).as_deref().map_err(Clone::clone)
    }

    /// The values of an input, or the initial contents of an output if these are given.
    pub(super) fn values(&self, name: &str) -> Option<&HostTensor> {
        self.inputs.iter().find(|(input, _)| *input == name).map(|(_, values)| values)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.inputs.drain(..).for_each(|(_, tensor)| buffers::give(tensor.into_bytes()));
    }
}
