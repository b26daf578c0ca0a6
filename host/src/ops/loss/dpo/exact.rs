//! The loss in f64.

use crate::ops::loss::sequences;
use crate::ops::model::*;
use crate::runtime::error::Result;

/// The operator in f64, by the formulas of its kernel's page.
pub(in crate::ops::loss) struct Exact {
    log_probs: Vec<f64>,
    reference: Option<Vec<f64>>,
    /// `None` if the offsets are not as they should be.
    sequences: Option<Vec<std::ops::Range<usize>>>,
    pairs: usize,
    beta: f64,
    smoothing: f64,
    is_mean: bool,
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

impl Exact {
    pub(in crate::ops::loss) fn new(inputs: &Tensors<'_>, params: &Params, log_probs: Vec<f64>) -> Result<Self> {
        let offsets = inputs.get("offsets")?.to_f64();
        Ok(Self {
            sequences: sequences::exact(&offsets, log_probs.len()),
            log_probs,
            reference: inputs.optional("reference").map(|reference| reference.to_f64()),
            pairs: offsets.len().saturating_sub(1) / 2,
            beta: params.f64("beta")?,
            smoothing: params.f64("label_smoothing")?,
            is_mean: !params.bool("sum")?,
        })
    }

    /// The log-probability of a sequence.
    pub(in crate::ops::loss) fn sum(&self, sequence: usize) -> f64 {
        let of = |all: &Vec<std::ops::Range<usize>>| self.log_probs[all[sequence].clone()].iter().sum();
        self.sequences.as_ref().map_or(f64::NAN, of)
    }

    fn margin(&self, pair: usize) -> f64 {
        let [chosen, rejected] = [pair, pair + self.pairs]
            .map(|sequence| self.sum(sequence) - self.reference.as_ref().map_or(0.0, |reference| reference[sequence]));
        self.beta * (chosen - rejected)
    }

    /// The loss of a pair.
    pub(in crate::ops::loss) fn loss(&self, pair: usize) -> f64 {
        let margin = self.margin(pair);
        (1.0 - self.smoothing) * softplus(-margin) + self.smoothing * softplus(margin)
    }

    /// The mean or the sum of all.
    pub(in crate::ops::loss) fn total(&self) -> f64 {
        (0..self.pairs).map(|pair| self.loss(pair)).sum::<f64>() * self.share()
    }

    fn share(&self) -> f64 {
        if self.is_mean && self.pairs > 0 { (self.pairs as f64).recip() } else { 1.0 }
    }

    fn sequence_of(&self, token: usize) -> Option<usize> {
        self.sequences.iter().flatten().position(|tokens| tokens.contains(&token))
    }

    /// The tokens of both answers of a token's pair.
    pub(in crate::ops::loss) fn pair_of(&self, token: usize) -> impl Iterator<Item = usize> + '_ {
        let pair = self.sequence_of(token).map(|sequence| sequence % self.pairs);
        let of_all = self.sequences.iter().flatten().enumerate();
        of_all.filter(move |(sequence, _)| Some(sequence % self.pairs) == pair).flat_map(|(_, tokens)| tokens.clone())
    }

    /// The derivative of the total by a token's log-probability.
    pub(in crate::ops::loss) fn gradient(&self, token: usize) -> f64 {
        let Some(sequence) = self.sequence_of(token) else { return 0.0 };
        let margin = self.margin(sequence % self.pairs);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let slope = self.beta * (self.smoothing * sigmoid(margin) - (1.0 - self.smoothing) * sigmoid(-margin));
        if sequence < self.pairs { slope * self.share() } else { -slope * self.share() }
    }
}
