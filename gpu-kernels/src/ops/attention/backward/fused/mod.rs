//! All three gradients in one pass on mma.sync, five products per tile: the fast form for every GPU from Ampere on.
//!
//! A block owns [`KEYS`] keys and walks over tiles of 64 or 128 [`queries`]. Its two halves of four warps each own one
//! gradient: one half owns dV and forms Sᵀ = K·Qᵀ and Pᵀ, the other owns dK and forms dPᵀ = V·dOᵀ and dSᵀ. Each warp
//! has a partner in the other half with the same 32 keys. A warp thus accumulates one gradient of 32 keys over all of
//! d; two gradients would not fit its registers. Pᵀ and dSᵀ serve as operand A of dV += Pᵀ·dO and dK += dSᵀ·Q straight
//! from registers, so that only one operand is read from shared memory. Pᵀ goes to the other half through shared
//! memory, rounded, in the order in which threads hold it; dSᵀ then replaces it there, and all eight warps form dQ =
//! dS·K of the tile, 32 × 32 each.
//!
//! **dQ** is a sum over keys and hence over blocks: it is added to an f32 sum in global memory, one value at a time
//! because `sm_80` has no wider atomic addition, in the order in which threads hold their results, 128 bytes per warp.
//! [`finish`] scales the sum, rounds it and puts it in order. The order of these additions is not deterministic: the
//! last bits of dQ vary from run to run, which is why [`mma`](super::mma) stays as the deterministic form.
//!
//! **Overlap.** There is one barrier of the whole block per tile. After it, a tile of Q and dO and the dS of the tile
//! before are in shared memory. Then the first half forms S and its exponentials while the second forms dQ and dP; the
//! second half forms dS while the first forms dV; and the second half forms dK while the first forms dQ. Within a tile,
//! a warp waits once for its partner with the same keys, for P.
//!
//! # Layout
//! Tiles are as `fragments` has them. P and dS have a row a key, of `queries` positions in chunks of 8. Position 32a + 8b + 2c + e is query 32a + 8c + 2b +
//! e: so four registers of a thread, for a row of accumulators, are one chunk. See `chunk`.
//!
//! # Cost
//! For 128 keys and 64 queries at d = 128, or 128 at d = 64, 10.5 MFLOP: 4096 cycles of a multiprocessor at the 2560
//! FLOP a cycle that mma.sync is taken to reach on Hopper. Shared memory, 128 bytes per cycle: the products read 96 KiB
//! each for S and dP, 64 for dV and dK, 128 for dQ (with K and V in registers at d = 64, 64 for S and dP); P, dS and
//! the copies 80 or 128. In all 528 KiB, 4220 cycles, or 512 KiB. Measured on an H200 at d = 64: 7580, two warps a
//! scheduler that wait for each other's latencies more than for a rate; 2 to 3% less since `products` loads ahead. Two
//! kernels of seven products that keep 16 rows a warp read 1.1 MiB.
//!
//! # Registers and shared memory
//! A thread holds d of its gradient, and 64 of S or dP, at d = 64 also 32 of K or V; 32 of dQ when those are gone. Shared memory: 512·d bytes of K and V, 64 KiB of two buffers of Q
//! and dO, 32 or 64 of two buffers of P and dS, and numbers: 161 and 162 KiB, which Ampere's 163 hold. GPUs with less take [`mma`](super::mma), as do
//! heads of more than 128 elements.

pub mod finish;
mod halves;
mod products;

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::{cp_async, kernel, thread, warp};

use crate::ops::attention::fragments::{self, Rows};
use crate::ops::attention::{Bounds, Gradients, Problem, Sequence, Side, Span, Tile};

/// Keys of a block.
pub const KEYS: u32 = 128;
/// Warps of a half.
const WARPS: u32 = 4;
/// Keys of a warp, and the number of 16-key products that cover them.
const WARP_KEYS: u32 = KEYS / WARPS;
const MT: usize = (WARP_KEYS / 16) as usize;
/// Threads of a block: two halves.
pub const THREADS: u32 = 2 * WARPS * 32;

/// Queries of a tile, for heads of up to `d` elements.
pub const fn queries(d: u32) -> u32 {
    if d <= 64 { 128 } else { 64 }
}

/// The first piece of dQ's sum for a sequence, counted in tiles of its head: every sequence has its own pieces,
/// wherever its queries start.
#[inline(always)]
fn first_piece(sequence: &Sequence, queries: u32) -> u32 {
    sequence.q0 / queries + sequence.before
}

/// Shared memory for K, V, and two buffers each of Q, of dO, of P and dS, and of the per-query numbers.
pub const fn shared_bytes(d: u32) -> usize {
    (2 * KEYS * d * 2 + 4 * queries(d) * d * 2 + 2 * KEYS * queries(d) * 2 + 4 * queries(d) * 4) as usize
}

