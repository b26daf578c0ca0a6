use super::longest_block;
use crate::ops::model::{
    Arguments, Arrangement, Case, Cost, Gradient, InputSpec, Metas, OpInfo, Operator, Params, TensorMeta, Tensors,
    Tolerance, Values, reference,
};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// A bound of the error of f32 arithmetic before the single rounding to storage, with its justification.
#[derive(Clone, Copy, Debug)]
pub struct Accuracy {
    /// Absolute part.
    pub abs: f64,
    /// Relative part.
    pub rel: f64,
    /// The justification of these bounds.
    pub why: &'static str,
}

impl Accuracy {
    /// No error: the result is a value of the storage type.
    pub const EXACT: Self = Self { abs: 0.0, rel: 0.0, why: "exact" };

    fn is_exact(self) -> bool {
        self.abs == 0.0 && self.rel == 0.0
    }
}

/// An operator whose tensors all have the same shape and type, and whose result at an index depends only on its inputs at
/// that index.
pub struct Pointwise {
    /// The description: inputs, then one output.
    pub info: &'static OpInfo,
    /// Launches the operator.
    pub launch: fn(&Stream, &mut Arguments<'_>, &Params) -> Result<()>,
    /// The formula of the result.
    pub reference: Formula,
    /// How exact the arithmetic is, before the result is rounded to storage.
    pub accuracy: Accuracy,
    /// The operator whose backward this is, if it is one.
    pub gradient: Option<Gradient>,
}

/// The result at an index, from the inputs at that index in order.
pub type Formula = fn(&[f64]) -> f64;

/// A pointwise operator with several results.
pub struct PointwiseMany {
    /// The operator with only its first result.
    pub first: Pointwise,
    /// The other outputs by name.
    pub others: &'static [(&'static str, Formula)],
}

/// The cases of an elementwise operator: every path of [`map`](gpu_kernels::map) in every type: whole blocks, whole packs,
/// single elements; dense, misaligned and padded, each tensor differently.
pub(super) fn cases(info: &'static OpInfo) -> Vec<Case> {
    let mut cases = Vec::new();
    let dims = |rows, d| [("rows", rows), ("d", d)];
    let inputs = info.inputs().count();
    for &dtype in info.dtypes {
        // 2²⁸ elements per tensor for one input, as in the timings of other libraries, and the same number
        // of bytes for more inputs.
        let n = (1usize << 28) / inputs.next_power_of_two();
        let name = format!("n=2^{} {}", n.ilog2(), dtype.name());
        cases.push(Case::production(info, name, dtype, dims(1, n)));
        let block = longest_block(dtype, inputs);
        let pads =
            info.args.iter().zip([8, 24, 16, 40, 32]).map(|(arg, pad)| (arg.name, Arrangement::DENSE.row_pad(pad)));
        let padded = |case: Case| pads.clone().fold(case, |case, (name, pad)| case.arrange(name, pad));
        let first = info.args[0].name;
        cases.extend([
            Case::odd(info, dtype, dims(1, 100_003)),
            Case::odd(info, dtype, dims(1, 9_001)).offset(1),
            Case::odd(info, dtype, dims(3, block + 8)).arrange(first, Arrangement::DENSE.offset(1)),
            padded(Case::odd(info, dtype, dims(5, 203))),
            padded(Case::odd(info, dtype, dims(3, 2 * block + 13))),
            Case::odd(info, dtype, dims(7, 37)).row_pad(3),
            Case::tiny(info, dtype, dims(1, 1)),
            Case::tiny(info, dtype, dims(1, 17)),
            Case::empty(info, dtype, dims(0, 64)),
            Case::empty(info, dtype, dims(64, 0)),
            Case::boundary(info, dtype, dims(1, block)),
            Case::boundary(info, dtype, dims(1, block + 1)),
            Case::boundary(info, dtype, dims(1, 4099)).values(first, Values::Specials),
        ]);
    }
    cases
}

/// The shape of a case's tensors: a vector if there is one row.
pub(in crate::ops) fn shape(case: &Case) -> Result<Vec<usize>> {
    let [rows, d] = case.dims(["rows", "d"])?;
    Ok(if rows == 1 { vec![d] } else { vec![rows, d] })
}

/// `f` of the inputs at each index of the rows.
fn evaluate(info: &OpInfo, f: fn(&[f64]) -> f64, inputs: &Tensors<'_>, rows: &[usize]) -> Result<Vec<f64>> {
    let inputs = info.inputs().map(|arg| inputs.get(arg.name)).collect::<Result<Vec<_>>>()?;
    let inputs: Vec<_> = inputs.iter().map(|input| reference::select(input, rows)).collect();
    let mut place = vec![0.0; inputs.len()];
    let at = |i: usize| {
        place.iter_mut().zip(&inputs).for_each(|(value, input)| *value = input[i]);
        f(&place)
    };
    Ok((0..inputs[0].len()).map(at).collect())
}

impl Operator for Pointwise {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = cases(self.info);
        // An exact operator is exact for any combination of values as well.
        if self.accuracy.is_exact() && self.info.inputs().count() > 1 {
            cases.extend(self.info.dtypes.iter().map(|&dtype| {
                let case = Case::boundary(self.info, dtype, [("rows", 1), ("d", 4097)]);
                self.info.inputs().fold(case, |case, arg| case.values(arg.name, Values::Specials))
            }));
        }
        // An index beyond 32 bits.
        if self.info.inputs().count() == 1 {
            cases.push(Case::boundary(self.info, DType::BF16, [("rows", 1), ("d", (1 << 32) + 9)]).huge());
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let shape = shape(case)?;
        // Wide enough to reach every branch of a formula.
        let wide = Values::Normal { std: 3.0 };
        let values = std::iter::once(wide).chain(std::iter::repeat(Values::NORMAL));
        let args = self.info.inputs().zip(values);
        let specs = args.map(|(arg, values)| InputSpec::new(arg.name, case.dtype, shape.clone(), values));
        Ok(specs.map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get(self.info.args[0].name)?;
        for arg in self.info.inputs() {
            inputs.get(arg.name)?.has_shape(x.shape())?;
        }
        Ok(self.info.outputs().map(|arg| TensorMeta::new(arg.name, x.dtype(), x.shape())).collect())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        (self.launch)(stream, args, params)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        evaluate(self.info, self.reference, inputs, rows)
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let Accuracy { abs, rel, why } = self.accuracy;
        Ok(if self.accuracy.is_exact() { Tolerance::EXACT } else { Tolerance::rounded(case.dtype, abs, rel, why) })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((self.info.args.len() * rows * d * case.dtype.size()) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.gradient
    }
}

impl Operator for PointwiseMany {
    fn info(&self) -> &'static OpInfo {
        self.first.info
    }

    fn cases(&self) -> Vec<Case> {
        self.first.cases()
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        self.first.inputs(case)
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        self.first.outputs(inputs, params)
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        self.first.launch(stream, args, params)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let other = self.others.iter().find(|(name, _)| *name == output);
        evaluate(self.first.info, other.map_or(self.first.reference, |(_, f)| *f), inputs, rows)
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        self.first.tolerance(case, output)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        self.first.cost(case)
    }

    fn gradient(&self) -> Option<Gradient> {
        self.first.gradient
    }
}
