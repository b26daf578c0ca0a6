//! Checks backward operators against their forward: the reference of a gradient must agree with finite differences of the
//! forward's reference. No kernel runs here; [`verify`] checks that kernels agree with their references.

use super::{Job, random, verify};
use crate::ops::model::{self, Case, CaseClass, Gradient, Operator, TensorMeta, Tensors};
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::host_tensor::HostTensor;

/// Cases with more elements than this in a tensor are skipped.
const MAX_ELEMENTS: usize = 4096;
/// The number of elements of each input that are perturbed.
const SAMPLES: usize = 64;
/// The perturbation of an element, relative to its magnitude or to one.
const STEP: f64 = 1.0 / 1024.0;
/// A central difference errs by STEP²/6 of the third derivative, the f32 inputs by 2⁻²⁴ of each term.
const TOLERANCE: f64 = 1e-4;

/// Checks the gradients of `op` on its small cases. Returns the number of elements compared, `Ok(0)` if `op` is not a backward
/// operator.
pub fn check(op: &'static dyn Operator) -> Result<usize> {
    let Some(gradient) = op.gradient() else { return Ok(0) };
    let small = |case: &Case| {
        let plain = matches!(case.class, CaseClass::Odd | CaseClass::Tiny) && case.dtype == op.info().dtypes[0];
        let specs = op.inputs(case).unwrap_or_default();
        let plain = plain && verify::has_ordinary_input(&Job { op, case: case.clone() }).unwrap_or_default();
        plain && specs.iter().all(|spec| spec.meta().elements().is_some_and(|n| n <= MAX_ELEMENTS))
    };
    op.cases().iter().filter(|case| small(case)).map(|case| check_case(op, &gradient, case)).sum()
}

