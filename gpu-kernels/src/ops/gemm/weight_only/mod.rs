//! Code that products with a weight of few bits share: C = A·Wᵀ of 16-bit activations, with a weight that becomes
//! 16-bit floats on the way into the tensor cores.
//!
//! With up to eight rows of A the weight goes to registers without stages: [`skinny`]. With more rows, on Hopper, it is
//! wgmma's left operand: [`hopper`]. Elsewhere, and where rows are not at multiples of 16 bytes, the weight is the left
//! operand of mma.sync, which has 16 rows, and the rows of A, the *vectors*, are the right operand, which has eight
//! columns: a block of [`THREADS`] takes [`ROWS`] rows of the weight, up to 16 or 64 vectors and a part of k. cp.async
//! fills a ring of stages of [`DEPTH`] elements of k, with the weight in its storage format. Eight warps take strips of
//! 32 rows; two warps share a strip, each taking half of a stage's k.
//!
//! **k in any order.** A lane loads 16 neighbours along k of a row of the weight at once. A fragment expects pairs that
//! are 8 apart from neighbouring lanes, but a sum does not depend on the order of k as long as both operands use the
//! same: the vectors are loaded by the same rule, 8 neighbours at once. So nothing is rearranged, in memory or in
//! registers.
//!
//! **Integers to floats.** An integer or'ed into the mantissa of 2ⁿ, where n is the mantissa's length, gives the float
//! 2ⁿ plus the integer: a byte permutation puts two integers under such exponents, and one fused multiply-add subtracts
//! the powers, exactly.
//!
//! **Neighbours at the same time.** Warps and blocks that share k take its steps in an interleaved order, not one range
//! each: simultaneous reads are then adjacent, in pages that DRAM has open.
//!
//! **Parts of k.** With few vectors there are too few tiles to fill a GPU, so blocks split k. Each writes its sums to
//! memory, and another launch adds them.

mod copy;
pub(super) mod hopper;
pub(super) mod skinny;
mod widen;

pub use hopper::{PANEL_BYTES, Plan};

pub(super) use widen::Int4;
pub(crate) use widen::{Int8, Weight};

use core::array;

use cuda_std::float::Half;
use cuda_std::launch::Fields;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{cp_async, mma, thread, warp};

use copy::{Copier, swizzled};
use widen::ZERO;

/// Rows of the weight that a block takes.
pub const ROWS: u32 = 128;
/// Threads of a block.
pub(super) const THREADS: u32 = 256;
/// Elements of k in a stage.
pub const DEPTH: u32 = 128;

/// Rows of a warp, and how many such strips a block has.
const STRIP: u32 = 32;
const STRIPS: u32 = ROWS / STRIP;
/// Warps that share a strip.
const SHARERS: u32 = THREADS / 32 / STRIPS;
/// Products of 16 rows in a strip.
const TILES: usize = (STRIP / 16) as usize;
/// Rows of the weight in a lane.
const LANE_ROWS: usize = 2 * TILES;
/// Neighbours along k that a lane loads of a row.
const LANE_DEPTH: u32 = 16;
/// Bytes of a vector's row of a stage.
const VECTOR_BYTES: u32 = DEPTH * 2;

/// Blocks that are to fit on a multiprocessor, with `r` vectors.
pub const fn blocks_per_multiprocessor(r: u32) -> u32 {
    if r == 16 { 2 } else { 1 }
}

/// KiB of shared memory that every GPU gives a block.
const SHARED_KIB: u32 = 99;

/// Whether each [`DEPTH`] elements of a row have a scale, or the whole row has one: fewer bits need more scales.
const fn is_grouped(bits: u32) -> bool {
    bits < 8
}

/// Of the weight, the vectors and the scales of a group.
const fn stage_bytes(r: u32, bits: u32) -> u32 {
    ROWS * DEPTH * bits / 8 + r * VECTOR_BYTES + if is_grouped(bits) { ROWS * 4 } else { 0 }
}

/// As many as there is room for.
const fn stages(r: u32, bits: u32) -> u32 {
    SHARED_KIB * 1024 / stage_bytes(r, bits)
}

