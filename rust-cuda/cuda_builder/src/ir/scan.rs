//! A tokenizer for the four things that a cut distinguishes: symbols, attribute groups, metadata, and the text in between.

/// A piece of IR text. Comments are left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Anything else, string constants included.
    Text(&'a str),
    /// `@name`, without the `@`; quotes are kept.
    Symbol(&'a str),
    /// `#3`
    Attributes(u32),
    /// `!3`
    Metadata(u32),
}

/// The tokens of `text`, in order.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    Tokens { rest: text }
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (head, tail) = self.rest.split_at(length);
        self.rest = tail;
        head
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.rest.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                // A string ends at the next quote: inside, a quote is written \22.
                b'"' => at += string_length(&bytes[at..]),
                b';' if at == 0 => {
                    let line = bytes.iter().position(|&b| b == b'\n');
                    self.take(line.unwrap_or(bytes.len()));
                    return self.next();
                }
                b'@' | b'#' | b'!' | b';' if at > 0 && special(&bytes[at..]) => {
                    return Some(Token::Text(self.take(at)));
                }
                b'@' if special(bytes) => {
                    let length = name_length(&bytes[1..]);
                    return Some(Token::Symbol(&self.take(1 + length)[1..]));
                }
                kind @ (b'#' | b'!') if special(bytes) => {
                    let digits = bytes[1..].iter().take_while(|b| b.is_ascii_digit());
                    let length = 1 + digits.count();
                    let number = self.take(length)[1..].parse().unwrap_or(u32::MAX);
                    return Some(match kind {
                        b'#' => Token::Attributes(number),
                        _ => Token::Metadata(number),
                    });
                }
                _ => at += 1,
            }
        }
        (at > 0).then(|| Token::Text(self.take(at)))
    }
}

/// Whether a token other than text starts here.
fn special(bytes: &[u8]) -> bool {
    match bytes {
        [b';', ..] => true,
        [b'@', ..] => name_length(&bytes[1..]) > 0,
        [b'#' | b'!', next, ..] => next.is_ascii_digit(),
        _ => false,
    }
}

fn name_length(bytes: &[u8]) -> usize {
    if bytes.first() == Some(&b'"') {
        return string_length(bytes);
    }
    let is_name = |b: &&u8| b.is_ascii_alphanumeric() || b"-$._".contains(b);
    bytes.iter().take_while(is_name).count()
}

/// The length of the string that starts with the quote `bytes` starts with.
pub(super) fn string_length(bytes: &[u8]) -> usize {
    let close = bytes[1..].iter().position(|&b| b == b'"');
    close.map_or(bytes.len(), |at| at + 2)
}

/// The length of the parenthesised list that `text` starts with, strings inside it not counted.
pub(super) fn list_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += string_length(&bytes[at..]);
                continue;
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Token::*, *};

    #[test]
    fn symbols_groups_and_metadata_are_told_from_text() {
        let text = r#"call void @"a b"(ptr @x.1) #12, !srcloc !7 ; preds = @no"#;
        assert_eq!(
            tokens(text).collect::<Vec<_>>(),
            [
                Text("call void "),
                Symbol("\"a b\""),
                Text("(ptr "),
                Symbol("x.1"),
                Text(") "),
                Attributes(12),
                Text(", !srcloc "),
                Metadata(7),
                Text(" "),
            ]
        );
    }

    #[test]
    fn strings_hide_what_is_in_them() {
        let text = r#"@s = constant [9 x i8] c"@a #1 !2;\22", align 1"#;
        let symbols = tokens(text).filter(|token| matches!(token, Symbol(_)));
        assert_eq!(symbols.count(), 1);
        assert!(!tokens(text).any(|token| matches!(token, Attributes(_) | Metadata(_))));
    }

    #[test]
    fn lists_are_matched() {
        assert_eq!(list_length("(i32 (f(1)) \")\") x"), Some(16));
        assert_eq!(list_length("(i32"), None);
    }
}
