//! Shared by the registry entries of operators over the logits of a layer.

use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// The parameter of that name, in bytes.
pub(in crate::ops::loss) fn memory(params: &Params) -> Result<usize> {
    let memory = params.i64("memory")?;
    usize::try_from(memory).map_err(|_| params.info().param_error("memory", memory, "a number of bytes"))
}

/// A layer's hidden states and weight, in arguments of such names.
pub(in crate::ops::loss) fn specs(
    case: &Case,
    names: [&'static str; 2],
    [rows, d, classes]: [usize; 3],
) -> Vec<InputSpec> {
    // Logits that their type holds exactly leave nothing but the gradient's rounding to tell apart from a mistake. What is only timed draws
    // the power of numbers with all their digits.
    let (of_hidden, of_weight) = match case.class {
        CaseClass::Production => (Values::NORMAL, Values::Normal { std: (d as f64).sqrt().recip() }),
        _ => (Values::Integers { low: -1, high: 1 }, Values::Integers { low: -1, high: 1 }),
    };
    let hidden = InputSpec::new(names[0], case.dtype, [rows, d], of_hidden);
    vec![hidden, InputSpec::new(names[1], case.dtype, [classes, d], of_weight)]
}

/// Checks a layer, and gives its gradients' shapes.
pub(in crate::ops::loss) fn outputs(info: &OpInfo, inputs: &Metas<'_>) -> Result<[TensorMeta; 2]> {
    let (hidden, weight) = (inputs.get("hidden")?, inputs.get("weight")?);
    let [rows, d] = hidden.dims()?;
    let [classes, _] = weight.dims()?;
    weight.has_shape(&[classes, d])?;
    if classes == 0 {
        return Err(info.shape_error("weight", weight.shape(), "at least one class"));
    }
    let dweight = TensorMeta::new("dweight", DType::F32, [classes, d]);
    Ok([TensorMeta::new("dhidden", hidden.dtype(), [rows, d]), dweight])
}

/// The sizes of a layer with a target a token.
pub(in crate::ops::loss) struct Tokens {
    pub(in crate::ops::loss) tokens: usize,
    pub(in crate::ops::loss) d: usize,
    pub(in crate::ops::loss) classes: usize,
}

impl Tokens {
    /// Hidden states, a weight and targets.
    pub(in crate::ops::loss) fn specs(&self, case: &Case) -> Vec<InputSpec> {
        let Self { tokens, d, classes } = *self;
        let high = (classes as i64 - 1).max(0);
        let mut specs = specs(case, ["hidden", "weight"], [tokens, d, classes]);
        specs.push(InputSpec::new("targets", DType::I32, [tokens], Values::Integers { low: 0, high }));
        specs
    }

    /// Checks them, and gives the gradients' shapes.
    pub(in crate::ops::loss) fn outputs(info: &OpInfo, inputs: &Metas<'_>) -> Result<[TensorMeta; 2]> {
        let gradients = outputs(info, inputs)?;
        inputs.get("targets")?.has_shape(&gradients[0].shape[..1])?;
        Ok(gradients)
    }

    /// How far a token's log-probability, and relatively a probability, may be off.
    pub(in crate::ops::loss) fn error(&self) -> f64 {
        // As in cross_entropy: √classes·2⁻²⁴ of the sum, 2⁻²² of exponentials and the logarithm's argument, 2⁻²³ of exponents.
        3.0 * ((self.classes as f64).sqrt() * roundoff(DType::F32) + 8e-6)
    }

    /// The tolerance of a gradient, where a row of G is up to a number, and errs by `of_g` of what it is.
    pub(in crate::ops::loss) fn gradient_tolerance(&self, case: &Case, output: &str, of_g: f64) -> Tolerance {
        let f32_sums = 4.0 * roundoff(DType::F32);
        if output == "dhidden" {
            let why =
                "a row of G sums to twice its greatest: its error times the greatest weight; one rounding to storage";
            Tolerance::rounded(case.dtype, 2.0 * of_g, f32_sums, why)
        } else {
            let why = "a column of G has one number from each row: its error times the greatest hidden state";
            Tolerance::new(self.tokens as f64 * of_g + 1e-7, f32_sums, why)
        }
    }

    /// The least traffic, and that many products.
    pub(in crate::ops::loss) fn cost(&self, case: &Case, products: usize) -> Cost {
        let Self { tokens, d, classes } = *self;
        let operands = case.dtype.size() * (tokens * d + classes * d);
        let gradients = if products == 1 { 0 } else { case.dtype.size() * tokens * d + 4 * classes * d };
        let flops = 2 * products as u64 * (tokens * d * classes) as u64;
        Cost::compute((operands + gradients + 12 * tokens) as u64, flops, Bound::Tensor(case.dtype))
    }
}
