//! The floors of the host's sources: each uses only those below it.

use super::{Tree, Violation};

/// Folders of `host/src`, the lowest first.
const FLOORS: [&str; 4] = ["runtime", "ops", "check", "cli"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.rust() {
        let Some(inside) = path.strip_prefix("host/src/") else { continue };
        let Some(floor) = FLOORS.iter().position(|floor| inside.starts_with(&format!("{floor}/"))) else { continue };
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for above in &FLOORS[floor + 1..] {
                if uses(line, above) {
                    let what = format!("`{}` uses `{above}`, which lies above it", FLOORS[floor]);
                    violations.push(Violation::line(path, number, what));
                }
            }
        }
    }
    violations
}

/// Whether a line names the module `floor` of this crate: by its path, or in a list.
fn uses(line: &str, floor: &str) -> bool {
    let named = |rest: &str| {
        rest.strip_prefix(floor).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    line.split("crate::").skip(1).any(|rest| match rest.strip_prefix('{') {
        Some(list) => list.split([',', '}']).any(|item| named(item.trim())),
        None => named(rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_floor_may_use_those_below_it() {
        assert_eq!(found("host/src/cli/run.rs", "use crate::check::io;\nuse crate::runtime::error::Result;\n"), 0);
        assert_eq!(found("host/src/ops/norm/mod.rs", "use crate::runtime::checked;\n// crate::check\n"), 0);
        assert_eq!(found("host/src/lib.rs", "use crate::cli;\n"), 0);
    }

    #[test]
    fn and_none_above() {
        assert_eq!(found("host/src/runtime/sim.rs", "use crate::check::verify::Job;\n"), 1);
        assert_eq!(found("host/src/runtime/sim.rs", "use crate::{error::Error, ops::model};\n"), 1);
        assert_eq!(found("host/src/ops/norm/mod.rs", "fn f() { crate::check::random() }\n"), 1);
        assert_eq!(found("host/src/check/io.rs", "use crate::cli;\n"), 1);
    }
}
