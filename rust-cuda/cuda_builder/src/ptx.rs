//! The head of a PTX `.entry`: its parameters.

use ptx_archive::{Param, ParamKind};

/// The alignment that the hardware requires for a TMA descriptor.
const TENSORMAP_ALIGN: u32 = 64;

/// Raises the alignment of the parameters that are TMA descriptors, and lists all parameters.
pub(crate) fn finish_entry(ptx: &str, symbol: &str, tensormaps: &[usize]) -> Result<(String, Vec<Param>), String> {
    let list = parameter_list(ptx, symbol).ok_or("no `.entry` in the PTX")?;
    let (head, rest) = ptx.split_at(list.start);
    let (text, tail) = rest.split_at(list.end - list.start);
    let mut params = Vec::new();
    let mut lines = Vec::new();
    for line in text.split(',').filter(|line| !line.trim().is_empty()) {
        let index = params.len();
        let mut param = parse(line).ok_or_else(|| format!("parameter {index} is not understood: {line}"))?;
        let mut line = line.to_owned();
        if tensormaps.contains(&index) {
            if param.kind != ParamKind::Bytes || param.bytes != 128 {
                return Err(format!("parameter {index} is a TMA descriptor of {} bytes: it has 128", param.bytes));
            }
            let old = format!(".align {} ", param.align);
            line = line.replacen(&old, &format!(".align {TENSORMAP_ALIGN} "), 1);
            param.align = TENSORMAP_ALIGN;
            param.kind = ParamKind::TensorMap;
        }
        params.push(param);
        lines.push(line);
    }
    if let Some(index) = tensormaps.iter().find(|&&index| index >= params.len()) {
        return Err(format!(
            "parameter {index} is marked as a TMA descriptor and there are {} parameters",
            params.len()
        ));
    }
    Ok((format!("{head}{}{tail}", lines.join(",")), params))
}

/// PTX with line information and everything else where it would be without: `.loc` stands in front of its instruction, and what
/// belongs to nothing comes last.
pub(crate) fn fold_lines(ptx: &str) -> String {
    let (mut text, mut pending, mut tail) = (String::with_capacity(ptx.len()), String::new(), String::new());
    for line in ptx.lines() {
        let bare = line.trim_start();
        // The comment names the line again.
        let directive = bare.split("//").next().unwrap_or_default().trim_end();
        if bare.starts_with(".section") || bare.starts_with(".file") {
            tail = tail + bare + " ";
        } else if bare.starts_with(".loc") {
            pending = format!("\t{directive}");
        } else if !bare.starts_with("$L__tmp") && !bare.starts_with("$L__func_") {
            text.push_str(&std::mem::take(&mut pending));
            text.push_str(line);
            text.push('\n');
        }
    }
    text + &tail
}

/// The text between the parentheses of the entry.
fn parameter_list(ptx: &str, symbol: &str) -> Option<std::ops::Range<usize>> {
    let entry = format!(".entry {symbol}(");
    let start = ptx.find(&entry)? + entry.len();
    let end = start + ptx[start..].find(')')?;
    Some(start..end)
}

/// One parameter, such as `.param .u64 .ptr .align 1 k_param_0` or `.param .align 8 .b8 k_param_1[128]`.
fn parse(line: &str) -> Option<Param> {
    let mut words = line.split_whitespace();
    if words.next()? != ".param" {
        return None;
    }
    let mut align = None;
    let mut word = words.next()?;
    if word == ".align" {
        align = Some(words.next()?.parse().ok()?);
        word = words.next()?;
    }
    let (class, bits) = word.strip_prefix('.')?.split_at_checked(1)?;
    let size = bits.parse::<u32>().ok()? / 8;
    let rest = words.collect::<Vec<_>>();
    let name = rest.last()?;
    let length = match name.split_once('[') {
        Some((_, length)) => Some(length.strip_suffix(']')?.parse::<u32>().ok()?),
        None => None,
    };
    let kind = if length.is_some() {
        ParamKind::Bytes
    } else if rest.contains(&".ptr") {
        ParamKind::Pointer
    } else if class == "f" {
        ParamKind::Float
    } else {
        ParamKind::Integer
    };
    let bytes = size * length.unwrap_or(1);
    Some(Param { bytes, align: align.unwrap_or(size), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.visible .entry k(
\t.param .f32 k_param_0,
\t.param .u64 .ptr .align 1 k_param_1,
\t.param .align 8 .b8 k_param_2[128],
\t.param .u8 k_param_3
)
.maxntid 32, 1, 1
{ ret; }
";

    #[test]
    fn parameters_are_listed_and_descriptors_aligned() {
        let (ptx, params) = finish_entry(PTX, "k", &[2]).unwrap();
        let kinds = params.iter().map(|p| (p.bytes, p.align, p.kind));
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [
                (4, 4, ParamKind::Float),
                (8, 8, ParamKind::Pointer),
                (128, 64, ParamKind::TensorMap),
                (1, 1, ParamKind::Integer),
            ]
        );
        assert_eq!(ptx, PTX.replace(".align 8 .b8", ".align 64 .b8"));
    }

    #[test]
    fn lines_stand_in_front_of_their_instructions() {
        let plain = "{\n\t.reg .b32 \t%r<2>;\n// %bb.0:\n\tadd.s32 \t%r1, %r1, 1;\n\tret;\n}\n";
        let with = "{\n\t.reg .b32 \t%r<2>;\n$L__func_begin0:\n\t.loc\t1 18 0                          // lib.rs:18\n// %bb.0:\n$L__tmp0:\n\
                    \t.loc\t1 20 5 // lib.rs:20:5\n\tadd.s32 \t%r1, %r1, 1;\n\tret;\n$L__func_end0:\n}\n\t.file\t1 \"lib.rs\"\n";
        let folded = fold_lines(with);
        assert_eq!(
            folded.replace("\t.loc\t1 18 0", "").replace("\t.loc\t1 20 5", ""),
            plain.to_owned() + ".file\t1 \"lib.rs\" "
        );
        assert!(folded.contains("\n\t.loc\t1 20 5\tadd.s32"), "{folded}");
    }

    #[test]
    fn no_parameters_is_a_list_too() {
        let (_, params) = finish_entry(".visible .entry k()\n{ ret; }", "k", &[]).unwrap();
        assert!(params.is_empty());
    }

    #[test]
    fn a_descriptor_that_is_none_is_an_error() {
        assert!(finish_entry(PTX, "k", &[0]).unwrap_err().contains("4 bytes"));
        assert!(finish_entry(PTX, "k", &[4]).unwrap_err().contains("there are 4 parameters"));
        assert!(finish_entry(PTX, "other", &[]).is_err());
    }
}
