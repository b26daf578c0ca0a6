//! Line information restricted to one crate.

use std::{collections::HashMap, path::Path};

use super::{
    Module,
    scan::{Token, tokens},
};

/// `ir` in which code inlined from outside of `folder` has the line of the call: for finding a mistake, the calling lines are
/// more useful than the library's, and LLVM writes only the innermost to PTX.
pub(crate) fn of_crate(ir: &str, folder: &Path) -> String {
    let module = Module::parse(ir);
    let own = |location: &str| {
        let scope = field(location, "scope").and_then(|scope| module.metadata.get(&scope));
        let file = scope.and_then(|scope| field(scope, "file")).and_then(|file| module.metadata.get(&file));
        file.is_some_and(|file| path(file).starts_with(folder))
    };
    let mut moved = HashMap::new();
    for (number, first) in module.metadata.iter().filter(|(_, value)| value.contains("!DILocation(")) {
        let mut location = *first;
        while !own(location)
            && let Some(call) = field(location, "inlinedAt").and_then(|call| module.metadata.get(&call))
        {
            location = call;
        }
        if location != *first {
            moved.insert(*number, location.trim_start_matches("distinct "));
        }
    }
    let lines = ir.split_inclusive('\n').map(|line| {
        let number = line.strip_prefix('!').and_then(|rest| rest.split_once(" = "));
        let new = number.and_then(|(number, _)| moved.get(&number.parse().ok()?));
        match (number, new) {
            (Some((number, old)), Some(new)) => {
                let distinct = if old.starts_with("distinct ") { "distinct " } else { "" };
                format!("!{number} = {distinct}{new}\n")
            }
            _ => line.to_owned(),
        }
    });
    lines.collect()
}

/// The node that a field of another names.
fn field(node: &str, name: &str) -> Option<u32> {
    let (_, rest) = node.split_once(&format!("{name}: "))?;
    match tokens(rest).next() {
        Some(Token::Metadata(number)) => Some(number),
        _ => None,
    }
}

/// Where a `!DIFile(filename: "…", directory: "…")` is.
fn path(file: &str) -> std::path::PathBuf {
    let text = |name: &str| {
        let (_, rest) = file.split_once(&format!("{name}: \""))?;
        rest.split('"').next()
    };
    Path::new(text("directory").unwrap_or_default()).join(text("filename").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = r#"!0 = !DIFile(filename: "src/lib.rs", directory: "/w/k")
!1 = !DIFile(filename: "/rust/core.rs", directory: "")
!2 = distinct !DISubprogram(name: "kernel", scope: !9, file: !0, line: 1)
!3 = distinct !DISubprogram(name: "add", scope: !9, file: !1, line: 1)
!4 = !DILocation(line: 5, column: 1, scope: !2)
!5 = distinct !DILocation(line: 6, column: 1, scope: !2)
!6 = !DILocation(line: 70, column: 3, scope: !3, inlinedAt: !7)
!7 = distinct !DILocation(line: 80, column: 3, scope: !3, inlinedAt: !5)
!8 = !DILocation(line: 90, column: 3, scope: !3)
"#;

    #[test]
    fn what_is_inlined_from_elsewhere_has_the_line_of_the_call() {
        let inlined = "!DILocation(line: 70, column: 3, scope: !3, inlinedAt: !7)";
        let through = "!DILocation(line: 80, column: 3, scope: !3, inlinedAt: !5)";
        let call = "!DILocation(line: 6, column: 1, scope: !2)";
        assert_eq!(of_crate(IR, Path::new("/w/k")), IR.replace(inlined, call).replace(through, call));
        assert_eq!(of_crate(IR, Path::new("/")), IR);
    }
}
