//! The product with up to eight vectors: the weight goes from memory straight to registers, and from there into mma.sync.
//!
//! A warp takes [`ROWS`] rows of the weight and every eighth or sixteenth step of k, 64 bytes of each row. A lane loads 16
//! neighbouring bytes of four rows, one step ahead. The warps of a block, [`WARPS`] or, where a multiprocessor has no second
//! block, twice as many, read neighbouring steps at the same time, so that DRAM has few pages open: with a contiguous range of k for each warp the kernel takes a third longer,
//! and with more than one step in flight a tenth longer.
//!
//! **k in any order**, as in the form with stages: the assignment of elements to a fragment is free as long as the
//! vectors use the same. So a lane's integers become pairs in their stored order, which for 4 bits are elements four
//! apart, and the vectors' floats are paired alike.
//!
//! Several vectors are loaded by cp.async, two steps ahead, into a ring for each warp: the lanes that share a row need
//! 64 or 32 bytes of each vector, which as direct loads would touch twice as many sectors as necessary. A single vector
//! is loaded as the weight is, with all rows of lanes loading the same.

use core::array;

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{cp_async, thread, warp};

use super::widen::{Weight, ZERO};
use super::{DEPTH, Sizes, Steps, add_products, is_grouped};

/// Fragments of a warp, of 16 rows each.
const FRAGMENTS: usize = 2;
/// Rows of the weight that a block takes.
pub const ROWS: u32 = 16 * FRAGMENTS as u32;
/// The most vectors.
pub const MOST: u32 = 8;
/// Warps of a block, which share k, if two blocks are to fit on a multiprocessor.
pub const WARPS: u32 = 8;
/// Bytes of a row in a step: 16 of each of four lanes.
const STEP_BYTES: u32 = 64;
/// Steps of the vectors that a ring holds.
const STAGES: u32 = 3;

/// Neighbours along k that a lane has of a row: k is a multiple of them.
pub const fn lane_depth(bits: u32) -> u32 {
    128 / bits
}

/// Bytes of a vector in a step.
const fn vector_bytes(bits: u32) -> u32 {
    STEP_BYTES * 16 / bits
}

/// Of a warp's vectors in a step.
const fn stage_bytes(bits: u32) -> u32 {
    MOST * vector_bytes(bits)
}

/// Of the sums of `warps`, or of several vectors' rings, whose place they take.
pub(in super::super) const fn shared_bytes(alone: bool, warps: u32, bits: u32) -> usize {
    let sums = warps * ROWS * MOST * 4;
    let rings = warps * STAGES * stage_bytes(bits);
    assert!(sums <= rings);
    if alone { sums as usize } else { rings as usize }
}

/// What a lane loads for a step.
#[derive(Clone, Copy)]
struct Loaded {
    /// Of each fragment a row of the upper eight and one of the lower.
    weight: [[[u32; 4]; 2]; FRAGMENTS],
    /// Of the vector if it is alone, eight elements each.
    vector: [[u32; 4]; 4],
}

/// Of those rows the scales of one of four steps, and its zero points, the bytes of a word.
type Scaling = ([[f32; 2]; FRAGMENTS], u32);

/// A lane's sums of each fragment.
type Sums = [[f32; 4]; FRAGMENTS];

