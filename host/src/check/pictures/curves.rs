//! Curves: a rate against a size.

use plotters::style::text_anchor::HPos;

use super::axis::{Axis, Scale};
use super::canvas::{FONT, draw, shortened};
use super::theme::{Ink, MUTED, PALE, SERIES, TEXT};
use super::{Picture, Table};
use crate::runtime::error::Result;

/// Curves over one axis of sizes.
#[derive(Clone, Debug)]
pub(crate) struct Curves {
    /// The title.
    pub(crate) title: String,
    /// The quantity along x.
    pub(crate) across: String,
    /// The scale of x.
    pub(crate) scale: Scale,
    /// The quantity along y.
    pub(crate) upwards: String,
    /// The curves, the first of the most importance.
    pub(crate) curves: Vec<Curve>,
    /// A rate to compare with, and what it is.
    pub(crate) rule: Option<(f64, String)>,
    /// A size of interest, and what it is.
    pub(crate) edge: Option<(f64, String)>,
}

/// A curve.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Its name.
    pub(crate) name: String,
    /// Whether it belongs to another library.
    pub(crate) other: bool,
    /// Size, rate and tooltip, in the order of sizes.
    pub(crate) points: Vec<(f64, f64, String)>,
}

const SIZE: (i32, i32) = (480, 300);
const LEFT: i32 = 58;

/// As many as there are colours for.
pub(crate) const MOST_CURVES: usize = SERIES.len();

impl Curves {
    /// With that explanation and table.
    pub(crate) fn picture(&self, says: impl Into<String>, table: Table) -> Result<Picture> {
        let shown = &self.curves[..self.curves.len().min(MOST_CURVES)];
        let inks: Vec<Ink> = SERIES.into();
        let points = || shown.iter().flat_map(|curve| &curve.points);
        let (w, h) = SIZE;
        let lines = if shown.len() > 1 { shown.len() as i32 + 1 } else { 1 };
        let mut height = 0;
        let inside = draw((w, h + 20 * lines), |canvas| {
            canvas.text(&shortened(&self.upwards, w), (8, FONT), (TEXT, true), HPos::Left)?;
            let mut top = 2 * FONT;
            if shown.len() > 1 {
                let names =
                    shown.iter().zip(&inks).enumerate().map(|(i, (curve, ink))| (curve.name.as_str(), *ink, Some(i)));
                top += canvas.legend((8, top), w - 8, names)?;
            }
            top += FONT + 4;
            let bottom = top + h - 100;
            let x = Axis::around(self.scale, points().map(|p| p.0));
            let rates = points().map(|p| p.1).chain(self.rule.iter().map(|(rate, _)| *rate));
            let y = Axis::around(Scale::Linear, rates);
            let inside = |size: f64| x.ends().0 < size && size < x.ends().1;
            let edge = self.edge.as_ref().filter(|(size, _)| inside(*size));
            let plot = canvas.plot([(LEFT, top), (w - 24, bottom)], x.clone(), y)?;
            if let Some((rate, name)) = &self.rule {
                let [from, to] = [x.ends().0, x.ends().1].map(|x| plot.at(x, *rate));
                canvas.line(vec![from, to], PALE, 2)?;
                canvas.text(name, (w - 24, to.1 - FONT / 2 - 2), (MUTED, false), HPos::Right)?;
            }
            if let Some((size, name)) = edge {
                let at = plot.at(*size, 0.0).0;
                canvas.line(vec![(at, top), (at, bottom)], PALE, 1)?;
                canvas.text(name, (at + 4, bottom - FONT), (MUTED, false), HPos::Left)?;
            }
            for (i, (curve, ink)) in shown.iter().zip(&inks).enumerate().rev() {
                let places: Vec<_> = curve.points.iter().map(|(x, y, _)| plot.at(*x, *y)).collect();
                canvas.line(places.clone(), *ink, if curve.other { 1 } else { 2 })?;
                for (at, (.., tip)) in places.into_iter().zip(&curve.points) {
                    canvas.mark(at, i, *ink)?;
                    canvas.tip_near(at, &format!("{}: {tip}", curve.name));
                }
            }
            canvas.text(&shortened(&self.across, w - LEFT), (w - 24, bottom + 34), (MUTED, false), HPos::Right)?;
            height = bottom + 34 + FONT;
            Ok(())
        })?;
        Ok(Picture { title: self.title.clone(), says: says.into(), size: (w, height), inside, table })
    }
}
