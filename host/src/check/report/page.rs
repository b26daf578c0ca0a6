//! The page itself.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Section;
use super::document::{Document, Results};
use super::figure::Figure;
use crate::check::pictures::{self, Table};
use crate::runtime::error::printable;

/// The page's own style: one column, tables and pictures that scroll where a screen is narrow, both colour schemes.
const STYLE: &str = include_str!("page.css");

/// All of it as text.
pub(super) fn page(documents: &[Document], sections: &[Section], command: &str) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Warpsmith: results" }
                style { (PreEscaped(STYLE)) (PreEscaped(pictures::style())) }
            }
            body {
                header {
                    h1 { "Warpsmith: results" }
                    p { "Of " (sources_line(documents)) ", as " code { (command) } " shows them. Pictures tell more where a pointer rests; under each are its data, and the commands and machines that it came from." }
                    nav aria-label="Sections" {
                        ul {
                            @for section in sections { li { a href={ "#" (anchor(&section.title)) } { (section.title) } } }
                            li { a href="#sources" { "Sources" } }
                        }
                    }
                }
                main {
                    @for section in sections {
                        section id=(anchor(&section.title)) {
                            h2 { (section.title) }
                            p { (section.about) }
                            div class=(if section.small { "small" } else { "wide" }) {
                                @for figure in &section.figures { (shown(figure, documents)) }
                            }
                        }
                    }
                    section id="sources" {
                        h2 { "Sources" }
                        (sources(documents))
                    }
                }
            }
        }
    };
    // What came from files may hold characters that no page may, or that turn text around.
    let text = markup.into_string();
    let lines: Vec<_> = text.lines().map(printable).collect();
    lines.join("\n") + "\n"
}

fn sources_line(documents: &[Document]) -> String {
    match documents {
        [only] => only.name.clone(),
        all => format!("{} files", all.len()),
    }
}

/// A title as an address inside the page, or as a file's name.
pub(super) fn anchor(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// The name of a picture's file.
pub(super) fn file(figure: &Figure) -> String {
    format!("{}.svg", anchor(&figure.picture.title))
}

/// The pictures and their data as Markdown, for the folder that the pictures are in.
pub(super) fn markdown(documents: &[Document], figures: &[&Figure], command: &str) -> String {
    let mut text = format!("# Results\n\nAs `{}` shows them. They come from\n\n", printable(command));
    for document in documents {
        let (machine, command) = origin(document);
        let command = command.map_or(String::new(), |command| format!(": `{command}`"));
        text += &format!("- {}, {}{}\n", printable(&document.name), printable(&machine), printable(&command));
    }
    for figure in figures {
        let picture = &figure.picture;
        let [title, says] = [&picture.title, &picture.says].map(|text| printable(text));
        text += &format!("\n## {title}\n\n{says}\n\n![{title}]({})\n\n{}", file(figure), picture.table.markdown());
    }
    text
}

fn shown(figure: &Figure, documents: &[Document]) -> Markup {
    let picture = &figure.picture;
    html! {
        figure {
            figcaption {
                h3 { (picture.title) }
                p { (picture.says) }
            }
            div class="picture" tabindex="0" { (picture.element()) }
            details {
                summary { "Data: " (picture.table.rows.len()) " rows" }
                div class="table" tabindex="0" { (table(&picture.table)) }
            }
            details {
                summary { "Where it comes from" }
                ul { @for number in &figure.sources { li { (source(&documents[*number])) } } }
            }
        }
    }
}

fn table(table: &Table) -> Markup {
    let numbers: Vec<_> = table.headings.iter().map(|heading| heading.starts_with('>')).collect();
    let class = |column: usize| numbers.get(column).is_some_and(|number| *number).then_some("number");
    html! {
        table {
            thead {
                tr {
                    @for (i, heading) in table.headings.iter().enumerate() {
                        th scope="col" class=[class(i)] { (heading.trim_start_matches('>')) }
                    }
                }
            }
            tbody {
                @for row in &table.rows {
                    tr { @for (i, cell) in row.iter().enumerate() { td class=[class(i)] { (cell) } } }
                }
            }
        }
    }
}

/// A file's machine and its command.
fn origin(document: &Document) -> (String, Option<&str>) {
    match &document.results {
        Results::Bench(report) => {
            let commit = report.commit.as_ref().map_or(String::new(), |commit| format!(", commit {commit}"));
            let machine = format!("{}, CUDA {} ({}){commit}", report.device, report.driver, report.backend);
            (machine, Some(report.command.as_str()))
        }
        Results::Peers(peers) => {
            let torch = peers.torch.as_ref().map_or(String::new(), |version| format!(", PyTorch {version}"));
            (format!("{}{torch}: other libraries", peers.device), peers.command.as_deref())
        }
        Results::Verify(verified) => {
            let device = verified.device.as_deref().unwrap_or("no device");
            (
                format!("{device} ({})", verified.backend.as_deref().unwrap_or("nothing executed")),
                Some("warpsmith verify --json"),
            )
        }
        Results::Lesson(lesson) => {
            let gpu = lesson.gpu.as_ref().map_or("no GPU timed it".to_owned(), |gpu| format!("timed on {gpu}"));
            (format!("{} simulated, {gpu}", lesson.simulated), None)
        }
    }
}

/// A file: its name, its machine, its command.
fn source(document: &Document) -> Markup {
    let (machine, command) = origin(document);
    html! {
        b { (document.name) } ": " (machine)
        @if let Some(command) = command { br; code { (command) } }
    }
}

fn sources(documents: &[Document]) -> Markup {
    html! {
        ul {
            @for document in documents {
                li {
                    (source(document))
                    @if let Results::Bench(report) = &document.results {
                        @for error in &report.errors { br; "Not timed: " (error) }
                    }
                }
            }
        }
    }
}
