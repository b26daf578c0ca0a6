//! What products with a weight of few bits share: C = A·Wᵀ of 16-bit activations, whose weight becomes 16-bit floats on the way into the tensor
//! cores.
//!
//! A team of [`THREADS`] takes [`ROWS`] rows of the weight and up to 16, 64 or 128 rows of A, the *vectors*, and a part of k. cp.async fills a ring of stages of
//! [`DEPTH`] elements of k, the weight as it is stored. The weight is the left operand of mma.sync, whose 16 rows are many, and the vectors are the right
//! one, whose columns are eight. Eight warps take 32 rows each; two share them, by halves of a stage's k or by halves of the vectors.
//!
//! **k in any order.** A lane loads 16 neighbours along k of a row of the weight at once. A fragment wants pairs that are 8 apart from lanes that are
//! next to each other, but a sum does not care which element stands at which k as long as both operands agree: the vectors are loaded by the
//! same rule, 8 neighbours at once. So nothing is rearranged, in memory or in registers.
//!
//! **Integers to floats.** An integer or'ed into the mantissa of 2ⁿ, where n is the mantissa's length, is the float 2ⁿ plus the integer: a byte
//! permutation puts two integers under such exponents, and one fused multiply-add takes the powers off, exactly.
//!
//! **Parts of k.** With few vectors there are too few tiles to fill a GPU. Teams of a block and blocks of a cluster share k: each writes its sums to the block that
//! adds them, as the tensor core left them, which does so in their order. Without clusters blocks write them to memory, for another launch. Two teams rather than
//! two blocks: clusters of four that leave no room between them do not all fit at once.

mod copy;
mod widen;

pub(super) use widen::Int4;
pub(crate) use widen::{Int8, Weight};

use core::array;

use cuda_std::cluster::{self, ClusterPtr};
use cuda_std::float::{Element, Half};
use cuda_std::launch::Fields;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::thread::named_barrier;
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

/// Blocks of a cluster, which share k: pairs fit wherever there is room for them.
pub const CLUSTER: u32 = 2;
/// Teams of [`THREADS`] in a block of few vectors on Hopper, each with a ring and a part of k of its own.
pub(super) const TEAMS: u32 = 2;

/// Those of a kernel for `r` vectors.
pub(super) const fn teams(r: usize) -> u32 {
    if r == 16 { TEAMS } else { 1 }
}

/// Blocks without clusters that are to fit on a multiprocessor, with `r` vectors.
pub const fn blocks_per_multiprocessor(r: u32) -> u32 {
    if r == 16 { 2 } else { 1 }
}

/// KiB of shared memory that every GPU gives a block, and that Hopper does.
pub(super) const COMMON: u32 = 99;
pub(super) const HOPPER: u32 = 216;

/// Whether each [`DEPTH`] elements of a row have a scale, or the whole row: fewer bits want more scales.
const fn is_grouped(bits: u32) -> bool {
    bits < 8
}

/// Of the weight, the vectors and the scales of a group.
const fn stage_bytes(r: u32, bits: u32) -> u32 {
    ROWS * DEPTH * bits / 8 + r * VECTOR_BYTES + if is_grouped(bits) { ROWS * 4 } else { 0 }
}

/// As many as there is room for.
const fn stages(r: u32, bits: u32, kib: u32) -> u32 {
    kib * 1024 / stage_bytes(r, bits)
}

/// Stages on their way while one is worked on and one is next.
pub(super) const fn pending(r: u32, bits: u32, kib: u32) -> u32 {
    stages(r, bits, kib) - 2
}

