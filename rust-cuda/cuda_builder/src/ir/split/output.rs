//! The text of a cut: names and numbers that depend only on its contents.

use std::{collections::BTreeSet, fmt::Write as _, hash::Hash};

use rustc_hash::FxHashMap;

use super::Prepared;
use crate::ir::{
    Module, Place, Program,
    scan::{Token, tokens},
};

/// The cut under construction.
pub(super) struct Output<'p, 'a> {
    program: &'p Program<'a>,
    pub(super) text: String,
    /// The items met so far, in order, and their names if these were changed.
    pub(super) reached: Vec<Place>,
    names: FxHashMap<Place, Option<String>>,
    renamed: usize,
    attributes: Numbers<String>,
    metadata: Numbers<Node<'a>>,
}

/// Numbered entities, and the new numbers for the modules' old ones.
struct Numbers<T> {
    all: Vec<T>,
    known: FxHashMap<T, usize>,
    new: FxHashMap<(usize, u32), usize>,
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    fn new() -> Numbers<T> {
        Numbers { all: Vec::new(), known: FxHashMap::default(), new: FxHashMap::default() }
    }

    /// The new number of the entity that has `number` in a module. Equal entities have equal numbers.
    fn renew(&mut self, module: usize, number: u32, value: impl FnOnce() -> T) -> usize {
        *self.new.entry((module, number)).or_insert_with(|| {
            let value = value();
            let next = self.all.len();
            let new = *self.known.entry(value.clone()).or_insert(next);
            if new == next {
                self.all.push(value);
            }
            new
        })
    }
}

/// A metadata node. A node that refers to others, or is distinct, belongs to its module only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node<'a> {
    Shared(&'a str),
    Own { module: usize, number: u32, text: &'a str },
}

impl<'p, 'a> Output<'p, 'a> {
    pub(super) fn new(program: &'p Program<'a>) -> Self {
        Output {
            program,
            text: String::new(),
            reached: Vec::new(),
            names: FxHashMap::default(),
            renamed: 0,
            attributes: Numbers::new(),
            metadata: Numbers::new(),
        }
    }

    /// The name of `item` in this cut; the first call adds the item to the cut.
    pub(super) fn name<'s>(&'s mut self, place: Place, item: &'s Prepared<'a>) -> &'s str {
        let name = self.names.entry(place).or_insert_with(|| {
            self.reached.push(place);
            item.stem.map(|stem| {
                self.renamed += 1;
                format!("{stem}.{}", self.renamed - 1)
            })
        });
        name.as_deref().unwrap_or(item.name)
    }

    pub(super) fn symbol(&mut self, place: Place, item: &Prepared<'a>) {
        let name = self.name(place, item).to_owned();
        self.text.push('@');
        self.text += &name;
    }

    pub(super) fn attributes(&mut self, module: usize, number: u32) {
        let program = self.program;
        let new = self.attributes.renew(module, number, || attributes(program.module(module), number));
        let _ = write!(self.text, "#{new}");
    }

    pub(super) fn metadata(&mut self, module: usize, number: u32) {
        let text = node(self.program.module(module), number);
        let new = self.metadata.renew(module, number, || {
            let is_own = text.starts_with("distinct ") || tokens(text).any(|token| matches!(token, Token::Metadata(_)));
            if is_own { Node::Own { module, number, text } } else { Node::Shared(text) }
        });
        let _ = write!(self.text, "!{new}");
    }

    /// Text that is metadata of a module.
    fn copy(&mut self, module: usize, text: &str) {
        for token in tokens(text) {
            match token {
                Token::Text(text) => self.text += text,
                Token::Metadata(number) => self.metadata(module, number),
                Token::Symbol(name) => drop(write!(self.text, "@{name}")),
                Token::Attributes(number) => drop(write!(self.text, "#{number}")),
            }
        }
    }

    pub(super) fn finish(mut self) -> String {
        for (number, group) in self.attributes.all.iter().enumerate() {
            let _ = writeln!(self.text, "attributes #{number} = {group}");
        }
        let has_lines = self.units();
        let mut done = 0;
        while done < self.metadata.all.len() {
            let _ = write!(self.text, "!{done} = ");
            match self.metadata.all[done] {
                Node::Shared(text) => self.text += text,
                Node::Own { module, text, .. } => self.copy(module, text),
            }
            self.text.push('\n');
            done += 1;
        }
        if has_lines {
            // Without this version LLVM discards line information.
            let version = "!{i32 2, !\"Debug Info Version\", i32 3}";
            let _ = writeln!(self.text, "!llvm.module.flags = !{{!{done}}}\n!{done} = {version}");
        }
        self.text
    }

    /// Names the compilation units of what the cut has, if there is line information.
    fn units(&mut self) -> bool {
        let modules: BTreeSet<usize> = self.reached.iter().map(|place| place.module).collect();
        let program = self.program;
        let mut separator = "!llvm.dbg.cu = !{";
        for module in modules {
            for token in program.module(module).units.into_iter().flat_map(tokens) {
                if let Token::Metadata(number) = token {
                    self.text += separator;
                    self.metadata(module, number);
                    separator = ", ";
                }
            }
        }
        let has_lines = separator == ", ";
        if has_lines {
            self.text += "}\n";
        }
        has_lines
    }
}

/// An attribute group without the processor that rustc compiled for: the builder passes it to LLVM, one
/// architecture at a time, and functions of core and of the crate must agree on it to be inlined.
pub(crate) fn attributes(module: &Module<'_>, number: u32) -> String {
    let group = module.attributes.get(&number).copied().unwrap_or("{ }");
    group
        .split(' ')
        .filter(|word| !word.starts_with("\"target-cpu\"=") && !word.starts_with("\"target-features\"="))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A metadata node of a module.
pub(crate) fn node<'a>(module: &Module<'a>, number: u32) -> &'a str {
    module.metadata.get(&number).copied().unwrap_or("!{}")
}
