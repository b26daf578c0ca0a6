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
    attributes: Vec<u32>,
    metadata: Vec<u32>,
}

impl<'m, 'a> Output<'m, 'a> {
    fn new(module: &'m Module<'a>) -> Self {
        Output {
            module,
            text: String::new(),
            reached: Vec::new(),
            seen: HashMap::new(),
            renamed: HashMap::new(),
            attributes: Vec::new(),
            metadata: Vec::new(),
        }
    }

    fn push_symbol(&mut self, name: &str) {
        if let Some(item) = self.module.get(name) {
            let next = self.reached.len();
            if *self.seen.entry(item.name).or_insert(next) == next {
                self.reached.push(item.name);
                if let Some(stem) = stem(self.module, item) {
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
                    let number = renumber(&mut self.attributes, number);
                    let _ = write!(self.text, "#{number}");
                }
                Token::Metadata(_) if drop_location => drop_location = false,
                Token::Metadata(number) => {
                    let number = renumber(&mut self.metadata, number);
                    let _ = write!(self.text, "!{number}");
                }
            }
        }
    }

    fn finish(mut self) -> String {
        for (new, old) in std::mem::take(&mut self.attributes).into_iter().enumerate() {
            let group = self.module.attributes.get(&old).copied().unwrap_or("{ }");
            let _ = writeln!(self.text, "attributes #{new} = {}", without_target(group));
        }
        let mut done = 0;
        while done < self.metadata.len() {
            let value = self.module.metadata.get(&self.metadata[done]).copied();
            let _ = write!(self.text, "!{done} = ");
            self.copy(value.unwrap_or("!{}"));
            self.text.push('\n');
            done += 1;
        }
        self.text
    }
}

/// What is left of the name of an item that nobody outside of its module knows, when its number is taken away.
fn stem<'a>(module: &Module<'a>, item: &Item<'a>) -> Option<&'a str> {
    match item.kind {
        // String literals, panic locations, vtables.
        Kind::Global if item.text.split_once(" = ").is_some_and(|(_, rest)| rest.starts_with("private ")) => {
            Some("constant")
        }
        Kind::Function if is_mangled(item.name) => {
            let digits = item.name.bytes().rev().take_while(u8::is_ascii_digit).count();
            // Of several copies one has kept the name without a number.
            let copied =
                (1..=digits).map(|n| &item.name[..item.name.len() - n]).find(|name| module.get(name).is_some());
            Some(copied.unwrap_or(item.name))
        }
        _ => None,
    }
}

/// Whether a function is Rust's own, and not one that is known by its name, such as `memcpy`.
fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_R") || symbol.starts_with("_ZN")
}

