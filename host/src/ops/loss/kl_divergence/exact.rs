//! The divergence in f64.

use super::options::Divergence;
use crate::ops::model::*;
use crate::runtime::error::Result;

/// Rows of logits.
type Rows<'a> = Box<dyn Fn(usize) -> Vec<f64> + 'a>;

/// The operator in f64, by the formulas of its kernels' page.
pub(in crate::ops::loss) struct Exact<'a> {
    student: Rows<'a>,
    teacher: Rows<'a>,
    targets: Option<Vec<f64>>,
    rows: usize,
    classes: usize,
    divergence: Divergence,
    temperature: f64,
    ignored: f64,
    is_mean: bool,
}

/// Probabilities, and their logarithms.
struct Softmax {
    p: Vec<f64>,
    ln: Vec<f64>,
}

impl Softmax {
    fn of(x: &[f64], temperature: f64) -> Self {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Powers of two that f32 does not reach count as infinite.
        let reached =
            |below: f64| if below * std::f64::consts::LOG2_E < f64::from(f32::MIN) { f64::NEG_INFINITY } else { below };
        let below = x.iter().map(|x| reached((x - max) / temperature));
        let sum: f64 = below.clone().map(f64::exp).sum();
        // What is below 2⁻¹²⁶ of the greatest counts as nothing.
        let least = -126.0 * std::f64::consts::LN_2;
        let p = below.clone().map(|below| if below < least { 0.0 } else { below.exp() / sum }).collect();
        Self { p, ln: below.map(|below| below - sum.ln()).collect() }
    }
}

/// Σ p·ratio, to which what has no probability adds nothing.
fn mean(p: &[f64], ratios: &[f64]) -> f64 {
    p.iter().zip(ratios).map(|(p, ratio)| if *p == 0.0 { 0.0 } else { p * ratio }).sum()
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

impl<'a> Exact<'a> {
    /// The loss of that many rows of logits, of the other inputs.
    pub(in crate::ops::loss) fn new(
        inputs: &Tensors<'_>,
        params: &Params,
        [rows, classes]: [usize; 2],
        student: impl Fn(usize) -> Vec<f64> + 'a,
        teacher: impl Fn(usize) -> Vec<f64> + 'a,
    ) -> Result<Self> {
        Ok(Self {
            student: Box::new(student),
            teacher: Box::new(teacher),
            targets: inputs.optional("targets").map(|targets| targets.to_f64()),
            rows,
            classes,
            divergence: Divergence::of(params)?,
            temperature: params.f64("temperature")?,
            ignored: params.i64("ignore_index")? as f64,
            is_mean: !params.bool("sum")?,
        })
    }

    fn is_class(&self, target: f64) -> bool {
        target >= 0.0 && target < self.classes as f64
    }

    /// What a row's loss is that does not count.
    fn none(&self, row: usize) -> Option<f64> {
        let target = *self.targets.as_ref()?.get(row)?;
        if target == self.ignored { Some(0.0) } else { (!self.is_class(target)).then_some(f64::NAN) }
    }

    /// The divergence of p and q, and its derivative by the logits of q.
    fn row(&self, row: usize) -> (f64, Vec<f64>) {
        let [p, q] = [&self.teacher, &self.student].map(|logits| Softmax::of(&logits(row), self.temperature));
        // By the logits of q of a loss that consists of Σ q·slope and of what does not move with q.
        let by_logits = |slopes: &[f64]| {
            let mean = mean(&q.p, slopes);
            let of = |(q, slope): (&f64, &f64)| if *q == 0.0 { 0.0 } else { q * (slope - mean) / self.temperature };
            q.p.iter().zip(slopes).map(of).collect::<Vec<_>>()
        };
        let (loss, mut gradient) = match self.divergence {
            Divergence::Reverse | Divergence::JensenShannon(1.0) => {
                let ratios = difference(&q.ln, &p.ln);
                (mean(&q.p, &ratios), by_logits(&ratios))
            }
            Divergence::Forward | Divergence::JensenShannon(0.0) => {
                let gradient = difference(&q.p, &p.p).into_iter().map(|slope| slope / self.temperature).collect();
                (mean(&p.p, &difference(&p.ln, &q.ln)), gradient)
            }
            Divergence::JensenShannon(beta) => {
                let beta = f64::from(beta);
                let mixture = |(p, q): (&f64, &f64)| {
                    let greater = p.max(*q);
                    greater + (beta * (p - greater).exp() + (1.0 - beta) * (q - greater).exp()).ln()
                };
                let m: Vec<_> = p.ln.iter().zip(&q.ln).map(mixture).collect();
                let [of_p, of_q] = [&p.ln, &q.ln].map(|ln| difference(ln, &m));
                let slopes: Vec<_> = of_q.iter().map(|ratio| (1.0 - beta) * ratio).collect();
                (beta * mean(&p.p, &of_p) + mean(&q.p, &slopes), by_logits(&slopes))
            }
        };
        if loss.is_nan() {
            gradient.fill(f64::NAN);
        }
        (loss, gradient)
    }

    /// The loss of a row.
    pub(in crate::ops::loss) fn loss(&self, row: usize) -> f64 {
        self.none(row).unwrap_or_else(|| self.row(row).0)
    }

    /// The mean or the sum of all.
    pub(in crate::ops::loss) fn total(&self) -> f64 {
        (0..self.rows).map(|row| self.loss(row)).sum::<f64>() * self.share()
    }

    /// The derivative of a row's loss by the student's logits, times `factor`.
    pub(in crate::ops::loss) fn gradient(&self, row: usize, factor: f64) -> Vec<f64> {
        match self.none(row) {
            Some(_) => vec![0.0; self.classes],
            None => self.row(row).1.into_iter().map(|slope| slope * factor).collect(),
        }
    }

    /// What the rows' losses are multiplied by.
    pub(in crate::ops::loss) fn share(&self) -> f64 {
        if !self.is_mean {
            return 1.0;
        }
        let counting = match &self.targets {
            Some(targets) => targets.iter().filter(|t| **t != self.ignored && self.is_class(**t)).count(),
            None => self.rows,
        };
        if counting > 0 { (counting as f64).recip() } else { 0.0 }
    }
}
