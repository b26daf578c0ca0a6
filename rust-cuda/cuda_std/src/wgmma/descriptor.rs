//! Matrix descriptors: where an operand tile is in shared memory, and how it is laid out.

use crate::shared::SharedPtr;

/// How the 16-byte chunks of a tile's rows are permuted, as TMA writes them; named by the bytes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// No permutation: 8x16-byte core matrices, each contiguous.
    None,
    /// Rows of 32 bytes.
    B32,
    /// Rows of 64 bytes.
    B64,
    /// Rows of 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of a row of the pattern.
    const fn row_bytes(self) -> u32 {
        match self {
            Self::None => 16,
            Self::B32 => 32,
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }

    const fn code(self) -> u64 {
        match self {
            Self::None => 0,
            Self::B128 => 1,
            Self::B64 => 2,
            Self::B32 => 3,
        }
    }
}

/// A tile operand in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Descriptor(pub u64);

impl Descriptor {
    /// From the tile's address and the two strides in bytes (multiples of 16, below 2^18).
    ///
    /// What the strides mean depends on the layout. K-major: `stride` is the distance of groups of 8 rows; `leading` that of
    /// neighbouring core matrices along K, and unused when swizzled. MN-major and swizzled: `stride` is the distance of
    /// groups of 8 along K, `leading` that of neighbouring patterns along M or N.
    #[inline(always)]
    pub const fn new<T>(tile: SharedPtr<T>, leading: u32, stride: u32, swizzle: Swizzle) -> Self {
        const fn field(bytes: u32) -> u64 {
            ((bytes & 0x3_ffff) >> 4) as u64
        }
        Self(field(tile.addr()) | field(leading) << 16 | field(stride) << 32 | swizzle.code() << 62)
    }

    /// A K-major tile whose rows are as wide as the swizzle pattern: what a TMA box of that width writes.
    /// The tile is aligned to eight such rows. Not for [`Swizzle::None`], whose strides [`new`](Self::new) takes.
    #[inline(always)]
    pub const fn k_major<T>(tile: SharedPtr<T>, swizzle: Swizzle) -> Self {
        Self::new(tile, 16, 8 * swizzle.row_bytes(), swizzle)
    }

    /// A K-major tile with rows of 128 bytes (64 elements of 16 bits), swizzled; aligned to 1024 bytes.
    #[inline(always)]
    pub const fn k_major_128b<T>(tile: SharedPtr<T>) -> Self {
        Self::k_major(tile, Swizzle::B128)
    }

    /// An MN-major tile of 16-bit elements: panels of 64 along M or N, in each of which a row of 128 swizzled bytes
    /// belongs to one index of K; aligned to 1024 bytes. `panel` is the distance of neighbouring panels in bytes, what a
    /// TMA box of 64 by K writes: 128 K.
    #[inline(always)]
    pub const fn mn_major_128b<T>(tile: SharedPtr<T>, panel: u32) -> Self {
        Self::new(tile, panel, 1024, Swizzle::B128)
    }

    /// The descriptor of the tile `bytes` (a multiple of 16) further.
    ///
    /// Along K by one product: 32 bytes in a K-major tile; 2048 in [`mn_major_128b`](Self::mn_major_128b).
    #[inline(always)]
    #[must_use]
    pub const fn advance(self, bytes: u32) -> Self {
        // The address field does not overflow: shared memory ends below 2^18 bytes.
        // Only the low half changes: one 32-bit addition.
        Self(self.0 & !0xffff_ffff | (self.0 as u32).wrapping_add(bytes >> 4) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u32) -> SharedPtr<u8> {
        SharedPtr::from_addr(address)
    }

    #[test]
    fn fields_are_in_place() {
        let descriptor = Descriptor::new(at(0x12340), 0x800, 0x400, Swizzle::B64);
        assert_eq!(descriptor.0 & 0x3fff, 0x1234);
        assert_eq!(descriptor.0 >> 16 & 0x3fff, 0x80);
        assert_eq!(descriptor.0 >> 32 & 0x3fff, 0x40);
        assert_eq!(descriptor.0 >> 62, 2);
    }

    #[test]
    fn k_major_128b_has_eight_row_groups_of_1024_bytes() {
        let descriptor = Descriptor::k_major_128b(at(2048));
        assert_eq!(descriptor.0, 128 | 1 << 16 | 64 << 32 | 1 << 62);
    }

    #[test]
    fn advance_moves_the_address_only() {
        let descriptor = Descriptor::k_major_128b(at(1024));
        assert_eq!(descriptor.advance(32).0, descriptor.0 + 2);
    }
}