pub(super) const fn shared_bytes(r: u32, bits: u32, kib: u32) -> usize {
    let bytes = stages(r, bits, kib) * stage_bytes(r, bits);
    // Sums of all warps, at most one for each half of k, take the place of the stages.
    assert!(SHARERS * ROWS * (if r > 64 { 64 } else { r }) * 4 <= bytes);
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

/// C = A·Wᵀ of the block's rows, times `scales`. Warps that share rows have `NT` · 8 vectors each, all or, if `APART`, half of them. Blocks are numbered
/// along x, `CLUSTER` of them in a cluster; y counts parts of k, which C has one after the other.
///
/// # Safety
/// `a`, `w` and `c` are valid for these sizes at their strides, `scales` and, with `ZEROS`, `zeros` for each row of the weight and group; with `PACKED` rows of
/// `a` and `w` are at multiples of 16 bytes; `PENDING` is [`pending`]; no size but k is zero.
#[inline(always)]
pub(super) unsafe fn run<
    W: Weight,
    T: Half,
    C: Element,
    const NT: usize,
    const APART: bool,
    const PACKED: bool,
    const CLUSTER: u32,
    const TEAMS: u32,
    const ZEROS: bool,
    const PENDING: u32,
>(
    a: *const T,
    w: *const u8,
    scales: *const f32,
    zeros: *const u8,
    c: *mut C,
    sizes: Sizes,
) {
    let r = NT as u32 * 8 * if APART { SHARERS } else { 1 };
    let row_bytes = DEPTH * W::BITS / 8;
    let stages = PENDING + 2;
    let (team, thread) = (warp::warp_id_uniform() * 32 / THREADS, thread::thread_idx_x() % THREADS);
    let memory: SharedPtr<u8> = shared::dynamic();
    let ring = memory.byte_add(team * stages * stage_bytes(r, W::BITS));
    let weights = |step: u32| ring.byte_add(step % stages * stage_bytes(r, W::BITS));
    let vectors = |step: u32| weights(step).byte_add(ROWS * row_bytes);
    let grouped = is_grouped(W::BITS);
    let of_group = |step: u32| vectors(step).byte_add(r * VECTOR_BYTES).cast::<f32>();

    let rank = if CLUSTER > 1 { cluster::rank() } else { 0 };
    let part = thread::block_idx_y();
    // Who of those that share k this is.
    let member = rank * TEAMS + team;
    let share = if CLUSTER > 1 { [member, CLUSTER * TEAMS] } else { [part, thread::grid_dim_y()] };
    let place = Place::of(&sizes, thread::block_idx_x() / CLUSTER, r, share);
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
    // cp.async does not copy single bytes. Of the four lanes that share four rows each reads one's, a stage ahead, and the others take them from there: before
    // copies are started, so that it need not queue behind them.
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

    let (lane, warp) = (warp::lane_id(), warp::warp_id_uniform() % (THREADS / 32));
    let (strip, sharer) = (warp / SHARERS, warp % SHARERS);
    let first_row = strip * STRIP + lane / 4;
    let first_vector = if APART { sharer * NT as u32 * 8 } else { 0 } + lane / 4;
    let mut sums: Sums<NT> = [[[0.0; 4]; NT]; TILES];
    for step in place.first..place.end {
        // The group of this step has landed, and everybody is done with the stage that the next copy overwrites.
        if PACKED {
            cp_async::wait_group::<PENDING>();
        }
        if TEAMS > 1 {
            named_barrier::sync(1 + team, THREADS);
        } else {
            thread::sync_threads();
        }
        let offset = W::offset::<T>(next_zero);
        next_zero = zero_of(step + 1);
        fetch(step + stages - 1);
        let offsets = array::from_fn(|i| if ZEROS { warp::shuffle_idx(offset, lane & !3 | i as u32) } else { offset });
        let mut products = if grouped { [[[0.0; 4]; NT]; TILES] } else { sums };
        for half in 0..if APART { 2 } else { 1 } {
            let half = if APART { half } else { sharer };
            let first = [first_row, first_vector];
            multiply::<W, T, NT>(weights(step), vectors(step), first, half, offsets, &mut products);
        }
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

    // All stages of the cluster have been read: sums take their place.
    let sync = || if CLUSTER > 1 { cluster::sync() } else { thread::sync_threads() };
    sync();
    // A block adds so many strips; its memory has those of each that shares k, strip by strip.
    let own = STRIPS / CLUSTER;
    let size = (TILES * NT * 4 * 32) as u32;
    let sums_at = memory.cast::<f32>();
    let from_warp = sums_at.add(((member * own + strip % own) * SHARERS + sharer) * size + lane);
    let of_other = if CLUSTER > 1 { cluster::map(from_warp, strip / own) } else { ClusterPtr::from_addr(0) };
    for i in 0..TILES {
        for j in 0..NT {
            for e in 0..4 {
                let at = ((i * NT + j) * 4 + e) as u32 * 32;
                if CLUSTER > 1 {
                    of_other.add(at).write(sums[i][j][e]);
                } else {
                    from_warp.add(at).write(sums[i][j][e]);
                }
            }
        }
    }
    sync();
    let c = c.add((u64::from(part) * u64::from(sizes.m) * u64::from(sizes.n)) as usize);
    let each = if APART { SHARERS * size } else { size };
    let mut at = thread::thread_idx_x();
    while at < own * each {
        let (strip, sharer) = (at / each, at % each / size);
        let (i, lane) = (at % size / 32, at % 32);
        let row = place.row0 + (rank * own + strip) * STRIP + i / (NT as u32 * 4) * 16 + i / 2 % 2 * 8 + lane / 4;
        let vector = place.vector0 + (sharer * NT as u32 + i / 4 % NT as u32) * 8 + lane % 4 * 2 + i % 2;
        if row < sizes.n && vector < sizes.m {
            let from = |member: u32, sharer: u32| ((member * own + strip) * SHARERS + sharer) * size + at % size;
            let sum = |member: u32| {
                if APART {
                    sums_at.add(from(member, sharer)).read()
                } else {
                    (0..SHARERS).fold(0.0, |sum, sharer| sum + sums_at.add(from(member, sharer)).read())
                }
            };
            let sum = (0..CLUSTER * TEAMS).fold(0.0, |total, member| total + sum(member));
            let scale = if grouped { 1.0 } else { *scales.add(row as usize) };
            *c.add((u64::from(vector) * sizes.c + u64::from(row)) as usize) = C::from_f32(sum * scale);
        }
        at += THREADS * TEAMS;
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
