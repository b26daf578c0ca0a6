//! Memory copies that remain after all optimisation.

use std::fmt::Write as _;

/// Bytes of the widest access.
const WIDE: u64 = 16;
/// Copies up to this length are expanded; LLVM turns a longer one into a loop.
const LONGEST: u64 = 128;

/// IR whose copies move 16 bytes at a time.
pub(crate) struct Widened {
    pub(crate) ir: String,
    /// Whether local variables of their length were source or destination of a copy, which SROA can now promote to values.
    pub(crate) has_locals: bool,
}

/// `ir` with widened copies: a copy between two places that are aligned to 16 bytes becomes loads and stores of 16-byte
/// vectors. `None` if there are no such copies.
///
/// A value that is loaded and stored unchanged becomes a memory copy. llc turns it into accesses of 8 bytes or, if a local
/// variable lies between, of the size of its elements: twice the requests, and bank conflicts.
pub(crate) fn widened(ir: &str) -> Option<Widened> {
    let mut out = String::new();
    let (mut done, mut count, mut has_locals) = (0, 0, false);
    for (start, _) in ir.match_indices("call void @llvm.mem") {
        let line = ir[..start].rfind('\n').map_or(0, |end| end + 1);
        let end = ir[start..].find('\n').map_or(ir.len(), |length| start + length + 1);
        let Some(copy) = Copy::parse(&ir[start..end]) else { continue };
        let is_local = |place: &Place<'_>| {
            let function = ir[..line].rfind("\ndefine ").unwrap_or_default();
            ir[function..line].contains(&format!("\n  {} = alloca ", place.pointer))
        };
        let locals = [&copy.to, &copy.from].map(is_local);
        let fits = |place: &Place<'_>, local| place.align >= WIDE || local;
        if !(fits(&copy.to, locals[0]) && fits(&copy.from, locals[1])) || locals == [true; 2] {
            continue;
        }
        has_locals |= locals != [false; 2];
        out += &ir[done..line];
        copy.write(&mut out, &mut count);
        done = end;
    }
    (count > 0).then(|| Widened { ir: out + &ir[done..], has_locals })
}

struct Place<'a> {
    /// `ptr`, or `ptr addrspace(1)`.
    ty: &'a str,
    align: u64,
    pointer: &'a str,
}

