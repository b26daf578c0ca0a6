//! Axes: a linear one, a logarithmic one, and one whose ticks are powers of two. All of one type, so that every chart is.

use std::ops::{Range, RangeInclusive};

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::check::lessons::text;

/// The scale of an axis, which also decides where its ticks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, with ticks at powers of ten.
    Log,
    /// Logarithmic, with ticks at powers of two, for bytes.
    Bytes,
    /// Logarithmic, with ticks at powers of two, for other quantities.
    Doublings,
}

/// An axis that covers all given values.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    scale: Scale,
    range: Range<f64>,
    ticks: Vec<f64>,
}

/// Magnitudes that have a place: the ends and ticks around them are numbers too, neither 0 nor infinite.
const PLACED: RangeInclusive<f64> = 1e-300..=1e300;

/// The maximum number of ticks of an axis.
const MOST_TICKS: usize = 8;

impl Axis {
    /// An axis that covers `values`; those that are not finite, or have no place on the scale, are ignored.
    pub(crate) fn around(scale: Scale, values: impl IntoIterator<Item = f64>) -> Self {
        let placed = |v: &f64| match scale {
            Scale::Linear => v.abs() <= *PLACED.end() / 2.0,
            _ => PLACED.contains(v),
        };
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(placed) {
            (least, most) = (least.min(value), most.max(value));
        }
        if least > most {
            (least, most) = (1.0, 1.0);
        }
        match scale {
            Scale::Linear => Self::linear(least.min(0.0), most),
            Scale::Log => Self::logarithmic(least, most),
            Scale::Bytes | Scale::Doublings => Self::doublings(scale, least, most),
        }
    }

    /// From `from` to `to`, without ticks.
    pub(super) fn bare(from: f64, to: f64) -> Self {
        Self { scale: Scale::Linear, range: from..to, ticks: Vec::new() }
    }

    fn linear(from: f64, most: f64) -> Self {
        let span = if PLACED.contains(&(most - from)) { most - from } else { 1.0 };
        let rough = span / (MOST_TICKS - 2) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= rough).unwrap_or(rough);
        let (first, last) = ((from / step).floor(), ((from + span) / step).ceil());
        let ticks = (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect();
        Self { scale: Scale::Linear, range: first * step..last * step, ticks }
    }

    /// To a 1, 2 or 5 at both ends; ticks at all of those, or at powers of ten where there are many.
    fn logarithmic(least: f64, most: f64) -> Self {
        let steps = |value: f64| {
            let power = 10f64.powf(value.log10().floor());
            [1.0, 2.0, 5.0, 10.0].map(|step| step * power)
        };
        // A value that is a step but for roundings is at the end.
        let from = steps(least).into_iter().rev().find(|s| *s <= least * 1.000_001).unwrap_or(least);
        let to = steps(most).into_iter().find(|s| *s >= most * 0.999_999).unwrap_or(most);
        let to = if to > from { to } else { from * 10.0 };
        let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        let ticks = |every: usize, steps: &[f64]| -> Vec<f64> {
            let decades = (first..=last).step_by(every);
            let all = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
            all.filter(|t| (from * 0.999..=to * 1.001).contains(t)).collect()
        };
        let fine = ticks(1, &[1.0, 2.0, 5.0]);
        let few = fine.len() <= MOST_TICKS;
        let ticks = if few { fine } else { ticks(((last - first) as usize).div_ceil(MOST_TICKS), &[1.0]) };
        Self { scale: Scale::Log, range: from..to, ticks }
    }

    fn doublings(scale: Scale, least: f64, most: f64) -> Self {
        let (first, last) = (least.log2().floor() as i32, most.log2().ceil() as i32);
        let last = last.max(first + 1);
        let step = ((last - first) as usize).div_ceil(MOST_TICKS).max(1);
        let ticks = (first..=last).step_by(step).map(|power| 2f64.powi(power)).collect();
        Self { scale, range: 2f64.powi(first)..2f64.powi(last), ticks }
    }

    pub(super) fn has_ticks(&self) -> bool {
        !self.ticks.is_empty()
    }

    /// The ends.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.range.start, self.range.end)
    }

    /// The position from 0 to 1 along the axis; values that cannot be placed on it are at its start.
    fn share(&self, value: f64) -> f64 {
        let (from, to) = self.ends();
        let share = match self.scale {
            Scale::Linear => (value - from) / (to - from),
            _ => (value / from).ln() / (to / from).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        match self.scale {
            Scale::Bytes => bytes(*value),
            // Sizes are better known by all of their digits.
            Scale::Doublings if (1.0..1e6).contains(value) => format!("{value:.0}"),
            _ => plain(*value),
        }
    }
}

/// A size in binary units: `64 MiB`.
pub(crate) fn bytes(value: f64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let found = units.into_iter().map(|(power, unit)| (2f64.powi(power), unit)).find(|(size, _)| value >= *size);
    found.map_or_else(|| format!("{} B", short(value)), |(size, unit)| format!("{} {unit}", short(value / size)))
}

/// A number with no more digits than it needs: `0.05`, `2.5`, `131 k`.
fn plain(value: f64) -> String {
    if value.abs() >= 1e4 { text::count(value) } else { short(value) }
}

/// Up to four decimals, without trailing zeros.
fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 { 0 } else { 4 - value.abs().max(1.0).log10() as usize };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, values: &[f64]) -> Vec<String> {
        let axis = Axis::around(scale, values.iter().copied());
        axis.ticks.iter().map(|tick| axis.format_ext(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(Scale::Linear, &[3.0, 97.0]), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(Scale::Linear, &[0.7]), ["0", "0.2", "0.4", "0.6", "0.8"]);
        assert_eq!(ticks(Scale::Log, &[0.66, 18.0]), ["0.5", "1", "2", "5", "10", "20"]);
        assert_eq!(ticks(Scale::Log, &[0.1, 2000.0]), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(
            ticks(Scale::Bytes, &[f64::from(1 << 20), f64::from(1 << 23)]),
            ["1 MiB", "2 MiB", "4 MiB", "8 MiB"]
        );
        assert_eq!(ticks(Scale::Doublings, &[8192.0, 16384.0]), ["8192", "16384"]);
    }

    #[test]
    fn whatever_the_values_are_a_place_is_a_number() {
        for scale in [Scale::Linear, Scale::Log, Scale::Bytes, Scale::Doublings] {
            let (least, most) = (f64::from_bits(1), f64::MAX);
            for values in [
                &[][..],
                &[0.0],
                &[f64::NAN, -1.0],
                &[5.0],
                &[f64::INFINITY, 3.0],
                &[1e-300, 1e300],
                &[0.0, 1e300],
                &[least],
                &[least, 1.0, most],
                &[-most, most],
            ] {
                let axis = Axis::around(scale, values.iter().copied());
                assert!(
                    axis.ticks.len() <= 2 * MOST_TICKS && axis.ends().0 < axis.ends().1,
                    "{scale:?} {values:?}: {axis:?}"
                );
                for value in values.iter().copied().chain([0.0, -1.0, f64::NAN, f64::INFINITY]) {
                    assert!((10..=90).contains(&axis.map(&value, (10, 90))), "{scale:?} {value}");
                }
            }
        }
    }
}
