//! The kernels that compute a product, by the names of their variants.

/// Which kernel computes a product.
#[derive(Clone, Copy)]
pub(super) enum Path {
    /// Clusters of four blocks that split k.
    Skinny,
    /// The same, each block with a multiprocessor to itself.
    SkinnyAlone,
    /// Pairs of blocks that split k.
    Pairs,
    /// Blocks that take this number of rows of the weight and all of k.
    Thin(u32),
    /// Tiles with this number of columns.
    Hopper(u32),
    /// Tiles with more rows.
    Tall,
    /// Tiles with this number of rows, with operands swapped.
    Swapped(u32),
    /// Tiles with this number of columns of pieces along k, and the sum of these.
    Split(u32),
    Padded,
    Mma,
}

impl Path {
    /// The variants' names.
    pub(super) const NAMED: [(&'static str, Self); 22] = [
        ("skinny", Self::Skinny),
        ("skinny_alone", Self::SkinnyAlone),
        ("skinny_pairs", Self::Pairs),
        ("thin", Self::Thin(32)),
        ("thin_64", Self::Thin(64)),
        ("hopper", Self::Hopper(256)),
        ("hopper_208", Self::Hopper(208)),
        ("hopper_192", Self::Hopper(192)),
        ("hopper_160", Self::Hopper(160)),
        ("hopper_144", Self::Hopper(144)),
        ("hopper_128", Self::Hopper(128)),
        ("hopper_96", Self::Hopper(96)),
        ("hopper_64", Self::Hopper(64)),
        ("hopper_tall", Self::Tall),
        ("swapped_128", Self::Swapped(128)),
        ("swapped_64", Self::Swapped(64)),
        ("split", Self::Split(256)),
        ("split_192", Self::Split(192)),
        ("split_128", Self::Split(128)),
        ("split_64", Self::Split(64)),
        ("padded", Self::Padded),
        ("mma", Self::Mma),
    ];
}
