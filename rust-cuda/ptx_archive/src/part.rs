//! What is compressed together, by Brotli: its window holds a whole module, whose kernels repeat one another.

use std::hash::Hasher as _;
use std::io::Read as _;

use siphasher::sip::SipHasher13;

#[cfg(feature = "write")]
use crate::codec::length;
use crate::codec::record;

/// Where a compressed text is, and how to tell that it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u32,
    pub(crate) compressed: u32,
    pub(crate) length: u32,
    pub(crate) check: u32,
}

record!(Part { offset, compressed, length, check });

impl Part {
    /// That of `text`, which is nowhere yet.
    #[cfg(feature = "write")]
    pub(crate) fn of(text: &[u8]) -> Part {
        Part { offset: 0, compressed: 0, length: length(text.len()), check: check(text) }
    }

    /// Appends its text to `code`, compressed, unless it is known what that gives.
    #[cfg(feature = "write")]
    pub(crate) fn put_text(mut self, text: &[u8], known: Option<&[u8]>, code: &mut Vec<u8>) -> Part {
        let offset = code.len();
        match known {
            Some(compressed) => code.extend(compressed),
            None => compress(text, code),
        }
        (self.offset, self.compressed) = (length(offset), length(code.len() - offset));
        self
    }

    /// The bytes in `code`.
    pub(crate) fn compressed(self, code: &[u8]) -> Option<&[u8]> {
        code.get(self.offset as usize..)?.get(..self.compressed as usize)
    }

    /// The text, which `code` holds.
    pub(crate) fn text(self, code: &[u8]) -> Option<Vec<u8>> {
        const BUFFER: usize = 1 << 16;
        let mut text = Vec::new();
        // No more than is expected, whatever the bytes say.
        let expected = u64::from(self.length);
        let mut inflate = brotli_decompressor::Decompressor::new(self.compressed(code)?, BUFFER).take(expected + 1);
        inflate.read_to_end(&mut text).ok()?;
        (text.len() as u64 == expected && check(&text) == self.check).then_some(text)
    }
}

/// A quality beyond which time doubles and the size hardly falls; the largest window.
#[cfg(feature = "write")]
fn compress(text: &[u8], to: &mut Vec<u8>) {
    let params =
        brotli::enc::BrotliEncoderParams { quality: 5, lgwin: 24, size_hint: text.len(), ..Default::default() };
    // Between two pieces of memory nothing goes wrong.
    let _ = brotli::BrotliCompress(&mut &*text, to, &params);
}

fn check(text: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(text);
    hasher.finish() as u32
}
