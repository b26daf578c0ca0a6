//! Finds code that must not remain in a kernel after optimisation.

use std::{collections::BTreeSet, fmt};

use super::{
    Item, Kind, Module, demangle, is_panic,
    scan::{Token, tokens},
};

/// Functions the driver provides to every module.
const DRIVER_FUNCTIONS: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

/// A function that is called but not defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// Its Rust name, or its symbol.
    pub function: String,
    /// The functions that call it, after inlining.
    pub callers: Vec<String>,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, called by {}", self.function, self.callers.join(", "))
    }
}

/// A panic that optimisation could not rule out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PanicSite {
    /// The panic function, such as `core::panicking::panic_bounds_check`.
    pub function: String,
    /// `file:line:column` in the Rust source, when it is known.
    pub location: Option<String>,
}

impl fmt::Display for PanicSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.function.rsplit("panicking::").next().unwrap_or_default();
        let what = match name {
            "panic_bounds_check" => "index out of bounds",
            "panic_fmt" | "panic" | "panic_display" => "a panic, an unwrap or an assertion",
            _ if name.contains("div_by_zero") || name.contains("rem_by_zero") => "division by zero",
            _ if name.contains("overflow") => "arithmetic overflow",
            _ if name.starts_with("assert_failed") => "a failed assertion",
            _ => "a panic",
        };
        write!(f, "{what}")?;
        if let Some(location) = &self.location {
            write!(f, " at {location}")?;
        }
        write!(f, " ({})", self.function)
    }
}

/// Functions that optimised IR calls but does not define, except panics.
pub(crate) fn unresolved(module: &Module<'_>) -> Vec<Unresolved> {
    let missing = module.items.iter().filter(|item| {
        item.kind == Kind::Declaration
            && !item.name.starts_with("llvm.")
            && !DRIVER_FUNCTIONS.contains(&item.name)
            && !is_panic(item.name)
    });
    missing
        .map(|item| Unresolved {
            function: demangle(item.name),
            callers: functions(module)
                .filter(|caller| symbols(caller.text).any(|name| name == item.name))
                .map(|caller| format!("`{}`", demangle(caller.name)))
                .collect(),
        })
        .collect()
}

/// The panics that optimised IR can still reach.
pub(crate) fn panics(module: &Module<'_>) -> Vec<PanicSite> {
    let mut sites = BTreeSet::new();
    let mut unplaced = BTreeSet::new();
    for line in functions(module).flat_map(|item| item.text.lines()) {
        let Some(function) = symbols(line).find(|name| is_panic(name)) else {
            continue;
        };
        if line.starts_with("define") {
            continue;
        }
        let function = demangle(function);
        // The location is the last argument, unless a helper received it from its caller.
        match symbols(line).last().and_then(|name| location(module, name)) {
            Some(location) => {
                sites.insert(PanicSite { function, location: Some(location) });
            }
            None => {
                unplaced.insert(function);
            }
        }
    }
    if !unplaced.is_empty() {
        let known = |at: &String| sites.iter().any(|site| site.location.as_ref() == Some(at));
        let others = module
            .items
            .iter()
            .filter_map(|item| location(module, item.name))
            .filter(|at| !known(at))
            .collect::<Vec<_>>();
        for function in unplaced {
            if others.is_empty() {
                sites.insert(PanicSite { function: function.clone(), location: None });
            }
            for at in &others {
                sites.insert(PanicSite { function: function.clone(), location: Some(at.clone()) });
            }
        }
    }
    sites.into_iter().collect()
}

fn functions<'m, 'a>(module: &'m Module<'a>) -> impl Iterator<Item = &'m Item<'a>> {
    let is_code = |item: &&Item<'_>| matches!(item.kind, Kind::Function | Kind::Kernel);
    module.items.iter().filter(is_code)
}

fn symbols(text: &str) -> impl Iterator<Item = &str> {
    tokens(text).filter_map(|token| match token {
        Token::Symbol(name) => Some(name),
        _ => None,
    })
}

/// Reads a constant `core::panic::Location`: a pointer to the file name, its length, line and column.
fn location(module: &Module<'_>, name: &str) -> Option<String> {
    let item = module.get(name).filter(|item| item.kind == Kind::Global)?;
    let file = symbols(item.text).nth(1)?;
    let fields = bytes(item.text)?;
    if fields.len() != 16 || !item.text.contains("<{ ptr, [16 x i8] }>") {
        return None;
    }
    let number = |at: usize| u32::from_le_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]]);
    let file = bytes(module.get(file)?.text)?;
    let file = file.get(..number(0) as usize)?;
    let (line, column) = (number(8), number(12));
    Some(format!("{}:{line}:{column}", String::from_utf8_lossy(file)))
}

/// The value of the `c"…"` constant in `text`.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let start = text.find(" c\"")? + 3;
    let text = &text.as_bytes()[start..];
    let text = &text[..text.iter().position(|&b| b == b'"')?];
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'\\' {
            let code = std::str::from_utf8(text.get(at + 1..at + 3)?).ok()?;
            out.push(u8::from_str_radix(code, 16).ok()?);
            at += 3;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIMISED: &str = r#"
@file = private constant [11 x i8] c"src/lib.rs\00"
@at = private constant <{ ptr, [16 x i8] }> <{ ptr @file, [16 x i8] c"\0A\00\00\00\00\00\00\00\0C\00\00\00\05\00\00\00" }>
define ptx_kernel void @k(i64 %0) {
  call void @_ZN4core9panicking18panic_bounds_check17h0123456789abcdefE(i64 %0, i64 4, ptr @at)
  %2 = call float @sinf(float 1.0)
  %3 = call i32 @vprintf(ptr null, ptr null)
  ret void
}
declare void @_ZN4core9panicking18panic_bounds_check17h0123456789abcdefE(i64, i64, ptr)
declare float @sinf(float)
declare i32 @vprintf(ptr, ptr)
declare void @llvm.trap()
"#;

    #[test]
    fn panics_are_found_with_their_place() {
        let module = Module::parse(OPTIMISED);
        let sites = panics(&module);
        assert_eq!(sites.len(), 1);
        let text = sites[0].to_string();
        assert!(text.starts_with("index out of bounds at src/lib.rs:12:5 "), "{text}");
    }

    #[test]
    fn missing_functions_are_found_and_the_driver_s_are_not() {
        let module = Module::parse(OPTIMISED);
        let missing = unresolved(&module);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].to_string(), "`sinf`, called by `k`");
    }
}
