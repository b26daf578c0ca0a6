//! Transpose of matrices, one or a batch of them.
//!
//! # Math
//! y[b, j, i] = x[b, i, j].
//!
//! # Layout
//! `x` is a batch of rows × columns, `y` of columns × rows; rows and matrices lie anywhere apart. Elements are words of their size.
//! [`transpose_packs`] needs rows and columns that a 16-byte pack divides, and all rows at multiples of 16 bytes.
//!
//! # Mapping
//! Blocks of 256 threads, numbered along the columns of `x`, then its rows, then the batch. [`transpose_packs`]: a tile
//! of 16 × 16 packs per block. A thread loads a square of elements, one pack from each of as many rows as a pack has
//! elements, and turns it in registers, so that shared memory is written and read in whole packs as well.
//! [`transpose_tiles`]: tiles of 32 × 32 elements, one element an access. [`transpose_naive`]: without shared memory,
//! what both are measured against.
//!
//! # Shared memory
//! [`transpose_packs`]: the tile, 16 KiB of 4-byte, 32 KiB of 2-byte and 64 KiB of 1-byte elements. Pack p of row q lies at
//! p ⊕ ⌊q / pack⌋, so that the eight threads of a phase meet eight different groups of four banks, both ways. [`transpose_tiles`]:
//! 33 × 32 elements, of which the three placements are a lesson: see [`Placement`].
//!
//! # Numerics
//! Bit by bit.
//!
//! # Cost
//! One read and one write of everything: bound by memory bandwidth. `warpsmith analyze transpose --case "64 float32"`
//! counts, for 64 × 64 f32 (512 sectors of global memory each way, 128 wavefronts of shared memory each way are the least):
//!
//! | variant | sectors read | written | wavefronts of shared stores | of loads |
//! |---|---|---|---|---|
//! | packs | 512 | 512 | 128 | 128 |
//! | padded, swizzled | 512 | 512 | 128 | 128 |
//! | conflicted | 512 | 512 | 128 | 4096 |
//! | naive | 512 | 4096 | – | – |
//!
//! # Limits
//! 2³¹ − 1 tiles.
//!
//! # Sources
//! Ruetsch and Micikevicius, "Optimizing Matrix Transpose in CUDA" (NVIDIA, 2009), for tiles and padding.

use core::array;

use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use crate::div_rem;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Rows and columns of a tile of single elements.
pub const TILE: u32 = 32;
/// Packs of a tile's row, and squares of a tile's column.
const PACKS: u32 = 16;

/// Rows and columns of a tile of packs, for elements of `bytes` bytes.
pub const fn pack_tile(bytes: usize) -> u32 {
    PACKS * (16 / bytes) as u32
}

/// Where element (row, column) of a tile lies in shared memory, as the rows' pitch and the column's place.
pub trait Placement {
    /// Elements from a row to the next.
    const PITCH: u32;

    /// The column's place in its row.
    fn column(row: u32, column: u32) -> u32;
}

/// No change: the elements of a column of 4-byte words are in one bank, and a warp that reads a column takes 32
/// wavefronts.
pub struct Conflicted;
/// One extra word per row shifts each row's elements by one bank.
pub struct Padded;
/// The column's bits are exclusive-or'ed with the row's: no two rows of a column share a bank, and no memory is wasted.
pub struct Swizzled;

impl Placement for Conflicted {
    const PITCH: u32 = TILE;

    #[inline(always)]
    fn column(_: u32, column: u32) -> u32 {
        column
    }
}

impl Placement for Padded {
    const PITCH: u32 = TILE + 1;

    #[inline(always)]
    fn column(_: u32, column: u32) -> u32 {
        column
    }
}

impl Placement for Swizzled {
    const PITCH: u32 = TILE;

    #[inline(always)]
    fn column(row: u32, column: u32) -> u32 {
        column ^ row
    }
}

/// The tile of this block: its first row and column, and its matrices.
struct Tile<W> {
    row: u64,
    column: u64,
    x: *const W,
    y: *mut W,
}

impl<W> Tile<W> {
    #[inline(always)]
    unsafe fn of_block(
        x: *const W,
        y: *mut W,
        size: u32,
        [across, down]: [u32; 2],
        [x_batch, y_batch]: [u64; 2],
    ) -> Self {
        let (rest, column) = div_rem(thread::block_idx_x(), across);
        let (batch, row) = div_rem(rest, down);
        let batch = u64::from(batch);
        Self {
            row: u64::from(row) * u64::from(size),
            column: u64::from(column) * u64::from(size),
            x: x.add((batch * x_batch) as usize),
            y: y.add((batch * y_batch) as usize),
        }
    }
}

/// Tiles of packs: `across` tiles a row of tiles, `down` a column.
///
/// # Safety
/// `x` is valid for reads of `rows` × `columns` and `y` for writes of `columns` × `rows` words for every `across` · `down` blocks, at
/// their strides; all rows start at multiples of 16 bytes, and `rows` and `columns` are multiples of a 16-byte pack.
#[kernel(
    dtypes(W: u8, u16, u32),
    block = BLOCK,
    min_blocks = if size_of::<W>() == 4 { 6 } else { 1 + size_of::<W>() as u32 },
    shared = { 65536 / size_of::<W>() },
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn transpose_packs<W: Copy>(
    x: *const W,
    y: *mut W,
    rows: u64,
    columns: u64,
    across: u32,
    down: u32,
    x_stride: u64,
    y_stride: u64,
    x_batch: u64,
    y_batch: u64,
) {
    let tile = Tile::of_block(x, y, pack_tile(size_of::<W>()), [across, down], [x_batch, y_batch]);
    match size_of::<W>() {
        1 => transpose_squares::<W, 16>(tile, rows, columns, x_stride, y_stride),
        2 => transpose_squares::<W, 8>(tile, rows, columns, x_stride, y_stride),
        _ => transpose_squares::<W, 4>(tile, rows, columns, x_stride, y_stride),
    }
}

