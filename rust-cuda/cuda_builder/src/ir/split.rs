//! Cutting one kernel, and everything it can reach, out of a module.

use std::{collections::HashMap, fmt::Write as _};

use super::{
    Item, Kind, Module, is_panic,
    scan::{Token, list_length, string_length, tokens},
};
use crate::marker::{self, Marker};

/// The marker of a kernel: `None` when it has none, which means that `#[kernel]` did not make it.
pub(crate) fn marker(kernel: &Item<'_>) -> Option<Result<Marker, String>> {
    let line = kernel.text.lines().find(|line| is_marker(line))?;
    let template = line.split('"').nth(1).unwrap_or_default();
    Some(Marker::parse(template))
}

fn is_marker(line: &str) -> bool {
    line.contains(" asm ") && line.split('"').nth(1).is_some_and(|template| template.starts_with(marker::PREFIX))
}

/// A module with `kernel` and all it refers to, and nothing else.
///
/// - Inline assembly with side effects becomes `convergent`, unless it only does what concerns one lane. rustc does not
///   say so, and without it LLVM may copy or sink a `shfl.sync`, `bar.sync` or `mma.sync` into divergent branches. So do
///   calls through pointers and all functions; LLVM takes it back from functions that do not need it.
/// - Panic functions lose their bodies: a panic that survives optimisation is then a call with its arguments intact.
/// - The marker becomes launch bounds.
/// - Group and metadata numbers start again at 0, in order of use. So do the names of private constants, which rustc makes
///   of a hash of the whole crate and a number, and those of Rust's functions, of which each part of the crate may have a
///   copy that `llvm-link` numbers. All of these become internal, whether or not another part of the crate uses them. The
///   text then depends on nothing but the kernel.
pub(crate) fn extract(module: &Module<'_>, kernel: &Item<'_>, marker: &Marker) -> String {
    let mut out = Output::new(module);
    for line in &module.header {
        out.copy(line);
        out.text.push('\n');
    }
    out.push_symbol(kernel.name);
    let mut done = 0;
    while done < out.reached.len() {
        let name = out.reached[done];
        done += 1;
        let Some(item) = module.get(name) else {
            continue;
        };
        let text = match item.kind {
            Kind::Global => item.text.to_owned(),
            Kind::Declaration if name.starts_with("llvm.") => item.text.to_owned(),
            Kind::Declaration => annotate(item.text, ""),
            Kind::Function if is_panic(name) => annotate(&declaration(item.text), ""),
            Kind::Function if is_mangled(name) => {
                function(&format!("define internal {}", without_linkage(item.text)), "")
            }
            Kind::Function => function(item.text, ""),
            Kind::Kernel => function(item.text, &marker.llvm_attributes()),
        };
        out.copy(&text);
        out.text.push('\n');
    }
    out.finish()
}

/// A function with `attributes` added, its assembly made convergent and its marker taken out.
fn function(text: &str, attributes: &str) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    for (number, line) in text.lines().enumerate() {
        if number == 0 {
            out += &annotate(line, attributes);
        } else if is_marker(line) {
            continue;
        } else {
            out += &convergent_call(line).unwrap_or_else(|| line.to_owned());
        }
        out.push('\n');
    }
    out
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

/// Where the argument list of a `define` or `declare` line starts.
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

/// The declaration of a function that is defined.
fn declaration(text: &str) -> String {
    let header = text.lines().next().unwrap_or_default();
    // What is only declared has no lines.
    let header = header.split(" !dbg ").next().unwrap_or_default();
    format!("declare {}", without_linkage(header.trim_end_matches('{').trim_end()))
}

/// A `define` without that word, and without who may see the function.
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

/// `line` with attributes behind its call, if lanes may have to execute it together: a call of inline assembly with side
/// effects, or of a function that is not known. Neither is to be copied or moved (`convergent`), nor to become one with
/// its like on the other side of a branch (`nomerge`), which would change the lanes that are there.
fn convergent_call(line: &str) -> Option<String> {
    let at = assembly_arguments(line).or_else(|| indirect_arguments(line))?;
    let (head, tail) = line.split_at(at + list_length(&line[at..])?);
    Some(format!("{head} convergent nomerge{tail}"))
}

/// Where the arguments of inline assembly start that does not concern one lane alone.
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

/// Where the arguments of a call through a pointer start. Attributes of the result may have arguments as well.
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