/// The position of a chunk of 8 positions of key `row` in P and dS, in elements. The eight rows of an ldmatrix fall
/// into different banks, and so do the four chunks of two rows that neighbouring lanes write.
#[inline(always)]
fn chunk(row: u32, chunk: u32, queries: u32) -> u32 {
    row * queries + (chunk ^ (row % 2 * 4 + row / 2 % 4)) * 8
}

/// The query at a position of P and dS.
#[inline(always)]
fn query_at(position: u32) -> u32 {
    position / 32 * 32 + position / 2 % 4 * 8 + position / 8 % 4 * 2 + position % 2
}

/// Typed views of the block's shared memory, for heads of `DT` eighths.
#[derive(Clone, Copy)]
struct Memory<T, const DT: usize>(SharedPtr<T>);

impl<T, const DT: usize> Memory<T, DT> {
    const D: u32 = DT as u32 * 8;
    const QUERIES: u32 = queries(Self::D);

    #[inline(always)]
    fn k(self) -> SharedPtr<T> {
        self.0
    }

    #[inline(always)]
    fn v(self) -> SharedPtr<T> {
        self.0.add(KEYS * Self::D)
    }

    #[inline(always)]
    fn q(self, step: u32) -> SharedPtr<T> {
        self.0.add((2 * KEYS + step % 2 * Self::QUERIES) * Self::D)
    }

    #[inline(always)]
    fn d_o(self, step: u32) -> SharedPtr<T> {
        self.q(step).add(2 * Self::QUERIES * Self::D)
    }

    /// Holds P, then dS.
    #[inline(always)]
    fn weights(self, step: u32) -> SharedPtr<T> {
        self.0.add((2 * KEYS + 4 * Self::QUERIES) * Self::D + step % 2 * KEYS * Self::QUERIES)
    }

    #[inline(always)]
    fn exponents(self, step: u32) -> SharedPtr<f32> {
        self.weights(0).add(2 * KEYS * Self::QUERIES).cast::<f32>().add(step % 2 * 2 * Self::QUERIES)
    }

    #[inline(always)]
    fn deltas(self, step: u32) -> SharedPtr<f32> {
        self.exponents(step).add(Self::QUERIES)
    }
}

/// dK and dV, and the sum of dQ, for heads of at most `D` elements, a multiple of 8. `BIASED` with a soft cap or ALiBi.
///
/// Heads of Q have `pieces` tiles in `sums`. Blocks that are neighbours work on `at_once` heads of K, above 0.
///
/// # Safety
/// As of [`attention_dkv_mma`](super::mma::dkv::attention_dkv_mma), with a block for every tile of [`KEYS`] keys; `sums` is valid for `pieces` ·
/// [`queries`] · `D` values of each head of Q of each batch in memory, all zero before; `pieces` is at least q_len / `queries` rounded up, of packed
/// sequences q_len / `queries` rounded down and one for each sequence.
#[kernel(
    dtypes(T: half), values(D: 64, 128, BIASED: false, true), block = THREADS, min_blocks = 1,
    shared = { shared_bytes(D) }
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn attention_backward_fused<T: Half, const D: u32, const BIASED: bool>(
    q: *const T,
    k: *const T,
    v: *const T,
    d_o: *const T,
    exponents: *const f32,
    deltas: *const f32,
    sums: *mut f32,
    dk: *mut T,
    dv: *mut T,
    cu_q: *const i32,
    cu_k: *const i32,
    key_lengths: *const i32,
    slopes: *const f32,
    pieces: u32,
    at_once: u32,
    problem: Problem,
    gradients: Gradients,
) {
    let bounds = Bounds { cu_q, cu_k, key_lengths };
    let Some(tile) = problem.tile_of_few_heads(bounds, Side::Keys, KEYS, at_once) else { return };
    match D {
        64 => Block::<T, 8>::new(&problem, &gradients, tile, [q, k, v, d_o], [exponents, deltas], slopes, sums, pieces)
            .run::<4, 2, BIASED>([dk, dv]),
        _ => Block::<T, 16>::new(&problem, &gradients, tile, [q, k, v, d_o], [exponents, deltas], slopes, sums, pieces)
            .run::<0, 1, BIASED>([dk, dv]),
    }
}

/// A place in the walk: a head of Q and a tile of its queries.
#[derive(Clone, Copy)]
struct Place {
    head: u32,
    tile: u32,
}

/// What a block works on.
struct Block<'a, T, const DT: usize> {
    memory: Memory<T, DT>,
    problem: &'a Problem,
    gradients: &'a Gradients,
    tile: Tile,
    span: Span,
    /// The tiles of queries that see any of the keys.
    first: u32,
    end: u32,
    q: *const T,
    k: *const T,
    v: *const T,
    d_o: *const T,
    /// The exponents, and D.
    numbers: [*const f32; 2],
    slopes: *const f32,
    /// The sum of dQ from the sequence's first tile in the first head on, and the distance between heads in tiles.
    sums: *mut f32,
    pieces: u32,
    lane: u32,
    /// The half that the warp belongs to, and its number in that half.
    half: u32,
    warp: u32,
}