/// Stages that are in flight while one is being processed and one is next.
pub(super) const fn pending(r: u32, bits: u32) -> u32 {
    stages(r, bits) - 2
}

pub(super) const fn shared_bytes(r: u32, bits: u32) -> usize {
    let bytes = stages(r, bits) * stage_bytes(r, bits);
    // Sums of all warps take the place of the stages.
    assert!(SHARERS * ROWS * r * 4 <= bytes);
    bytes as usize
}

/// What there is to compute.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sizes {
    /// Elements from a row of A to the next.
    pub a: u64,
    /// Bytes from a row of the weight to the next.
    pub w: u64,
    /// Elements from a row of C to the next.
    pub c: u64,
    /// Rows of A and C.
    pub m: u32,
    /// Rows of the weight and columns of C.
    pub n: u32,
    /// Elements of a row.
    pub k: u32,
    /// Zero.
    pub padding: u32,
}

// SAFETY: 3 u64 and 4 u32: no padding, alignment 8.
unsafe impl Fields for Sizes {}

/// A member's steps of k; the members that share k take steps in turn.
#[derive(Clone, Copy)]
struct Steps {
    member: u32,
    members: u32,
    /// The member's.
    count: u32,
}

impl Steps {
    /// Those of `member`, of so many steps in all.
    #[inline(always)]
    fn of(all: u32, member: u32, members: u32) -> Self {
        Self { member, members, count: (all + members - 1 - member) / members }
    }

    /// Where step `index` of the member is in k.
    #[inline(always)]
    fn at(self, index: u32) -> u32 {
        index * self.members + self.member
    }
}

/// Rows of A, of the weight and of C that a block has, and its part of k.
#[derive(Clone, Copy)]
struct Place {
    row0: u32,
    vector0: u32,
    /// In stages.
    first: u32,
    end: u32,
}

impl Place {
    /// Of block `index` of those with the same part, which is `rank` of `parts`. Blocks with the same rows of the weight are neighbours.
    #[inline(always)]
    fn of(sizes: &Sizes, index: u32, r: u32, [rank, parts]: [u32; 2]) -> Self {
        let slices = sizes.m.div_ceil(r).max(1);
        let steps = u64::from(sizes.k.div_ceil(DEPTH));
        // Parts differ by one at most.
        let first = |rank: u32| (steps * u64::from(rank) / u64::from(parts.max(1))) as u32;
        Self { row0: index / slices * ROWS, vector0: index % slices * r, first: first(rank), end: first(rank + 1) }
    }
}

/// A warp's sums. Lane l holds rows 16i + l/4 and 8 below it, and vectors 8j + 2(l mod 4) and the next, in `[i][j]`.
type Sums<const NT: usize> = [[[f32; 4]; NT]; TILES];

/// C = A·Wᵀ of the block's rows, times `scales`, with `NT` · 8 vectors. x of the grid counts blocks, y parts of k, which C has one after the other.
///
/// # Safety
/// `a`, `w` and `c` are valid for these sizes at their strides, `scales` and, with `ZEROS`, `zeros` for each row of the weight and group; with `PACKED` rows of
/// `a` and `w` are at multiples of 16 bytes; `PENDING` is [`pending`]; no size but k is zero.
#[inline(always)]
pub(super) unsafe fn run<
    W: Weight,
    T: Half,
    const NT: usize,
    const PACKED: bool,
    const ZEROS: bool,
    const PENDING: u32,
