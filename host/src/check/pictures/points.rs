//! The roofline, with a second picture beside it for operators that have no place on it, because their operations are not counted.

use plotters::style::text_anchor::HPos;

use super::axis::{Axis, Scale};
use super::canvas::{At, Canvas, Drawn, FONT, draw, shortened};
use super::theme::{Ink, MUTED, PALE, SERIES, TEXT};
use super::{Picture, Table};
use crate::runtime::error::Result;

/// A device's roofs, and operators under them.
#[derive(Clone, Debug)]
pub(crate) struct Roofline {
    /// The title.
    pub(crate) title: String,
    /// The maximum memory bandwidth, in GB/s.
    pub(crate) memory: Roof,
    /// Peaks of arithmetic, in TFLOP/s.
    pub(crate) arithmetic: Vec<Roof>,
    /// The families, in the order of their colours.
    pub(crate) families: Vec<&'static str>,
    /// The operators.
    pub(crate) places: Vec<Place>,
}

/// A limit.
#[derive(Clone, Debug)]
pub(crate) struct Roof {
    /// What it is.
    pub(crate) name: String,
    /// How high.
    pub(crate) rate: f64,
}

/// An operator.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The number of its family.
    pub(crate) family: usize,
    /// Operations per byte; `None` if only bytes are counted.
    pub(crate) intensity: Option<f64>,
    /// TFLOP/s, or GB/s if only bytes are counted.
    pub(crate) rate: f64,
    /// The tooltip.
    pub(crate) tip: String,
}

const SIZE: (i32, i32) = (1000, 480);
/// Between the two.
const MIDDLE: i32 = 400;
const BELOW: i32 = 60;

impl Roofline {
    /// With that explanation and table.
    pub(crate) fn picture(&self, says: impl Into<String>, table: Table) -> Result<Picture> {
        let inside = draw(SIZE, |canvas| {
            let names = self.families.iter().enumerate();
            let names = names.map(|(i, name)| (*name, SERIES[i % SERIES.len()], Some(i)));
            let top = 8 + canvas.legend((8, 8), SIZE.0 - 8, names)? + FONT;
            self.rates(canvas, top + 3 * FONT)?;
            self.roofs(canvas, top + 3 * FONT)
        })?;
        Ok(Picture { title: self.title.clone(), says: says.into(), size: SIZE, inside, table })
    }

    /// The left picture: the bandwidth of operators whose cost counts only bytes, with one column per family.
    fn rates(&self, canvas: &Canvas<'_>, top: i32) -> Drawn {
        let bottom = SIZE.1 - BELOW;
        let places: Vec<_> = self.places.iter().filter(|place| place.intensity.is_none()).collect();
        let rates = places.iter().map(|place| place.rate).chain([self.memory.rate]);
        canvas.text("GB/s, where the cost counts bytes alone", (8, top - 5 * FONT / 2), (TEXT, true), HPos::Left)?;
        canvas.text(&format!("line: {}", self.memory.name), (8, top - FONT), (MUTED, false), HPos::Left)?;
        let y = Axis::around(Scale::Linear, rates);
        let columns = self.families.len() as f64;
        let plot = canvas.plot([(56, top), (MIDDLE - 40, bottom)], Axis::bare(0.0, columns), y)?;
        let [from, to] = [0.0, columns].map(|x| plot.at(x, self.memory.rate));
        canvas.line(vec![from, to], PALE, 2)?;
        canvas.tip([(from.0, from.1 - 3), (to.0, to.1 + 3)], &self.memory.name);
        let mut column = vec![0usize; self.families.len().max(1)];
        for place in places {
            let family = place.family % column.len();
            // Neighbours in a column stand beside one another.
            let aside = [0.5, 0.2, 0.8, 0.35, 0.65][column[family] % 5];
            column[family] += 1;
            self.draw(canvas, plot.at(family as f64 + aside, place.rate), place)?;
        }
        canvas.text("by family", (MIDDLE - 40, bottom + 34), (MUTED, false), HPos::Right)
    }

    /// The right picture: the roofline.
    fn roofs(&self, canvas: &Canvas<'_>, top: i32) -> Drawn {
        let (right, bottom) = (SIZE.0 - 24, SIZE.1 - BELOW);
        canvas.text("TFLOP/s, by operations a byte", (MIDDLE, top - 5 * FONT / 2), (TEXT, true), HPos::Left)?;
        let counted = || self.places.iter().filter_map(|place| Some((place.intensity?, place)));
        let slope = self.memory.rate / 1e3;
        let ridges = || self.arithmetic.iter().map(|roof| roof.rate / slope);
        let x = Axis::around(Scale::Log, counted().map(|(x, _)| x).chain(ridges().flat_map(|r| [r / 2.0, r * 2.0])));
        let (least, most) = x.ends();
        let rates = counted().map(|(_, place)| place.rate).chain(self.arithmetic.iter().map(|roof| roof.rate));
        let y = Axis::around(Scale::Log, rates);
        // The slope of memory starts where it comes into sight, and ends at the highest roof or with the picture.
        let first = (y.ends().0 / slope).max(least);
        let last = if self.arithmetic.is_empty() { y.ends().1 / slope } else { ridges().fold(first, f64::max) };
        let last = last.clamp(first, most.max(first));
        let plot = canvas.plot([(MIDDLE + 56, top), (right, bottom)], x, y)?;
        canvas.line(vec![plot.at(first, first * slope), plot.at(last, last * slope)], PALE, 2)?;
        for (roof, ridge) in self.arithmetic.iter().zip(ridges()) {
            let (from, to) = (plot.at(ridge.max(least), roof.rate), plot.at(most, roof.rate));
            canvas.line(vec![from, to], PALE, 2)?;
            let name = shortened(&roof.name, right - MIDDLE - 60);
            canvas.text(&name, (right, to.1 - FONT / 2 - 2), (MUTED, false), HPos::Right)?;
            canvas.tip([(from.0, from.1 - 4), (right, from.1 + 4)], &roof.name);
        }
        for (intensity, place) in counted() {
            self.draw(canvas, plot.at(intensity, place.rate), place)?;
        }
        canvas.text("operations a byte", (right, bottom + 34), (MUTED, false), HPos::Right)
    }

    fn draw(&self, canvas: &Canvas<'_>, at: At, place: &Place) -> Drawn {
        let ink: Ink = SERIES[place.family % SERIES.len()];
        canvas.mark(at, place.family, ink)?;
        canvas.tip_near(at, &place.tip);
        Ok(())
    }
}
