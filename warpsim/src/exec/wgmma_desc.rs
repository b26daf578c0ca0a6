//! Layout of the tiles of a `wgmma` in shared memory.

use crate::tensor_map::Swizzle;

/// A matrix descriptor: the layout of a tile in shared memory.
///
/// A tile consists of lines, which are its rows or, if transposed, its indices along k. A line consists of pieces of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Desc {
    start: usize,
    /// Stride between lines of the same group of eight; also the number of contiguous bytes of a line: a power of two.
    pitch: usize,
    /// Stride between groups of eight lines.
    eights: usize,
    /// Stride between the contiguous parts of a line.
    along: usize,
    swizzle: Swizzle,
    /// The base offset: the 128-byte row of 1024 bytes where the swizzle's pattern starts.
    base: usize,
    /// M- or N-major instead of K-major.
    pub transposed: bool,
}

impl Desc {
    pub fn new(v: u64, transposed: bool) -> Self {
        let field = |at: u32| ((v >> at & 0x3fff) << 4) as usize;
        let swizzle = [Swizzle::None, Swizzle::B128, Swizzle::B64, Swizzle::B32][(v >> 62) as usize];
        let base = (v >> 49 & 7) as usize;
        let (leading, stride) = (field(16), field(32));
        let (pitch, eights, along) = match (swizzle, transposed) {
            (Swizzle::None, false) => (16, stride, leading),
            (Swizzle::None, true) => (16, leading, stride),
            // K-major: only B of a sparse multiplication has rows longer than the swizzle span.
            _ => (swizzle.span(), stride, leading),
        };
        Desc { start: field(0), pitch, eights, along, swizzle, base, transposed }
    }

    /// Where a line begins, before swizzling.
    #[inline(always)]
    fn line(&self, line: usize) -> usize {
        self.start + line / 8 * self.eights + line % 8 * self.pitch
    }

    /// Offset of piece number `piece` of a line that begins at offset `line`.
    #[inline(always)]
    fn piece(&self, line: usize, piece: usize) -> usize {
        let byte = piece * 16;
        let places = byte >> self.pitch.trailing_zeros();
        self.swizzle.apply_from(line + places * self.along + (byte & (self.pitch - 1)), self.base)
    }
}

/// Calls `f` with each 16-byte piece of a tile of `rows` × `k` elements that starts at row `first`: the piece's line, its number in the line,
/// and its offset.
#[inline(always)]
pub fn pieces(d: &Desc, first: usize, rows: usize, k: usize, bytes: usize, mut f: impl FnMut(usize, usize, usize)) {
    let (first_line, lines, first_piece, pieces) = match d.transposed {
        false => (first, rows, 0, (k * bytes).div_ceil(16)),
        true => (0, k, first * bytes / 16, rows * bytes / 16),
    };
    for line in 0..lines {
        let start = d.line(first_line + line);
        for piece in 0..pieces {
            f(line, piece, d.piece(start, first_piece + piece));
        }
    }
}