>(
    a: *const T,
    w: *const u8,
    scales: *const f32,
    zeros: *const u8,
    c: *mut f32,
    sizes: Sizes,
) {
    let r = NT as u32 * 8;
    let row_bytes = DEPTH * W::BITS / 8;
    let stages = PENDING + 2;
    let thread = thread::thread_idx_x();
    let memory: SharedPtr<u8> = shared::dynamic();
    let weights = |step: u32| memory.byte_add(step % stages * stage_bytes(r, W::BITS));
    let vectors = |step: u32| weights(step).byte_add(ROWS * row_bytes);
    let grouped = is_grouped(W::BITS);
    let of_group = |step: u32| vectors(step).byte_add(r * VECTOR_BYTES).cast::<f32>();

    let part = thread::block_idx_y();
    let place = Place::of(&sizes, thread::block_idx_x(), r, [part, thread::grid_dim_y()]);
    let of_weight = Copier {
        from: w.wrapping_add((u64::from(place.row0) * sizes.w) as usize),
        stride: sizes.w,
        rows_left: sizes.n - place.row0,
        elements: (sizes.k * (W::BITS / 4)).div_ceil(2),
    };
    let of_vectors = Copier {
        from: a.wrapping_add((u64::from(place.vector0) * sizes.a) as usize),
        stride: sizes.a,
        rows_left: sizes.m - place.vector0,
        elements: sizes.k,
    };
    let groups = u64::from(sizes.k.div_ceil(DEPTH));
    let scaled_row = (place.row0 + thread).min(sizes.n - 1);
    let of_groups = scales.wrapping_add((u64::from(scaled_row) * groups) as usize);
    let fetch = |step: u32| {
        if step < place.end {
            if grouped && thread < ROWS {
                let (to, from) = (of_group(step).add(thread), of_groups.wrapping_add(step as usize));
                if PACKED {
                    cp_async::copy_4(to, from);
                } else {
                    to.write(*from);
                }
            }
            of_weight.copy::<PACKED>(weights(step), step * row_bytes, [ROWS, row_bytes], thread);
            of_vectors.copy::<PACKED>(vectors(step).cast(), step * DEPTH, [r, VECTOR_BYTES], thread);
        }
        if PACKED {
            // An empty group keeps the count of groups in flight the same at the end.
            cp_async::commit();
        }
    };
    // cp.async does not copy single bytes. Of the four lanes that share four rows, each reads the byte of one row a
    // stage ahead, and the others get it by a shuffle. The read is issued before the copies, so that it does not queue
    // behind them.
    let of_zeros = if ZEROS {
        let row = place.row0 + thread / 32 / SHARERS * STRIP + thread % 32 / 4 + thread % 4 * 8;
        zeros.wrapping_add((u64::from(row.min(sizes.n - 1)) * groups) as usize)
    } else {
        zeros
    };
    let zero_of = |step: u32| if ZEROS { *of_zeros.wrapping_add(step.min(place.end - 1) as usize) } else { ZERO };
    let mut next_zero = if place.first < place.end { zero_of(place.first) } else { ZERO };
    for step in 0..stages - 1 {
        fetch(place.first + step);
    }

    let (lane, warp) = (warp::lane_id(), warp::warp_id_uniform());
    let (strip, sharer) = (warp / SHARERS, warp % SHARERS);
    let first_row = strip * STRIP + lane / 4;
    let mut sums: Sums<NT> = [[[0.0; 4]; NT]; TILES];
    for step in place.first..place.end {
        // The group of this step has landed, and all warps are done with the stage that the next copy overwrites.
        if PACKED {
            cp_async::wait_group::<PENDING>();
        }
        thread::sync_threads();
        let offset = W::offset::<T>(next_zero);
        next_zero = zero_of(step + 1);
        fetch(step + stages - 1);
        let offsets = array::from_fn(|i| if ZEROS { warp::shuffle_idx(offset, lane & !3 | i as u32) } else { offset });
        let mut products = if grouped { [[[0.0; 4]; NT]; TILES] } else { sums };
        multiply::<W, T, NT>(weights(step), vectors(step), [first_row, lane / 4], sharer, offsets, &mut products);
        if grouped {
            let of_group = of_group(step).add(first_row).as_ptr();
            for i in 0..TILES {
                let scales = [of_group.add(16 * i).read(), of_group.add(16 * i + 8).read()];
                for j in 0..NT {
                    for e in 0..4 {
                        sums[i][j][e] += scales[e / 2] * products[i][j][e];
                    }
                }
            }
        } else {
            sums = products;
        }
    }

    // All stages have been read: the sums overwrite them.
    thread::sync_threads();
    let size = (TILES * NT * 4 * 32) as u32;
    let sums_at = memory.cast::<f32>();
    let from_warp = sums_at.add(warp * size + lane);
    for i in 0..TILES {
        for j in 0..NT {
            for e in 0..4 {
                from_warp.add(((i * NT + j) * 4 + e) as u32 * 32).write(sums[i][j][e]);
            }
        }
    }
    thread::sync_threads();
    let c = c.add((u64::from(part) * u64::from(sizes.m) * u64::from(sizes.n)) as usize);
    let mut at = thread;
    while at < STRIPS * size {
        let (strip, at_warp) = (at / size, at % size);
        let (i, lane) = (at_warp / 32, at % 32);
        let row = place.row0 + strip * STRIP + i / (NT as u32 * 4) * 16 + i / 2 % 2 * 8 + lane / 4;
        let vector = place.vector0 + i / 4 % NT as u32 * 8 + lane % 4 * 2 + i % 2;
        if row < sizes.n && vector < sizes.m {
            let sum = |sharer: u32| sums_at.add((strip * SHARERS + sharer) * size + at_warp).read();
            let sum = (0..SHARERS).fold(0.0, |total, sharer| total + sum(sharer));
            let scale = if grouped { 1.0 } else { *scales.add(row as usize) };
            *c.add((u64::from(vector) * sizes.c + u64::from(row)) as usize) = sum * scale;
        }
        at += THREADS;
    }
}

