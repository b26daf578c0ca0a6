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
    /// Write each picture to a file in this folder as well
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    if args.out.is_dir() {
        return Err(Error::file(&args.out, "cannot be written: it is a folder"));
    }
    let documents = report::read(&args.results)?;
    let page = report::page(&documents, &super::command_line())?;
    let pictures = report::files(&documents)?;
    if let Some(folder) = &args.svg {
        make(folder)?;
        for (name, picture) in &pictures {
            io::write_text(&folder.join(format!("{name}.svg")), &picture.file())?;
        }
    }
    io::write_text(&args.out, &page)?;
    let titles: Vec<_> = pictures.iter().map(|(_, picture)| picture.title.as_str()).collect();
    let sources: Vec<_> = documents.iter().map(|document| document.name.as_str()).collect();
    ui.document(&json!({ "out": args.out.to_string_lossy(), "pictures": titles, "sources": sources }));
    let out = args.out.to_string_lossy();
    ui.line(format!("{}: {} pictures of {} files", printable(&out), titles.len(), sources.len()));
    Ok(Outcome::Ok)
}

/// A folder, if it is not there yet.
pub(super) fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, format!("cannot be made: {e}")))
}
