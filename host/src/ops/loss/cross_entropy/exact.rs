//! The loss in f64.

use crate::ops::model::*;
use crate::runtime::error::Result;

/// The operator in f64, by the formulas of its kernels' page.
pub(in crate::ops::loss) struct Exact<'a> {
    logits: Box<dyn Fn(usize) -> Vec<f64> + 'a>,
    targets: Vec<f64>,
    weights: Vec<f64>,
    smoothing: f64,
    z: f64,
    cap: f64,
    ignored: f64,
    is_mean: bool,
}

/// A row that counts.
struct Row {
    /// The logits after the soft cap, and their derivatives with respect to the logits before it.
    x: Vec<f64>,
    slopes: Vec<f64>,
    /// The maximum, or 0 if all are −∞, and Σ e^(x − max), kept apart because a huge maximum would absorb the logarithm of the sum.
    max: f64,
    sum: f64,
    target: usize,
}

impl Row {
    fn lse(&self) -> f64 {
        self.max + self.sum.ln()
    }

    /// −ln p.
    fn surprise(&self, class: usize) -> f64 {
        (self.max - self.x[class]) + self.sum.ln()
    }

    fn p(&self, class: usize) -> f64 {
        (self.x[class] - self.max).exp() / self.sum
    }
}

impl<'a> Exact<'a> {
    /// The loss of such rows of logits, of that many classes, and of the other inputs.
    pub(in crate::ops::loss) fn new(
        inputs: &Tensors<'_>,
        params: &Params,
        classes: usize,
        logits: impl Fn(usize) -> Vec<f64> + 'a,
    ) -> Result<Self> {
        Ok(Self {
            logits: Box::new(logits),
            targets: inputs.get("targets")?.to_f64(),
            weights: inputs.optional("class_weights").map_or(vec![1.0; classes], |weights| weights.to_f64()),
            smoothing: params.f64("label_smoothing")?,
            z: params.f64("z_loss")?,
            cap: params.f64("softcap")?,
            ignored: params.i64("ignore_index")? as f64,
            is_mean: !params.bool("sum")?,
        })
    }

    fn is_class(&self, target: f64) -> bool {
        target >= 0.0 && target < self.weights.len() as f64
    }

    fn row(&self, row: usize) -> Option<Row> {
        let target = self.targets[row];
        if target == self.ignored || !self.is_class(target) {
            return None;
        }
        let (x, slopes): (Vec<_>, Vec<_>) = (self.logits)(row)
            .into_iter()
            .map(|x| match self.cap > 0.0 {
                true => (self.cap * (x / self.cap).tanh(), 1.0 - (x / self.cap).tanh().powi(2)),
                false => (x, 1.0),
            })
            .unzip();
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let max = if max == f64::NEG_INFINITY { 0.0 } else { max };
        let sum = x.iter().map(|x| (x - max).exp()).sum();
        Some(Row { x, slopes, max, sum, target: target as usize })
    }

    /// The loss of a row.
    pub(in crate::ops::loss) fn loss(&self, row: usize) -> f64 {
        let Some(row) = self.row(row) else {
            return if self.targets[row] == self.ignored { 0.0 } else { f64::NAN };
        };
        let lse = row.lse();
        let on_target = (1.0 - self.smoothing) * self.weights[row.target];
        let mut loss = on_target * row.surprise(row.target) + self.z * lse * lse;
        if self.smoothing > 0.0 {
            let all: f64 = self.weights.iter().enumerate().map(|(class, weight)| weight * row.surprise(class)).sum();
            loss += self.smoothing / row.x.len() as f64 * all;
        }
        loss
    }

    /// The logsumexp of a row's logits; 0 if the row does not count.
    pub(in crate::ops::loss) fn lse(&self, row: usize) -> f64 {
        self.row(row).map_or(0.0, |row| row.lse())
    }

    /// The sum of the rows' losses, or their mean.
    pub(in crate::ops::loss) fn total(&self) -> f64 {
        (0..self.targets.len()).map(|row| self.loss(row)).sum::<f64>() * self.share()
    }

    /// The derivative of a row's loss by its logits, times `factor`.
    pub(in crate::ops::loss) fn gradient(&self, row: usize, factor: f64) -> Vec<f64> {
        let Some(row) = self.row(row) else { return vec![0.0; self.weights.len()] };
        let spread = self.smoothing / row.x.len() as f64;
        let on_target = (1.0 - self.smoothing) * self.weights[row.target];
        // Without smoothing, a class weight affects only the rows of that class, whatever it is.
        let spread_of = |class: usize| if spread > 0.0 { spread * self.weights[class] } else { 0.0 };
        let of_p = on_target + (0..row.x.len()).map(spread_of).sum::<f64>() + 2.0 * self.z * row.lse();
        let of = |class: usize| {
            let one = if class == row.target { on_target } else { 0.0 };
            (of_p * row.p(class) - one - spread_of(class)) * row.slopes[class] * factor
        };
        (0..row.x.len()).map(of).collect()
    }

    /// The factor of the rows' losses.
    pub(in crate::ops::loss) fn share(&self) -> f64 {
        if !self.is_mean {
            return 1.0;
        }
        let counting = self.targets.iter().filter(|target| **target != self.ignored && self.is_class(**target));
        let weight: f64 = counting.map(|target| self.weights[*target as usize]).sum();
        if weight == 0.0 { 0.0 } else { weight.recip() }
    }
}
