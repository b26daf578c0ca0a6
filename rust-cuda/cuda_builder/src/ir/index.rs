//! The index of a module, without its text: enough to tell what a kernel reaches, and whether any of it has changed.

use std::hash::Hasher as _;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use siphasher::sip128::SipHasher13;

use super::{
    Item, Kind, Module,
    scan::{Token, tokens},
    split,
};
use crate::cache::hash;

/// A module's items, and the references between them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Index {
    /// The hash of the part of a cut before its items.
    pub(super) header: String,
    /// The hash of the compilation units, if there is line information.
    pub(super) units: Option<String>,
    /// The names of the items and of the symbols that they use; elsewhere they are referred to by index.
    pub(super) symbols: Vec<String>,
    /// The module's items, in its order.
    pub(super) items: Vec<Entry>,
}

/// The index entry of an item.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its symbol.
    pub(super) name: usize,
    pub(super) kind: Kind,
    pub(super) linkage: Linkage,
    /// The hash of its text in a cut, without the names of the symbols that it uses.
    pub(super) hash: String,
    /// The symbols in it, in the order of their first use.
    pub(super) uses: Vec<usize>,
    /// The contents of a kernel's marker.
    pub(super) marker: Option<String>,
}

/// The linkage of an item, in ascending order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Linkage {
    /// Visible to its module only.
    Own,
    /// Declared here and defined elsewhere.
    Declared,
    /// Visible to all modules, of which several may define it.
    Weak,
    Strong,
}

impl Index {
    pub(crate) fn of(module: &Module<'_>) -> Index {
        let mut symbols = Symbols::default();
        Index {
            items: module.items.iter().map(|item| Entry::of(module, item, &mut symbols)).collect(),
            symbols: symbols.names,
            header: hash(|hasher| module.header.iter().for_each(|line| write(hasher, line))),
            units: module.units.map(|units| hash(|hasher| Nodes::default().write(hasher, module, units))),
        }
    }
}

impl Entry {
    fn of(module: &Module<'_>, item: &Item<'_>, symbols: &mut Symbols) -> Entry {
        let name = symbols.number(item.name);
        let mut uses = Vec::new();
        let mut order = FxHashMap::default();
        let mut nodes = Nodes::default();
        let hash = hash(|hasher| {
            write(hasher, split::stem(item).unwrap_or(item.name));
            for token in split::tokens_in_cut(&split::text(item)) {
                match token {
                    Token::Text(text) => write(hasher, text),
                    Token::Symbol(name) => {
                        let symbol = symbols.number(name);
                        let number = *order.entry(symbol).or_insert_with(|| {
                            uses.push(symbol);
                            uses.len() - 1
                        });
                        hasher.write_usize(number);
                    }
                    Token::Attributes(number) => write(hasher, &split::attributes(module, number)),
                    Token::Metadata(number) => hasher.write_usize(nodes.number(number)),
                }
            }
            nodes.finish(hasher, module);
        });
        let marker = (item.kind == Kind::Kernel).then(|| split::marker(item)).flatten();
        Entry { name, kind: item.kind, linkage: linkage(item), hash, uses, marker: marker.map(str::to_owned) }
    }
}

#[derive(Default)]
struct Symbols {
    names: Vec<String>,
    numbers: FxHashMap<String, usize>,
}

impl Symbols {
    fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

/// Metadata nodes, by the order of their first use.
#[derive(Default)]
struct Nodes {
    met: Vec<u32>,
    numbers: FxHashMap<u32, usize>,
}

impl Nodes {
    fn number(&mut self, node: u32) -> usize {
        *self.numbers.entry(node).or_insert_with(|| {
            self.met.push(node);
            self.met.len() - 1
        })
    }

    /// What the nodes are, and those that they refer to.
    fn finish(&mut self, hasher: &mut SipHasher13, module: &Module<'_>) {
        let mut done = 0;
        while done < self.met.len() {
            let text = split::node(module, self.met[done]);
            self.contents(hasher, text);
            done += 1;
        }
    }

    fn contents(&mut self, hasher: &mut SipHasher13, text: &str) {
        for token in tokens(text) {
            match token {
                Token::Text(text) | Token::Symbol(text) => write(hasher, text),
                Token::Attributes(number) => hasher.write_u32(number),
                Token::Metadata(number) => hasher.write_usize(self.number(number)),
            }
        }
    }

    fn write(mut self, hasher: &mut SipHasher13, module: &Module<'_>, text: &str) {
        self.contents(hasher, text);
        self.finish(hasher, module);
    }
}

/// Hashes text with a terminator that occurs in no text.
fn write(hasher: &mut SipHasher13, text: &str) {
    hasher.write(text.as_bytes());
    hasher.write_u8(0xff);
}

fn linkage(item: &Item<'_>) -> Linkage {
    let words = match item.kind {
        Kind::Declaration => return Linkage::Declared,
        // `@name = private unnamed_addr constant …`
        Kind::Global => item.text.split_once(" = ").map_or("", |(_, words)| words),
        // `define internal void @name(…`
        Kind::Function | Kind::Kernel => item.text.strip_prefix("define ").unwrap_or(item.text),
    };
    match words.split(' ').next() {
        Some("internal" | "private") => Linkage::Own,
        Some("external" | "extern_weak" | "available_externally") => Linkage::Declared,
        Some("weak" | "weak_odr" | "linkonce" | "linkonce_odr" | "common") => Linkage::Weak,
        _ => Linkage::Strong,
    }
}
