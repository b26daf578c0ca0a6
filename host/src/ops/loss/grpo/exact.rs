//! The objective in f64.

use std::ops::Range;

use super::options::Normalisation;
use crate::ops::loss::sequences;
use crate::ops::model::*;
use crate::runtime::error::Result;

/// The operator in f64, by the formulas of its kernel's page.
pub(in crate::ops::loss) struct Exact {
    log_probs: Vec<f64>,
    old: Option<Vec<f64>>,
    reference: Option<Vec<f64>>,
    targets: Vec<f64>,
    advantages: Vec<f64>,
    /// `None` if the offsets are not as they should be.
    sequences: Option<Vec<Range<usize>>>,
    classes: f64,
    ignored: f64,
    bounds: [f64; 2],
    beta: f64,
    normalisation: Normalisation,
}

impl Exact {
    /// The objective of those log-probabilities of tokens out of so many, and of the other inputs.
    pub(in crate::ops::loss) fn new(
        inputs: &Tensors<'_>,
        params: &Params,
        log_probs: Vec<f64>,
        classes: usize,
    ) -> Result<Self> {
        let of_tokens = |name| inputs.optional(name).map(|tensor| tensor.to_f64());
        Ok(Self {
            sequences: sequences::exact(&inputs.get("offsets")?.to_f64(), log_probs.len()),
            log_probs,
            old: of_tokens("old"),
            reference: of_tokens("reference"),
            targets: inputs.get("targets")?.to_f64(),
            advantages: inputs.get("advantages")?.to_f64(),
            classes: classes as f64,
            ignored: params.i64("ignore_index")? as f64,
            bounds: [1.0 - params.f64("clip_low")?, 1.0 + params.f64("clip_high")?],
            beta: params.f64("beta")?,
            normalisation: Normalisation::of(params)?,
        })
    }

    fn is_class(&self, token: usize) -> bool {
        (0.0..self.classes).contains(&self.targets[token])
    }

    fn counting(&self, tokens: Range<usize>) -> f64 {
        tokens.filter(|token| self.is_class(*token) && self.targets[*token] != self.ignored).count() as f64
    }

    /// What a token adds, and the derivative of it by its log-probability.
    pub(in crate::ops::loss) fn token(&self, token: usize) -> (f64, f64) {
        let Some(sequences) = &self.sequences else { return (f64::NAN, 0.0) };
        if self.targets[token] == self.ignored {
            return (0.0, 0.0);
        }
        let found = sequences.iter().enumerate().find(|(_, tokens)| tokens.contains(&token));
        let (true, Some((at, tokens))) = (self.is_class(token), found) else { return (f64::NAN, 0.0) };
        let weight = match self.normalisation {
            Normalisation::Sequences => 1.0 / (sequences.len() as f64 * self.counting(tokens.clone())),
            Normalisation::Tokens => 1.0 / self.counting(0..self.targets.len()),
            Normalisation::Constant(divisor) => 1.0 / f64::from(divisor),
        };
        let (log_prob, advantage) = (self.log_probs[token], self.advantages[at]);
        // Beyond f32 it is infinite.
        let exp = |x: f64| if x.exp() > f64::from(f32::MAX) { f64::INFINITY } else { x.exp() };
        let ratio = self.old.as_ref().map_or(1.0, |old| exp(log_prob - old[token]));
        let (free, clipped) = (ratio * advantage, ratio.clamp(self.bounds[0], self.bounds[1]) * advantage);
        // Not f64::min, which ignores NaN.
        let mut loss = -if free > clipped { clipped } else { free };
        let mut slope = if free > clipped { 0.0 } else { -free };
        if let Some(reference) = &self.reference {
            let apart = reference[token] - log_prob;
            loss += self.beta * (apart.exp_m1() - apart);
            slope -= self.beta * apart.exp_m1();
        }
        (loss * weight, slope * weight)
    }

    /// The sum of what all tokens add.
    pub(in crate::ops::loss) fn total(&self) -> f64 {
        (0..self.targets.len()).map(|token| self.token(token).0).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn what_is_no_number_and_what_overflows_shows() {
        let token = |log_prob, old, advantage| {
            let exact = Exact {
                log_probs: vec![log_prob],
                old: Some(vec![old]),
                reference: None,
                targets: vec![1.0],
                advantages: vec![advantage],
                sequences: Some(iter::once(0..1).collect()),
                classes: 8.0,
                ignored: -100.0,
                bounds: [0.75, 1.25],
                beta: 0.0,
                normalisation: Normalisation::Tokens,
            };
            exact.token(0)
        };
        assert_eq!(token(-1.0, -1.0, 2.0), (-2.0, -2.0));
        assert_eq!(token(0.0, -100.0, 2.0), (-2.5, 0.0));
        assert_eq!(token(0.0, -100.0, -2.0), (f64::INFINITY, f64::INFINITY));
        let (loss, slope) = token(0.0, -100.0, 0.0);
        assert!(loss.is_nan() && slope.is_nan());
        assert!(token(f64::NAN, -1.0, 2.0).0.is_nan());
    }
}