fn renumber(seen: &mut Vec<u32>, number: u32) -> usize {
    seen.iter().position(|&n| n == number).unwrap_or_else(|| {
        seen.push(number);
        seen.len() - 1
    })
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
mod tests {
    use super::*;

    const SOURCE: &str = r#"target triple = "nvptx64-nvidia-cuda"
@anon.7a4f65eeb84d213dfb2a9c8ed18ff68b.0 = private constant [4 x i8] c"@no\00"
@anon.7a4f65eeb84d213dfb2a9c8ed18ff68b.1 = private constant [4 x i8] c"yes\00"
@TABLE = internal constant [2 x i8] zeroinitializer
define hidden void @helper(ptr %0) unnamed_addr #3 {
  call void asm sideeffect "bar.sync 0; // (", "~{memory}"(), !srcloc !7
  %2 = call i32 asm "mov.u32 $0, 1;", "=r"() #4
  %3 = call range(i32 0, 9) i32 %0(ptr %1) #4
  call void @_ZN4core9panicking9panic_fmt17h0123456789abcdefE(ptr %0)
  ret void
}
define internal void @_ZN4core9panicking9panic_fmt17h0123456789abcdefE(ptr %0) unnamed_addr #3 {
  call void @unrelated()
  unreachable
}
define internal void @_RNv1k6copied3() {
  ret void
}
define internal void @_RNv1k6copied312() {
  ret void
}
define void @unrelated() #9 {
  ret void
}
define ptx_kernel void @k(ptr %0) unnamed_addr #5 {
  call void asm sideeffect alignstack "//#kernel module=a::b block=64,1,1", "~{memory}"(), !srcloc !8
  call void @helper(ptr @anon.7a4f65eeb84d213dfb2a9c8ed18ff68b.1), !loop !11
  call void @helper(ptr @TABLE)
  call void @_RNv1k6copied312()
  ret void
}
attributes #3 = { nounwind "target-cpu"="sm_30" }
attributes #4 = { memory(none) }
attributes #5 = { nounwind }
attributes #9 = { cold }
!7 = !{i64 1}
!8 = !{i64 2}
!11 = distinct !{!11, !12}
!12 = !{!"unroll"}
"#;

    fn cut() -> String {
        let module = Module::parse(SOURCE);
        let kernel = module.kernels().next().unwrap();
        let marker = marker(kernel).unwrap().unwrap();
        assert_eq!(marker.module, "a::b");
        extract(&module, kernel, &marker)
    }

    #[test]
    fn a_cut_has_what_the_kernel_reaches_and_no_more() {
        let text = cut();
        assert!(text.contains("@helper(ptr %0)") && text.contains("c\"yes\\00\""));
        assert!(!text.contains("unrelated") && !text.contains("@no") && !text.contains("cold"));
        assert!(!text.contains("#kernel") && !text.contains("srcloc") && !text.contains("target-cpu"));
    }

    #[test]
    fn assembly_with_side_effects_becomes_convergent() {
        let text = cut();
        assert!(text.contains("bar.sync 0; // (\", \"~{memory}\"() convergent nomerge\n"), "{text}");
        assert!(text.contains("\"=r\"() #"), "{text}");
        assert!(text.contains("@helper(ptr %0) unnamed_addr convergent "), "{text}");
    }

    #[test]
    fn calls_through_pointers_become_convergent() {
        let text = cut();
        assert!(text.contains("call range(i32 0, 9) i32 %0(ptr %1) convergent nomerge #"), "{text}");
        assert!(convergent_call("  %1 = call i32 @f(ptr %0)").is_none(), "a function says what it is itself");
        assert!(convergent_call("  %1 = add i32 %0, 1").is_none());
    }

    #[test]
    fn lane_local_assembly_is_told_from_the_rest() {
        for template in [
            "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];",
            "{ .reg .b64 t; mov.b64 t, k_param_0; cvta.param.u64 $0, t; }",
            "cp.async.cg.shared.global [$0], [$1], 16;",
        ] {
            assert!(is_lane_local(template), "{template}");
        }
        for template in [
            "shfl.sync.bfly.b32 $0, $1, 1, 31, -1;",
            "mov.b32 $0, $1; bar.sync 0;",
            "{ .reg .pred p; elect.sync _|p, -1; }",
            "cp.async.bulk.commit_group;",
            "@p bar.sync 0;",
            "wgmma.fence.sync.aligned;",
            "activemask.b32 $0;",
        ] {
            assert!(!is_lane_local(template), "{template}");
        }
    }

    #[test]
    fn panics_lose_their_bodies() {
        let text = cut();
        assert!(
            text.contains("declare void @_ZN4core9panicking9panic_fmt17h0123456789abcdefE.2(ptr %0) unnamed_addr"),
            "{text}"
        );
        let name = "_ZN4core9panicking9panic_fmt17h0123456789abcdefE.2";
        assert!(is_panic(name) && crate::ir::demangle(name) == "core::panicking::panic_fmt");
    }

    #[test]
    fn numbers_start_again_and_bounds_are_attached() {
        let text = cut();
        assert!(text.contains("@helper(ptr @constant.0), !loop !0"), "{text}");
        assert!(text.contains("\n@constant.0 = private constant [4 x i8] c\"yes"), "{text}");
        assert!(text.contains("@helper(ptr @TABLE)") && !text.contains("@anon."), "{text}");
        // The second copy of a function, in a crate where there are two, has the name of the first in one where there is one.
        assert!(
            text.contains("call void @_RNv1k6copied3.1()") && text.contains("void @_RNv1k6copied3.1() convergent"),
            "{text}"
        );
        assert!(text.contains("!0 = distinct !{!0, !1}\n!1 = !{!\"unroll\"}"), "{text}");
        assert!(text.contains("convergent \"nvvm.maxntid\"=\"64,1,1\" #0 {"), "{text}");
    }
}