/// Whether assembly does the same whatever the other lanes of the warp do: memory accesses and moves. A `convergent` in
/// a loop keeps LLVM from unrolling it by a count it does not know, which would cost loads their overlap.
fn is_lane_local(template: &str) -> bool {
    const LANE_LOCAL: [&str; 11] =
        ["ld.", "ldu.", "st.", "atom.", "red.", "prefetch", "cp.async.ca.", "cp.async.cg.", "mov.", "cvt", ".reg "];
    template
        .split([';', '{', '}'])
        .map(str::trim)
        .filter(|statement| statement.contains('.'))
        .all(|statement| LANE_LOCAL.iter().any(|start| statement.starts_with(start)))
}

/// The cut under construction.
struct Output<'m, 'a> {
    module: &'m Module<'a>,
    text: String,
    /// The symbols met so far, in order.
    reached: Vec<&'a str>,
    seen: HashMap<&'a str, usize>,
    /// The new names of those whose names are of no account.
    renamed: HashMap<&'a str, String>,
    attributes: Numbers,
    metadata: Numbers,
}

/// New numbers for old, in order of use.
#[derive(Default)]
struct Numbers {
    old: Vec<u32>,
    new: HashMap<u32, usize>,
}

impl Numbers {
    fn renew(&mut self, number: u32) -> usize {
        let next = self.old.len();
        let new = *self.new.entry(number).or_insert(next);
        if new == next {
            self.old.push(number);
        }
        new
    }
}

impl<'m, 'a> Output<'m, 'a> {
    fn new(module: &'m Module<'a>) -> Self {
        Output {
            module,
            text: String::new(),
            reached: Vec::new(),
            seen: HashMap::new(),
            renamed: HashMap::new(),
            attributes: Numbers::default(),
            metadata: Numbers::default(),
        }
    }

    fn push_symbol(&mut self, name: &str) {
        if let Some(item) = self.module.get(name) {
            let next = self.reached.len();
            if *self.seen.entry(item.name).or_insert(next) == next {
                self.reached.push(item.name);
                if let Some(stem) = stem(item) {
                    let number = self.renamed.len();
                    self.renamed.insert(item.name, format!("{stem}.{number}"));
                }
            }
        }
    }

    /// Appends `text` with its numbers renewed.
    fn copy(&mut self, text: &str) {
        const SOURCE: &str = ", !srcloc ";
        let mut drop_location = false;
        for token in tokens(text) {
            match token {
                Token::Text(text) => {
                    // Where assembly stands in the source is of no use here and would change with every edit.
                    let kept = text.strip_suffix(SOURCE);
                    drop_location = kept.is_some();
                    self.text += kept.unwrap_or(text);
                }
                Token::Symbol(name) => {
                    self.push_symbol(name);
                    self.text.push('@');
                    self.text += self.renamed.get(name).map_or(name, String::as_str);
                }
                Token::Attributes(number) => {
                    let number = self.attributes.renew(number);
                    let _ = write!(self.text, "#{number}");
                }
                Token::Metadata(_) if drop_location => drop_location = false,
                Token::Metadata(number) => {
                    let number = self.metadata.renew(number);
                    let _ = write!(self.text, "!{number}");
                }
            }
        }
    }

    fn finish(mut self) -> String {
        for (new, old) in std::mem::take(&mut self.attributes).old.into_iter().enumerate() {
            let group = self.module.attributes.get(&old).copied().unwrap_or("{ }");
            let _ = writeln!(self.text, "attributes #{new} = {}", without_target(group));
        }
        if let Some(units) = self.module.units {
            self.text += "!llvm.dbg.cu = ";
            self.copy(units);
            self.text.push('\n');
        }
        let mut done = 0;
        while done < self.metadata.old.len() {
            let value = self.module.metadata.get(&self.metadata.old[done]).copied();
            let _ = write!(self.text, "!{done} = ");
            self.copy(value.unwrap_or("!{}"));
            self.text.push('\n');
            done += 1;
        }
        if self.module.units.is_some() {
            // Without its version LLVM throws line information away.
            let version = "!{i32 2, !\"Debug Info Version\", i32 3}";
            let _ = writeln!(self.text, "!llvm.module.flags = !{{!{done}}}\n!{done} = {version}");
        }
        self.text
    }
}

/// What is left of the name of an item that nobody outside of its module knows, when its number is taken away.
fn stem<'a>(item: &Item<'a>) -> Option<&'a str> {
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

/// A group without the processor rustc compiled for: the builder says that to LLVM, one architecture at a time, and
/// functions of core and of the crate must agree on it to be inlined.
fn without_target(group: &str) -> String {
    group
        .split(' ')
        .filter(|word| !word.starts_with("\"target-cpu\"=") && !word.starts_with("\"target-features\"="))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests;
