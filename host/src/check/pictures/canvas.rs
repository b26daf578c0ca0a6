//! The canvas of pictures: plotters' areas and coordinates, with tooltips for marks.

use std::cell::RefCell;
use std::io;

use maud::html;
use plotters::coord::{CoordTranslate, Shift};
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::theme::{GRID, Ink, MUTED, SURFACE, TEXT};
use crate::runtime::error::{Error, Result};

/// What drawing returns.
pub(super) type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// Pixels from the upper left corner: to the right, and down.
pub(super) type At = (i32, i32);

/// A rectangle: its upper left corner and its lower right one.
pub(super) type Frame = [At; 2];

/// The size of ordinary text.
pub(super) const FONT: i32 = 12;

/// The average width of a character relative to the font size, on the high side, whatever font the reader has.
const WIDE: f64 = 0.65;

/// plotters writes a font's size divided by this.
const FONT_UNIT: f64 = 1.24;

/// The approximate width of a text: fonts are the reader's.
pub(super) fn width(text: &str) -> i32 {
    (text.chars().count() as f64 * f64::from(FONT) * WIDE).ceil() as i32 + 4
}

/// A text shortened to about this many pixels.
pub(super) fn shortened(text: &str, pixels: i32) -> String {
    let fits = (f64::from(pixels) / (f64::from(FONT) * WIDE)) as usize;
    if text.chars().count() <= fits {
        return text.to_owned();
    }
    text.chars().take(fits.saturating_sub(1)).chain(['…']).collect()
}

/// A sheet of pixels.
pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    tips: RefCell<String>,
}

/// Draws on a sheet of that size; returns what an `svg` element holds.
pub(super) fn draw(size: (i32, i32), body: impl FnOnce(&Canvas<'_>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    let (drawn, tips) = {
        let backend = SVGBackend::with_string(&mut text, (size.0 as u32, size.1 as u32));
        let canvas = Canvas { area: backend.into_drawing_area(), tips: RefCell::default() };
        let drawn = canvas.rect([(0, 0), size], SURFACE).and_then(|()| body(&canvas));
        (drawn.and_then(|()| canvas.area.present()), canvas.tips.take())
    };
    // Strings take everything: what could fail is what plotters checks.
    drawn.map_err(|error| Error::param("pictures", "drawing", error, "one that can be drawn"))?;
    let inside = text.split_once('>').and_then(|(_, rest)| rest.rsplit_once("</svg>")).map_or("", |(inside, _)| inside);
    Ok(format!("{}{tips}", inside.trim_start()))
}

impl Canvas<'_> {
    /// A text: to the right of a point, to its left or around it, and in its middle or standing on it.
    pub(super) fn text(&self, text: &str, at: At, (ink, bold): (Ink, bool), side: HPos) -> Drawn {
        let weight = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::SansSerif, f64::from(FONT) * FONT_UNIT, weight);
        let colour = ink.colour();
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(side, VPos::Center));
        self.area.draw(&Text::new(text.to_owned(), at, style))
    }

    /// A filled rectangle.
    pub(super) fn rect(&self, frame: Frame, ink: Ink) -> Drawn {
        self.area.draw(&Rectangle::new(frame, ink.colour().filled()))
    }

    /// A line through some points.
    pub(super) fn line(&self, points: Vec<At>, ink: Ink, width: u32) -> Drawn {
        self.area.draw(&PathElement::new(points, ink.colour().stroke_width(width)))
    }

    /// A mark around a point, of one of several shapes, with a gap around it that tells it from others.
    pub(super) fn mark(&self, (x, y): At, shape: usize, ink: Ink) -> Drawn {
        for (r, ink) in [(7, SURFACE), (5, ink)] {
            let style = ink.colour().filled();
            let corners = match shape % 4 {
                0 => {
                    self.area.draw(&Circle::new((x, y), r, style))?;
                    continue;
                }
                1 => [(-r, -r), (r, -r), (r, r), (-r, r)].map(|(dx, dy)| (dx * 9 / 10, dy * 9 / 10)),
                2 => [(0, -r - 1), (r + 1, r), (-r - 1, r), (0, -r - 1)],
                _ => [(0, -r - 2), (r + 2, 0), (0, r + 2), (-r - 2, 0)],
            };
            self.area.draw(&Polygon::new(corners.map(|(dx, dy)| (x + dx, y + dy)), style))?;
        }
        Ok(())
    }

    /// A tooltip.
    pub(super) fn tip(&self, [from, to]: Frame, text: &str) {
        let ([x, y], [w, h]) = ([from.0.min(to.0), from.1.min(to.1)], [(to.0 - from.0).abs(), (to.1 - from.1).abs()]);
        let tip = html! {
            rect x=(x) y=(y) width=(w) height=(h) fill="none" pointer-events="all" { title { (text) } }
        };
        let mut tips = self.tips.borrow_mut();
        tips.push_str(&tip.0);
        tips.push('\n');
    }

    /// A tooltip that appears near a mark.
    pub(super) fn tip_near(&self, (x, y): At, text: &str) {
        self.tip([(x - 9, y - 9), (x + 9, y + 9)], text);
    }

    /// Axes that meet in the lower left corner of a frame, with lines across at the ticks of those that have them.
    pub(super) fn plot(&self, frame: Frame, x: Axis, y: Axis) -> Drawn<Plot> {
        let [(left, top), (right, bottom)] = frame;
        let (lines_x, lines_y) = (x.has_ticks(), y.has_ticks());
        let below = if lines_x { 20 } else { 0 };
        let beside = if lines_y { left } else { 0 };
        let area = self.area.clone().shrink((left - beside, top), (right - left + beside, bottom - top + below));
        let mut chart =
            ChartBuilder::on(&area).x_label_area_size(below).y_label_area_size(beside).build_cartesian_2d(x, y)?;
        let muted = MUTED.colour();
        let label = TextStyle::from(("sans-serif", f64::from(FONT) * FONT_UNIT)).color(&muted);
        let mut mesh = chart.configure_mesh();
        if !lines_x {
            mesh.disable_x_mesh().disable_x_axis();
        }
        if !lines_y {
            mesh.disable_y_mesh().disable_y_axis();
        }
        mesh.label_style(label)
            .bold_line_style(GRID.colour())
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.colour())
            .set_all_tick_mark_size(4)
            .draw()?;
        Ok(Plot(chart.plotting_area().as_coord_spec().clone()))
    }

    /// A row of names with their colours and shapes, in as many lines as it takes; returns its height.
    pub(super) fn legend<'n>(
        &self,
        (left, top): At,
        right: i32,
        names: impl IntoIterator<Item = (&'n str, Ink, Option<usize>)>,
    ) -> Drawn<i32> {
        let (mut x, mut y) = (left, top);
        for (name, ink, shape) in names {
            let wide = 26 + width(name);
            if x > left && x + wide > right {
                (x, y) = (left, y + 20);
            }
            match shape {
                Some(shape) => self.mark((x + 6, y + 9), shape, ink)?,
                None => self.rect([(x, y + 4), (x + 12, y + 14)], ink)?,
            }
            self.text(name, (x + 18, y + 9), (TEXT, false), HPos::Left)?;
            x += wide + 8;
        }
        Ok(y + 22 - top)
    }
}

/// Where values lie in a frame.
pub(super) struct Plot(Cartesian2d<Axis, Axis>);

impl Plot {
    /// The point of two values; what lies outside is at the edge.
    pub(super) fn at(&self, x: f64, y: f64) -> At {
        self.0.translate(&(x, y))
    }
}
