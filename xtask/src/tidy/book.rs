//! The book and README: links lead to files and headings that are there, quotations are of what they quote, and every operator is named.

use super::places::{self, DEVICE};
use super::{Tree, Violation};

const CHAPTERS: &str = "book/src/";
const SUMMARY: &str = "book/src/SUMMARY.md";
const README: &str = "README.md";
/// The chapters whose code is tested.
const TESTED: &str = "tests/src/book.rs";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| path.ends_with(".md")) {
        violations.extend(links(tree, path, text));
    }
    for (path, chapter, text) in chapters(tree) {
        if !tree.get(SUMMARY).unwrap_or_default().contains(&format!("]({chapter}.md)")) {
            violations.push(Violation::file(path, format!("{SUMMARY} does not list it")));
        }
        violations.extend(blocks(tree, path, chapter, text));
    }
    violations.extend(blocks(tree, README, README, tree.get(README).unwrap_or_default()));
    for family in places::families(tree, DEVICE) {
        let chapter = format!("{CHAPTERS}families/{family}.md");
        if tree.get(&chapter).is_none() {
            violations.push(Violation::file(&chapter, "the family has no chapter"));
        }
        if !tree.get(README).unwrap_or_default().contains(&format!("]({chapter})")) {
            violations.push(Violation::file(README, format!("does not lead to {chapter}")));
        }
    }
    violations
}

/// Operators of the table that no chapter of a family names.
pub(super) fn check_operators(tree: &Tree, table: &str) -> Vec<Violation> {
    let names = table.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    let told = |name: &str| {
        let name = format!("`{name}`");
        chapters(tree).any(|(_, chapter, text)| chapter.starts_with("families/") && text.contains(&name))
    };
    let missing = names.filter(|name| !told(name));
    missing.map(|name| Violation::file("book/src/families", format!("no chapter names operator `{name}`"))).collect()
}

/// Path, path from [`CHAPTERS`] without its ending, and text.
fn chapters(tree: &Tree) -> impl Iterator<Item = (&str, &str, &str)> {
    let of = |(path, text)| Some((path, str::strip_prefix(path, CHAPTERS)?.strip_suffix(".md")?, text));
    tree.iter().filter_map(of).filter(|(path, ..)| *path != SUMMARY)
}

/// Relative links of a page that lead nowhere.
fn links(tree: &Tree, path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        in_block ^= line.trim_start().starts_with("```");
        let line: String = line.split('`').step_by(2).collect();
        let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in targets.filter(|target| !in_block && !target.contains(':')) {
            let (file, heading) = target.split_once('#').map_or((target, None), |(file, slug)| (file, Some(slug)));
            let file = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
            let folder = format!("{file}/");
            if tree.get(&file).is_none() && !tree.iter().any(|(path, _)| path.starts_with(&folder)) {
                violations.push(Violation::line(path, number, format!("{target} leads nowhere")));
            }
            let page = tree.get(&file).filter(|_| file.ends_with(".md"));
            if let (Some(page), Some(heading)) = (page, heading)
                && !slugs(page).iter().any(|slug| slug == heading)
            {
                violations.push(Violation::line(path, number, format!("{file} has no heading #{heading}")));
            }
        }
    }
    violations
}

/// What links call a page's headings, by GitHub's rule: in lower case, without punctuation, and with hyphens for spaces; one that was
/// there before gets a number.
fn slugs(page: &str) -> Vec<String> {
    let mut slugs: Vec<String> = Vec::new();
    let mut in_block = false;
    for line in page.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let Some(heading) = line[level..].strip_prefix(' ').filter(|_| !in_block && level > 0) else { continue };
        let kept = |c: &char| c.is_alphabetic() || c.is_ascii_digit() || "-_ ".contains(*c);
        let slug: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let slug = slug.replace(' ', "-");
        let numbered = (1..).map(|n| format!("{slug}-{n}"));
        let free = [slug.clone()].into_iter().chain(numbered).find(|slug| !slugs.contains(slug));
        slugs.extend(free);
    }
    slugs
}

