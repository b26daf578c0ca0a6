//! Reductions in the registry.

use crate::ops::model::*;
use crate::ops::rows;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// A reduction to f32, of rows or of a whole tensor.
pub struct Reduction {
    /// The static description.
    pub info: &'static OpInfo,
    /// Launches the reduction.
    pub launch: fn(&Stream, &mut Arguments<'_>) -> Result<()>,
    /// Whether it has one result.
    pub whole: bool,
    /// Whether a reduction over no elements is an error.
    pub needs_columns: bool,
    /// The start value of the reference's fold.
    pub first: f64,
    /// One step of the fold.
    pub step: fn(f64, f64) -> f64,
    /// The result of the fold over this number of elements.
    pub finish: fn(f64, usize) -> f64,
    /// The tolerance of a result over this number of elements.
    pub tolerance: fn(usize) -> Tolerance,
}

impl Operator for Reduction {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let name = "rows=16384 d=8192 bfloat16";
        let mut cases = vec![Case::production(info, name, DType::BF16, dims(16384, 8192))];
        for &dtype in info.dtypes {
            let width = 4096 * 16 / dtype.size();
            let padded = |case: Case, pad| case.arrange("x", Arrangement::DENSE.row_pad(pad));
            if self.whole {
                cases.extend([
                    Case::odd(info, dtype, dims(37, 1003)),
                    Case::odd(info, dtype, dims(9, 1001)).offset(1),
                    padded(Case::odd(info, dtype, dims(37, 64)), 8),
                    padded(Case::odd(info, dtype, dims(5, 203)), 3),
                    Case::tiny(info, dtype, dims(1, 1)),
                    Case::tiny(info, dtype, dims(3, 7)),
                    Case::empty(info, dtype, dims(0, 64)),
                    Case::boundary(info, dtype, dims(1, width)),
                    Case::boundary(info, dtype, dims(1, width + 1)),
                    Case::boundary(info, dtype, dims(3, width)),
                ]);
            } else {
                cases.extend(rows::cases(info, dtype, rows::LIMITS, &["y"]));
            }
        }
        // In the other types, squares overflow f32.
        cases.push(Case::boundary(info, DType::F16, dims(70, 2)).fill(Values::Specials));
        // Cases with a row without elements, or without elements at all, are dropped.
        let nothing = |case: &Case| case.dims.get("d") == Some(0) || (self.whole && case.dims.get("rows") == Some(0));
        cases.retain(|case| !(self.needs_columns && nothing(case)));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(vec![InputSpec::normal("x", case.dtype, [rows, d]).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        rows::require(self.info, "x", x.shape())?;
        let outer = if self.whole { &[1] } else { &x.shape()[..x.shape().len() - 1] };
        let no_elements = x.shape().contains(&0) && (self.whole || !outer.contains(&0));
        if self.needs_columns && no_elements {
            return Err(super::nothing_to_find(self.info, x.shape()));
        }
        Ok(vec![TensorMeta::new("y", DType::F32, outer)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        (self.launch)(stream, args)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let x = inputs.get("x")?;
        let fold = |first: f64, r: usize| reference::row(x, r).into_iter().fold(first, self.step);
        if self.whole {
            let folded = (0..reference::row_count(x.shape())).fold(self.first, fold);
            let result = (self.finish)(folded, x.len());
            return Ok(rows.iter().map(|_| result).collect());
        }
        let d = reference::row_len(x.shape());
        Ok(rows.iter().map(|r| (self.finish)(fold(self.first, *r), d)).collect())
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok((self.tolerance)(if self.whole { rows * d } else { d }))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let results = if self.whole { 1 } else { rows };
        Ok(Cost::memory((rows * d * case.dtype.size() + results * size_of::<f32>()) as u64))
    }
}