/// The forward operator's inputs, in f32 so that small perturbations are possible, and the inputs of the backward one.
struct Point {
    forward: Vec<(&'static str, HostTensor)>,
    seeds: Vec<(&'static str, HostTensor)>,
}

fn check_case(op: &'static dyn Operator, gradient: &Gradient, case: &Case) -> Result<usize> {
    let forward = gradient.forward;
    let is_seed = |name: &str| gradient.of_outputs.iter().any(|(seed, _)| *seed == name);
    let shared = |name: &str| forward.info().inputs().any(|arg| arg.name == name);
    let mut point = Point { forward: Vec::new(), seeds: Vec::new() };
    for (name, tensor) in random::inputs(op, case, 1)? {
        let tensor = widened(&tensor)?;
        match (is_seed(name), shared(name)) {
            (true, _) => point.seeds.push((name, tensor)),
            (_, true) => point.forward.push((name, tensor)),
            // Saved outputs of the forward operator are computed from its inputs below.
            _ => {}
        }
    }
    // What a linear operator's backward does without.
    for spec in forward.inputs(case)? {
        if !point.forward.iter().any(|(name, _)| *name == spec.name) {
            point.forward.push((spec.name, widened(&random::tensor(&spec, 2)?)?));
        }
    }
    let saved = saved(op, gradient, &point, case)?;
    let inputs = point.forward.iter().chain(&point.seeds).chain(&saved);
    let inputs = Tensors::new(op.info(), inputs.map(|(name, tensor)| (*name, tensor)));
    let mut compared = 0;
    for (output, input) in gradient.of_inputs {
        let Some((_, tensor)) = point.forward.iter().find(|(name, _)| name == input) else { continue };
        let rows: Vec<_> = (0..model::row_count(op, output, tensor.shape())).collect();
        let stated = op.reference(&inputs, &case.params, output, &rows)?;
        let size = stated.iter().fold(1.0f64, |size, value| size.max(value.abs()));
        let stride = tensor.len().div_ceil(SAMPLES).max(1);
        for at in (0..tensor.len()).step_by(stride) {
            let slopes = Slopes::at(gradient, &point, case, input, at)?;
            if !slopes.agree(stated[at], size) {
                let found = format!("{} at element {at} of {case}", stated[at], case = case.name);
                return Err(op.info().param_error(
                    *output,
                    found,
                    format!("{}, the finite difference", slopes.central()),
                ));
            }
            compared += 1;
        }
    }
    Ok(compared)
}

fn widened(tensor: &HostTensor) -> Result<HostTensor> {
    if tensor.dtype().is_float() {
        HostTensor::from_f64(DType::F32, tensor.shape(), &tensor.to_f64())
    } else {
        Ok(tensor.clone())
    }
}

/// The forward's outputs that the backward operator reads.
fn saved(
    op: &dyn Operator,
    gradient: &Gradient,
    point: &Point,
    case: &Case,
) -> Result<Vec<(&'static str, HostTensor)>> {
    let known = |name: &str| point.forward.iter().chain(&point.seeds).any(|(n, _)| *n == name);
    let wanted = op.inputs(case)?.into_iter().filter(|spec| !known(spec.name));
    wanted
        .map(|spec| {
            // A gradient is added to zero.
            if op.info().outputs().any(|arg| arg.name == spec.name) {
                return Ok((
                    spec.name,
                    HostTensor::from_f64(DType::F32, &spec.shape, &vec![0.0; spec.shape.iter().product()])?,
                ));
            }
            let values = forward(gradient, &point.forward, case, spec.name)?;
            Ok((spec.name, HostTensor::from_f64(DType::F32, &spec.shape, &values)?))
        })
        .collect()
}

/// An output of the forward operator, in f64.
fn forward(gradient: &Gradient, inputs: &[(&'static str, HostTensor)], case: &Case, output: &str) -> Result<Vec<f64>> {
    let op = gradient.forward;
    // `op` is asked about its own types; the forward's reference takes any.
    let of_case = |name: &str| op.info().inputs().any(|arg| arg.name == name && arg.dtypes.is_empty());
    let meta = |name: &'static str, tensor: &HostTensor| {
        let dtype = if of_case(name) { case.dtype } else { tensor.dtype() };
        TensorMeta { dtype, ..TensorMeta::of(name, tensor) }
    };
    let metas: Vec<_> = inputs.iter().map(|(name, tensor)| meta(name, tensor)).collect();
    let params = params(op, case)?;
    let outputs = model::outputs(op, &metas, &params)?;
    let meta = outputs.iter().find(|meta| meta.name == output).ok_or_else(|| {
        Error::param(op.info().name, "outputs", "none of that name", format!("one called `{output}`"))
    })?;
    let rows: Vec<_> = (0..model::row_count(op, output, &meta.shape)).collect();
    op.reference(&Tensors::new(op.info(), inputs.iter().map(|(name, t)| (*name, t))), &params, output, &rows)
}

/// The forward operator's parameters, as the backward's case has them.
fn params(op: &dyn Operator, case: &Case) -> Result<model::Params> {
    let mut params = model::Params::new(op.info());
    for param in op.info().params {
        if let Ok(value) = case.params.get(param.name) {
            params = params.with(param.name, value)?;
        }
    }
    Ok(params)
}

/// One-sided finite differences of Σ dy·y with respect to one element of an input: to its left and to its right.
struct Slopes {
    left: f64,
    right: f64,
}

impl Slopes {
    fn at(gradient: &Gradient, point: &Point, case: &Case, input: &str, at: usize) -> Result<Self> {
        let [below, here, above] = [-1.0, 0.0, 1.0].map(|sign| evaluate(gradient, point, case, input, at, sign));
        let (below, here, above) = (below?, here?, above?);
        let slope = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0);
        Ok(Self { left: slope(below, here), right: slope(here, above) })
    }

    /// The steps are equal up to rounding.
    fn central(&self) -> f64 {
        f64::midpoint(self.left, self.right)
    }

    /// Whether a gradient of that magnitude may be `stated`. At a kink, where the two sides differ by more than curvature
    /// explains, it may be any slope between them.
    fn agree(&self, stated: f64, size: f64) -> bool {
        let tolerance = TOLERANCE * size;
        let (low, high) = (self.left.min(self.right) - tolerance, self.left.max(self.right) + tolerance);
        let kink = high - low > 100.0 * tolerance && (low..=high).contains(&stated);
        kink || (stated - self.central()).abs() <= tolerance
    }
}

/// The value of an element of an input after a step in a direction, and Σ dy·y there.
fn evaluate(gradient: &Gradient, point: &Point, case: &Case, input: &str, at: usize, sign: f64) -> Result<(f64, f64)> {
    let mut moved = point.forward.clone();
    let mut place = 0.0;
    for (_, tensor) in moved.iter_mut().filter(|(name, _)| *name == input) {
        let mut values = tensor.to_f64();
        values[at] += sign * STEP * values[at].abs().max(1.0);
        *tensor = HostTensor::from_f64(DType::F32, tensor.shape(), &values)?;
        // The value after rounding to f32.
        place = tensor.range_f64(at..at + 1)?[0];
    }
    let mut sum = 0.0;
    for (seed, output) in gradient.of_outputs {
        let y = forward(gradient, &moved, case, output)?;
        if seed.is_empty() {
            sum += y.iter().sum::<f64>();
            continue;
        }
        let Some((_, dy)) = point.seeds.iter().find(|(name, _)| name == seed) else { continue };
        sum += y.iter().zip(dy.to_f64()).map(|(y, dy)| y * dy).sum::<f64>();
    }
    Ok((place, sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::registry::OPERATORS;
    use crate::ops::model::{Arguments, Cost, InputSpec, Metas, OpInfo, Params, Tolerance};
    use crate::runtime::stream::Stream;

    /// A backward operator whose reference is off by a factor.
    struct Wrong(&'static dyn Operator, f64);

    impl Operator for Wrong {
        fn info(&self) -> &'static OpInfo {
            self.0.info()
        }

        fn cases(&self) -> Vec<Case> {
            self.0.cases()
        }

        fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
            self.0.inputs(case)
        }

        fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
            self.0.outputs(inputs, params)
        }

        fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
            self.0.launch(stream, args, params)
        }

        fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
            Ok(self.0.reference(inputs, params, output, rows)?.into_iter().map(|v| v * self.1).collect())
        }

        fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
            self.0.tolerance(case, output)
        }

        fn cost(&self, case: &Case) -> Result<Cost> {
            self.0.cost(case)
        }

        fn gradient(&self) -> Option<Gradient> {
            self.0.gradient()
        }
    }

    #[test]
    fn a_wrong_gradient_is_found() {
        for op in OPERATORS.iter().copied().filter(|op| op.gradient().is_some()) {
            let wrong = |factor| check(Box::leak(Box::new(Wrong(op, factor))));
            assert!(wrong(1.0).unwrap() > 0);
            for factor in [2.0, -1.0, 0.99] {
                let error = wrong(factor).unwrap_err().to_string();
                assert!(error.contains("finite difference"), "{} × {factor}: {error}", op.info().name);
            }
        }
    }
}
