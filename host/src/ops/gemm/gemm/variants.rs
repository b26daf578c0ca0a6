//! The variants of products.

use super::super::cost::Tiles::{Columns, Narrow, Pieces, Swapped, SwappedPieces, Tall};
use super::path::{Facts, Path};
use crate::ops::model::*;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// An operator that computes a product.
pub(super) trait Product {
    /// The facts of a case.
    fn of_case(case: &Case) -> Result<Facts>;

    /// Launches the path on these arguments; if none is given, the best one.
    fn launch(stream: &Stream, args: &mut Arguments<'_>, params: &Params, path: Option<Path>) -> Result<()>;
}

/// The variants of an operator `P`.
struct Variants<P>(P);

/// The variants of an operator that computes a product.
pub(super) const fn variants<P: Product>() -> &'static [Variant] {
    Variants::<P>::ALL
}

/// The paths by name, and the variants.
macro_rules! paths {
    ($($name:literal: $path:expr, $doc:literal;)+) => {
        impl Path {
            /// The variants' names.
            pub(super) const NAMED: &[(&'static str, Self)] = &[$(($name, $path)),+];
        }

        impl<P: Product> Variants<P> {
            const ALL: &'static [Variant] = &[$(Variant {
                name: $name,
                doc: $doc,
                applies: |device, case| {
                    let hopper = device.compute_capability == (9, 0);
                    P::of_case(case).is_ok_and(|facts| facts.takes($path, hopper))
                },
                launch: |stream, args, params| P::launch(stream, args, params, Some($path)),
            }),+];
        }
    };
}

paths! {
    "skinny": Path::Skinny, "TMA and wgmma, k split, compute capability 9.0: what is picked for one product of up to 64 rows or 128 columns, both K-major, unless one of the next does or more than 16 rows or 32 columns fill tiles";
    "skinny_alone": Path::SkinnyAlone, "the same, each block with a multiprocessor to itself: what is picked for 17 to 64 if these leave half of them empty";
    "skinny_pairs": Path::Pairs, "the same by pairs of blocks that take rows of the longer side in waves: what is picked for up to 64 if these fill one wave, and for up to 32 if there are more, unless one of the next does";
    "thin": Path::Thin(32), "TMA and wgmma, 64 rows by 32 columns, or the reverse, along all of k: what is picked for 49 to 64 if these fill the multiprocessors once";
    "thin_64": Path::Thin(64), "the same, 128 rows by 64 columns, or the reverse: what is picked for 65 to 128 columns if these do";
    "hopper": Path::Tiles(Columns(256)), "TMA and wgmma, compute capability 9.0, tiles of 256 columns: what is picked for operands that lie in packs of 16 bytes, or one of the next up to `split_swapped_64`";
    "hopper_240": Path::Tiles(Columns(240)), "the same by tiles of 240 columns, for a K-major and c of 16 bits";
    "hopper_224": Path::Tiles(Columns(224)), "the same by tiles of 224 columns, for a K-major and c of 16 bits";
    "hopper_208": Path::Tiles(Columns(208)), "the same by tiles of 208 columns, for a K-major and c of 16 bits";
    "hopper_192": Path::Tiles(Columns(192)), "the same by tiles of 192: of all these what takes least is picked, by waves of the multiprocessors and bytes of L2 and of memory";
    "hopper_160": Path::Tiles(Columns(160)), "the same by tiles of 160, for a K-major";
    "hopper_144": Path::Tiles(Columns(144)), "the same by tiles of 144, for a K-major and c of 16 bits";
    "hopper_128": Path::Tiles(Columns(128)), "the same by tiles of 128 columns";
    "hopper_96": Path::Tiles(Columns(96)), "the same by tiles of 96, for a K-major";
    "hopper_64": Path::Tiles(Columns(64)), "the same by tiles of 64 columns";
    "hopper_tall": Path::Tiles(Tall), "the same by tiles of 384 rows and 192 columns, for fewer waves";
    "swapped_208": Path::Tiles(Swapped(208)), "tiles of 208 columns with a and b swapped, 256 columns of c by 208 rows, both K-major, if c is stored by TMA";
    "swapped_192": Path::Tiles(Swapped(192)), "the same by 192 rows";
    "swapped_160": Path::Tiles(Swapped(160)), "the same by 160 rows";
    "swapped_144": Path::Tiles(Swapped(144)), "the same by 144 rows";
    "swapped_128": Path::Tiles(Swapped(128)), "the same by 128 rows";
    "swapped_96": Path::Tiles(Swapped(96)), "the same by 96 rows";
    "swapped_64": Path::Tiles(Swapped(64)), "the same by 64 rows: what is picked for 17 to 64 of many columns, too";
    "narrow_208": Path::Tiles(Narrow(208)), "tiles of 208 rows of c by 128 columns with a and b swapped, by pairs of blocks that share the columns, both K-major, if c is stored by TMA";
    "narrow_160": Path::Tiles(Narrow(160)), "the same by 160 rows";
    "narrow_128": Path::Tiles(Narrow(128)), "the same by 128 rows";
    "narrow_96": Path::Tiles(Narrow(96)), "the same by 96 rows";
    "narrow_64": Path::Tiles(Narrow(64)), "the same by 64 rows";
    "split": Path::Tiles(Pieces(256)), "tiles of 256 columns for pieces along k, which another launch adds: what is picked for few tiles and a long k, or one of the next three";
    "split_192": Path::Tiles(Pieces(192)), "the same by tiles of 192 columns";
    "split_128": Path::Tiles(Pieces(128)), "the same by tiles of 128";
    "split_64": Path::Tiles(Pieces(64)), "the same by tiles of 64";
    "split_swapped_208": Path::Tiles(SwappedPieces(208)), "tiles of 208 rows with a and b swapped for pieces along k, which another launch adds";
    "split_swapped_192": Path::Tiles(SwappedPieces(192)), "the same by tiles of 192 rows";
    "split_swapped_160": Path::Tiles(SwappedPieces(160)), "the same by tiles of 160 rows";
    "split_swapped_144": Path::Tiles(SwappedPieces(144)), "the same by tiles of 144 rows";
    "split_swapped_128": Path::Tiles(SwappedPieces(128)), "the same by tiles of 128 rows";
    "split_swapped_96": Path::Tiles(SwappedPieces(96)), "the same by tiles of 96 rows";
    "split_swapped_64": Path::Tiles(SwappedPieces(64)), "the same by tiles of 64 rows";
    "padded": Path::Padded, "one of these after copies of operands that do not lie in packs: what is picked for these from 2²⁸ multiply-adds on";
    "mma": Path::Mma, "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere";
}
