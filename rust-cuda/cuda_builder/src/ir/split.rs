//! Cutting one kernel, and everything it can reach, out of a module.

mod output;

use std::{ops::Range, rc::Rc};

use memchr::memmem;
use rustc_hash::FxHashMap;

use output::Output;
pub(super) use output::{attributes, node};

use super::{
    Item, Kind, Place, Program, is_panic,
    scan::{Token, list_length, string_length, tokens},
};
use crate::{
    Arch,
    marker::{self, Marker},
};

/// The function whose result is the architecture, as the number in its name.
const ARCH: &str = "__cuda_arch";

/// The marker of a kernel: `None` if it has none, which means that it was not declared with `#[kernel]`.
pub(super) fn marker<'a>(kernel: &Item<'a>) -> Option<&'a str> {
    kernel.text.lines().find(|line| is_marker(line))?.split('"').nth(1)
}

fn is_marker(line: &str) -> bool {
    line.contains(" asm ") && line.split('"').nth(1).is_some_and(|template| template.starts_with(marker::PREFIX))
}

/// Cuts kernels out of a program.
pub(crate) struct Cutter<'p, 'a> {
    program: &'p Program<'a>,
    /// The items that were prepared before: many are part of hundreds of kernels.
    prepared: FxHashMap<Place, Rc<Prepared<'a>>>,
}

impl<'p, 'a> Cutter<'p, 'a> {
    pub(crate) fn new(program: &'p Program<'a>) -> Cutter<'p, 'a> {
        Cutter { program, prepared: FxHashMap::default() }
    }

    /// A module with `kernel` and all it refers to, and nothing else.
    ///
    /// - Inline assembly with side effects becomes `convergent`, unless it only does what concerns one lane. rustc does not
    ///   say so, and without it LLVM may copy or sink a `shfl.sync`, `bar.sync` or `mma.sync` into divergent branches. So do
    ///   calls through pointers and all functions; LLVM takes it back from functions that do not need it.
    /// - Panic functions lose their bodies: a panic that survives optimisation is then a call with its arguments intact.
    /// - The marker becomes launch bounds.
    /// - Group and metadata numbers start again at 0, in order of use. So do the names of private constants, which rustc makes
    ///   of a hash of the whole crate and a number, and those of Rust's functions, of which each module may have a copy. All
    ///   of these become internal, whether or not another module uses them. The text then depends on nothing but the kernel.
    /// - `__cuda_arch` returns the number of `arch`.
    pub(crate) fn cut(&mut self, kernel: Place, marker: &Marker, arch: Arch) -> String {
        let mut out = Output::new(self.program);
        for line in &self.program.module(kernel.module).header {
            out.text.push_str(line);
            out.text.push('\n');
        }
        out.name(kernel, &self.prepare(kernel));
        let mut done = 0;
        while done < out.reached.len() {
            let place = out.reached[done];
            done += 1;
            let item = self.program.item(place);
            let own = match item.kind {
                Kind::Kernel => Some(function(item.text, &marker.llvm_attributes())),
                kind if is_arch(kind, item.name) => Some(arch_function(arch)),
                _ => None,
            };
            let prepared = match own {
                Some(text) => Rc::new(Prepared::new(self.program, place, &text)),
                None => self.prepare(place),
            };
            for piece in &prepared.pieces {
                match piece {
                    Piece::Text(range) => out.text.push_str(&prepared.text[range.clone()]),
                    Piece::Symbol(symbol) => out.symbol(*symbol, &self.prepare(*symbol)),
                    Piece::Attributes(number) => out.attributes(place.module, *number),
                    Piece::Metadata(number) => out.metadata(place.module, *number),
                }
            }
            out.text.push('\n');
        }
        out.finish()
    }

    fn prepare(&mut self, place: Place) -> Rc<Prepared<'a>> {
        let program = self.program;
        let new = || Rc::new(Prepared::new(program, place, &text(program.item(place))));
        self.prepared.entry(place).or_insert_with(new).clone()
    }
}

/// The text of an item that is common to all cuts, without what depends on the kernel.
pub(super) fn text(item: &Item<'_>) -> String {
    match item.kind {
        Kind::Global => item.text.to_owned(),
        Kind::Declaration if item.name.starts_with("llvm.") => item.text.to_owned(),
        Kind::Declaration => annotate(item.text, ""),
        Kind::Function if is_panic(item.name) => annotate(&declaration(item.text), ""),
        Kind::Function if is_mangled(item.name) => {
            function(&format!("define internal {}", without_linkage(item.text)), "")
        }
        Kind::Function | Kind::Kernel => function(item.text, ""),
    }
}

