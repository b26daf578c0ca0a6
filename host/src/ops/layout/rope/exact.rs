//! The reference of forward and backward.

use crate::ops::model::*;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

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

    /// A head of a token, rotated forwards or backwards as `direction` says.
    pub(in crate::ops::layout) fn turn(&self, mut values: Vec<f64>, token: usize, direction: f64) -> Vec<f64> {
        let (position, [max_position, half]) = (self.positions[token], [self.cos.shape()[0], self.cos.shape()[1]]);
        if position < 0.0 || position >= max_position as f64 {
            return vec![0.0; values.len()];
        }
        let (cos, sin) = (reference::row(self.cos, position as usize), reference::row(self.sin, position as usize));
        for j in 0..half {
            let (first, second) = if self.interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
            let (a, b) = (values[first], values[second]);
            values[first] = a * cos[j] - direction * b * sin[j];
            values[second] = b * cos[j] + direction * a * sin[j];
        }
        values
    }
}
