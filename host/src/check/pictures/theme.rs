//! Colours. Pictures are drawn in the colours for light backgrounds; a style sheet replaces them on dark ones, so one picture
//! serves both.

use plotters::style::RGBColor;

/// A colour: on light, and on dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink([u8; 3], [u8; 3]);

const fn ink(light: u32, dark: u32) -> Ink {
    const fn bytes(rgb: u32) -> [u8; 3] {
        let [_, r, g, b] = rgb.to_be_bytes();
        [r, g, b]
    }
    Ink(bytes(light), bytes(dark))
}

/// Behind everything.
pub(crate) const SURFACE: Ink = ink(0xFCFCFB, 0x1A1A19);
/// Words and numbers.
pub(crate) const TEXT: Ink = ink(0x0B0B0C, 0xF4F4F2);
/// Words that matter less.
pub(crate) const MUTED: Ink = ink(0x5A5954, 0xB9B8B0);
/// Lines to read values by.
pub(crate) const GRID: Ink = ink(0xE3E2DC, 0x343432);
/// Computed values, and other libraries' results.
pub(crate) const PALE: Ink = ink(0xA9A8A0, 0x7B7A74);
/// Slower than what it is compared with.
pub(crate) const SLOWER: Ink = ink(0xD9542B, 0xE8764F);

/// The colours of series or families, in an order in which neighbours differ for colour-blind readers as well.
pub(crate) const SERIES: [Ink; 8] = [
    ink(0x2A78D6, 0x4A93EC),
    ink(0xEB6834, 0xDD6231),
    ink(0x1BAF7A, 0x22A976),
    ink(0xD99300, 0xC98500),
    ink(0xD9578F, 0xD95586),
    ink(0x008300, 0x2F9B2F),
    ink(0x4A3AA7, 0x9085E9),
    ink(0x7A6A58, 0xA89782),
];

const ALL: [Ink; 6] = [SURFACE, TEXT, MUTED, GRID, PALE, SLOWER];

impl Ink {
    /// As drawn.
    pub(super) fn colour(self) -> RGBColor {
        let [r, g, b] = self.0;
        RGBColor(r, g, b)
    }

    /// As drawn, in hexadecimal.
    pub(crate) fn light(self) -> String {
        hex(self.0)
    }

    /// On a dark background.
    pub(crate) fn dark(self) -> String {
        hex(self.1)
    }
}

/// As the pictures write it, which the style sheet goes by.
fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// The style of pictures: fonts, and the dark colours where a dark page is wanted.
pub(crate) fn style() -> String {
    let of = |ink: &Ink, what: &str| format!("svg [{what}=\"{}\"]{{{what}:{}}}", ink.light(), ink.dark());
    let rules: String =
        ALL.iter().chain(&SERIES).flat_map(|ink| ["fill", "stroke"].map(|what| of(ink, what))).collect();
    format!("svg text{{font-family:system-ui,sans-serif}}@media(prefers-color-scheme:dark){{{rules}}}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_colours_are_one() {
        let all: Vec<_> = ALL.iter().chain(&SERIES).collect();
        assert_eq!(all.iter().map(|ink| ink.light()).collect::<HashSet<_>>().len(), all.len());
        assert!(style().contains("svg [fill=\"#2A78D6\"]{fill:#4A93EC}"));
    }
}
