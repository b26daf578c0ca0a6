//! The entropy of a row in f64.

/// A row of logits at a temperature.
pub(in crate::ops::loss) struct Exact {
    /// The logarithms of its probabilities.
    log_probs: Vec<f64>,
    temperature: f64,
}

impl Exact {
    pub(in crate::ops::loss) fn new(x: &[f64], temperature: f64) -> Self {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let below: Vec<_> = x.iter().map(|x| (x - max) / temperature).collect();
        let sum: f64 = below.iter().map(|below| below.exp()).sum();
        Self { log_probs: below.into_iter().map(|below| below - sum.ln()).collect(), temperature }
    }

    pub(in crate::ops::loss) fn entropy(&self) -> f64 {
        // Nothing times infinity is nothing.
        let term = |ln: &f64| if ln.exp() == 0.0 { 0.0 } else { ln.exp() * ln };
        -self.log_probs.iter().map(term).sum::<f64>()
    }

    /// Its derivative by the logits, times a factor.
    pub(in crate::ops::loss) fn gradient(&self, factor: f64) -> Vec<f64> {
        let entropy = self.entropy();
        let slope = |ln: &f64| match ln.exp() {
            _ if entropy.is_nan() => entropy,
            0.0 => 0.0,
            p => -p * (ln + entropy) / self.temperature,
        };
        self.log_probs.iter().map(|ln| slope(ln) * factor).collect()
    }
}
