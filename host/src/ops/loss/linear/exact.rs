//! A layer's logits, log-probabilities and gradients, in f64.

use crate::ops::model::{Tensors, reference};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// The logits of a row.
pub(in crate::ops::loss) fn exact_logits<'a>(
    hidden: &'a HostTensor,
    weight: &'a HostTensor,
) -> impl Fn(usize) -> Vec<f64> + 'a {
    |row| reference::matmul_nt(hidden, weight, &[row])
}

/// Those rows of a layer's gradient by its hidden states or its weight: `g` is that by a row of logits.
pub(in crate::ops::loss) fn exact_gradient(
    output: &str,
    rows: &[usize],
    [hidden, weight]: [&HostTensor; 2],
    g: impl Fn(usize) -> Vec<f64>,
) -> Vec<f64> {
    // Σ factors · rows of a matrix.
    let combine = |factors: Vec<f64>, matrix: &[Vec<f64>]| {
        let mut sums = vec![0.0; weight.shape()[1]];
        for (factor, row) in factors.into_iter().zip(matrix) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
        }
        sums
    };
    let all = |tensor: &HostTensor| (0..tensor.shape()[0]).map(|row| reference::row(tensor, row)).collect::<Vec<_>>();
    if output == "dhidden" {
        let weight = all(weight);
        return reference::by_row(rows, |row| combine(g(row), &weight));
    }
    let (hidden, g): (_, Vec<_>) = (all(hidden), (0..hidden.shape()[0]).map(g).collect());
    reference::by_row(rows, |class| combine(g.iter().map(|g| g[class]).collect(), &hidden))
}

/// Tokens under the logits of a layer.
pub(in crate::ops::loss) struct ExactTokens<'a> {
    layer: [&'a HostTensor; 2],
    targets: Vec<f64>,
    ignored: f64,
}

impl<'a> ExactTokens<'a> {
    pub(in crate::ops::loss) fn new(inputs: &Tensors<'a>, ignored: i64) -> Result<Self> {
        let layer = [inputs.get("hidden")?, inputs.get("weight")?];
        Ok(Self { layer, targets: inputs.get("targets")?.to_f64(), ignored: ignored as f64 })
    }

    /// Whether its target is neither a class nor ignored.
    pub(in crate::ops::loss) fn is_stranger(&self, token: usize) -> bool {
        let target = self.targets[token];
        target != self.ignored && !(0.0..self.layer[1].shape()[0] as f64).contains(&target)
    }

    /// The logarithms of all classes' probabilities, and the token's own class; `None` if it does not count.
    fn row(&self, token: usize) -> Option<(Vec<f64>, usize)> {
        let target = self.targets[token];
        if target == self.ignored || self.is_stranger(token) {
            return None;
        }
        let x = exact_logits(self.layer[0], self.layer[1])(token);
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        Some((x.into_iter().map(|x| x - lse).collect(), target as usize))
    }

    /// The log-probability of every token: 0 where it is ignored, NaN where its target is no class.
    pub(in crate::ops::loss) fn log_probs(&self) -> Vec<f64> {
        let none = |token: usize| if self.targets[token] == self.ignored { 0.0 } else { f64::NAN };
        let of = |token| self.row(token).map_or_else(|| none(token), |(log_probs, target)| log_probs[target]);
        (0..self.targets.len()).map(of).collect()
    }

    /// Those rows of a layer's gradient of a loss with such derivatives by the log-probabilities.
    pub(in crate::ops::loss) fn gradient(
        &self,
        output: &str,
        rows: &[usize],
        slope: impl Fn(usize) -> f64,
    ) -> Vec<f64> {
        exact_gradient(output, rows, self.layer, |token| {
            let Some((log_probs, target)) = self.row(token) else { return vec![0.0; self.layer[1].shape()[0]] };
            let slope = slope(token);
            let of = |(class, log_prob): (usize, &f64)| slope * (f64::from(u8::from(class == target)) - log_prob.exp());
            log_probs.iter().enumerate().map(of).collect()
        })
    }
}
