//! Quantization to 8-bit floats with a scale for each tile of 128 × 128: weights of fp8 matrix products.
//!
//! # Math
//! For each tile: scale = max |x| / MAX, at least 2⁻¹²⁶, and q = ⌊x / scale⌉, with MAX = 448 for E4M3 and 57344 for E5M2.
//!
//! # Layout
//! `x` and `q` are rows of d adjacent elements that may be padded. `scales` is dense, ⌈rows / 128⌉ rows of ⌈d / 128⌉. Rows at multiples of a pack are
//! moved by packs, others element by element.
//!
//! # Mapping
//! One tile per block of 256 threads, with the tiles of a row along x and their rows along y and z. cp.async loads the
//! tile into shared memory, where it stays: eight packs of 16 bytes per thread of 16-bit elements, 16 of 32-bit ones,
//! all in flight at once, with six blocks per multiprocessor, or three. Neighbouring lanes have neighbouring packs of a
//! row; a thread reads only what it has loaded itself.
//!
//! # Shared memory
//! The tile, 32 or 64 KiB, and the greatest magnitude of each warp, 128 B.
//!
//! # Numerics
//! As of quantize_fp8_1x128.
//!
//! # Cost
//! One read of x, one write of a byte an element and of 4 bytes per tile: bound by memory bandwidth.
//!
//! # Limits
//! 2³¹ − 1 tiles of a row, 65535² rows of tiles.
//!
//! # Sources
//! DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.3.

use cuda_std::float::Element;
use cuda_std::fp8::Float8;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{cp_async, kernel, math, shared_field, thread};

use super::blocks::{self, Scale};
use super::greatest;
use crate::lanes;
use crate::rows::{BlockThreads, Threads};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Rows and columns that share a scale.
pub const SIDE: usize = 128;

/// A tile, as its threads have it.
#[repr(C)]
pub struct Shared<T> {
    partials: <BlockThreads as Threads>::Partials<1>,
    tile: [[T; SIDE]; SIDE],
}

/// q and scales of `rows` rows of `d` elements.
///
/// # Safety
/// `x` is valid for reads and `q` for writes of those rows at their strides, `scales` for writes of a value a tile; d and rows are at least 1.
#[kernel(dtypes(T: float, Q: float8), block = BLOCK, shared = Shared<T>, no_spills)]
pub unsafe fn quantize_fp8_128x128<T: Element, Q: Float8>(
    x: *const T,
    q: *mut Q,
    scales: *mut f32,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    match lanes::<T>() {
        4 => quantize::<T, Q, 4, 16>(x, q, scales, rows, d, x_stride, q_stride),
        _ => quantize::<T, Q, 8, 8>(x, q, scales, rows, d, x_stride, q_stride),
    }
}

/// A thread has `PACKS` packs of `N` elements.
#[inline(always)]
unsafe fn quantize<T: Element, Q: Float8, const N: usize, const PACKS: usize>(
    x: *const T,
    q: *mut Q,
    scales: *mut f32,
    rows: u64,
    d: u64,
    x_stride: u64,
    q_stride: u64,
) {
    const { assert!(N * PACKS * BLOCK as usize == SIDE * SIDE) };
    let tile = blocks::row_of_grid();
    if tile * SIDE as u64 >= rows {
        return;
    }
    // Threads that share a row.
    let across = SIDE / N;
    let tid = thread::thread_idx_x() as usize;
    let start = u64::from(thread::block_idx_x()) * SIDE as u64;
    let column = start + (tid % across * N) as u64;
    let row = |i: usize| tile * SIDE as u64 + (tid / across + i * (BLOCK as usize / across)) as u64;
    // A row past the end has no elements.
    let end = |i: usize| if row(i) < rows { d } else { 0 };
    let packed = blocks::is_packed::<T, N>(x, x_stride, rows) && blocks::is_packed::<Q, N>(q, q_stride, rows);
    let whole = packed && (tile + 1) * SIDE as u64 <= rows && start + SIDE as u64 <= d;
    let memory = shared::dynamic::<Shared<T>>();
    let packs: SharedPtr<Pack<T, N>> = shared_field!(memory.tile).cast();
    let place = |i: usize| packs.add((i * BLOCK as usize + tid) as u32);
    for i in 0..PACKS {
        let row_of_x = x.wrapping_add((row(i) * x_stride) as usize);
        if whole {
            cp_async::copy_16(place(i), row_of_x.add(column as usize));
        } else {
            blocks::load::<T, N>(row_of_x, column, end(i), packed).store(place(i).as_ptr().cast::<T>());
        }
    }
    cp_async::wait_all();
    let held = |i: usize| Pack::<T, N>::load(place(i).as_ptr().cast::<T>());
    // Compared in pairs where they have 16 bits, and converted once they are written.
    let max = (0..PACKS).map(|i| greatest(held(i))).fold(0.0, math::max_nan);
    let [max] = BlockThreads::reduce([max], [0.0], 0, |[a], [b]| [math::max_nan(a, b)]);
    let (scale, inverse) = f32::of::<Q>(max);
    if tid == 0 {
        let tiles = d.div_ceil(SIDE as u64);
        *scales.add((tile * tiles + u64::from(thread::block_idx_x())) as usize) = scale;
    }
    for i in 0..PACKS {
        let narrowed: Pack<Q, N> = blocks::narrow(held(i).to_f32().map(|x| x * inverse));
        let row_of_q = q.wrapping_add((row(i) * q_stride) as usize);
        if whole {
            narrowed.store_global(row_of_q.add(column as usize));
        } else {
            blocks::store(narrowed, row_of_q, column, end(i), packed);
        }
    }
}
