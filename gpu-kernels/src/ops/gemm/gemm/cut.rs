//! How clusters split k (split-K) in a product with few rows or columns.

use super::skinny::vectors;

/// How a cluster splits the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Blocks among which k is split.
    pub share: u32,
    /// Blocks of a multiprocessor.
    pub blocks: u32,
}

impl Cut {
    /// Four blocks, each of which has half a multiprocessor.
    pub const FOUR: Self = Self { share: 4, blocks: 2 };
    /// Four blocks, each of which has a whole multiprocessor.
    pub const FOUR_ALONE: Self = Self { share: 4, blocks: 1 };
    /// Two blocks, each of which has a whole multiprocessor.
    pub const PAIR: Self = Self { share: 2, blocks: 1 };

    /// The sums of a thread of its kernels.
    pub const fn sums(self) -> &'static [usize] {
        match self {
            Self::FOUR_ALONE => &[32],
            _ => &[8, 32, 64],
        }
    }

    /// The most vectors that they take.
    pub const fn most(self) -> u32 {
        let sums = self.sums();
        vectors(sums[sums.len() - 1])
    }
}