/// C = A·Wᵀ of the block's rows, times `scales`, by blocks of `N` warps; if `ALONE`, A has one row.
///
/// # Safety
/// `a`, `w` and `c` are valid for these sizes at their strides, `scales` and, with `ZEROS`, `zeros` for each row of the weight and group; rows of `a` and `w` are at
/// multiples of 16 bytes; no size is zero, `k` is a multiple of [`lane_depth`], `m` at most [`MOST`], and the scales are less than 2³².
#[inline(always)]
pub(in super::super) unsafe fn run<W: Weight, T: Half, const ALONE: bool, const N: u32, const ZEROS: bool>(
    a: *const T,
    w: *const u8,
    scales: *const f32,
    zeros: *const u8,
    c: *mut T,
    sizes: Sizes,
) {
    let grouped = is_grouped(W::BITS);
    let (lane, warp) = (warp::lane_id(), warp::warp_id_uniform());
    let memory: SharedPtr<u8> = shared::dynamic();
    let all = sizes.k.div_ceil(vector_bytes(W::BITS) / 2);
    // Rows past the last are replaced by the last row, and not stored.
    let row0 = thread::block_idx_x() * ROWS;
    let rows: [[u32; 2]; FRAGMENTS] =
        array::from_fn(|f| [0, 8].map(|below| (row0 + f as u32 * 16 + lane / 4 + below).min(sizes.n - 1)));
    let mine = Warp::<T> {
        from: rows.map(|rows| rows.map(|row| w.wrapping_add((u64::from(row) * sizes.w) as usize))),
        a,
        sizes,
        ring: memory.byte_add(warp * STAGES * stage_bytes(W::BITS)),
        steps: Steps::of(all, warp, N),
        lane,
    };
    // A lane reads the scales of one of four steps, and passes them to the other lanes.
    let groups = sizes.k.div_ceil(DEPTH);
    let read = |index: u32| -> Scaling {
        let group = mine.steps.at(index + lane % 4).min(groups - 1);
        let at = rows.map(|rows| rows.map(|row| (row * groups + group) as usize));
        let scales = at.map(|rows| rows.map(|at| if grouped { *scales.add(at) } else { 1.0 }));
        let zero = |at: usize| if ZEROS { *zeros.add(at) } else { ZERO };
        (scales, u32::from_le_bytes([zero(at[0][0]), zero(at[0][1]), zero(at[1][0]), zero(at[1][1])]))
    };
    let mut four = read(0);
    let mut ahead = mine.load::<W, ALONE>(0);
    if !ALONE {
        for index in 0..STAGES - 1 {
            mine.fetch::<W>(index);
        }
    }
    let mut sums: Sums = [[0.0; 4]; FRAGMENTS];
    let mut index = 0;
    while index < mine.steps.count {
        // Loads that are carried from one loop iteration to the next are waited for at the iteration's end, so one
        // iteration covers four steps.
        let end = (index + 4).min(mine.steps.count);
        let next = if end < mine.steps.count { read(end) } else { four };
        while index < end {
            mine.step::<W, ALONE, ZEROS>(index, four, &mut ahead, &mut sums);
            index += 1;
        }
        four = next;
    }

    if !ALONE {
        // The rings are no longer read: the sums overwrite them.
        thread::sync_threads();
    }
    let sums_at = memory.cast::<f32>();
    for (i, sum) in sums.as_flattened().iter().enumerate() {
        sums_at.add(warp * ROWS * MOST + i as u32 * 32 + lane).write(*sum);
    }
    thread::sync_threads();
    // As many threads as sums, or more.
    let (row, vector) = (thread::thread_idx_x() % ROWS, thread::thread_idx_x() / ROWS);
    if vector >= MOST {
        return;
    }
    // The sum's position in a fragment.
    let place = (row / 8 * 2 + vector % 2) * 32 + row % 8 * 4 + vector / 2;
    let sum = (0..N).fold(0.0, |sum, warp| sum + sums_at.add(warp * ROWS * MOST + place).read());
    let row = row0 + row;
    if row < sizes.n && vector < sizes.m {
        let scale = if grouped { 1.0 } else { *scales.add(row as usize) };
        *c.add((u64::from(vector) * sizes.c + u64::from(row)) as usize) = T::from_f32(sum * scale);
    }
}

/// The operands of a warp, as one lane sees them.
#[derive(Clone, Copy)]
struct Warp<T> {
    /// The rows.
    from: [[*const u8; 2]; FRAGMENTS],
    a: *const T,
    sizes: Sizes,
    /// The vectors of its steps.
    ring: SharedPtr<u8>,
    steps: Steps,
    lane: u32,
}

impl<T: Half> Warp<T> {
    #[inline(always)]
    fn stage<W: Weight>(&self, index: u32) -> SharedPtr<u8> {
        self.ring.byte_add(index % STAGES * stage_bytes(W::BITS))
    }