/// Whether an item is the function that returns the architecture of a cut.
pub(super) fn is_arch(kind: Kind, name: &str) -> bool {
    kind == Kind::Declaration && name == ARCH
}

fn arch_function(arch: Arch) -> String {
    let number = arch.as_str().trim_matches(|c: char| !c.is_ascii_digit());
    format!("define internal i32 @{ARCH}() alwaysinline nounwind willreturn memory(none) {{\n  ret i32 {number}\n}}")
}

/// A function with `attributes` added, its assembly made convergent and its marker taken out.
fn function(text: &str, attributes: &str) -> String {
    let (header, body) = text.split_once('\n').unwrap_or((text, ""));
    let mut out = String::with_capacity(text.len() + 256);
    out += &annotate(header, attributes);
    out.push('\n');
    let mut copied = 0;
    for line in lines_with_calls(body) {
        let call = &body[line.clone()];
        if is_marker(call) {
            out += &body[copied..line.start];
            copied = (line.end + 1).min(body.len());
        } else if let Some(convergent) = convergent_call(call) {
            out += &body[copied..line.start];
            out += &convergent;
            copied = line.end;
        }
    }
    out += &body[copied..];
    out.push('\n');
    out
}

/// The ranges of lines that contain `call`; most lines do not.
fn lines_with_calls(text: &str) -> impl Iterator<Item = Range<usize>> {
    let call = memmem::Finder::new("call").into_owned();
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + call.find(&text.as_bytes()[from..])?;
        let start = text[from..at].rfind('\n').map_or(from, |before| from + before + 1);
        let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
        from = end;
        Some(start..end)
    })
}

/// A function's first line with `convergent` and `attributes` behind its argument list.
fn annotate(header: &str, attributes: &str) -> String {
    let at = (|| {
        let list = arguments(header)?;
        let mut at = list + list_length(&header[list..])?;
        for word in [" local_unnamed_addr", " unnamed_addr"] {
            if header[at..].starts_with(word) {
                at += word.len();
            }
        }
        Some(at)
    })();
    match at {
        Some(at) => {
            let (head, tail) = header.split_at(at);
            format!("{head} convergent {attributes}{tail}")
        }
        None => header.to_owned(),
    }
}

/// The start of the argument list of a `define` or `declare` line.
fn arguments(header: &str) -> Option<usize> {
    let mut at = 0;
    for token in tokens(header) {
        match token {
            Token::Symbol(name) => return Some(at + 1 + name.len()),
            Token::Text(text) => at += text.len(),
            Token::Attributes(_) | Token::Metadata(_) => return None,
        }
    }
    None
}

/// The declaration of a defined function.
fn declaration(text: &str) -> String {
    let header = text.lines().next().unwrap_or_default();
    // A declaration has no line information.
    let header = header.split(" !dbg ").next().unwrap_or_default();
    format!("declare {}", without_linkage(header.trim_end_matches('{').trim_end()))
}

/// A `define` line without that word and without linkage.
fn without_linkage(header: &str) -> &str {
    const LINKAGE: [&str; 11] = [
        "internal",
        "private",
        "weak",
        "weak_odr",
        "linkonce",
        "linkonce_odr",
        "hidden",
        "protected",
        "available_externally",
        "dso_local",
        "external",
    ];
    let mut rest = header.strip_prefix("define ").unwrap_or(header);
    while let Some((_, tail)) = rest.split_once(' ').filter(|(word, _)| LINKAGE.contains(word)) {
        rest = tail;
    }
    rest
}

/// `line` with attributes after its call, if lanes may have to execute it together: a call of inline assembly with side
/// effects, or of an unknown function. Such a call must be neither copied or moved (`convergent`), nor merged with an
/// identical call on the other side of a branch (`nomerge`), which would change the set of active lanes.
fn convergent_call(line: &str) -> Option<String> {
    let at = assembly_arguments(line).or_else(|| indirect_arguments(line))?;
    let (head, tail) = line.split_at(at + list_length(&line[at..])?);
    Some(format!("{head} convergent nomerge{tail}"))
}

/// The start of the arguments of inline assembly that is not lane-local.
fn assembly_arguments(line: &str) -> Option<usize> {
    const ASM: &str = " asm sideeffect ";
    let mut at = line.find(ASM)? + ASM.len();
    if line[at..].split('"').nth(1).is_some_and(is_lane_local) {
        return None;
    }
    // The template and the constraints, two strings, then the arguments.
    for _ in 0..2 {
        at += line[at..].find('"')?;
        at += string_length(&line.as_bytes()[at..]);
    }
    Some(at + line[at..].find('(')?)
}

