//! The variants of [`gemm`](super::gemm()), and which cases they can run.

use gpu_kernels::ops::gemm::gemm::hopper::{self, DIRECT};
use gpu_kernels::ops::gemm::gemm::skinny::Cut;
use gpu_kernels::ops::gemm::gemm::thin;

use super::super::operand::{Major, fits_tma, gains_from_copies, layout, store_of_case};
use super::operator::{launch, of_c, shape};
use super::path::Path;
use super::problem::widths;
use super::skinny;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;

/// The variant with tiles of `N` columns.
const fn tiles<const N: u32>(name: &'static str, doc: &'static str) -> Variant {
    Variant {
        name,
        doc,
        applies: fits_tiles::<N>,
        launch: |stream, args, params| launch(stream, args, params, Some(Path::Hopper(N))),
    }
}

const TALL: Variant = Variant {
    name: "hopper_tall",
    doc: "the same by tiles of 384 rows and 192 columns: what is picked where these take one round and others two",
    applies: fits_tiles::<{ hopper::TALL[1] }>,
    launch: |stream, args, params| launch(stream, args, params, Some(Path::Tall)),
};
const SWAPPED_128: Variant = Variant {
    name: "swapped_128",
    doc: "hopper's tiles of 128 columns with a and b swapped, 256 columns of c by 128 rows: what is picked for 65 to 128 rows of many columns, both K-major, if c is stored by TMA",
    applies: fits_swapped,
    launch: |stream, args, params| launch(stream, args, params, Some(Path::Swapped(128))),
};
const SWAPPED_64: Variant = Variant {
    name: "swapped_64",
    doc: "the same by 64 rows: what is picked for 17 to 64, or where tiles of 128 are too few",
    applies: fits_swapped,
    launch: |stream, args, params| launch(stream, args, params, Some(Path::Swapped(64))),
};
const PADDED: Variant = Variant {
    name: "padded",
    doc: "one of these after copies of operands that do not lie in packs: what is picked for these from 2²⁸ multiply-adds on",
    applies: fits_padded,
    launch: |stream, args, params| launch(stream, args, params, Some(Path::Padded)),
};
const MMA: Variant = Variant {
    name: "mma",
    doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
    applies: |_, _| true,
    launch: |stream, args, params| launch(stream, args, params, Some(Path::Mma)),
};

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "skinny",
        doc: "TMA and wgmma, k split, compute capability 9.0: what is picked for one product of up to 128 rows or columns, both K-major, unless one of the next does or more than 16 rows or 32 columns fill tiles",
        applies: |device, case| fits_few(device, case, Cut::FOUR.most()),
        launch: |stream, args, params| launch(stream, args, params, Some(Path::Skinny(Cut::FOUR))),
    },
    Variant {
        name: "skinny_alone",
        doc: "the same, each block with a multiprocessor to itself: what is picked for 17 to 64 if these leave half of them empty",
        applies: |device, case| fits_few(device, case, Cut::FOUR_ALONE.most()),
        launch: |stream, args, params| launch(stream, args, params, Some(Path::Skinny(Cut::FOUR_ALONE))),
    },
    Variant {
        name: "skinny_pairs",
        doc: "the same by two blocks that share k in place of four: what is picked if these fill the multiprocessors once, unless one of the next does",
        applies: |device, case| fits_few(device, case, Cut::PAIR.most()),
        launch: |stream, args, params| launch(stream, args, params, Some(Path::Skinny(Cut::PAIR))),
    },
    Variant {
        name: "thin",
        doc: "TMA and wgmma, 64 rows by 32 columns, or the reverse, along all of k: what is picked for 49 to 64 if these fill the multiprocessors once",
        applies: |device, case| fits_few(device, case, thin::most(32)),
        launch: |stream, args, params| launch(stream, args, params, Some(Path::Thin(32))),
    },
    Variant {
        name: "thin_64",
        doc: "the same, 128 rows by 64 columns: what is picked for 65 to 128 if these do",
        applies: |device, case| fits_few(device, case, thin::most(64)),
        launch: |stream, args, params| launch(stream, args, params, Some(Path::Thin(64))),
    },
    tiles::<256>(
        "hopper",
        "TMA and wgmma, compute capability 9.0, tiles of 256 columns: what is picked for operands that lie in packs of 16 bytes, or one of the next seven",
    ),
    tiles::<208>("hopper_208", "the same by tiles of 208 columns, for a K-major and c of 16 bits"),
    tiles::<192>(
        "hopper_192",
        "the same by tiles of 192: what is picked where these fill rounds of the multiprocessors better",
    ),
    tiles::<160>("hopper_160", "the same by tiles of 160, for a K-major"),
    tiles::<128>("hopper_128", "the same by tiles of 128 columns"),
    tiles::<64>("hopper_64", "the same by tiles of 64 columns"),
    TALL,
    SWAPPED_128,
    SWAPPED_64,
    PADDED,
    MMA,
];

/// Whether the Hopper path with tiles of `N` columns can run the case on such a device.
fn fits_tiles<const N: u32>(device: &DeviceInfo, case: &Case) -> bool {
    let Ok([batch, m, n, k]) = case.dims(["batch", "m", "n", "k"]) else {
        return false;
    };
    let (a, b) = (shape(batch, [m, k]), shape(batch, [k, n]));
    device.compute_capability == (9, 0)
        && m > 0
        && n > 0
        && fits_tma(case, "a", case.dtype, &a, false).is_some_and(|major| widths(major, of_c(case)).contains(&N))
        && fits_tma(case, "b", case.dtype, &b, true).is_some()
}

/// Whether the path for at most `most` rows or columns can run the case.
fn fits_few(device: &DeviceInfo, case: &Case, most: u32) -> bool {
    let Ok([batch, m, n, k]) = case.dims(["batch", "m", "n", "k"]) else {
        return false;
    };
    let majors = [
        fits_tma(case, "a", case.dtype, &shape(batch, [m, k]), false),
        fits_tma(case, "b", case.dtype, &shape(batch, [k, n]), true),
    ];
    skinny::fits(device, batch, [m, n], majors, most)
}

/// Whether the Hopper path can run the case with operands swapped.
fn fits_swapped(device: &DeviceInfo, case: &Case) -> bool {
    let (Ok([batch, m, n, k]), Ok(beta)) = (case.dims(["batch", "m", "n", "k"]), case.params.f32("beta")) else {
        return false;
    };
    let majors = [
        fits_tma(case, "a", case.dtype, &shape(batch, [m, k]), false),
        fits_tma(case, "b", case.dtype, &shape(batch, [k, n]), true),
    ];
    device.compute_capability == (9, 0)
        && m > 0
        && n > 0
        && majors == [Some(Major::K); 2]
        && store_of_case(case, "c", of_c(case), &shape(batch, [m, n]), beta) != DIRECT
}

/// Whether the case has operands that would be copied.
fn fits_padded(_: &DeviceInfo, case: &Case) -> bool {
    let Ok([batch, m, n, k]) = case.dims(["batch", "m", "n", "k"]) else {
        return false;
    };
    let a = layout(case, "a", case.dtype, &shape(batch, [m, k]), false);
    let b = layout(case, "b", case.dtype, &shape(batch, [k, n]), true);
    // A tensor without elements has no known layout.
    [batch, m, n, k].iter().all(|size| *size > 0) && gains_from_copies([&a, &b])
}
