//! How clusters cut a product with few rows or columns along k.

/// How a cluster cuts the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Blocks that share k.
    pub share: u32,
    /// Sets of them, of [`ROWS`](super::skinny::ROWS) of the weight each, that share the vectors of their part of k.
    pub sides: u32,
    /// Blocks of a multiprocessor.
    pub blocks: u32,
}

impl Cut {
    /// Four blocks, half a multiprocessor each.
    pub const FOUR: Self = Self { share: 4, sides: 1, blocks: 2 };
    /// Four that have one each.
    pub const FOUR_ALONE: Self = Self { blocks: 1, ..Self::FOUR };
    /// Two that have one each.
    pub const PAIR: Self = Self { share: 2, sides: 1, blocks: 1 };
    /// Two pairs of these, which load half of the vectors each.
    pub const TWO_PAIRS: Self = Self { sides: 2, ..Self::PAIR };

    /// The sums of a thread of its kernels.
    pub const fn sums(self) -> &'static [usize] {
        match self {
            Self { sides: 2, .. } => &[32, 64],
            Self { share: 4, blocks: 1, .. } => &[32],
            _ => &[8, 32, 64],
        }
    }
}