impl<'a, T: Half, const DT: usize> Block<'a, T, DT> {
    const D: u32 = DT as u32 * 8;
    const QUERIES: u32 = queries(Self::D);
    /// Values of dQ's sum for a tile.
    const PIECE: u32 = Self::QUERIES * Self::D;

    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // The kernel's.
    unsafe fn new(
        problem: &'a Problem,
        gradients: &'a Gradients,
        tile: Tile,
        [q, k, v, d_o]: [*const T; 4],
        [exponents, deltas]: [*const f32; 2],
        slopes: *const f32,
        sums: *mut f32,
        pieces: u32,
    ) -> Self {
        let span = problem.span(&tile.sequence);
        let (first, end) = span.query_tiles(tile.first as i32, KEYS as i32, Self::QUERIES as i32);
        // Read from lane 0, so that ptxas knows the value to be warp-uniform.
        let warp = warp::shuffle_idx(warp::warp_id(), 0);
        let (half, warp, lane) = (warp / WARPS, warp % WARPS, warp::lane_id());
        let Tile { sequence, .. } = tile;
        let piece = u64::from(sequence.batch * problem.heads) * u64::from(pieces);
        let sums =
            sums.add(((piece + u64::from(first_piece(&sequence, Self::QUERIES))) * u64::from(Self::PIECE)) as usize);
        let memory = Memory(shared::dynamic());
        let numbers = [exponents, deltas];
        Self {
            memory,
            problem,
            gradients,
            tile,
            span,
            first,
            end,
            q,
            k,
            v,
            d_o,
            numbers,
            slopes,
            sums,
            pieces,
            lane,
            half,
            warp,
        }
    }

    #[inline(always)]
    fn rows(&self, data: *const T, strides: [u64; 3], head: u32, token: u32, len: u32) -> Rows<T> {
        let [.., stride] = strides;
        let data = data.wrapping_add(Problem::at(strides, self.tile.sequence.batch, head, token));
        Rows { data, stride, len, d: self.problem.d }
    }

    /// Starts copying the operands of the tile at `place`.
    #[inline(always)]
    unsafe fn load(&self, step: u32, place: Place) {
        let (sequence, memory, query) = (&self.tile.sequence, self.memory, place.tile * Self::QUERIES);
        let rows = |data, strides| self.rows(data, strides, place.head, sequence.q0, sequence.q_len);
        let (q, d_o) = (rows(self.q, self.problem.q), rows(self.d_o, self.gradients.d_o));
        if DT == 8 {
            q.copy::<DT, 128, THREADS>(memory.q(step), query);
            d_o.copy::<DT, 128, THREADS>(memory.d_o(step), query);
        } else {
            q.copy::<DT, 64, THREADS>(memory.q(step), query);
            d_o.copy::<DT, 64, THREADS>(memory.d_o(step), query);
        }
        // One number per thread: half of the threads copy the exponents, the others D.
        let thread = thread::thread_idx_x();
        if thread < 2 * Self::QUERIES {
            let i = query + thread % Self::QUERIES;
            let [exponents, deltas] = self.numbers;
            let from = if thread < Self::QUERIES { exponents } else { deltas };
            let inside = i < sequence.q_len;
            let from = from.add(self.problem.row(sequence, place.head, if inside { i } else { 0 }));
            cp_async::copy_4_zero_fill(memory.exponents(step).add(thread), from, if inside { 4 } else { 0 });
        }
        cp_async::commit();
    }

    /// `HELD` steps of 16 columns of K and V stay in registers: all or none. A tile of queries is worked on in `PARTS`.
    #[inline(always)]
    unsafe fn run<const HELD: usize, const PARTS: u32, const BIASED: bool>(self, [dk, dv]: [*mut T; 2]) {
        let Self { memory, problem, gradients, lane, .. } = self;
        let Tile { sequence, head, first: first_key } = self.tile;
        if self.first < self.end {
            let rows = |data, strides| self.rows(data, strides, head, sequence.k0, sequence.k_len);
            rows(self.k, problem.k).copy::<DT, KEYS, THREADS>(memory.k(), first_key);
            rows(self.v, problem.v).copy::<DT, KEYS, THREADS>(memory.v(), first_key);
            if HELD > 0 {
                // The wait before the first tile covers this copy.
                cp_async::commit();
            }
            self.load(0, self.start());
        }
        // Each half stores its results through shared memory that no warp reads any more.
        let (acc, data, strides, factor, through) = if self.half == 0 {
            (self.walk::<HELD, PARTS, BIASED, 0>(), dv, gradients.dv, 1.0, memory.v())
        } else {
            (self.walk::<HELD, PARTS, BIASED, 1>(), dk, gradients.dk, problem.scale, memory.q(0))
        };
        let to = self.rows(data.cast_const(), strides, head, sequence.k0, problem.keys_in_memory(&sequence));
        for i in 0..MT {
            let row = self.warp * WARP_KEYS + i as u32 * 16;
            fragments::store::<T, DT>(&acc[i], [factor; 2], through, row, first_key, to, lane);
        }
    }
}
