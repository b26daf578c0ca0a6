//! The variants of products, and which cases they can run.

use gpu_kernels::ops::gemm::gemm::hopper::{BLOCK_K, DIRECT, TALL};
use gpu_kernels::ops::gemm::gemm::{pairs, skinny, thin};

use super::super::cost::Tiles;
use super::super::operand::{Major, OperandLayout, gains_from_copies};
use super::path::Path;
use super::problem::widths;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// An operator that computes a product.
pub(super) trait Product {
    /// The product of a case.
    fn of_case(case: &Case) -> Result<CaseProduct>;

    /// Launches the path on these arguments; if none is given, the best one.
    fn launch(stream: &Stream, args: &mut Arguments<'_>, params: &Params, path: Option<Path>) -> Result<()>;
}

/// The product of a case.
pub(super) struct CaseProduct {
    /// `[batch, m, n, k]`.
    pub(super) sizes: [usize; 4],
    /// The layouts of A, by rows, and of B, by columns.
    pub(super) operands: [OperandLayout; 2],
    pub(super) c: DType,
    /// How tiles are stored in C.
    pub(super) store: u32,
}

impl CaseProduct {
    /// The order of the operands, if the device has TMA and that takes both.
    fn majors(&self, device: &DeviceInfo) -> Option<[Major; 2]> {
        let [_, m, n, _] = self.sizes;
        let [a, b] = &self.operands;
        (device.compute_capability == (9, 0) && m > 0 && n > 0).then_some(())?;
        Some([a.fits_tma()?, b.fits_tma()?])
    }
}

/// The variants of an operator `P`.
struct Variants<P>(P);

/// The variants of an operator that computes a product.
pub(super) const fn variants<P: Product>() -> &'static [Variant] {
    Variants::<P>::ALL
}

