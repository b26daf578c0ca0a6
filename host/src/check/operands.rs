use super::random;
use crate::ops::model::{self, Arguments, Case, Operator, Params, Role, TensorMeta};
use crate::runtime::any::AnyTensor;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;

/// An operator's tensors on a device, dense, ready to be launched over and over.
#[derive(Debug)]
pub struct Operands {
    read: Vec<(&'static str, AnyTensor)>,
    written: Vec<(&'static str, AnyTensor)>,
}

impl Operands {
    /// These inputs, by name, and room for what they make.
    pub fn new(stream: &Stream, op: &dyn Operator, inputs: &[(&str, &HostTensor)], params: &Params) -> Result<Self> {
        let metas: Vec<_> = inputs.iter().map(|(name, tensor)| TensorMeta::of(name, tensor)).collect();
        let mut outputs = model::outputs(op, &metas, params)?.into_iter();
        let mut operands = Self { read: Vec::new(), written: Vec::new() };
        for arg in op.info().args {
            let input = inputs.iter().find(|(name, _)| *name == arg.name).map(|(_, tensor)| *tensor);
            let made = if arg.role == Role::In { None } else { outputs.next() };
            let tensor = match (input, made) {
                (Some(host), _) => AnyTensor::from_host(stream, host)?,
                (None, Some(meta)) => AnyTensor::uninit(stream, meta.dtype, &meta.shape)?,
                (None, None) => continue,
            };
            tensor.set_name(arg.name);
            let list = if arg.role == Role::In { &mut operands.read } else { &mut operands.written };
            list.push((arg.name, tensor));
        }
        Ok(operands)
    }

    /// Random input for `case`, and room for what it makes.
    pub fn random(stream: &Stream, op: &dyn Operator, case: &Case, params: &Params, seed: u64) -> Result<Self> {
        let inputs = random::inputs(op, case, seed)?;
        let named: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
        Self::new(stream, op, &named, params)
    }

    /// Queues one launch.
    pub fn launch(&mut self, stream: &Stream, op: &dyn Operator, params: &Params) -> Result<()> {
        let mut args = Arguments::new(op.info());
        self.read.iter().try_for_each(|(name, tensor)| args.read(name, tensor.view()))?;
        self.written.iter_mut().try_for_each(|(name, tensor)| args.write(name, tensor.view_mut()))?;
        model::launch(op, stream, &mut args, params)
    }

    /// What was written, by name. Waits for it.
    pub fn outputs(&self, stream: &Stream) -> Result<Vec<(&'static str, HostTensor)>> {
        self.written.iter().map(|(name, tensor)| Ok((*name, tensor.to_host(stream)?))).collect()
    }

    /// Bytes of all that is read.
    pub fn input_bytes(&self) -> usize {
        self.read.iter().map(|(_, tensor)| tensor.shape().elements() * tensor.dtype().size()).sum()
    }
}
