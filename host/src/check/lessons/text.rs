//! Numbers as lessons write them, and tables of them.

/// A count of bytes, operations or anything else: `1.5 M`.
pub(in crate::check) fn count(value: f64) -> String {
    // From where on, and what of: thousands from ten thousand on.
    let units = [(1e15, 1e15, "P"), (1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")];
    match units.iter().find(|(from, ..)| value.abs() >= *from) {
        Some((_, size, unit)) => format!("{} {unit}", digits(value / size)),
        None => digits(value),
    }
}

/// Three or four digits.
pub(in crate::check) fn digits(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// How many times more: `5.5`.
pub(in crate::check) fn times(more: f64, less: f64) -> String {
    digits(more / less)
}

/// A rate or a size that a device may not tell.
pub(in crate::check) fn or_dash(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{}{unit}", count(value)))
}

/// Numbers with headings.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Facts {
    /// What it shows.
    pub title: String,
    /// Headings; one that starts with `>` is over numbers.
    pub headings: Vec<&'static str>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        let all = [0.0, 0.125, 1.5, 132.0, 1234.0, 9999.5, 65536.0, 3.35e12].map(count);
        assert_eq!(all, ["0", "0.125", "1.50", "132", "1234", "10000", "65.54 k", "3.35 T"]);
        assert_eq!(times(11.0, 2.0), "5.50");
        assert_eq!([or_dash(None, "B/s"), or_dash(Some(3e9), "B/s")], ["-", "3 GB/s"]);
    }
}
