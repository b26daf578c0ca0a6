//! The book's table of operators is the registry's, a family after the other.

use std::fs;

use anyhow::{Context, Result};

use super::{Tree, Violation};
use crate::cargo;

const PAGE: &str = "book/src/operators.md";
const REGISTRY: &str = "host/src/ops/registry.rs";
const BEGIN: &str = "<!-- operators: cargo xtask tidy --fix -->";
const END: &str = "<!-- end of operators -->";

pub(super) fn check(tree: &Tree, table: &str) -> Vec<Violation> {
    match split(tree) {
        None => vec![Violation::file(PAGE, format!("has no tables between `{BEGIN}` and `{END}`"))],
        Some((_, found, _)) if found.trim() != by_family(tree, table).trim() => {
            vec![Violation::file(PAGE, "its tables of operators are not the registry's: run `cargo xtask tidy --fix`")]
        }
        Some(_) => Vec::new(),
    }
}

pub(super) fn fix(tree: &Tree, table: &str) -> Result<()> {
    let (before, _, after) = split(tree).with_context(|| format!("{PAGE} has no `{BEGIN}` and `{END}`"))?;
    let text = format!("{before}{BEGIN}\n{}\n{END}{after}", by_family(tree, table).trim());
    fs::write(cargo::root().join(PAGE), text).with_context(|| format!("{PAGE} cannot be written"))
}

/// A table with a line for each operator as one for each family, under a link to its chapter. Lines are in the registry's order.
fn by_family(tree: &Tree, table: &str) -> String {
    let (head, lines): (Vec<_>, Vec<_>) = table.lines().partition(|line| !line.starts_with("| `"));
    let entries = tree.get(REGISTRY).unwrap_or_default().lines();
    let families = entries.filter_map(|line| Some(line.trim().strip_prefix('&')?.split_once("::")?.0));
    let mut text = String::new();
    let mut last = "";
    for (family, line) in families.zip(lines) {
        if family != last {
            text += &format!("\n## [{family}](families/{family}.md)\n\n{}\n", head.join("\n"));
            last = family;
        }
        text += &format!("{line}\n");
    }
    text
}

/// What stands before the tables, the tables, and what stands after them.
fn split(tree: &Tree) -> Option<(&str, &str, &str)> {
    let (before, rest) = tree.get(PAGE)?.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    Some((before, table, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| operator |\n|---|\n| `gelu` |\n| `relu` |\n| `sum` |\n";

    #[test]
    fn an_old_table_and_a_missing_one_are_found() {
        let registry = "    &activation::gelu::GELU,\n    &activation::relu::RELU,\n    &reduce::sum::SUM,\n";
        let found = |text: &str| check(&Tree::of(&[(PAGE, text), (REGISTRY, registry)]), TABLE).len();
        let tables = "## [activation](families/activation.md)\n\n| operator |\n|---|\n| `gelu` |\n| `relu` |\n\n\
                      ## [reduce](families/reduce.md)\n\n| operator |\n|---|\n| `sum` |\n";
        assert_eq!(found(&format!("# W\n{BEGIN}\n{tables}{END}\n")), 0);
        assert_eq!(found(&format!("# W\n{BEGIN}\n{}{END}\n", tables.replace("relu", "silu"))), 1);
        assert_eq!(found("# W\n"), 1);
        assert_eq!(check(&Tree::default(), "").len(), 1);
    }
}