impl<P: Product> Variants<P> {
    const ALL: &'static [Variant] = &[
        Variant {
            name: "skinny",
            doc: "TMA and wgmma, k split, compute capability 9.0: what is picked for one product of up to 128 rows or columns, both K-major, unless one of the next does or more than 16 rows or 32 columns fill tiles",
            applies: |device, case| Self::takes_few(device, case, skinny::MOST),
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Skinny)),
        },
        Variant {
            name: "skinny_alone",
            doc: "the same, each block with a multiprocessor to itself: what is picked for 17 to 64 if these leave half of them empty",
            applies: |device, case| Self::takes_few(device, case, skinny::MOST_ALONE),
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::SkinnyAlone)),
        },
        Variant {
            name: "skinny_pairs",
            doc: "the same by pairs of blocks that take rows of the longer side in waves: what is picked for up to 64 if these fill one wave, and for up to 32 if there are more, unless one of the next does",
            applies: |device, case| Self::takes_few(device, case, pairs::MOST),
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Pairs)),
        },
        Variant {
            name: "thin",
            doc: "TMA and wgmma, 64 rows by 32 columns, or the reverse, along all of k: what is picked for 49 to 64 if these fill the multiprocessors once",
            applies: |device, case| Self::takes_few(device, case, thin::most(32)),
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Thin(32))),
        },
        Variant {
            name: "thin_64",
            doc: "the same, 128 rows by 64 columns: what is picked for 65 to 128 if these do",
            applies: |device, case| Self::takes_few(device, case, thin::most(64)),
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Thin(64))),
        },
        Self::tiles::<256>(
            "hopper",
            "TMA and wgmma, compute capability 9.0, tiles of 256 columns: what is picked for operands that lie in packs of 16 bytes, or one of the next up to `split_swapped_64`",
        ),
        Self::tiles::<208>("hopper_208", "the same by tiles of 208 columns, for a K-major and c of 16 bits"),
        Self::tiles::<192>(
            "hopper_192",
            "the same by tiles of 192: of all these what takes least is picked, by waves of the multiprocessors and bytes of L2",
        ),
        Self::tiles::<160>("hopper_160", "the same by tiles of 160, for a K-major"),
        Self::tiles::<144>("hopper_144", "the same by tiles of 144, for a K-major and c of 16 bits"),
        Self::tiles::<128>("hopper_128", "the same by tiles of 128 columns"),
        Self::tiles::<96>("hopper_96", "the same by tiles of 96, for a K-major"),
        Self::tiles::<64>("hopper_64", "the same by tiles of 64 columns"),
        Variant {
            name: "hopper_tall",
            doc: "the same by tiles of 384 rows and 192 columns, for fewer waves",
            applies: Self::takes_tiles::<{ TALL[1] }>,
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Tiles(Tiles::Tall))),
        },
        Self::swapped::<208>(
            "swapped_208",
            "tiles of 208 columns with a and b swapped, 256 columns of c by 208 rows, both K-major, if c is stored by TMA",
        ),
        Self::swapped::<192>("swapped_192", "the same by 192 rows"),
        Self::swapped::<160>("swapped_160", "the same by 160 rows"),
        Self::swapped::<144>("swapped_144", "the same by 144 rows"),
        Self::swapped::<128>("swapped_128", "the same by 128 rows: what is picked for 65 to 128 of many columns, too"),
        Self::swapped::<96>("swapped_96", "the same by 96 rows"),
        Self::swapped::<64>(
            "swapped_64",
            "the same by 64 rows: what is picked for 17 to 64, or where tiles of 128 are too few, too",
        ),
        Self::pieces::<256>(
            "split",
            "tiles of 256 columns for pieces along k, which another launch adds: what is picked for few tiles and a long k, or one of the next three",
        ),
        Self::pieces::<192>("split_192", "the same by tiles of 192 columns"),
        Self::pieces::<128>("split_128", "the same by tiles of 128"),
        Self::pieces::<64>("split_64", "the same by tiles of 64"),
        Self::swapped_pieces::<208>(
            "split_swapped_208",
            "tiles of 208 rows with a and b swapped for pieces along k, which another launch adds",
        ),
        Self::swapped_pieces::<192>("split_swapped_192", "the same by tiles of 192 rows"),
        Self::swapped_pieces::<160>("split_swapped_160", "the same by tiles of 160 rows"),
        Self::swapped_pieces::<144>("split_swapped_144", "the same by tiles of 144 rows"),
        Self::swapped_pieces::<128>("split_swapped_128", "the same by tiles of 128 rows"),
        Self::swapped_pieces::<96>("split_swapped_96", "the same by tiles of 96 rows"),
        Self::swapped_pieces::<64>("split_swapped_64", "the same by tiles of 64 rows"),
        Variant {
            name: "padded",
            doc: "one of these after copies of operands that do not lie in packs: what is picked for these from 2²⁸ multiply-adds on",
            applies: Self::takes_padded,
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Padded)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
            applies: |_, _| true,
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Mma)),
        },
    ];

    /// The variant with tiles of `N` columns.
    const fn tiles<const N: u32>(name: &'static str, doc: &'static str) -> Variant {
        Variant {
            name,
            doc,
            applies: Self::takes_tiles::<N>,
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Tiles(Tiles::Columns(N)))),
        }
    }

    /// The variant with tiles of `N` rows, operands swapped.
    const fn swapped<const N: u32>(name: &'static str, doc: &'static str) -> Variant {
        Variant {
            name,
            doc,
            applies: Self::takes_swapped,
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Tiles(Tiles::Swapped(N)))),
        }
    }

    /// The variant with tiles of `N` rows for pieces along k, operands swapped.
    const fn swapped_pieces<const N: u32>(name: &'static str, doc: &'static str) -> Variant {
        Variant {
            name,
            doc,
            applies: |device, case| Self::takes_pieces(device, case, |majors| majors == [Major::K; 2]),
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Tiles(Tiles::SwappedPieces(N)))),
        }
    }

    /// The variant with tiles of `N` columns for pieces along k.
    const fn pieces<const N: u32>(name: &'static str, doc: &'static str) -> Variant {
        Variant {
            name,
            doc,
            applies: |device, case| Self::takes_pieces(device, case, |_| true),
            launch: |stream, args, params| P::launch(stream, args, params, Some(Path::Tiles(Tiles::Pieces(N)))),
        }
    }

    /// Whether pieces along k can run the case on such a device, if its operands are in one of these orders.
    fn takes_pieces(device: &DeviceInfo, case: &Case, orders: impl Fn([Major; 2]) -> bool) -> bool {
        P::of_case(case).is_ok_and(|product| {
            let [batch, _, _, k] = product.sizes;
            batch == 1 && k > BLOCK_K as usize && product.majors(device).is_some_and(orders)
        })
    }

    /// Whether tiles of `N` columns can run the case on such a device.
    fn takes_tiles<const N: u32>(device: &DeviceInfo, case: &Case) -> bool {
        P::of_case(case)
            .is_ok_and(|product| product.majors(device).is_some_and(|[a, _]| widths(a, product.c).contains(&N)))
    }

    /// Whether the paths for at most `most` rows or columns can run the case.
    fn takes_few(device: &DeviceInfo, case: &Case, most: u32) -> bool {
        P::of_case(case).is_ok_and(|product| {
            let [batch, m, n, _] = product.sizes;
            product.majors(device) == Some([Major::K; 2]) && batch == 1 && m.min(n) <= most as usize
        })
    }

    /// Whether tiles can run the case with operands swapped.
    fn takes_swapped(device: &DeviceInfo, case: &Case) -> bool {
        P::of_case(case).is_ok_and(|product| product.majors(device) == Some([Major::K; 2]) && product.store != DIRECT)
    }

    /// Whether the case has operands that would be copied.
    fn takes_padded(_: &DeviceInfo, case: &Case) -> bool {
        P::of_case(case).is_ok_and(|CaseProduct { sizes, operands: [a, b], .. }| {
            // A tensor without elements has no known layout.
            sizes.iter().all(|size| *size > 0) && gains_from_copies([&a, &b])
        })
    }
}
