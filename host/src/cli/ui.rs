//! Where a verb's text goes: tables, notes and progress.

use std::io::{self, Read, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use crate::check::lessons::Facts;
use crate::check::verify::Status;
use crate::check::verify::offline::KernelRow;
use crate::runtime::error::{Error, Result};

/// What one command reads and writes.
pub(super) struct Ui {
    pub(super) input: Box<dyn Read>,
    out: Box<dyn Write>,
    /// Nothing once the result goes to standard error too.
    err: Option<Box<dyn Write>>,
    /// Why standard output could not take everything.
    unwritten: Option<io::Error>,
    /// Standard output is a terminal that takes colour.
    pub(super) colour: bool,
    /// Standard error is a terminal.
    pub(super) progress: bool,
    /// One JSON document instead of text.
    pub(super) json: bool,
}

impl Ui {
    pub(super) fn new(input: impl Read + 'static, out: impl Write + 'static, err: impl Write + 'static) -> Self {
        let (input, out) = (Box::new(input), Box::new(out));
        Self { input, out, err: Some(Box::new(err)), unwritten: None, colour: false, progress: false, json: false }
    }

    /// A line of the result, not printed with `--json`.
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        if !self.json {
            self.print(&format!("{}\n", text.as_ref()));
        }
    }

    /// Writes bytes to standard output; everything else goes to standard error from now on.
    pub(super) fn give(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.out.write_all(bytes);
        self.remember(written);
        let given = self.finish();
        if let Some(err) = self.err.take() {
            self.out = err;
        }
        self.colour = false;
        given
    }

    /// Text for standard output as it is.
    pub(super) fn print(&mut self, text: &str) {
        let written = self.out.write_all(text.as_bytes());
        self.remember(written);
    }

    /// A reader that has gone away is no reason to fail, a full disk is.
    fn remember(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.unwritten.get_or_insert(error);
        }
    }

    /// An error if standard output could not take everything.
    pub(super) fn finish(&mut self) -> Result<()> {
        let written = self.out.flush();
        self.remember(written);
        self.unwritten
            .take()
            .map_or(Ok(()), |error| Err(Error::Unwritten { path: "standard output".into(), reason: error.to_string() }))
    }

    /// A line beside the result.
    pub(super) fn note(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.err.as_mut().unwrap_or(&mut self.out), "{}", text.as_ref());
    }

    /// The result, printed with `--json` only.
    pub(super) fn document(&mut self, document: &impl Serialize) {
        if self.json {
            self.write_json(document);
        }
    }

    pub(super) fn error(&mut self, error: &Error) {
        if self.json {
            self.write_json(&json!({ "error": error.to_string() }));
        }
        self.note(format!("error: {error}"));
    }

    fn write_json(&mut self, document: &impl Serialize) {
        if let Ok(text) = serde_json::to_string_pretty(document) {
            self.print(&(text + "\n"));
        }
    }

    /// A table with these headings; a heading that starts with `>` is a column of numbers.
    pub(super) fn table(&mut self, headings: &[&str], rows: Vec<Vec<Cell>>) {
        if self.json {
            return;
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(headings.iter().map(|h| Cell::new(h.trim_start_matches('>')).add_attribute(Attribute::Bold)));
        table.add_rows(rows);
        for (column, heading) in table.column_iter_mut().zip(headings) {
            column.set_padding((0, 2));
            if heading.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self.print(&(table.trim_fmt() + "\n"));
    }

    /// A bar over `steps`, hidden unless standard error is a terminal.
    pub(super) fn progress(&self, steps: usize) -> ProgressBar {
        let target = if self.progress { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        bar
    }
}

/// A line for each kernel whose code is not what it should be.
pub(super) fn broken_kernels(rows: &[KernelRow], ui: &mut Ui) {
    for row in rows.iter().filter(|r| r.status == Status::Fail) {
        let kernel = format!("{} {} {}", row.op, row.symbol, row.arch);
        ui.line(format!("FAIL {}: {}", kernel.trim_end(), row.detail.as_deref().unwrap_or_default()));
    }
}

/// A count, or a dash.
pub(super) fn count(value: Option<u32>) -> Cell {
    Cell::new(value.map_or_else(|| "-".to_owned(), |n| n.to_string()))
}

/// The word for a status, in its colour.
pub(super) fn status(status: Status) -> Cell {
    match status {
        Status::Pass => Cell::new("pass").fg(Color::Green),
        Status::Fail => Cell::new("FAIL").fg(Color::Red),
        Status::Skipped => Cell::new("skipped").fg(Color::Yellow),
    }
}

/// What a lesson or the doctor knows.
pub(super) fn facts(facts: &Facts, ui: &mut Ui) {
    ui.line(format!("{}:", facts.title));
    ui.table(&facts.headings, facts.rows.iter().map(|row| row.iter().map(Cell::new).collect()).collect());
}

/// A count as it is, a ratio to two digits.
pub(super) fn exact(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A number with few digits, or a dash.
pub(super) fn number(value: Option<f64>) -> Cell {
    Cell::new(match value {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(v) if !v.is_finite() => v.to_string(),
        Some(v) if (1e-2..1e5).contains(&v.abs()) => format!("{v:.3}"),
        Some(v) => format!("{v:.1e}"),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_cannot_be_given_is_said_on_standard_error() {
        let mut err = tempfile::tempfile().unwrap();
        let mut ui = Ui::new(io::empty(), Full, err.try_clone().unwrap());
        let error = ui.give(b"tensors").unwrap_err();
        ui.line("what comes after it");
        ui.error(&error);
        let mut said = String::new();
        err.rewind().unwrap();
        err.read_to_string(&mut said).unwrap();
        assert_eq!(
            said,
            "what comes after it\nerror: standard output: cannot be written to the end: no storage space\n"
        );
    }
}