/// The start of the arguments of a call through a pointer. Attributes of the result may have arguments as well.
fn indirect_arguments(line: &str) -> Option<usize> {
    const CALL: &str = "call ";
    let mut at = line.find(CALL).filter(|_| !line.contains(" asm "))? + CALL.len();
    loop {
        let open = at + line[at..].find('(')?;
        match line[at..open].rsplit(' ').next() {
            Some(callee) if callee.starts_with('%') => return Some(open),
            Some(callee) if callee.starts_with('@') => return None,
            _ => at = open + list_length(&line[open..])?,
        }
    }
}

/// Whether assembly behaves the same whatever the other lanes of the warp do: memory accesses and moves. A `convergent`
/// call in a loop keeps LLVM from unrolling it by an unknown count, which would prevent loads from overlapping.
fn is_lane_local(template: &str) -> bool {
    const LANE_LOCAL: [&str; 11] =
        ["ld.", "ldu.", "st.", "atom.", "red.", "prefetch", "cp.async.ca.", "cp.async.cg.", "mov.", "cvt", ".reg "];
    template
        .split([';', '{', '}'])
        .map(str::trim)
        .filter(|statement| statement.contains('.'))
        .all(|statement| LANE_LOCAL.iter().any(|start| statement.starts_with(start)))
}

/// The tokens of an item's text. Where assembly stands in the source is of no use in a cut and would change with every edit.
pub(super) fn tokens_in_cut(text: &str) -> impl Iterator<Item = Token<'_>> {
    const SOURCE: &str = ", !srcloc ";
    let mut is_location = false;
    tokens(text).filter_map(move |token| match token {
        Token::Text(text) => {
            let before = text.strip_suffix(SOURCE);
            is_location = before.is_some();
            Some(Token::Text(before.unwrap_or(text)))
        }
        Token::Metadata(_) if std::mem::take(&mut is_location) => None,
        other => Some(other),
    })
}

/// An item's text in tokens; a cut renames or renumbers all that are not text.
struct Prepared<'a> {
    name: &'a str,
    /// What its name is made of, if the name is of no account.
    stem: Option<&'a str>,
    text: String,
    pieces: Vec<Piece>,
}

enum Piece {
    Text(Range<usize>),
    Symbol(Place),
    Attributes(u32),
    Metadata(u32),
}

impl<'a> Prepared<'a> {
    /// The item at `place`, with another text.
    fn new(program: &Program<'a>, place: Place, source: &str) -> Prepared<'a> {
        let item = program.item(place);
        let mut new = Prepared { name: item.name, stem: stem(item), text: String::new(), pieces: Vec::new() };
        for token in tokens_in_cut(source) {
            match token {
                Token::Text(text) => new.push(text),
                Token::Symbol(name) => match program.resolve(place.module, name) {
                    Some(place) => new.pieces.push(Piece::Symbol(place)),
                    None => {
                        new.push("@");
                        new.push(name);
                    }
                },
                Token::Attributes(number) => new.pieces.push(Piece::Attributes(number)),
                Token::Metadata(number) => new.pieces.push(Piece::Metadata(number)),
            }
        }
        new
    }

    fn push(&mut self, text: &str) {
        let start = self.text.len();
        self.text += text;
        match self.pieces.last_mut() {
            Some(Piece::Text(range)) => range.end = self.text.len(),
            _ => self.pieces.push(Piece::Text(start..self.text.len())),
        }
    }
}

/// The name of an item that is private to its module, without its number.
pub(super) fn stem<'a>(item: &Item<'a>) -> Option<&'a str> {
    match item.kind {
        // String literals, panic locations, vtables.
        Kind::Global if item.text.split_once(" = ").is_some_and(|(_, rest)| rest.starts_with("private ")) => {
            Some("constant")
        }
        Kind::Function if is_mangled(item.name) => {
            let digits = item.name.bytes().rev().take_while(u8::is_ascii_digit).count();
            // A mangled name says how long its parts are: what is too much is the number of a copy.
            let mut stems = (0..=digits).rev().map(|n| &item.name[..item.name.len() - n]);
            Some(stems.find(|stem| rustc_demangle::try_demangle(stem).is_ok()).unwrap_or(item.name))
        }
        _ => None,
    }
}

/// Whether a function is Rust's own, and not one that is known by its name, such as `memcpy`.
fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_R") || symbol.starts_with("_ZN")
}

#[cfg(test)]
mod tests;
