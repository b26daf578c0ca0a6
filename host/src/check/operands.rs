use super::random;
use crate::ops::model::{self, Arguments, Arrangement, Case, Operator, Params, Role, TensorMeta};
use crate::runtime::any::{AnyTensor, AnyView, AnyViewMut};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;

/// An operator's tensors on a device, ready for repeated launches.
#[derive(Debug)]
pub struct Operands {
    read: Vec<(&'static str, Arranged)>,
    written: Vec<(&'static str, Arranged)>,
}

impl Operands {
    /// These inputs, by name, with newly allocated outputs, all dense.
    pub fn new(stream: &Stream, op: &dyn Operator, inputs: &[(&str, &HostTensor)], params: &Params) -> Result<Self> {
        Self::arranged(stream, op, inputs, params, |_| Arrangement::DENSE)
    }

    /// Random inputs for `case`, with newly allocated outputs, all in the layouts that the case sets.
    pub fn random(stream: &Stream, op: &dyn Operator, case: &Case, params: &Params, seed: u64) -> Result<Self> {
        Self::of_case(stream, op, case, &random::inputs(op, case, seed)?, params)
    }

    /// These inputs of `case`; otherwise as for [`random`](Self::random).
    pub(in crate::check) fn of_case(
        stream: &Stream,
        op: &dyn Operator,
        case: &Case,
        inputs: &[(&'static str, HostTensor)],
        params: &Params,
    ) -> Result<Self> {
        let named: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
        Self::arranged(stream, op, &named, params, |name| case.arrangement(name))
    }

    fn arranged(
        stream: &Stream,
        op: &dyn Operator,
        inputs: &[(&str, &HostTensor)],
        params: &Params,
        arrangement: impl Fn(&str) -> Arrangement,
    ) -> Result<Self> {
        let metas: Vec<_> = inputs.iter().map(|(name, tensor)| TensorMeta::of(name, tensor)).collect();
        let mut outputs = model::outputs(op, &metas, params)?.into_iter();
        let mut operands = Self { read: Vec::new(), written: Vec::new() };
        for arg in op.info().args {
            let input = inputs.iter().find(|(name, _)| *name == arg.name).map(|(_, tensor)| *tensor);
            let made = if arg.role == Role::In { None } else { outputs.next() };
            let arrangement = arrangement(arg.name);
            let arranged = match (input, made) {
                (Some(host), _) => Arranged::filled(stream, host, arrangement),
                (None, Some(meta)) => Arranged::uninit(stream, meta.dtype, &meta.shape, arrangement),
                (None, None) => continue,
            };
            let arranged = arranged.map_err(|error| error.of(op.info().name, arg.name))?;
            arranged.tensor.set_name(arg.name);
            let list = if arg.role == Role::In { &mut operands.read } else { &mut operands.written };
            list.push((arg.name, arranged));
        }
        Ok(operands)
    }

    /// Queues one launch.
    pub fn launch(&mut self, stream: &Stream, op: &dyn Operator, params: &Params) -> Result<()> {
        model::launch(op, stream, &mut self.arguments(op)?, params)
    }

    /// The arguments of a launch.
    pub fn arguments(&mut self, op: &dyn Operator) -> Result<Arguments<'_>> {
        let mut args = Arguments::new(op.info());
        self.read.iter().try_for_each(|(name, arranged)| args.read(name, arranged.view()?))?;
        self.written.iter_mut().try_for_each(|(name, arranged)| args.write(name, arranged.view_mut()?))?;
        Ok(args)
    }

    /// The outputs, by name, after waiting for them.
    pub fn outputs(&self, stream: &Stream) -> Result<Vec<(&'static str, HostTensor)>> {
        self.written.iter().map(|(name, arranged)| Ok((*name, arranged.view()?.to_host(stream)?))).collect()
    }

    /// The number of bytes of all inputs.
    pub fn input_bytes(&self) -> usize {
        self.read.iter().map(|(_, arranged)| arranged.tensor.len() * arranged.tensor.dtype().size()).sum()
    }
}

/// A tensor in an allocation.
#[derive(Debug)]
struct Arranged {
    tensor: AnyTensor,
    /// The part of `tensor` that is used, unless it is the whole: the first element, the shape, the strides.
    part: Option<(usize, Vec<usize>, Vec<usize>)>,
}

impl Arranged {
    fn filled(stream: &Stream, host: &HostTensor, arrangement: Arrangement) -> Result<Self> {
        if arrangement == Arrangement::DENSE {
            return Ok(Self { tensor: AnyTensor::from_host(stream, host)?, part: None });
        }
        let (size, strides) = (host.dtype().size(), arrangement.strides(host.shape()));
        let mut image = vec![0; elements(host.shape(), &strides, arrangement.offset) * size];
        scatter(host.bytes(), size, host.shape(), &strides, &mut image[arrangement.offset * size..]);
        let tensor = AnyTensor::from_host(stream, &HostTensor::new(host.dtype(), [image.len() / size], image)?)?;
        Ok(Self { tensor, part: Some((arrangement.offset, host.shape().to_vec(), strides)) })
    }

    fn uninit(stream: &Stream, dtype: DType, shape: &[usize], arrangement: Arrangement) -> Result<Self> {
        if arrangement == Arrangement::DENSE {
            return Ok(Self { tensor: AnyTensor::uninit(stream, dtype, shape)?, part: None });
        }
        let strides = arrangement.strides(shape);
        let tensor = AnyTensor::uninit(stream, dtype, [elements(shape, &strides, arrangement.offset)])?;
        Ok(Self { tensor, part: Some((arrangement.offset, shape.to_vec(), strides)) })
    }

    fn view(&self) -> Result<AnyView<'_>> {
        match &self.part {
            Some((offset, shape, strides)) => self.tensor.strided(*offset, shape, strides),
            None => Ok(self.tensor.view()),
        }
    }

    fn view_mut(&mut self) -> Result<AnyViewMut<'_>> {
        match &self.part {
            Some((offset, shape, strides)) => self.tensor.strided_mut(*offset, shape, strides),
            None => Ok(self.tensor.view_mut()),
        }
    }
}

/// The number of elements up to and including the last one of a tensor that starts after `offset` others.
fn elements(shape: &[usize], strides: &[usize], offset: usize) -> usize {
    if shape.contains(&0) {
        return offset;
    }
    offset + 1 + shape.iter().zip(strides).map(|(extent, stride)| (extent - 1) * stride).sum::<usize>()
}

/// Writes the elements of a dense tensor, each of `size` bytes, to the places that the strides define.
fn scatter(dense: &[u8], size: usize, shape: &[usize], strides: &[usize], image: &mut [u8]) {
    let (columns, step) = shape.last().copied().zip(strides.last().copied()).unwrap_or((1, 1));
    for (row, values) in dense.chunks_exact((columns * size).max(1)).enumerate() {
        let (mut rest, mut start) = (row, 0);
        for (extent, stride) in shape.iter().zip(strides).rev().skip(1) {
            start += rest % extent * stride;
            rest /= extent;
        }
        for (column, value) in values.chunks_exact(size).enumerate() {
            image[(start + column * step) * size..][..size].copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::registry::find;
    use crate::runtime::sim::{self, GpuModel};

    #[test]
    fn tensors_lie_as_the_case_says() {
        let (shape, arrangement) = ([2, 2, 3], Arrangement::DENSE.order(&[0, 2, 1]).row_pad(1).offset(2));
        let strides = arrangement.strides(&shape);
        let mut image = vec![0; elements(&shape, &strides, arrangement.offset)];
        let dense: Vec<u8> = (1..=12).collect();
        scatter(&dense, 1, &shape, &strides, &mut image[2..]);
        assert_eq!(image, [0, 0, 1, 4, 0, 2, 5, 0, 3, 6, 0, 7, 10, 0, 8, 11, 0, 9, 12]);
        assert_eq!(elements(&[2, 0], &[0, 1], 3), 3);
    }

    #[test]
    fn results_do_not_depend_on_where_tensors_lie() {
        let Ok(device) = sim::open(&GpuModel::H100) else { return };
        let (stream, op) = (device.stream().unwrap(), find("gemm").unwrap());
        let mut cases = op.cases().into_iter().filter(|case| case.name.contains("b:pad=3 order=10"));
        let case = cases.next().unwrap();
        let inputs = random::inputs(op, &case, 0).unwrap();
        let named: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
        let mut arranged = Operands::random(&stream, op, &case, &case.params, 0).unwrap();
        let mut dense = Operands::new(&stream, op, &named, &case.params).unwrap();
        for operands in [&mut arranged, &mut dense] {
            operands.launch(&stream, op, &case.params).unwrap();
        }
        assert_ne!(arranged.read[1].1.view().unwrap().strides(), dense.read[1].1.view().unwrap().strides());
        assert_eq!(arranged.outputs(&stream).unwrap()[0].1.bytes(), dense.outputs(&stream).unwrap()[0].1.bytes());
    }
}
