//! A device file opens with a header of fixed sections.

use super::places::{self, DEVICE, families};
use super::{Tree, Violation};

const SECTIONS: [&str; 8] = ["Math", "Layout", "Mapping", "Shared memory", "Numerics", "Cost", "Limits", "Sources"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let operators = |family: String| {
        let of_family = places::operators(tree, &family).into_iter();
        of_family.map(|operator| format!("{DEVICE}/{family}/{operator}")).collect::<Vec<_>>()
    };
    for operator in families(tree, DEVICE).into_iter().flat_map(operators) {
        let (file, folder) = (format!("{operator}.rs"), format!("{operator}/mod.rs"));
        let path = if tree.get(&file).is_some() { &file } else { &folder };
        let text = tree.get(path).unwrap_or_default();
        let header: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let found: Vec<_> = header.iter().filter_map(|line| line.strip_prefix("# ")).collect();
        if found != SECTIONS {
            let what = format!("its header has to have the sections {}; it has {}", list(&SECTIONS), list(&found));
            violations.push(Violation::file(path, what));
        }
        for pair in header.windows(2).chain(header.last().map(std::slice::from_ref)) {
            let ends = pair.get(1).is_none_or(|next| next.is_empty() || next.starts_with("# "));
            if pair[0].starts_with("# ") && ends {
                violations.push(Violation::file(path, format!("the section `{}` says nothing", &pair[0][2..])));
            }
        }
    }
    violations
}

fn list(sections: &[&str]) -> String {
    if sections.is_empty() { "none".to_owned() } else { sections.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sections: &[&str]) -> String {
        let mut text = "//! An operator.\n//!\n".to_owned();
        for section in sections {
            text += &format!("//! # {section}\n//! Words.\n//!\n");
        }
        text + "\nuse core::array;\n"
    }

    fn found(text: &str) -> Vec<String> {
        let files =
            [("gpu-kernels/src/ops/mod.rs", "pub mod activation;"), ("gpu-kernels/src/ops/activation/gelu.rs", text)];
        check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_whole_header_passes() {
        assert_eq!(found(&header(&SECTIONS)), [""; 0]);
    }

    #[test]
    fn missing_and_empty_sections_are_found() {
        assert!(found(&header(&SECTIONS[1..]))[0].contains("has to have the sections Math, Layout"));
        assert!(found("fn f() {}")[0].ends_with("it has none"));
        let hollow = header(&SECTIONS).replacen("//! Words.\n", "", 1);
        assert_eq!(found(&hollow), ["gpu-kernels/src/ops/activation/gelu.rs: the section `Math` says nothing"]);
    }
}
