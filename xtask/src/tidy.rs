//! `cargo xtask tidy`: what the compiler cannot check.

mod book;
mod floors;
mod headers;
mod places;
mod table;
mod text;

use std::collections::BTreeMap;
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Result, bail};

use crate::cargo;
pub(crate) use book::resolve;
pub(crate) use places::{DEVICE, HOST, REGISTRY};

/// The workspace's text files, by path from its root.
#[derive(Default)]
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// What git tracks, and what it would if it were added.
    pub(crate) fn read() -> Result<Self> {
        let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let files = cargo::output("listing files", Command::new("git").args(list).current_dir(cargo::root()))?;
        // A listed file may be deleted, or no text.
        let read = |path: &str| Some((path.to_owned(), fs::read_to_string(cargo::root().join(path)).ok()?));
        Ok(Self(files.split('\0').filter(|p| !p.is_empty()).filter_map(read).collect()))
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Rust files.
    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// The modules in a folder: files and folders, without what holds them together.
    fn modules(&self, folder: &str) -> Vec<&str> {
        let inside = self.0.keys().filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'));
        let stem = |path: &'_ str| path.split_once('/').map_or(path.len(), |(folder, _)| folder.len());
        let mut names: Vec<_> = inside.map(|path| path[..stem(path)].trim_end_matches(".rs")).collect();
        names.retain(|name| *name != "mod");
        names.dedup();
        names
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Violation {
    path: String,
    /// From 1; 0 for the file as a whole.
    line: usize,
    what: String,
}

impl Violation {
    fn file(path: &str, what: impl Into<String>) -> Self {
        Self::line(path, 0, what)
    }

    fn line(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

pub(crate) fn run(fix: bool) -> Result<()> {
    eprintln!("==> tidy");
    let tree = Tree::read()?;
    let wanted = cargo::output("listing operators", cargo::warpsmith(&[])?.args(["list", "--markdown"]))?;
    if fix {
        table::fix(&tree, &wanted)?;
    }
    let tree = if fix { Tree::read()? } else { tree };
    let violations = [check(&tree), table::check(&tree, &wanted), book::check_operators(&tree, &wanted)].concat();
    for violation in &violations {
        eprintln!("{violation}");
    }
    if !violations.is_empty() {
        bail!("tidy found {} things", violations.len());
    }
    Ok(())
}

fn check(tree: &Tree) -> Vec<Violation> {
    [places::check(tree), book::check(tree), floors::check(tree), headers::check(tree), text::check(tree)].concat()
}

#[cfg(test)]
pub(crate) fn header_is_whole(device_file: &str) -> bool {
    headers::check(&Tree::of(&[
        ("gpu-kernels/src/ops/mod.rs", "pub mod f;"),
        ("gpu-kernels/src/ops/f/new.rs", device_file),
    ]))
    .is_empty()
}
