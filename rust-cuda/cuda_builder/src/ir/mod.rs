//! A minimal parser of LLVM's textual IR, to split a crate into one module per kernel.
//!
//! rustc hands over the whole crate unoptimised. Splitting before optimisation, and as text, makes the work linear in the size
//! of the crate, lets kernels be optimised in parallel, and gives each a text that changes only when the kernel does. Whether
//! it changes is known without the text: each module has an index, kept from build to build, with hashes of its items and the
//! symbols that they use. The items that a kernel reaches form the key of the cache.

pub(crate) mod copies;
mod graph;
mod index;
mod inspect;
pub(crate) mod lines;
pub(crate) mod phi;
mod program;
mod scan;
mod split;

use memchr::memmem;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

pub(crate) use graph::{Graph, Place, Reach};
pub(crate) use index::Index;
pub use inspect::{PanicSite, Unresolved};
pub(crate) use inspect::{panics, unresolved};
pub(crate) use program::Program;
pub(crate) use split::Cutter;

/// A parsed module: the top-level entities, as text.
pub(crate) struct Module<'a> {
    /// `target`, type and comdat lines, which every cut keeps.
    header: Vec<&'a str>,
    items: Vec<Item<'a>>,
    index: FxHashMap<&'a str, usize>,
    attributes: FxHashMap<u32, &'a str>,
    metadata: FxHashMap<u32, &'a str>,
    /// The compilation units of the line information, as they are named: none without it.
    units: Option<&'a str>,
}

/// A global, or a function declared or defined.
pub(crate) struct Item<'a> {
    /// The symbol, as written: without `@`, with quotes if it has them.
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    /// The whole text, up to and with the closing brace.
    pub(crate) text: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Global,
    Declaration,
    Function,
    /// A function with the `ptx_kernel` calling convention: `extern "ptx-kernel"` in Rust.
    Kernel,
}

impl<'a> Module<'a> {
    /// Reads what `llvm-dis` and `opt -S` print.
    pub(crate) fn parse(source: &'a str) -> Module<'a> {
        let mut module = Module {
            header: Vec::new(),
            items: Vec::new(),
            index: FxHashMap::default(),
            attributes: FxHashMap::default(),
            metadata: FxHashMap::default(),
            units: None,
        };
        let end_of_function = memmem::Finder::new("\n}");
        let mut rest = source;
        while !rest.is_empty() {
            let length = if rest.starts_with("define ") {
                end_of_function.find(rest.as_bytes()).map_or(rest.len(), |at| at + 2)
            } else {
                rest.lines().next().unwrap_or_default().len()
            };
            let (text, tail) = rest.split_at(length);
            module.add(text);
            rest = tail.trim_start_matches(['\r', '\n']);
        }
        module
    }

    fn add(&mut self, text: &'a str) {
        if text.starts_with("define ") {
            let header = text.lines().next().unwrap_or_default();
            let kind = if header.contains(" ptx_kernel ") { Kind::Kernel } else { Kind::Function };
            self.add_item(kind, text);
        } else if text.starts_with("declare ") {
            self.add_item(Kind::Declaration, text);
        } else if text.starts_with('@') {
            // llvm.used and similar globals would keep everything alive.
            if !text.starts_with("@llvm.") {
                self.add_item(Kind::Global, text);
            }
        } else if let Some(rest) = text.strip_prefix("attributes #") {
            if let Some((number, value)) = numbered(rest) {
                self.attributes.insert(number, value);
            }
        } else if let Some(rest) = text.strip_prefix('!') {
            // Of the named metadata, which describes the module, a cut needs only this.
            if let Some(units) = rest.strip_prefix("llvm.dbg.cu = ") {
                self.units = Some(units);
            } else if let Some((number, value)) = numbered(rest) {
                self.metadata.insert(number, value);
            }
        } else if text.starts_with("target ") || text.starts_with(['%', '$']) {
            self.header.push(text);
        }
    }

    fn add_item(&mut self, kind: Kind, text: &'a str) {
        let symbol = scan::tokens(text).find_map(|token| match token {
            scan::Token::Symbol(name) => Some(name),
            _ => None,
        });
        if let Some(name) = symbol {
            self.index.insert(name, self.items.len());
            self.items.push(Item { name, kind, text });
        }
    }

    fn get(&self, name: &str) -> Option<&Item<'a>> {
        self.index.get(name).map(|&at| &self.items[at])
    }
}

/// The parts of `3 = value`.
fn numbered(text: &str) -> Option<(u32, &str)> {
    let (number, value) = text.split_once(" = ")?;
    Some((number.parse().ok()?, value))
}

/// A Rust name for a mangled symbol, without the number that a cut may have given it.
pub(crate) fn demangle(symbol: &str) -> String {
    let symbol = symbol.trim_matches('"');
    let stem = symbol.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('.');
    format!("{:#}", rustc_demangle::demangle(stem.unwrap_or(symbol)))
}

/// Whether a call to `symbol` is a panic: core's entry points, or the crate's own handler.
pub(crate) fn is_panic(symbol: &str) -> bool {
    let name = demangle(symbol);
    name.starts_with("core::panicking::") || name.ends_with("rust_begin_unwind") || name == "__cuda_std_panic"
}
