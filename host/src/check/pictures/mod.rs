//! Pictures of measurements: vector graphics, each with the table from which it was drawn.

mod axis;
mod bars;
mod canvas;
mod curves;
mod ladder;
mod lesson;
#[cfg(test)]
pub(crate) mod markup;
mod points;
mod theme;

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

pub(crate) use axis::{Scale, bytes};
pub(crate) use bars::{Bar, Bars, Group};
pub(crate) use curves::{Curve, Curves};
pub(crate) use lesson::{LessonTaken, of_lesson};
pub(crate) use points::{Place, Roof, Roofline};
pub(crate) use theme::{PALE, SERIES, SLOWER, style};

/// A picture, with its data.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// The title.
    pub(crate) title: String,
    /// A description, also for readers who cannot see the picture.
    pub(crate) says: String,
    /// Width and height in pixels.
    size: (i32, i32),
    /// The contents of the `svg` element.
    inside: String,
    /// The data that was drawn.
    pub(crate) table: Table,
}

/// Cells under headings; one that starts with `>` is over numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The headings.
    pub(crate) headings: Vec<String>,
    /// As many cells a row.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows.
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self { headings: headings.map(str::to_owned).into(), rows: Vec::new() }
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| {
            cells.fold("|".to_owned(), |mut line, cell| {
                let _ = write!(line, " {} |", cell.replace('|', "\\|"));
                line
            })
        };
        let mut text = line(&mut self.headings.iter().map(|h| h.trim_start_matches('>').to_owned()));
        text += "\n|";
        self.headings.iter().for_each(|h| text += if h.starts_with('>') { "---:|" } else { "---|" });
        for row in &self.rows {
            text += "\n";
            text += &line(&mut row.iter().cloned());
        }
        text + "\n"
    }
}

impl Picture {
    /// With others below it, two in a line. It keeps its title, what it says and its table.
    fn over(mut self, others: &[Self]) -> Self {
        let mut top = self.size.1;
        for pair in others.chunks(2) {
            let mut left = 0;
            for picture in pair {
                // Writing to a string cannot fail.
                let _ = write!(self.inside, r#"<g transform="translate({left},{top})">{}</g>"#, picture.inside);
                left += picture.size.0;
            }
            self.size.0 = self.size.0.max(left);
            top += pair.iter().map(|picture| picture.size.1).max().unwrap_or(0);
        }
        self.size.1 = top;
        if !others.is_empty() {
            let ((w, h), behind) = (self.size, theme::SURFACE.light());
            self.inside = format!(r#"<rect width="{w}" height="{h}" fill="{behind}" stroke="none"/>{}"#, self.inside);
        }
        self
    }

    /// The `svg` element, for a page that has the [`style`] of pictures.
    pub(crate) fn element(&self) -> Markup {
        self.svg(None)
    }

    /// A file of its own.
    pub(crate) fn file(&self) -> String {
        self.svg(Some(&style())).into_string() + "\n"
    }

    fn svg(&self, style: Option<&str>) -> Markup {
        let (width, height) = self.size;
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height)
                role="img" aria-label=(format!("{}. {}", self.title, self.says)) {
                title { (self.title) }
                desc { (self.says) }
                @if let Some(style) = style { style { (PreEscaped(style)) } }
                (PreEscaped(&self.inside))
            }
        }
    }
}
