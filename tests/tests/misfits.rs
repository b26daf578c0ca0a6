//! Tensors whose sizes do not fit together: an error by the operator's name, or a result, but nothing is read or written that is not
//! there.

use warpsmith::check::random;
use warpsmith::check::registry::OPERATORS;
use warpsmith::ops::model::{self, Arguments, Case, CaseClass, InputSpec, Operator, TensorMeta};
use warpsmith::{AnyTensor, Error, Stream};
use warpsmith_tests::device;

/// A small case with as many tensors as any.
fn fullest(op: &dyn Operator) -> Case {
    let size = |case: &Case| {
        let specs = op.inputs(case).unwrap();
        (specs.len(), std::cmp::Reverse(specs.iter().map(|spec| spec.shape.iter().product::<usize>()).sum::<usize>()))
    };
    let simulated = |case: &Case| case.is_simulated() && case.class != CaseClass::Empty;
    op.cases().into_iter().filter(simulated).max_by_key(size).expect("every operator has a case without a GPU")
}

/// That shape with each dimension in turn one longer, one shorter and one, and without the first.
fn others(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut others: Vec<Vec<usize>> = shape.split_first().map(|(_, inner)| inner.to_vec()).into_iter().collect();
    for (i, extent) in shape.iter().enumerate() {
        for other in [extent + 1, extent.saturating_sub(1), 1] {
            let mut changed = shape.to_vec();
            changed[i] = other;
            others.push(changed);
        }
    }
    others.retain(|other| other != shape);
    others
}

fn launch(
    stream: &Stream,
    op: &dyn Operator,
    case: &Case,
    inputs: &[InputSpec],
    outputs: &[TensorMeta],
) -> warpsmith::Result<()> {
    let mut read = Vec::new();
    for spec in inputs {
        read.push(AnyTensor::from_host(stream, &random::tensor(spec, 0)?)?);
    }
    let is_written = |name: &str| op.info().outputs().any(|arg| arg.name == name);
    let of_outputs = outputs.iter().filter(|meta| inputs.iter().all(|spec| spec.name != meta.name));
    let mut written: Vec<_> = of_outputs
        .map(|m| Ok((m.name.as_str(), AnyTensor::zeros(stream, m.dtype, &m.shape)?)))
        .collect::<Result<_, Error>>()?;
    let mut args = Arguments::new(op.info());
    for (spec, tensor) in inputs.iter().zip(&mut read) {
        match is_written(spec.name) {
            true => args.write(spec.name, tensor.view_mut())?,
            false => args.read(spec.name, tensor.view())?,
        }
    }
    written.iter_mut().try_for_each(|(name, tensor)| args.write(name, tensor.view_mut()))?;
    model::launch(op, stream, &mut args, &case.params)?;
    stream.synchronize()
}

#[test]
fn sizes_that_do_not_fit_together_harm_nothing() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    for op in OPERATORS {
        let case = fullest(*op);
        let inputs = op.inputs(&case).unwrap();
        let metas: Vec<_> = inputs.iter().map(InputSpec::meta).collect();
        let outputs = model::outputs(*op, &metas, &case.params).unwrap();
        let check = |inputs: &[InputSpec], outputs: &[TensorMeta], what: &str, shape: &[usize]| {
            let Err(error) = launch(&stream, *op, &case, inputs, outputs) else { return };
            let name = op.info().name;
            let refused = matches!(error, Error::Shape { .. } | Error::InvalidParam { .. } | Error::TooLarge { .. });
            // A user's own formula goes by its own name.
            let named = error.to_string().starts_with(&format!("{name}: ")) || ["map", "zip", "row"].contains(&name);
            assert!(refused && named, "{name} [{}] with `{what}` {shape:?}: {error}", case.name);
        };
        for i in 0..inputs.len() {
            for shape in others(&inputs[i].shape) {
                let mut changed = inputs.clone();
                changed[i].shape.clone_from(&shape);
                check(&changed, &outputs, inputs[i].name, &shape);
            }
        }
        for i in 0..outputs.len() {
            for shape in others(&outputs[i].shape) {
                let mut changed = outputs.clone();
                changed[i].shape.clone_from(&shape);
                check(&inputs, &changed, &outputs[i].name, &shape);
            }
        }
    }
}
