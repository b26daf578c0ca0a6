//! Reading texts whose names come from users: a device or a pipe may have no end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than any text that this crate writes; in bytes.
const MOST: usize = 1 << 30;

/// All of a text file. Of anything else no more than shows that it is none.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    within(File::open(path)?, MOST)
}

fn within(mut file: impl Read, most: usize) -> io::Result<String> {
    const CHUNK: u64 = 1 << 16;
    let refused = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut bytes = Vec::new();
    while file.by_ref().take(CHUNK).read_to_end(&mut bytes)? > 0 {
        // A byte that is valid UTF-8 and in no text: all that /dev/zero has.
        if bytes.iter().rev().take(CHUNK as usize).any(|byte| *byte == 0) {
            return Err(refused("it is no text".to_owned()));
        }
        if bytes.len() > most {
            return Err(refused(format!("it has more than {most} bytes")));
        }
    }
    String::from_utf8(bytes).map_err(|error| refused(format!("it is no text: {}", error.utf8_error())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(file: impl Read) -> String {
        within(file, 1 << 20).unwrap_err().to_string()
    }

    #[test]
    fn texts_are_read_whole() {
        for text in [String::new(), "ä".to_owned(), "long\n".repeat(100_000)] {
            assert_eq!(within(text.as_bytes(), 1 << 20).unwrap(), text);
        }
    }

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        assert_eq!(refused(io::repeat(0)), "it is no text");
        assert_eq!(refused(io::repeat(b'y')), "it has more than 1048576 bytes");
        assert!(refused(&b"\xFF"[..]).starts_with("it is no text: "));
        let zeros = Path::new("/dev/zero");
        if zeros.exists() {
            assert_eq!(text(zeros).unwrap_err().to_string(), "it is no text");
        }
    }
}
