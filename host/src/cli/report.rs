//! `warpsmith report`.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Outcome, Ui};
use crate::check::{io, report};
use crate::runtime::error::{Error, Result, printable};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The page to write
    #[arg(value_name = "OUT.html")]
    out: PathBuf,
    /// What `bench --out`, `verify --json` or `lesson --json` wrote, and others' timings; folders of such files. Of timings of one case the last counts
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Write the pictures into this folder as well, a file each, with their data in Markdown
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    super::writable(&args.out)?;
    if args.out.is_file() && report::Document::read(&args.out).is_ok_and(|results| results.is_some()) {
        return Err(Error::file(&args.out, "cannot be written: it holds results, and the page's name comes first"));
    }
    let documents = report::read(&args.results)?;
    let command = super::command_line();
    let page = report::page(&documents, &command)?;
    let files = report::files(&documents, &command)?;
    if let Some(folder) = &args.svg {
        write(folder, &files)?;
    }
    io::write_text(&args.out, &page)?;
    let titles = &files.titles;
    let sources: Vec<_> = documents.iter().map(|document| document.name.as_str()).collect();
    ui.document(&json!({ "out": args.out.to_string_lossy(), "pictures": titles, "sources": sources }));
    let out = args.out.to_string_lossy();
    ui.line(format!("{}: pictures: {}, files of results: {}", printable(&out), titles.len(), sources.len()));
    Ok(Outcome::Ok)
}

/// Writes files into a folder, which is made if it is not there.
pub(super) fn write(folder: &Path, files: &report::Files) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, format!("cannot be made: {e}")))?;
    files.files.iter().try_for_each(|(name, text)| io::write_text(&folder.join(name), text))
}