/// Where a link of a page leads, from the workspace's folder.
pub(crate) fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Code that is neither tested nor quoted, and quotations that are wrong.
fn blocks(tree: &Tree, path: &str, chapter: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let tested = tree.get(TESTED).unwrap_or_default().contains(&format!("\"{chapter}\""));
    let lines: Vec<_> = text.lines().collect();
    let fences: Vec<_> = (0..lines.len()).filter(|n| lines[*n].starts_with("```")).collect();
    for pair in fences.chunks(2) {
        let (first, last) = (pair[0], pair.get(1).copied().unwrap_or(lines.len()));
        let mut wrong = |what: String| violations.push(Violation::line(path, first + 1, what));
        let above = first.checked_sub(1).map_or("", |above| lines[above]);
        let quoted = above.strip_prefix("<!-- from ").and_then(|rest| rest.strip_suffix(" -->"));
        match (&lines[first][3..], quoted) {
            ("", _) => wrong("a block without a language, which rustdoc takes for Rust".to_owned()),
            ("rust", _) if !tested => wrong(format!("code that {TESTED} does not test")),
            ("rust,ignore", None) => {
                wrong("code that is neither tested nor quoted: <!-- from FILE --> above it".to_owned())
            }
            ("rust,ignore", Some(file)) => {
                let code = lines[first + 1..last].join("\n");
                if !tree.get(file).is_some_and(|text| text.contains(&code)) {
                    wrong(format!("{file} does not say so"));
                }
            }
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 7] = [
        ("gpu-kernels/src/ops/mod.rs", "pub mod norm;"),
        ("gpu-kernels/src/ops/norm/rms_norm.rs", "fn f() {\n    1\n}\n"),
        ("book/src/SUMMARY.md", "- [Norm](families/norm.md)\n- [Start](start.md)\n"),
        ("book/src/families/norm.md", "`rms_norm` ([it](../../../gpu-kernels/src/ops/norm/rms_norm.rs))\n"),
        ("book/src/start.md", "<!-- from gpu-kernels/src/ops/norm/rms_norm.rs -->\n```rust,ignore\n    1\n```\n"),
        ("tests/src/book.rs", ""),
        ("README.md", "[norm](book/src/families/norm.md)\n"),
    ];

    fn plant(path: &str, text: &'static str) -> Vec<String> {
        let planted = |file: (&'static str, &'static str)| if file.0 == path { (file.0, text) } else { file };
        check(&Tree::of(&FILES.map(planted))).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_true_book_passes() {
        assert_eq!(check(&Tree::of(&FILES)), []);
        assert_eq!(check_operators(&Tree::of(&FILES), "| `rms_norm` | normalises | f32 |\n"), []);
    }

    #[test]
    fn links_to_nowhere_and_lost_chapters_are_found() {
        let start = "book/src/start.md";
        assert_eq!(plant(start, "a [b](c.md)\n"), ["book/src/start.md:1: c.md leads nowhere"]);
        assert_eq!(plant(start, "![b](../../benches)\n"), ["book/src/start.md:1: ../../benches leads nowhere"]);
        assert_eq!(plant(start, "[`a`](families) [b](https://c) `f[i](g)`\n```text\n[f](g)\n```\n"), [""; 0]);
        let unlisted = "book/src/start.md: book/src/SUMMARY.md does not list it";
        assert_eq!(plant("book/src/SUMMARY.md", "- [Norm](families/norm.md)\n"), [unlisted]);
        let added = [
            "book/src/families/gemv.md: the family has no chapter",
            "README.md: does not lead to book/src/families/gemv.md",
        ];
        assert_eq!(plant("gpu-kernels/src/ops/mod.rs", "pub mod gemv;\npub mod norm;\n"), added);
    }

    #[test]
    fn links_to_headings_that_are_not_there_are_found() {
        let found = |text| plant("book/src/start.md", text);
        let headings = "# On µs\n## `f`, x² and 2 × 2\n### Twice\n### Twice\n```text\n# No\n```\n#no\n";
        assert_eq!(slugs(headings), ["on-µs", "f-x-and-2--2", "twice", "twice-1"]);
        assert_eq!(
            found("# The rest\n[a](#the-rest) [b](start.md#the-rest) [c](../../tests/src/book.rs#L1)\n"),
            [""; 0]
        );
        assert_eq!(found("# The rest\n[a](#rest)\n"), ["book/src/start.md:2: book/src/start.md has no heading #rest"]);
        let other = "book/src/start.md:1: book/src/families/norm.md has no heading #math";
        assert_eq!(found("[a](families/norm.md#math)\n"), [other]);
        assert_eq!(
            found("[a](families/norms.md#math)\n"),
            ["book/src/start.md:1: families/norms.md#math leads nowhere"]
        );
    }

    #[test]
    fn code_that_nobody_tests_is_found() {
        let found = |text| plant("book/src/start.md", text).concat();
        assert!(found("```rust\n1\n```\n").contains("does not test"));
        assert!(found("```\n1\n```\n").contains("without a language"));
        assert!(found("```rust,ignore\n1\n```\n").contains("neither tested nor quoted"));
        let wrong = "<!-- from gpu-kernels/src/ops/norm/rms_norm.rs -->\n```rust,ignore\n    2\n```\n";
        assert!(found(wrong).contains("does not say so"));
        assert!(
            plant(README, wrong).concat().contains("README.md:2: gpu-kernels/src/ops/norm/rms_norm.rs does not say so")
        );
    }

    #[test]
    fn operators_that_no_chapter_names_are_found() {
        let found = check_operators(&Tree::of(&FILES), "| `layer_norm` | normalises | f32 |\n");
        assert_eq!(found[0].to_string(), "book/src/families: no chapter names operator `layer_norm`");
    }
}
