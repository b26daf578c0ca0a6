use super::OpInfo;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// The inputs of a reference, by name, in host memory.
#[derive(Clone, Debug)]
pub struct Tensors<'a> {
    info: &'static OpInfo,
    all: Vec<(&'a str, &'a HostTensor)>,
}

impl<'a> Tensors<'a> {
    /// These inputs of the operator with that description.
    pub fn new(info: &'static OpInfo, all: impl IntoIterator<Item = (&'a str, &'a HostTensor)>) -> Self {
        Self { info, all: all.into_iter().collect() }
    }

    /// The input of that name.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if there is no tensor of that name.
    pub fn get(&self, name: &str) -> Result<&'a HostTensor> {
        self.optional(name)
            .ok_or_else(|| self.info.param_error("inputs", format!("nothing called `{name}`"), "a tensor of that name"))
    }

    /// The input of that name, if the case has it.
    pub fn optional(&self, name: &str) -> Option<&'a HostTensor> {
        self.all.iter().find(|(n, _)| *n == name).map(|(_, tensor)| *tensor)
    }
}
