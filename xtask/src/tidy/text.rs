//! Rules about lines: length of files, words that do not belong, and what may be named where.

use super::{Tree, Violation};

/// A file that outgrows this becomes a folder.
const MAX_LINES: usize = 420;

/// Words that have no business in the tree, written in two halves so that this file may hold them.
const WORDS: [([&str; 2], &str); 10] = [
    (["TO", "DO"], "finish it or write it down elsewhere"),
    (["FIX", "ME"], "finish it or write it down elsewhere"),
    (["dbg", "!("], "left over from debugging"),
    (["todo", "!("], "left over from writing"),
    (["unimplemented", "!("], "left over from writing"),
    (["<<<<", "<<<"], "left over from a merge"),
    (["/ho", "me/"], "a path of somebody's machine"),
    (["/ro", "ot/"], "a path of somebody's machine"),
    (["/Us", "ers/"], "a path of somebody's machine"),
    (["/wo", "rk/"], "a path of somebody's machine"),
];

/// Text that only files under these folders may hold.
const ONLY_IN: [(&str, &[&str], &str); 3] = [
    ("asm!(", &["rust-cuda/", "xtask/"], "inline assembly belongs into cuda_std, behind a small function"),
    (
        "cust::",
        &["rust-cuda/", "host/src/runtime/backend/cuda/", "host/tests/", "tests/tests/", "xtask/"],
        "only the CUDA backend knows cust",
    ),
    ("warpsim::", &["warpsim/", "rust-cuda/", "host/src/runtime/backend/", "xtask/"], "only the backend knows warpsim"),
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.rust() {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            let what = format!("{lines} lines: above {MAX_LINES} a file becomes a folder of the same name");
            violations.push(Violation::file(path, what));
        }
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.trim_start();
            for (text, folders, why) in ONLY_IN {
                let allowed = folders.iter().any(|folder| path.starts_with(folder)) || code.starts_with("//");
                if !allowed && code.contains(text) {
                    violations.push(Violation::line(path, number, why));
                }
            }
        }
    }
    for (path, text) in tree.iter().filter(|(path, _)| !path.ends_with(".lock")) {
        for (number, line) in (1..).zip(text.lines()) {
            for ([head, tail], why) in WORDS {
                if line.contains(&format!("{head}{tail}")) {
                    violations.push(Violation::line(path, number, format!("`{head}{tail}`: {why}")));
                }
            }
            // PTX is what a compiler wrote.
            if line.ends_with([' ', '\t']) && !path.ends_with(".ptx") {
                violations.push(Violation::line(path, number, "space at the end of the line"));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            violations.push(Violation::file(path, "no line end at the end of the file"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ordinary_text_passes() {
        assert_eq!(found("host/src/a.rs", "//! Words, and asm!() in a comment.\nfn f() {}\n"), [""; 0]);
        assert_eq!(found("host/src/a.rs", &"fn f() {}\n".repeat(MAX_LINES)), [""; 0]);
    }

    #[test]
    fn planted_violations_are_found() {
        for ([head, tail], _) in WORDS {
            assert_eq!(found("README.md", &format!("a\nb {head}{tail} c\n")).len(), 1, "{head}{tail}");
        }
        assert!(found("a.rs", &"fn f() {}\n".repeat(MAX_LINES + 1))[0].contains("becomes a folder"));
        assert_eq!(found("gpu-kernels/src/ops/a.rs", "asm!(\"\");\n").len(), 1);
        assert_eq!(found("rust-cuda/cuda_std/src/a.rs", "asm!(\"\");\n"), [""; 0]);
        assert_eq!(found("host/src/runtime/stream.rs", "use cust::x;\n").len(), 1);
        assert_eq!(found("host/src/runtime/backend/cuda/mod.rs", "use cust::x;\n"), [""; 0]);
        assert_eq!(found("host/src/verify.rs", "use warpsim::x;\n").len(), 1);
        assert_eq!(found("a.ptx", "ret; \n"), [""; 0]);
        assert_eq!(found("a.md", "a \n"), ["a.md:1: space at the end of the line"]);
        assert_eq!(found("a.md", "a"), ["a.md: no line end at the end of the file"]);
    }
}