/// A tile of squares of `N` × `N` elements, one a thread.
#[inline(always)]
unsafe fn transpose_squares<W: Copy, const N: usize>(
    tile: Tile<W>,
    rows: u64,
    columns: u64,
    x_stride: u64,
    y_stride: u64,
) {
    let tid = thread::thread_idx_x();
    let (across, down) = (tid % PACKS, tid / PACKS);
    let memory: SharedPtr<Pack<u32, 4>> = shared::dynamic();
    let at = |row: u32, pack: u32| memory.add(row * PACKS + (pack ^ (row / N as u32))).as_ptr().cast::<u32>();

    let (row, column) = (tile.row + u64::from(down) * N as u64, tile.column + u64::from(across) * N as u64);
    if row < rows && column < columns {
        let from = tile.x.add((row * x_stride + column) as usize);
        let square = array::from_fn(|i| Pack::load_nc_no_allocate(from.add(i * x_stride as usize).cast()).0);
        for (j, pack) in turn::<N>(square).into_iter().enumerate() {
            // If the compiler could see through these packs, it would store them in halves.
            Pack(pack).forget().store(at(across * N as u32 + j as u32, down));
        }
    }
    thread::sync_threads();
    let column = tile.row + u64::from(across) * N as u64;
    for i in 0..N as u32 {
        let row = down + i * PACKS;
        if tile.column + u64::from(row) < columns && column < rows {
            let pack = Pack::<u32, 4>::load(at(row, across));
            let to = tile.y.add(((tile.column + u64::from(row)) * y_stride + column) as usize);
            pack.store_streaming(to.cast());
        }
    }
}

/// The transpose of `N` rows of `N` elements, 16 bytes per row.
#[inline(always)]
fn turn<const N: usize>(rows: [[u32; 4]; N]) -> [[u32; 4]; N] {
    // Words move as they are; halves and bytes of two words at a time are picked into one.
    let pairs = |a: u32, b: u32, half: usize| math::permute_bytes(a, b, if half == 0 { 0x5410 } else { 0x7632 });
    let bytes = |a: u32, b: u32, half: usize| math::permute_bytes(a, b, if half == 0 { 0x5140 } else { 0x7362 });
    array::from_fn(|j| {
        array::from_fn(|i| match N {
            4 => rows[i][j],
            8 => pairs(rows[2 * i][j / 2], rows[2 * i + 1][j / 2], j % 2),
            _ => {
                let word = |k: usize| rows[4 * i + k][j / 4];
                let [upper, within] = [j % 4 / 2, j % 2];
                pairs(bytes(word(0), word(1), upper), bytes(word(2), word(3), upper), within)
            }
        })
    })
}

/// Tiles of single elements, of any size and alignment.
///
/// # Safety
/// As for [`transpose_packs`], without the conditions on alignment and sizes.
#[kernel(
    dtypes(W: u8, u16, u32, u64),
    types(S: Conflicted, Padded, Swizzled),
    where(S == Padded || W == u32),
    block = BLOCK,
    shared = { 33 * 32 * size_of::<W>() },
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn transpose_tiles<W: Copy, S: Placement>(
    x: *const W,
    y: *mut W,
    rows: u64,
    columns: u64,
    across: u32,
    down: u32,
    x_stride: u64,
    y_stride: u64,
    x_batch: u64,
    y_batch: u64,
) {
    let tile = Tile::of_block(x, y, TILE, [across, down], [x_batch, y_batch]);
    let memory: SharedPtr<W> = shared::dynamic();
    let at = |row: u32, column: u32| memory.add(row * S::PITCH + S::column(row, column));
    let tid = thread::thread_idx_x();
    let lane = tid % TILE;
    let passes = || (0..4).map(|pass| tid / TILE + pass * (BLOCK / TILE));
    for i in passes() {
        let (row, column) = (tile.row + u64::from(i), tile.column + u64::from(lane));
        if row < rows && column < columns {
            at(i, lane).write(*tile.x.add((row * x_stride + column) as usize));
        }
    }
    thread::sync_threads();
    for i in passes() {
        let (row, column) = (tile.column + u64::from(i), tile.row + u64::from(lane));
        if row < columns && column < rows {
            *tile.y.add((row * y_stride + column) as usize) = at(lane, i).read();
        }
    }
}

/// Every thread stores the elements that it has loaded: whole sectors are read, and an eighth of each is written at a
/// time.
///
/// # Safety
/// As for [`transpose_tiles`].
#[kernel(dtypes(W: u32), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn transpose_naive<W: Copy>(
    x: *const W,
    y: *mut W,
    rows: u64,
    columns: u64,
    across: u32,
    down: u32,
    x_stride: u64,
    y_stride: u64,
    x_batch: u64,
    y_batch: u64,
) {
    let tile = Tile::of_block(x, y, TILE, [across, down], [x_batch, y_batch]);
    let tid = thread::thread_idx_x();
    for pass in 0..4 {
        let row = tile.row + u64::from(tid / TILE + pass * (BLOCK / TILE));
        let column = tile.column + u64::from(tid % TILE);
        if row < rows && column < columns {
            *tile.y.add((column * y_stride + row) as usize) = *tile.x.add((row * x_stride + column) as usize);
        }
    }
}