/// Adds the products of a half of a stage's k, of a warp's rows and vectors, of which the lane has the first and those 8 apart.
#[inline(always)]
unsafe fn multiply<W: Weight, T: Half, const NT: usize>(
    weights: SharedPtr<u8>,
    vectors: SharedPtr<u8>,
    [row, vector]: [u32; 2],
    half: u32,
    offsets: [u32; LANE_ROWS],
    sums: &mut Sums<NT>,
) {
    let row_bytes = DEPTH * W::BITS / 8;
    let first = half * (DEPTH / 2) + warp::lane_id() % 4 * LANE_DEPTH;
    // Pointers, of which the places of rows further down become offsets in the instructions.
    let from = weights.byte_add(swizzled(row_bytes, row, first * W::BITS / 8)).as_ptr();
    let rows: [W::Lane; LANE_ROWS] = array::from_fn(|i| W::load(from.add(i * 8 * row_bytes as usize)));
    for second in 0..2 {
        let from = vectors.byte_add(swizzled(VECTOR_BYTES, vector, (first + second as u32 * 8) * 2)).as_ptr();
        let of = |j: usize| Pack::<u32, 4>::load(from.add(j * 8 * VECTOR_BYTES as usize).cast()).0;
        let widen = |i: usize| [2 * i, 2 * i + 1].map(|row| W::widen::<T>(rows[row], second, offsets[row]));
        // What there is less of stays in registers: few vectors, or the rows.
        if NT <= TILES {
            let vectors: [_; NT] = array::from_fn(of);
            for i in 0..TILES {
                let rows = widen(i);
                for j in 0..NT {
                    add_products::<T>(&mut sums[i][j], rows, vectors[j]);
                }
            }
        } else {
            let rows: [_; TILES] = array::from_fn(widen);
            for j in 0..NT {
                let vectors = of(j);
                for i in 0..TILES {
                    add_products::<T>(&mut sums[i][j], rows[i], vectors);
                }
            }
        }
    }
}

/// Adds the products of 16 rows and eight vectors over 32 elements of k: pairs of the upper and lower eight rows, and of the vectors.
#[inline(always)]
unsafe fn add_products<T: Half>(sums: &mut [f32; 4], [upper, lower]: [[u32; 4]; 2], vectors: [u32; 4]) {
    mma::m16n8k16::<T>(sums, [upper[0], lower[0], upper[1], lower[1]], [vectors[0], vectors[1]]);
    mma::m16n8k16::<T>(sums, [upper[2], lower[2], upper[3], lower[3]], [vectors[2], vectors[3]]);
}
