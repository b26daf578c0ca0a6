//! The distribution of times, and its interpretation.

use serde::{Deserialize, Serialize};

use super::Row;
use super::prepared::WARM_UP;

/// The distribution of the times of a row, and the cost to start, to queue and to wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number of timed runs, after the warm-up.
    pub runs: usize,
    /// The very first run, by the host's clock and including the wait: kernels are loaded, memory is touched for the first time.
    pub first_ms: f64,
    /// Least milliseconds between two events.
    pub min_ms: f64,
    /// A tenth of the runs took no longer than this.
    pub p10_ms: f64,
    /// A tenth of the runs took at least this long.
    pub p90_ms: f64,
    /// The host's time for queueing it.
    pub queued_ms: f64,
    /// The host's time for queueing it and waiting for it.
    pub waited_ms: f64,
}

/// What the numbers tell about warm-up, about waiting and about how far to trust a median: one sentence each.
pub fn explain(rows: &[(&Row, Spread)]) -> Vec<String> {
    let Some((longest, of)) = rows.iter().max_by(|a, b| a.0.ms.total_cmp(&b.0.ms)) else { return Vec::new() };
    let Some((shortest, by)) = rows.iter().min_by(|a, b| a.0.ms.total_cmp(&b.0.ms)) else { return Vec::new() };
    let times = |(row, spread): &(&Row, Spread)| spread.first_ms / row.ms;
    let cold = rows.iter().max_by(|a, b| times(a).total_cmp(&times(b))).unwrap_or(&rows[0]);
    let wide = |(row, spread): &(&Row, Spread)| 100.0 * (spread.p90_ms - spread.p10_ms) / row.ms;
    let mut widths: Vec<_> = rows.iter().map(wide).collect();
    widths.sort_by(f64::total_cmp);
    vec![
        format!(
            "Warm-up: the first run of {} {} took {:.1} times its median, loading kernels; it and {WARM_UP} more are not counted.",
            cold.0.op,
            cold.0.case,
            times(cold)
        ),
        format!(
            "Synchronisation: a wait after each run makes {:.4} ms of {:.4} for {} {} and {:.4} ms of {:.4} for {} {}. Timed runs are queued one \
             behind the other between events on the device and waited for once; queueing takes {:.4} ms.",
            by.waited_ms,
            shortest.ms,
            shortest.op,
            shortest.case,
            of.waited_ms,
            longest.ms,
            longest.op,
            longest.case,
            by.queued_ms
        ),
        format!(
            "Spread: four of five runs lie within {:.1}% of the median in the middle row, and within {:.1}% in the widest.",
            widths[widths.len() / 2],
            widths[widths.len() - 1]
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::plain;
    use super::*;

    /// Two rows as an H200 gave them.
    #[test]
    fn recorded_numbers_are_explained() {
        let spread = |first_ms, p10_ms, p90_ms, queued_ms, waited_ms| Spread {
            runs: 100,
            first_ms,
            min_ms: p10_ms,
            p10_ms,
            p90_ms,
            queued_ms,
            waited_ms,
        };
        let small = plain("mlp.forward", "layers=1", 0.5, 0.49);
        let large = plain("mlp.backward", "layers=8", 4.0, 3.9);
        let rows = [(&small, spread(5.0, 0.49, 0.51, 0.02, 0.53)), (&large, spread(8.0, 3.9, 4.3, 0.2, 4.05))];
        let said = explain(&rows);
        assert!(said[0].contains("mlp.forward layers=1 took 10.0 times its median"), "{said:?}");
        assert!(said[1].contains("0.5300 ms of 0.5000") && said[1].contains("queueing takes 0.0200 ms"), "{said:?}");
        assert!(
            said[2].contains("within 10.0% of the median in the middle row, and within 10.0% in the widest"),
            "{said:?}"
        );
        assert!(explain(&[]).is_empty());
    }
}
