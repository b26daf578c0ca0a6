//! Where the tiles of a `wgmma` lie in shared memory.

use crate::tensor_map::Swizzle;

/// A matrix descriptor: where a tile lies in shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Desc {
    start: usize,
    leading: usize,
    stride: usize,
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
        Desc { start: field(0), leading: field(16), stride: field(32), swizzle, base, transposed }
    }

    /// Offset of the byte at (row, byte along k), or for a transposed tile (byte along the row, k).
    fn at(&self, row: usize, k: usize) -> usize {
        let (r8, rin) = (row / 8, row % 8);
        let linear = match (self.transposed, self.swizzle) {
            (false, Swizzle::None) => r8 * self.stride + rin * 16 + k / 16 * self.leading + k % 16,
            // Only B of a sparse multiplication has rows that are longer than a swizzle spans.
            (false, sw) => r8 * self.stride + rin * sw.span() + k / sw.span() * self.leading + k % sw.span(),
            // Here `row` is k and `k` the byte along m or n.
            (true, Swizzle::None) => r8 * self.leading + rin * 16 + k / 16 * self.stride + k % 16,
            (true, sw) => r8 * self.stride + rin * sw.span() + k / sw.span() * self.leading + k % sw.span(),
        };
        self.swizzle.apply_from(self.start + linear, self.base)
    }
}

/// Calls `f` with each 16-byte piece of a tile of `rows` × `k` elements that starts at row `first`.
pub fn pieces(d: &Desc, first: usize, rows: usize, k: usize, bytes: usize, mut f: impl FnMut(usize, usize, usize)) {
    if d.transposed {
        for kk in 0..k {
            for piece in 0..rows * bytes / 16 {
                f(kk, piece, d.at(kk, first * bytes + piece * 16));
            }
        }
    } else {
        for row in 0..rows {
            for piece in 0..(k * bytes).div_ceil(16) {
                f(row, piece, d.at(first + row, piece * 16));
            }
        }
    }
}
