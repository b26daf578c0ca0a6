//! Splits PTX text into tokens.

use super::ParseError;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tok<'a> {
    /// An identifier, opcode with modifiers, or directive (leading dot).
    Word(&'a str),
    Int(u64),
    F32(u32),
    F64(u64),
    Decimal(f64),
    Str(&'a str),
    Punct(u8),
}

fn is_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

/// All tokens, each with its line.
pub fn tokens(src: &str) -> Result<Vec<(Tok<'_>, u32)>, ParseError> {
    let b = src.as_bytes();
    let mut out = Vec::with_capacity(src.len() / 4);
    let (mut i, mut line) = (0usize, 1u32);
    while i < b.len() {
        let c = b[i];
        match c {
            b'\n' => {
                line += 1;
                i += 1;
            }
            _ if c.is_ascii_whitespace() || c == 0 => i += 1,
            b'/' if b.get(i + 1) == Some(&b'/') => {
                while i < b.len() && b[i] != b'\n' {
                    i += 1;
                }
            }
            b'/' if b.get(i + 1) == Some(&b'*') => {
                let end = src[i + 2..].find("*/").ok_or_else(|| unended("comment", line))? + i + 2;
                line += b[i..end].iter().filter(|c| **c == b'\n').count() as u32;
                i = end + 2;
            }
            b'"' => {
                let (start, first) = (i + 1, line);
                i += 1;
                while i < b.len() && b[i] != b'"' {
                    line += u32::from(b[i] == b'\n');
                    i += 1 + usize::from(b[i] == b'\\');
                }
                let text = src.get(start..i).filter(|_| i < b.len()).ok_or_else(|| unended("text", first))?;
                out.push((Tok::Str(text), line));
                i += 1;
            }
            _ if c.is_ascii_digit() => {
                let (tok, next) = number(src, i).map_err(|m| ParseError::new(line, m))?;
                out.push((tok, line));
                i = next;
            }
            _ if is_start(c) => {
                let start = i;
                i += 1;
                while i < b.len() {
                    if is_word(b[i]) {
                        i += 1;
                    } else if b[i] == b':'
                        && b.get(i + 1) == Some(&b':')
                        && b.get(i + 2).is_some_and(|&c| is_start(c) || c.is_ascii_digit())
                    {
                        i += 3;
                    } else {
                        break;
                    }
                }
                let word = &src[start..i];
                if c == b'.' {
                    // `.reg.b32` is two directives.
                    let mut at = 0;
                    for (k, _) in word.match_indices('.').skip(1).chain([(word.len(), "")]) {
                        out.push((Tok::Word(&word[at..k]), line));
                        at = k;
                    }
                } else {
                    out.push((Tok::Word(word), line));
                }
            }
            _ if c.is_ascii() => {
                out.push((Tok::Punct(c), line));
                i += 1;
            }
            _ => return Err(ParseError::new(line, "a character outside ASCII".into())),
        }
    }
    Ok(out)
}

fn unended(what: &str, line: u32) -> ParseError {
    ParseError::new(line, format!("a {what} that begins here has no end"))
}

fn number(src: &str, start: usize) -> Result<(Tok<'_>, usize), String> {
    let b = src.as_bytes();
    let run = |from: usize, ok: fn(u8) -> bool| {
        let mut e = from;
        while e < b.len() && ok(b[e]) {
            e += 1;
        }
        e
    };
    let bad = |end: usize| format!("bad number `{}`", &src[start..end]);
    let radix = |from: usize, base: u32, ok: fn(u8) -> bool| {
        let end = run(from, ok);
        let skip = usize::from(b.get(end).is_some_and(|c| *c == b'U'));
        u64::from_str_radix(&src[from..end], base).map(|v| (Tok::Int(v), end + skip)).map_err(|_| bad(end))
    };
    if b[start] == b'0' {
        match b.get(start + 1) {
            Some(b'x' | b'X') => return radix(start + 2, 16, |c| c.is_ascii_hexdigit()),
            Some(b'b' | b'B') => return radix(start + 2, 2, |c| c.is_ascii_digit()),
            Some(k @ (b'f' | b'F' | b'd' | b'D')) => {
                let end = run(start + 2, |c| c.is_ascii_hexdigit());
                let v = u64::from_str_radix(&src[start + 2..end], 16).map_err(|_| bad(end))?;
                let digits = end - start - 2;
                return match (k, digits) {
                    (b'f' | b'F', 8) => Ok((Tok::F32(v as u32), end)),
                    (b'd' | b'D', 16) => Ok((Tok::F64(v), end)),
                    _ => Err(bad(end)),
                };
            }
            _ => {}
        }
    }
    let mut end = run(start, |c| c.is_ascii_digit());
    let exponent = |e: usize| {
        matches!(b.get(e), Some(b'e' | b'E'))
            && b.get(e + 1).is_some_and(|c| c.is_ascii_digit() || matches!(c, b'+' | b'-'))
    };
    if b.get(end) == Some(&b'.') || exponent(end) {
        if b[end] == b'.' {
            end = run(end + 1, |c| c.is_ascii_digit());
        }
        if exponent(end) {
            end = run(end + 2, |c| c.is_ascii_digit());
        }
        return src[start..end].parse().map(|v| (Tok::Decimal(v), end)).map_err(|_| bad(end));
    }
    let octal = end - start > 1 && b[start] == b'0';
    let parsed = if octal { u64::from_str_radix(&src[start..end], 8) } else { src[start..end].parse() };
    let v = parsed.map_err(|_| bad(end))?;
    Ok((Tok::Int(v), end + usize::from(b.get(end) == Some(&b'U'))))
}
