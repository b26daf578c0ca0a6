//! README.md's table of operators is the registry's.

use std::fs;

use anyhow::{Context, Result};

use super::{Tree, Violation};
use crate::cargo;

const README: &str = "README.md";
const BEGIN: &str = "<!-- operators: cargo xtask tidy --fix -->";
const END: &str = "<!-- end of operators -->";

pub(super) fn check(tree: &Tree, wanted: &str) -> Vec<Violation> {
    match split(tree) {
        None => vec![Violation::file(README, format!("has no table between `{BEGIN}` and `{END}`"))],
        Some((_, found, _)) if found.trim() != wanted.trim() => {
            vec![Violation::file(README, "its table of operators is not the registry's: run `cargo xtask tidy --fix`")]
        }
        Some(_) => Vec::new(),
    }
}

pub(super) fn fix(tree: &Tree, wanted: &str) -> Result<()> {
    let (before, _, after) = split(tree).with_context(|| format!("{README} has no `{BEGIN}` and `{END}`"))?;
    let text = format!("{before}{BEGIN}\n{}\n{END}{after}", wanted.trim());
    fs::write(cargo::root().join(README), text).with_context(|| format!("{README} cannot be written"))
}

/// What stands before the table, the table, and what stands after it.
fn split(tree: &Tree) -> Option<(&str, &str, &str)> {
    let (before, rest) = tree.get(README)?.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    Some((before, table, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_table_and_a_missing_one_are_found() {
        let found = |text: &str| check(&Tree::of(&[(README, text)]), "| `gelu` |\n").len();
        assert_eq!(found(&format!("# W\n{BEGIN}\n| `gelu` |\n{END}\n")), 0);
        assert_eq!(found(&format!("# W\n{BEGIN}\n| `relu` |\n{END}\n")), 1);
        assert_eq!(found("# W\n"), 1);
        assert_eq!(check(&Tree::default(), "").len(), 1);
    }
}
