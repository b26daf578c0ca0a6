//! Values that a loop carries over from the previous iteration.

use std::collections::HashSet;

/// `ir` with zeros in certain phis: a phi that has an undefined value on one edge, and another phi of its block on a second
/// edge, gets zero for the first.
///
/// This is a loop's `previous = this`: the first iteration has no previous value, and PTX leaves its register unwritten. ptxas
/// (13.0) then merges the two registers, and later iterations find their own value in place of the previous one. A register
/// that is written is kept separate.
pub(crate) fn settled(ir: &str) -> String {
    let mut out = String::with_capacity(ir.len());
    let mut rest = ir;
    while !rest.is_empty() {
        let block: Vec<_> = rest.split_inclusive('\n').take_while(|line| result(line).is_some()).collect();
        let names: HashSet<_> = block.iter().filter_map(|line| result(line)).collect();
        for line in &block {
            match carries(line, &names) {
                true => out += &NOTHING.iter().fold((*line).to_owned(), |line, nothing| line.replace(nothing, ZERO)),
                false => out += line,
            }
        }
        rest = &rest[block.iter().map(|line| line.len()).sum()..];
        let next = rest.split_inclusive('\n').next().unwrap_or_default();
        out += next;
        rest = &rest[next.len()..];
    }
    out
}

const NOTHING: [&str; 2] = ["[ poison,", "[ undef,"];
const ZERO: &str = "[ zeroinitializer,";

/// The name of the phi in this line, if there is one.
fn result(line: &str) -> Option<&str> {
    let (name, value) = line.strip_prefix("  %")?.split_once(" = ")?;
    value.starts_with("phi ").then_some(name)
}

/// Whether a phi has an undefined value on one edge, and one of `names` on another.
fn carries(line: &str, names: &HashSet<&str>) -> bool {
    let values = line.split("[ ").skip(1).filter_map(|way| way.split(',').next());
    let mut others = values.filter_map(|value| value.strip_prefix('%')).filter(|name| Some(*name) != result(line));
    let has_nothing = NOTHING.iter().any(|nothing| line.contains(nothing));
    has_nothing && others.any(|name| names.contains(name))
}

#[cfg(test)]
mod tests {
    use super::settled;

    #[test]
    fn what_the_turn_before_had_is_zero_before_the_first() {
        let before = "\
loop:
  %previous = phi i32 [ poison, %entry ], [ %this, %loop ]
  %kept = phi ptr [ %kept, %loop ], [ undef, %entry ]
  %this = phi i32 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ undef, %entry ], [ %added, %loop ]
  %next = add i32 %this, %previous
other:
  %two = phi <2 x float> [ %a, %x ], [ undef, %y ], [ %b, %z ]
  %a = phi <2 x float> [ %c, %x ], [ %c, %y ], [ %c, %z ]
";
        let after = before
            .replace("%previous = phi i32 [ poison,", "%previous = phi i32 [ zeroinitializer,")
            .replace("[ %a, %x ], [ undef,", "[ %a, %x ], [ zeroinitializer,");
        assert_eq!(settled(before), after);
        assert_eq!(settled(""), "");
    }
}
