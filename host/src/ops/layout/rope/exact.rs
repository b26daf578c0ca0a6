//! The sizes of cases, and the reference of forward and backward.

use crate::ops::model::*;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// Sizes of a case: tokens, heads, pairs that are rotated, and elements of a head, which are at least twice as many.
pub(super) fn sizes(case: &Case) -> Result<[usize; 4]> {
    let [tokens, heads, half, d] = case.dims(["tokens", "heads", "half", "d"])?;
    Ok([tokens, heads, half, d.max(2 * half)])
}

/// The number of positions in the tables of a case beyond its tokens.
pub(in crate::ops::layout) const MORE: usize = 5;

/// The rotation of heads, in f64.
pub(in crate::ops::layout) struct Turns<'a> {
    cos: &'a HostTensor,
    sin: &'a HostTensor,
    positions: Vec<f64>,
    interleaved: bool,
}

impl<'a> Turns<'a> {
    pub(in crate::ops::layout) fn of(inputs: &'a Tensors<'_>, params: &Params) -> Result<Self> {
        let (cos, sin) = (inputs.get("cos")?, inputs.get("sin")?);
        let (positions, interleaved) = (inputs.get("positions")?.to_f64(), params.bool("interleaved")?);
        Ok(Self { cos, sin, positions, interleaved })
    }

    /// The row of the tables for a token, if they have one.
    pub(in crate::ops::layout) fn row(&self, token: usize) -> Option<usize> {
        let position = self.positions[token];
        (0.0..self.cos.shape()[0] as f64).contains(&position).then_some(position as usize)
    }

    /// A head of a token, rotated forwards or backwards as `direction` says.
    pub(in crate::ops::layout) fn turn(&self, mut values: Vec<f64>, token: usize, direction: f64) -> Vec<f64> {
        let Some(row) = self.row(token) else { return vec![0.0; values.len()] };
        let (cos, sin) = (reference::row(self.cos, row), reference::row(self.sin, row));
        let half = cos.len();
        for j in 0..half {
            let (first, second) = if self.interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
            let (a, b) = (values[first], values[second]);
            values[first] = a * cos[j] - direction * b * sin[j];
            values[second] = b * cos[j] + direction * a * sin[j];
        }
        values
    }
}
