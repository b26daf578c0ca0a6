//! The kernels' bodies, by the widths of their tiles.

use core::marker::PhantomData;

use cuda_std::float::Element;
use cuda_std::wgmma::Registers;

use super::super::epilogue::{Epilogue, Sum};
use super::memory::{TALL_BYTES, TALL_STAGES, WIDE_BYTES, WIDE_STAGES};
use super::tiles::Narrow;
use super::{
    BLOCK_M, CLUSTER, CONSUMERS, Matrices, Multiply, SUMS, TALL, TALL_CONSUMERS, TILE, Tiles, Walk, Whole, b_bytes,
    split, stages, sums,
};

/// The kernel whose tiles have [`BLOCK_N`](super::BLOCK_N) columns.
#[inline(always)]
pub(in super::super) unsafe fn run<M: Multiply<SUMS>, C: Element, E: Epilogue>(of: Matrices<'_, C>, epilogue: E)
where
    [M::Sum; SUMS]: Registers,
{
    let tiles = Tiles::of(&of.problem, TILE);
    walk::<M, C, E>(of, epilogue, tiles);
}

/// The kernel of `$tiles`, whose blocks have `$n` columns, for which `$loaded` of B are.
macro_rules! blocks {
    ($n:literal, $loaded:literal, $of:ident, $epilogue:ident, $tiles:expr) => {{
        let consumers = Whole::<M, { sums($n) }>(PhantomData);
        split::<M, C, E, _, _, { b_bytes($loaded) }, { stages(CONSUMERS, $loaded) }, { CONSUMERS as usize }>(
            $of, $epilogue, $tiles, consumers,
        );
    }};
}

/// The kernel of tiles of `$n` columns, for each of which `$loaded` of B are, of pieces of `$each` elements of k unless
/// that is 0.
macro_rules! columns {
    ($n:literal, $loaded:literal, $of:ident, $epilogue:ident, $each:expr) => {{
        let tiles = Tiles::of(&$of.problem, [BLOCK_M, $n]).in_pieces($each);
        blocks!($n, $loaded, $of, $epilogue, tiles)
    }};
}

/// The one whose tiles have `N` columns, one of [`FINE_WIDTHS`](super::FINE_WIDTHS); of pieces of a product, if `each` is not 0.
#[inline(always)]
pub(in super::super) unsafe fn run_by<M, C: Element, E: Epilogue, const N: u32>(
    of: Matrices<'_, C>,
    epilogue: E,
    each: u32,
) where
    M: Multiply<{ sums(256) }, Sum = f32>
        + Multiply<{ sums(240) }, Sum = f32>
        + Multiply<{ sums(224) }, Sum = f32>
        + Multiply<{ sums(208) }, Sum = f32>
        + Multiply<{ sums(192) }, Sum = f32>
        + Multiply<{ sums(160) }, Sum = f32>
        + Multiply<{ sums(144) }, Sum = f32>
        + Multiply<{ sums(128) }, Sum = f32>
        + Multiply<{ sums(96) }, Sum = f32>
        + Multiply<{ sums(64) }, Sum = f32>,
{
    match (N, M::B_MN) {
        (256, _) => columns!(256, 256, of, epilogue, each),
        (240, false) => columns!(240, 240, of, epilogue, each),
        (240, true) => columns!(240, 256, of, epilogue, each),
        (224, false) => columns!(224, 224, of, epilogue, each),
        (224, true) => columns!(224, 256, of, epilogue, each),
        (208, false) => columns!(208, 208, of, epilogue, each),
        (208, true) => columns!(208, 256, of, epilogue, each),
        (192, _) => columns!(192, 192, of, epilogue, each),
        (160, false) => columns!(160, 160, of, epilogue, each),
        (160, true) => columns!(160, 192, of, epilogue, each),
        (144, false) => columns!(144, 144, of, epilogue, each),
        (144, true) => columns!(144, 192, of, epilogue, each),
        (128, _) => columns!(128, 128, of, epilogue, each),
        (96, false) => columns!(96, 96, of, epilogue, each),
        (96, true) => columns!(96, 128, of, epilogue, each),
        _ => columns!(64, 64, of, epilogue, each),
    }
}

/// The one of swapped operands of 8 bits, by tiles of `N` columns, one of [`SWAPPED_8`](super::SWAPPED_8); of pieces of a product, if `each` is not 0.
#[inline(always)]
pub(in super::super) unsafe fn run_swapped_8<M, S: Sum, C: Element, E: Epilogue, const N: u32>(
    of: Matrices<'_, C>,
    epilogue: E,
    each: u32,
) where
    M: Multiply<{ sums(208) }, Sum = S>
        + Multiply<{ sums(192) }, Sum = S>
        + Multiply<{ sums(160) }, Sum = S>
        + Multiply<{ sums(128) }, Sum = S>
        + Multiply<{ sums(96) }, Sum = S>
        + Multiply<{ sums(64) }, Sum = S>,
    [S; sums(208)]: Registers,
    [S; sums(192)]: Registers,
    [S; sums(160)]: Registers,
    [S; sums(128)]: Registers,
    [S; sums(96)]: Registers,
    [S; sums(64)]: Registers,
{
    match N {
        208 => columns!(208, 208, of, epilogue, each),
        192 => columns!(192, 192, of, epilogue, each),
        160 => columns!(160, 160, of, epilogue, each),
        128 => columns!(128, 128, of, epilogue, each),
        96 => columns!(96, 96, of, epilogue, each),
        _ => columns!(64, 64, of, epilogue, each),
    }
}

/// The one of 16-bit operands whose pairs of blocks have [`BLOCK_M`] rows and `N` columns, one of [`NARROW`](super::NARROW), of which
/// each block has half.
#[inline(always)]
pub(in super::super) unsafe fn run_narrow<M, C: Element, E: Epilogue, const N: u32>(of: Matrices<'_, C>, epilogue: E)
where
    M: Multiply<{ sums(104) }, Sum = f32>
        + Multiply<{ sums(80) }, Sum = f32>
        + Multiply<{ sums(64) }, Sum = f32>
        + Multiply<{ sums(48) }, Sum = f32>
        + Multiply<{ sums(32) }, Sum = f32>,
{
    let tiles = Narrow::of(&of.problem, [BLOCK_M, N / CLUSTER]);
    match N {
        208 => blocks!(104, 104, of, epilogue, tiles),
        160 => blocks!(80, 80, of, epilogue, tiles),
        128 => blocks!(64, 64, of, epilogue, tiles),
        96 => blocks!(48, 48, of, epilogue, tiles),
        _ => blocks!(32, 32, of, epilogue, tiles),
    }
}

/// The same of operands of 8 bits, by one of [`NARROW_8`](super::NARROW_8).
#[inline(always)]
pub(in super::super) unsafe fn run_narrow_8<M, S: Sum, C: Element, E: Epilogue, const N: u32>(
    of: Matrices<'_, C>,
    epilogue: E,
) where
    M: Multiply<{ sums(112) }, Sum = S>
        + Multiply<{ sums(80) }, Sum = S>
        + Multiply<{ sums(64) }, Sum = S>
        + Multiply<{ sums(32) }, Sum = S>,
    [S; sums(112)]: Registers,
    [S; sums(80)]: Registers,
    [S; sums(64)]: Registers,
    [S; sums(32)]: Registers,
{
    let tiles = Narrow::of(&of.problem, [BLOCK_M, N / CLUSTER]);
    match N {
        224 => blocks!(112, 112, of, epilogue, tiles),
        160 => blocks!(80, 80, of, epilogue, tiles),
        128 => blocks!(64, 64, of, epilogue, tiles),
        _ => blocks!(32, 32, of, epilogue, tiles),
    }
}

/// The one whose tiles are [`TALL`].
#[inline(always)]
pub(in super::super) unsafe fn run_tall<M, C: Element, E: Epilogue>(of: Matrices<'_, C>, epilogue: E)
where
    M: Multiply<{ sums(TALL[1]) }, Sum = f32>,
{
    let (tiles, consumers) = (Tiles::of(&of.problem, TALL), Whole::<M, { sums(TALL[1]) }>(PhantomData));
    split::<M, C, E, _, _, TALL_BYTES, TALL_STAGES, { TALL_CONSUMERS as usize }>(of, epilogue, tiles, consumers);
}

/// The same over other tiles.
#[inline(always)]
pub(in super::super) unsafe fn walk<M: Multiply<SUMS>, C: Element, E: Epilogue>(
    of: Matrices<'_, C>,
    epilogue: E,
    tiles: impl Walk,
) where
    [M::Sum; SUMS]: Registers,
{
    split::<M, C, E, _, _, WIDE_BYTES, WIDE_STAGES, { CONSUMERS as usize }>(
        of,
        epilogue,
        tiles,
        Whole::<M, SUMS>(PhantomData),
    );
}
