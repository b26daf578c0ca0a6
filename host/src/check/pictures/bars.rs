//! Bars, one below the other.

use plotters::style::text_anchor::HPos;

use super::axis::{Axis, Scale};
use super::canvas::{At, Canvas, Drawn, FONT, draw, shortened, width};
use super::theme::{Ink, MUTED, TEXT};
use super::{Picture, Table};
use crate::runtime::error::Result;

/// Bars from a common start.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// The title.
    pub(crate) title: String,
    /// The unit of the numbers.
    pub(crate) unit: String,
    /// How long bars are: linear from zero, or by orders of magnitude from [`start`](Self::start).
    pub(crate) scale: Scale,
    /// Where logarithmic bars start; shorter than that they go to the left.
    pub(crate) start: f64,
    /// The meanings of the colours, if there are several.
    pub(crate) legend: Vec<(String, Ink)>,
    /// The bars, from above.
    pub(crate) groups: Vec<Group>,
    /// A value to compare with, and what it is.
    pub(crate) rule: Option<(f64, String)>,
}

/// Bars that share a name.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The name.
    pub(crate) label: String,
    /// One or a few, from above.
    pub(crate) bars: Vec<Bar>,
    /// Values beside the first bar's, as small strokes.
    pub(crate) strokes: Vec<f64>,
}

/// A bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// The length.
    pub(crate) value: f64,
    /// Its number in a few characters.
    pub(crate) shown: String,
    /// The tooltip.
    pub(crate) tip: String,
    /// Its colour.
    pub(crate) ink: Ink,
}

/// The longest names, the longest bars, how thick bars are and how far apart.
const NAMES: i32 = 330;
const LENGTH: i32 = 440;
const THICK: i32 = 13;
const BETWEEN: i32 = 8;
const MARGIN: i32 = 8;

impl Bars {
    fn height(&self) -> i32 {
        self.groups.iter().map(|group| group.bars.len() as i32 * (THICK + 1) + BETWEEN).sum()
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let of =
            |group: &'_ Group| group.bars.iter().map(|bar| bar.value).chain(group.strokes.clone()).collect::<Vec<_>>();
        let start = if self.scale == Scale::Linear { 0.0 } else { self.start };
        self.groups.iter().flat_map(of).chain(self.rule.iter().map(|(value, _)| *value)).chain([start])
    }

    /// With that explanation and table.
    pub(crate) fn picture(&self, says: impl Into<String>, table: Table) -> Result<Picture> {
        stack(self.title.clone(), std::slice::from_ref(self), says, table)
    }

    /// The width of the names before the bars.
    fn names(&self) -> i32 {
        self.groups.iter().map(|group| width(&group.label)).max().unwrap_or(0).min(NAMES)
    }

    /// The room for numbers behind the bars.
    fn numbers(&self) -> i32 {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        bars.map(|bar| width(&bar.shown)).max().unwrap_or(0) + 3 * MARGIN
    }

    /// Draws them from a height on, under their unit; returns where they end.
    fn draw(&self, canvas: &Canvas<'_>, top: i32, (labels, wide): (i32, i32), named: bool) -> Drawn<i32> {
        let (left, right) = (labels + 2 * MARGIN, labels + 2 * MARGIN + LENGTH);
        let words =
            [self.title.as_str(), &self.unit].into_iter().skip(usize::from(!named)).filter(|word| !word.is_empty());
        let heading = words.collect::<Vec<_>>().join(", ");
        canvas.text(&shortened(&heading, wide - 2 * MARGIN), (MARGIN, top + FONT), (TEXT, true), HPos::Left)?;
        let mut top = top + 2 * FONT;
        if self.legend.len() > 1 {
            let names = self.legend.iter().map(|(name, ink)| (name.as_str(), *ink, None));
            top += canvas.legend((MARGIN, top), wide - MARGIN, names)?;
        }
        if self.rule.is_some() {
            top += FONT + 4;
        }
        let bottom = top + self.height() + BETWEEN;
        let plot = canvas.plot(
            [(left, top), (right, bottom)],
            Axis::around(self.scale, self.values()),
            Axis::bare(0.0, 1.0),
        )?;
        let x = |value: f64| plot.at(value, 0.0).0;
        let start = x(if self.scale == Scale::Linear { 0.0 } else { self.start });
        if let Some((value, name)) = &self.rule {
            let at = x(*value);
            canvas.line(vec![(at, top), (at, bottom)], MUTED, 1)?;
            let side = if at > (left + right) / 2 { HPos::Right } else { HPos::Left };
            canvas.text(name, (at, top - FONT / 2 - 2), (MUTED, false), side)?;
        }
        let mut y = top + BETWEEN;
        for group in &self.groups {
            let tall = group.bars.len() as i32 * (THICK + 1);
            let label = shortened(&group.label, labels);
            canvas.text(&label, (left - MARGIN, y + tall / 2), (TEXT, false), HPos::Right)?;
            let strokes: Vec<_> = group.strokes.iter().map(|stroke| x(*stroke)).collect();
            for (i, bar) in (0..).zip(&group.bars) {
                let from = y + i * (THICK + 1);
                let behind = strokes.iter().copied().max().filter(|_| i == 0).unwrap_or(left);
                bar.draw(canvas, start, (x(bar.value), from), behind)?;
                canvas.tip([(left, from), (right, from + THICK)], &format!("{}: {}", group.label, bar.tip));
            }
            for stroke in strokes {
                canvas.line(vec![(stroke, y - 2), (stroke, y + THICK + 2)], TEXT, 1)?;
            }
            y += tall + BETWEEN;
        }
        Ok(bottom + 30)
    }
}

impl Bar {
    /// Between two places, with its number behind it and behind what else is there.
    fn draw(&self, canvas: &Canvas<'_>, start: i32, (end, top): At, other: i32) -> Drawn {
        // However little it is, it is to be seen.
        let end = if end == start { start + 1 } else { end };
        canvas.rect([(start.min(end), top), (start.max(end), top + THICK)], self.ink)?;
        let behind = end.max(start).max(other) + 6;
        canvas.text(&self.shown, (behind, top + THICK / 2 + 1), (TEXT, false), HPos::Left)
    }
}

/// Several of them, one below the other.
pub(crate) fn stack(title: String, all: &[Bars], says: impl Into<String>, table: Table) -> Result<Picture> {
    let head = |bars: &Bars| 2 * FONT + 30 + BETWEEN + if bars.rule.is_some() { FONT + 4 } else { 0 };
    // Legends take as many lines as they take: more room than that is cut off again.
    let most: i32 = all.iter().map(|bars| bars.height() + head(bars) + 20 * (bars.legend.len() as i32 + 1)).sum();
    let names = all.iter().map(Bars::names).max().unwrap_or(0);
    let wide = names + LENGTH + 2 * MARGIN + all.iter().map(Bars::numbers).max().unwrap_or(0);
    let mut height = 0;
    let inside = draw((wide, most), |canvas| {
        all.iter().try_for_each(|bars| {
            height = bars.draw(canvas, height, (names, wide), all.len() > 1)?;
            Ok(())
        })
    })?;
    Ok(Picture { title, says: says.into(), size: (wide, height), inside, table })
}