    /// Of a step the weight, and the vector if it is alone.
    #[inline(always)]
    unsafe fn load<W: Weight, const ALONE: bool>(&self, index: u32) -> Loaded {
        let depth = lane_depth(W::BITS);
        let column = (self.steps.at(index) * 4 + self.lane % 4) * depth;
        let inside = column < self.sizes.k;
        // Bytes past k are multiplied by zeros, so any readable bytes will do.
        let column = if inside { column } else { 0 } as usize;
        let byte = column / depth as usize * 16;
        let weight =
            self.from.map(|rows| rows.map(|row| Pack::load_nc_no_allocate_ahead(row.wrapping_add(byte).cast()).0));
        let vector = array::from_fn(|i| {
            if !ALONE || i as u32 >= depth / 8 || !inside {
                return [0; 4];
            }
            Pack::load_nc_evict_last(self.a.wrapping_add(column + i * 8).cast()).0
        });
        Loaded { weight, vector }
    }

    /// Starts copying a step of the vectors. Rows are [`vector_bytes`] long. Chunk i of the quarter that a lane needs
    /// is in the i-th 64 bytes, for odd vectors with each two exchanged, so that eight lanes load from all banks.
    #[inline(always)]
    unsafe fn fetch<W: Weight>(&self, index: u32) {
        if index < self.steps.count {
            let (to, vector_bytes) = (self.stage::<W>(index), vector_bytes(W::BITS));
            let (chunks, of_quarter) = (vector_bytes / 16, vector_bytes / 64);
            // An even number of vectors at a time, of which the next ones lie alike.
            let (vector, chunk) = (self.lane / chunks, self.lane % chunks);
            let at_a_time = 32 / chunks;
            let column = self.steps.at(index) * (vector_bytes / 2) + chunk * 8;
            let place = ((chunk % of_quarter) ^ (vector % 2)) * 64 + chunk / of_quarter * 16;
            for pass in 0..MOST / at_a_time {
                let vector = vector + pass * at_a_time;
                let inside = vector < self.sizes.m && column < self.sizes.k;
                let from = self.a.wrapping_add((u64::from(vector) * self.sizes.a + u64::from(column)) as usize);
                let to = to.byte_add(vector * vector_bytes + place);
                cp_async::copy_16_l1_zero_fill(to, from, if inside { 16 } else { 0 });
            }
        }
        // An empty group keeps the count of groups in flight the same at the end.
        cp_async::commit();
    }

    /// Multiplies step `index`, which is in `ahead`, and loads the next one.
    #[inline(always)]
    unsafe fn step<W: Weight, const ALONE: bool, const ZEROS: bool>(
        &self,
        index: u32,
        (scales, zeros): Scaling,
        ahead: &mut Loaded,
        sums: &mut Sums,
    ) {
        let (grouped, vector_bytes, lane) = (is_grouped(W::BITS), vector_bytes(W::BITS), self.lane);
        if !ALONE {
            // This step's vectors have landed, and no lane still reads those that the next copy overwrites.
            cp_async::wait_group::<{ STAGES - 2 }>();
            warp::sync(u32::MAX);
            self.fetch::<W>(index + STAGES - 1);
        }
        let Loaded { weight, vector } = *ahead;
        if index + 1 < self.steps.count {
            *ahead = self.load::<W, ALONE>(index + 1);
        }
        let source = lane & !3 | (index % 4);
        let zeros = if ZEROS { warp::shuffle_idx(zeros, source) } else { zeros };
        let offsets: [_; FRAGMENTS] =
            array::from_fn(|f| [0, 1].map(|i| W::offset::<T>((zeros >> (16 * f + 8 * i)) as u8)));
        let vectors = self.stage::<W>(index).byte_add(lane / 4 * vector_bytes + lane % 4 * 16);
        let mut products = if grouped { [[0.0; 4]; FRAGMENTS] } else { *sums };
        for eight in 0..lane_depth(W::BITS) / 8 {
            let from = vectors.byte_add((eight ^ (lane / 4 % 2)) * 64).as_ptr();
            let vectors = W::paired(if ALONE { vector[eight as usize] } else { Pack::load(from.cast()).0 });
            for f in 0..FRAGMENTS {
                let rows = [0, 1].map(|i| W::eight::<T>(weight[f][i], eight as usize, offsets[f][i]));
                add_products::<T>(&mut products[f], rows, vectors);
            }
        }
        if grouped {
            let scales = scales.map(|rows| rows.map(|scale| warp::shuffle_idx(scale, source)));
            for f in 0..FRAGMENTS {
                for e in 0..4 {
                    sums[f][e] += scales[f][e / 2] * products[f][e];
                }
            }
        } else {
            *sums = products;
        }
    }
}
