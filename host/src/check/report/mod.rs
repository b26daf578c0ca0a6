//! Results as a page: pictures, each with its data and its origin, in a single self-contained file.

mod checks;
mod document;
mod figure;
mod page;
mod ratios;
mod roofline;
mod sweeps;
#[cfg(test)]
mod tests;
mod timings;

use std::path::{Path, PathBuf};

pub(crate) use document::Document;

use crate::check::{bench, pictures};
use crate::runtime::error::{Error, Result};
use document::Results;
use figure::Figure;

/// A part of a page: what it is called, what it is about, and its pictures.
#[derive(Debug)]
struct Section {
    title: String,
    about: &'static str,
    figures: Vec<Figure>,
    /// Whether several of its pictures stand beside one another.
    small: bool,
}

impl Document {
    /// A run that has just ended.
    pub(crate) fn of(report: bench::Report) -> Self {
        Self { name: "this run".to_owned(), results: Results::Bench(report) }
    }
}

/// Reads files of results; of folders, every JSON file that contains results.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = documents.len();
            for file in json_files(path)? {
                documents.extend(Document::read(&file)?);
            }
            if documents.len() == before {
                return Err(Error::file(path, "holds no results: no file in it ends with .json and has some"));
            }
        } else {
            documents.push(Document::read(path)?.ok_or_else(|| Document::unknown(path))?);
        }
    }
    Ok(documents)
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let refused = |e: std::io::Error| Error::file(folder, format!("cannot be read: {e}"));
    let files = folder.read_dir().map_err(refused)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = files.collect::<std::io::Result<Vec<_>>>().map_err(refused)?;
    files.retain(|file| file.is_file() && file.extension().is_some_and(|end| end == "json"));
    files.sort();
    Ok(files)
}

/// The page of some results, made by `command`.
pub(crate) fn page(documents: &[Document], command: &str) -> Result<String> {
    Ok(page::page(documents, &sections(documents)?, command))
}

/// The files that show some results in a folder.
#[derive(Debug)]
pub(crate) struct Files {
    /// The pictures' titles.
    pub(crate) titles: Vec<String>,
    /// Names and contents: one file per picture, and one that shows them with their data, in Markdown.
    pub(crate) files: Vec<(String, String)>,
}

/// The pictures of some results, made by `command`, as files.
pub(crate) fn files(documents: &[Document], command: &str) -> Result<Files> {
    let sections = sections(documents)?;
    let figures: Vec<_> = sections.iter().flat_map(|section| &section.figures).collect();
    let mut files = vec![("README.md".to_owned(), page::markdown(documents, &figures, command))];
    files.extend(figures.iter().map(|figure| (page::file(figure), figure.picture.file())));
    Ok(Files { titles: figures.iter().map(|figure| figure.picture.title.clone()).collect(), files })
}

fn sections(documents: &[Document]) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    let mut section = |title: String, about, small, figures: Vec<Figure>| {
        if !figures.is_empty() {
            sections.push(Section { title, about, figures, small });
        }
    };
    for timings in timings::by_device(documents) {
        let device = timings.device;
        let one = |figure: Option<Figure>| figure.into_iter().collect();
        section(
            format!("Roofline: {device}"),
            "What an operator reaches under what the machine can do at most.",
            false,
            one(roofline::roofline(&timings)?),
        );
        section(
            format!("Against other libraries: {device}"),
            "Timed on such a device, by the files that each picture names.",
            false,
            one(ratios::versus(&timings)?),
        );
        section(
            format!("Against the floor: {device}"),
            "The floor of an operator is the time that its least traffic takes at the copy's bandwidth, or its operations at the peak.",
            false,
            one(ratios::floors(&timings)?),
        );
        section(format!("Ladders: {device}"), "One operator in steps.", false, ratios::ladders(&timings)?);
        section(
            format!("Against size: {device}"),
            "Operators that were timed on several sizes.",
            true,
            sweeps::sweeps(&timings)?,
        );
    }
    let (mut verified, mut lessons) = (Vec::new(), Vec::new());
    for (number, document) in documents.iter().enumerate() {
        match &document.results {
            Results::Verify(found) => verified.push(checks::checks(number, found)?),
            Results::Lesson(taken) => lessons.push(Figure::new(pictures::of_lesson(taken)?, [number])),
            Results::Bench(_) | Results::Peers(_) => {}
        }
    }
    section("Checks".to_owned(), "Every element that was compared with an f64 reference.", false, verified);
    section("Lessons".to_owned(), "What was predicted, and what was found.", false, lessons);
    Ok(sections)
}
