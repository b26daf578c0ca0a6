//! `cargo xtask book`: renders the book with mdBook.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context, Result};

use crate::cargo;
use crate::tidy::resolve;

/// The base URL of the repository's files.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD");
/// The folder of the rendered pages.
const PAGES: &str = "target/book";

pub(crate) fn run() -> Result<()> {
    let mdbook = mdbook()?;
    cargo::run("pages", Command::new(mdbook).args(["build", "book"]).current_dir(cargo::root()))?;
    let pages = cargo::root().join(PAGES);
    settle(&pages, &pages)?;
    eprintln!("    {}", pages.join("index.html").display());
    Ok(())
}

/// The mdbook program, which is installed if it is missing.
fn mdbook() -> Result<PathBuf> {
    let tools = cargo::root().join("target/tools");
    let ours = tools.join("bin").join("mdbook");
    for program in [Path::new("mdbook"), &ours] {
        let mut asked = Command::new(program);
        if asked.arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Ok(program.to_owned());
        }
    }
    let install = ["install", "mdbook", "--locked", "--no-default-features", "--root"];
    cargo::run("mdbook", cargo::command(install).arg(tools))?;
    Ok(ours)
}

/// Redirects links that leave the book to the repository, and copies pictures from there.
fn settle(pages: &Path, folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = entry.path();
        if path.is_dir() {
            settle(pages, &path)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            let page = path.strip_prefix(pages)?.to_str().context("a page has a strange name")?;
            let (text, pictures) = settled(page, &text, |file| cargo::root().join(file).exists());
            fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
            for picture in pictures {
                let to = pages.join("files").join(&picture);
                let copied = to.parent().map_or(Ok(()), fs::create_dir_all);
                copied.and_then(|()| fs::copy(cargo::root().join(&picture), &to)).with_context(|| picture)?;
            }
        }
    }
    Ok(())
}

/// A page with its links redirected, and the pictures that it uses from the repository.
fn settled(page: &str, text: &str, exists: impl Fn(&str) -> bool) -> (String, Vec<String>) {
    let up = "../".repeat(page.matches('/').count());
    let leaves = format!("{up}../");
    let (mut settled, mut pictures) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find("=\"../") {
        let (before, link) = rest.split_at(at + 2);
        let (link, after) = link.split_once('"').unwrap_or((link, ""));
        settled += before;
        rest = after;
        if !link.starts_with(&leaves) {
            settled += link;
        } else if before.ends_with("src=\"") {
            let file = resolve(&format!("book/src/{page}"), link);
            settled += &format!("{up}files/{file}");
            pictures.push(file);
        } else {
            // mdBook treats every linked page as one of its own.
            let file = resolve(&format!("book/src/{page}"), link);
            let page = file.strip_suffix(".html").map(|stem| format!("{stem}.md"));
            let file = page.filter(|page| !exists(&file) && exists(page)).unwrap_or(file);
            settled += &format!("{REPOSITORY}/{file}");
        }
        settled.push('"');
    }
    (settled + rest, pictures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let exists = |file: &str| file.ends_with("README.md") || file.ends_with("map.rs");
        let page = r#"<a href="../start.html">a</a><a href="../../../README.html">b</a><a href="../../../gpu-kernels/src/map.rs">c</a>"#;
        let (text, pictures) = settled("families/norm.html", page, exists);
        assert!(text.starts_with(r#"<a href="../start.html">"#) && pictures.is_empty(), "{text}");
        assert!(text.contains(&format!(r#"<a href="{REPOSITORY}/README.md">b</a>"#)), "{text}");
        assert!(text.ends_with(&format!(r#"<a href="{REPOSITORY}/gpu-kernels/src/map.rs">c</a>"#)), "{text}");
    }

    #[test]
    fn pictures_come_along() {
        let (text, pictures) =
            settled("families/gemm.html", r#"<img src="../../../benches/a.svg" alt=""><p>"#, |_| true);
        assert_eq!(text, r#"<img src="../files/benches/a.svg" alt=""><p>"#);
        assert_eq!(pictures, ["benches/a.svg"]);
        let (text, _) = settled("start.html", r#"<img src="../../benches/a.svg">"#, |_| true);
        assert_eq!(text, r#"<img src="files/benches/a.svg">"#);
    }
}