impl<'a> Place<'a> {
    /// An argument such as `ptr addrspace(1) noundef nonnull align 16 dereferenceable(16) %x`.
    fn parse(argument: &'a str) -> Option<Place<'a>> {
        let argument = argument.trim();
        let length = match argument.strip_prefix("ptr addrspace(") {
            Some(rest) => argument.len() - rest.len() + rest.find(')')? + 1,
            None => argument.starts_with("ptr ").then_some("ptr".len())?,
        };
        let (ty, rest) = argument.split_at(length);
        // A constant expression contains spaces; the values handled here contain none.
        let (attributes, pointer) = rest.rsplit_once(' ')?;
        let is_value = pointer.starts_with(['%', '@']) && !attributes.contains(['%', '@']);
        let align = attributes.split_once("align ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        is_value.then_some(Place { ty, align: align.unwrap_or(1), pointer })
    }

    /// The place `bytes` further, and the line that computes it.
    fn at(&self, bytes: u64, count: usize, out: &mut String) -> String {
        if bytes == 0 {
            return self.pointer.to_owned();
        }
        let name = format!("%place.{count}");
        let _ = writeln!(out, "  {name} = getelementptr inbounds i8, {} {}, i64 {bytes}", self.ty, self.pointer);
        name
    }
}

/// A call of `llvm.memcpy` or `llvm.memmove` with a known length.
struct Copy<'a> {
    to: Place<'a>,
    from: Place<'a>,
    bytes: u64,
    /// The text after the call, including `, !dbg !3`.
    metadata: &'a str,
}

impl<'a> Copy<'a> {
    fn parse(call: &'a str) -> Option<Copy<'a>> {
        let rest = ["cpy", "move"].iter().find_map(|name| call.strip_prefix("call void @llvm.mem")?.strip_prefix(name));
        let (_, rest) = rest?.split_once('(')?;
        let (arguments, tail) = rest.split_once(", i1 false)")?;
        let mut arguments = arguments.split(", ");
        let (to, from) = (Place::parse(arguments.next()?)?, Place::parse(arguments.next()?)?);
        let bytes = arguments.next()?.strip_prefix("i64 ")?.parse().ok()?;
        let is_wide = arguments.next().is_none() && (WIDE..=LONGEST).contains(&bytes) && bytes.is_multiple_of(WIDE);
        let metadata = tail.find(", !").map_or("", |at| tail[at..].trim_end());
        is_wide.then_some(Copy { to, from, bytes, metadata })
    }

    /// All bytes are loaded before any is stored: the ranges of a move may overlap.
    fn write(&self, out: &mut String, count: &mut usize) {
        let Copy { to, from, bytes, metadata } = self;
        let (loads, stores) = (*count, *count + (bytes / WIDE) as usize);
        let offsets = || (0..*bytes).step_by(WIDE as usize);
        for (offset, number) in offsets().zip(loads..) {
            let source = from.at(offset, number, out);
            let align = from.align.min(WIDE);
            let _ = writeln!(out, "  %copied.{number} = load <4 x i32>, {} {source}, align {align}{metadata}", from.ty);
        }
        for ((offset, number), value) in offsets().zip(stores..).zip(loads..) {
            let target = to.at(offset, number, out);
            let align = to.align.min(WIDE);
            let _ = writeln!(out, "  store <4 x i32> %copied.{value}, {} {target}, align {align}{metadata}", to.ty);
        }
        *count = stores + (bytes / WIDE) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::widened;

    fn function(body: &str) -> String {
        format!("\ndefine void @k() {{\n  %local = alloca [16 x i8], align 4\n{body}  ret void\n}}\n")
    }

    #[test]
    fn what_is_aligned_is_copied_16_bytes_at_a_time() {
        let before = function(
            "  tail call void @llvm.memmove.p1.p3.i64(ptr addrspace(1) noundef nonnull align 16 dereferenceable(32) %1, \
             ptr addrspace(3) align 32 @shared, i64 32, i1 false) #3, !dbg !7\n",
        );
        let after = function(
            "  %copied.0 = load <4 x i32>, ptr addrspace(3) @shared, align 16, !dbg !7
  %place.1 = getelementptr inbounds i8, ptr addrspace(3) @shared, i64 16
  %copied.1 = load <4 x i32>, ptr addrspace(3) %place.1, align 16, !dbg !7
  store <4 x i32> %copied.0, ptr addrspace(1) %1, align 16, !dbg !7
  %place.3 = getelementptr inbounds i8, ptr addrspace(1) %1, i64 16
  store <4 x i32> %copied.1, ptr addrspace(1) %place.3, align 16, !dbg !7
",
        );
        let found = widened(&before).expect("a copy");
        assert_eq!(found.ir, after);
        assert!(!found.has_locals);
    }

    #[test]
    fn a_local_variable_between_becomes_a_value() {
        let copy =
            |to, from| format!("  call void @llvm.memcpy.p0.p0.i64(ptr nonnull {to}, ptr {from}, i64 16, i1 false)\n");
        let found = widened(&function(&copy("align 4 %local", "align 16 %1"))).expect("a copy");
        assert!(found.has_locals);
        assert!(found.ir.contains("store <4 x i32> %copied.0, ptr %local, align 4\n"), "{}", found.ir);
    }

    #[test]
    fn other_copies_stay() {
        for (to, from, rest) in [
            ("align 4 %0", "align 16 %1", "i64 16, i1 false"),
            ("align 16 %0", "%1", "i64 16, i1 false"),
            ("align 16 %0", "align 16 %1", "i64 24, i1 false"),
            ("align 16 %0", "align 16 %1", "i64 8, i1 false"),
            ("align 16 %0", "align 16 %1", "i64 4096, i1 false"),
            ("align 16 %0", "align 16 %1", "i64 %n, i1 false"),
            ("align 16 %0", "align 16 %1", "i64 16, i1 true"),
            ("align 16 %0", "align 16 getelementptr (i8, ptr @a, i64 16)", "i64 16, i1 false"),
            ("align 4 %local", "align 4 %local", "i64 16, i1 false"),
        ] {
            let call = format!("  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {from}, {rest})\n");
            assert!(widened(&function(&call)).is_none(), "{call}");
        }
        let set = "  call void @llvm.memset.p0.i64(ptr align 16 %0, i8 0, i64 16, i1 false)\n";
        assert!(widened(&function(set)).is_none() && widened("").is_none());
    }
}
