//! The path for every GPU from Ampere on: cp.async fills a ring of shared-memory stages, ldmatrix and mma.sync consume
//! it.
//!
//! Eight warps share a 128 × 128 tile of C, two down and four across, 64 × 32 each: four by four products of 16 × 8 a step of 32 bytes of k. Blocks
//! are numbered down m, then along n, then over the batch.
//!
//! The ring keeps the operand's layout: rows of 64 bytes along k, or of 256 bytes along m or n. An exclusive or of the
//! 16-byte chunk with the row spreads the eight rows of an ldmatrix over all banks; an MN-major tile is transposed by
//! ldmatrix on the way into registers, at no cost.
//!
//! `V` is how many elements a thread copies at a time: 16 bytes by cp.async, or 1, through a register, which takes any strides.

use core::marker::PhantomData;
use core::mem;
use core::num::NonZeroU32;

use cuda_std::float::{Element, Half};
use cuda_std::fp8::Float8;
use cuda_std::shared;
use cuda_std::vector::Pack;
use cuda_std::{arch, cp_async, f8e4m3, f16, math, mma, shared_field, thread};

use super::Problem;
use super::epilogue::{Epilogue, Sum};
use super::operand::{self, Copier, fragments};

/// Rows and columns of C a block computes.
pub const BLOCK: u32 = operand::BLOCK;
/// Threads of a block.
pub const THREADS: u32 = operand::THREADS;
/// Stages of the ring.
const STAGES: u32 = 4;

const WARP_M: u32 = 64;
const WARP_N: u32 = 32;
const WARPS_N: u32 = BLOCK / WARP_N;
/// Products of 16 rows and of 8 columns in a warp's part of the tile.
const MMA_M: usize = (WARP_M / 16) as usize;
const MMA_N: usize = (WARP_N / 8) as usize;

/// The ring.
#[repr(C, align(128))]
pub struct Shared {
    a: [[u8; operand::TILE_BYTES as usize]; STAGES as usize],
    b: [[u8; operand::TILE_BYTES as usize]; STAGES as usize],
}

/// Bytes of k per product, after each of which the sums are available, and the number of products per stage.
pub(super) const SLICE_BYTES: u32 = 32;
pub(super) const SLICES: u32 = depth::<u8>() / SLICE_BYTES;

/// Elements of type `T` along k in a stage.
pub(super) const fn depth<T>() -> u32 {
    operand::depth::<T>()
}

/// A warp's product of 16 rows of A and 8 columns of B over 32 bytes of k.
pub(super) trait Product {
    /// Elements of A.
    type A: Copy;
    /// Elements of B, of the same size.
    type B: Copy;
    /// What they are summed in.
    type Sum: Sum;

    /// Adds the product of fragments in ldmatrix layout.
    unsafe fn add(sums: &mut [Self::Sum; 4], a: [u32; 4], b: [u32; 2]);
}

/// 16-bit floats.
pub(super) struct Halves<T>(PhantomData<T>);

impl<T: Half> Product for Halves<T> {
    type A = T;
    type B = T;
    type Sum = f32;

    #[inline(always)]
    unsafe fn add(sums: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        mma::m16n8k16::<T>(sums, a, b);
    }
}

/// Integers of 8 bits.
pub(super) struct Integers8;

impl Product for Integers8 {
    type A = i8;
    type B = i8;
    type Sum = i32;

    #[inline(always)]
    unsafe fn add(sums: &mut [i32; 4], a: [u32; 4], b: [u32; 2]) {
        mma::m16n8k32_s8(sums, a, b);
    }
}

/// f32 rounded to TF32.
pub(super) struct Tf32;

impl Product for Tf32 {
    type A = f32;
    type B = f32;
    type Sum = f32;

    #[inline(always)]
    unsafe fn add(sums: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        // A row of 16 bytes, which ldmatrix distributes over four lanes, is four elements.
        let round = |bits| math::to_tf32(f32::from_bits(bits));
        mma::m16n8k8_tf32(sums, a.map(round), b.map(round));
    }
}

/// `Q` by E4M3, both converted to f16, which holds every value exactly: Ampere's tensor cores have no 8-bit floats.
pub(super) struct Floats8<Q>(PhantomData<Q>);

/// Two pairs of f16 for four elements of 8 bits.
#[inline(always)]
fn widen<Q: Float8>(elements: u32) -> [u32; 2] {
    [elements as u16, (elements >> 16) as u16].map(|pair| {
        if arch::number() < 89 {
            // SAFETY: an 8-bit float is a byte.
            let [low, high] = pair.to_le_bytes().map(|bits| unsafe { mem::transmute_copy::<u8, Q>(&bits) }.to_f32());
            f16::pack(low, high)
        } else {
            Q::unpack(pair)
        }
    })
}

impl<Q: Float8> Product for Floats8<Q> {
    type A = Q;
    type B = f8e4m3;
    type Sum = f32;

    #[inline(always)]
    unsafe fn add(sums: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
        // A lane's four elements along k stand for columns 2t, 2t + 1, 2t + 8 and 2t + 9 of a product of 16: any order
        // along k is valid if both operands use the same.
        let mut half = 0;
        while half < 2 {
            let [upper, lower, columns] =
                [widen::<Q>(a[2 * half]), widen::<Q>(a[2 * half + 1]), widen::<f8e4m3>(b[half])];
            mma::m16n8k16::<f16>(sums, [upper[0], lower[0], upper[1], lower[1]], columns);
            half += 1;
        }
    }
}

/// A warp's sums. Lane l holds rows 16i + l/4 and 8 below it, columns 8j + 2(l mod 4) and the next, in `[i][j]`.
pub(super) type Sums<S> = [[[S; 4]; MMA_N]; MMA_M];

/// A warp's place.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The lane's first row and column.
    pub(super) row: u32,
    pub(super) column: u32,
}

/// C = A·B of the block's tile, with the epilogue applied, + β·C.
///
/// After each slice of [`SLICE_BYTES`] of k, of which a stage has [`SLICES`], `settle` is called with the slice's
/// number, the place and the sums.
#[inline(always)]
pub(super) unsafe fn run<P, C, E, const A_MN: bool, const B_MN: bool, const V: usize>(
    a: *const P::A,
    b: *const P::B,
    c: *mut C,
    problem: Problem,
    epilogue: E,
    settle: impl FnMut(u32, Place, &mut Sums<P::Sum>),
) where
    P: Product,
    C: Element,
    E: Epilogue,
{
    let (at, product) = own_tile(&problem);
    let product = u64::from(product);
    let a = a.add((product * problem.a[0]) as usize);
    let b = b.add((product * problem.b[0]) as usize);
    let c = c.add((product * problem.c[0]) as usize);
    tile::<P, C, E, A_MN, B_MN, V>(a, b, c, problem, at, epilogue, settle);
}

/// The first row and column of the block's tile, and its product.
#[inline(always)]
pub(super) fn own_tile(problem: &Problem) -> ([u32; 2], u32) {
    let at_least_one = |n: u32| NonZeroU32::MIN.saturating_add(n - 1);
    let (tiles_m, tiles_n) = (at_least_one(problem.m.div_ceil(BLOCK)), at_least_one(problem.n.div_ceil(BLOCK)));
    // Consecutive blocks go down m: they share b, and their rows of a stay in L2 for the next column.
    let (row, rest) = (thread::block_idx_x() % tiles_m, thread::block_idx_x() / tiles_m);
    ([row * BLOCK, rest % tiles_n * BLOCK], rest / tiles_n)
}

/// The same of the tile at a row and a column of the problem's first product.
#[inline(always)]
pub(super) unsafe fn tile<P, C, E, const A_MN: bool, const B_MN: bool, const V: usize>(
    a: *const P::A,
    b: *const P::B,
    c: *mut C,
    problem: Problem,
    first: [u32; 2],
    epilogue: E,
    settle: impl FnMut(u32, Place, &mut Sums<P::Sum>),
) where
    P: Product,
    C: Element,
    E: Epilogue,
{
    let sums = multiply::<P, A_MN, B_MN, V>(a, b, &problem, first, settle);
    store(c, &problem, first, epilogue, sums);
}

/// The place of this warp in the tile at that row and column.
#[inline(always)]
fn place([row0, column0]: [u32; 2]) -> Place {
    let (lane, warp) = (thread::thread_idx_x() % 32, thread::thread_idx_x() / 32);
    let (warp_m, warp_n) = (warp / WARPS_N * WARP_M, warp % WARPS_N * WARP_N);
    Place { row: row0 + warp_m + lane / 4, column: column0 + warp_n + lane % 4 * 2 }
}

/// The warp's sums of the tile at a row and a column.
#[inline(always)]
pub(super) unsafe fn multiply<P: Product, const A_MN: bool, const B_MN: bool, const V: usize>(
    a: *const P::A,
    b: *const P::B,
    problem: &Problem,
    [row0, column0]: [u32; 2],
    mut settle: impl FnMut(u32, Place, &mut Sums<P::Sum>),
) -> Sums<P::Sum> {
    let ring = shared::dynamic::<Shared>();
    let (ring_a, ring_b) = (shared_field!(ring.a), shared_field!(ring.b));
    let stage_a = |step: u32| ring_a.at(step % STAGES).cast::<P::A>();
    let stage_b = |step: u32| ring_b.at(step % STAGES).cast::<P::B>();
    let Problem { a: [_, a_row, a_k], b: [_, b_column, b_k], m, n, k, .. } = *problem;
    let a = Copier::<P::A, A_MN, V>::new(a, [a_row, a_k], m, k, row0);
    let b = Copier::<P::B, B_MN, V>::new(b, [b_column, b_k], n, k, column0);
    let lane = thread::thread_idx_x() % 32;
    let warp = thread::thread_idx_x() / 32;
    let (warp_m, warp_n) = (warp / WARPS_N * WARP_M, warp % WARPS_N * WARP_N);
    let place = place([row0, column0]);

    let depth = depth::<P::A>();
    let steps = k.div_ceil(depth);
    let fetch = |step: u32| {
        if step < steps {
            a.copy(stage_a(step), step * depth);
            b.copy(stage_b(step), step * depth);
        }
        if V > 1 {
            // An empty group keeps the count of groups in flight the same at the end.
            cp_async::commit();
        }
    };
    for step in 0..STAGES - 1 {
        fetch(step);
    }

    let mut sums = [[[P::Sum::ZERO; 4]; MMA_N]; MMA_M];
    // Of four matrices, lanes 0-7 address the rows of the first, 8-15 those of the second, and so on; along k each row
    // has 16 bytes.
    let (second, third) = (lane / 8 % 2, lane / 16);
    let chunk = depth / 4;
    for step in 0..steps {
        // The group of this step has landed, and all warps are done with the stage that the next copy overwrites.
        if V > 1 {
            cp_async::wait_group::<{ STAGES - 2 }>();
        }
        thread::sync_threads();
        fetch(step + STAGES - 1);
        for half in 0..SLICES {
            let mut fragments_a = [[0u32; 4]; MMA_M];
            for (i, fragment) in fragments_a.iter_mut().enumerate() {
                let row = warp_m + i as u32 * 16 + second * 8;
                *fragment = fragments::<P::A, A_MN>(stage_a(step), row, (half * 2 + third) * chunk);
            }
            let mut fragments_b = [[0u32; 4]; MMA_N / 2];
            for (j, fragment) in fragments_b.iter_mut().enumerate() {
                let column = warp_n + j as u32 * 16 + third * 8;
                *fragment = fragments::<P::B, B_MN>(stage_b(step), column, (half * 2 + second) * chunk);
            }
            for i in 0..MMA_M {
                for j in 0..MMA_N {
                    let [b0, b1, b2, b3] = fragments_b[j / 2];
                    let b = if j % 2 == 0 { [b0, b1] } else { [b2, b3] };
                    P::add(&mut sums[i][j], fragments_a[i], b);
                }
            }
            settle(step * SLICES + half, place, &mut sums);
        }
    }
    sums
}

/// Applies the epilogue to a warp's sums, and adds β·C.
#[inline(always)]
pub(super) unsafe fn store<S: Sum, C: Element, E: Epilogue>(
    c: *mut C,
    problem: &Problem,
    first: [u32; 2],
    epilogue: E,
    mut sums: Sums<S>,
) {
    let Problem { c: [_, ldc], m, n, beta, .. } = *problem;
    let (place, factor) = (place(first), epilogue.factor());
    if factor != 1.0 {
        sums.iter_mut().flatten().flatten().for_each(|sum| *sum = sum.times(factor));
    }
    let pairs = ldc.is_multiple_of(2) && (c as usize).is_multiple_of(2 * size_of::<C>());
    for i in 0..MMA_M {
        let first = place.row + i as u32 * 16;
        let rows = [epilogue.row(first), epilogue.row(first + 8)];
        let read = epilogue.read::<MMA_N>(rows, place.column);
        let of_rows = sums[i].map(|[a, b, c, d]| [[a, b], [c, d]].map(|row| row.map(Sum::to_f32)));
        let results = epilogue.apply(rows, place.column, read, of_rows);
        for half in 0..2 {
            let row = first + half as u32 * 8;
            for j in 0..MMA_N {
                let column = place.column + j as u32 * 8;
                let inside = if row < m { n.saturating_sub(column) } else { 0 };
                let at = c.wrapping_add((u64::from(row) * ldc + u64::from(column)) as usize);
                let mut pair = results[j][half];
                for e in 0..2 {
                    if beta != 0.0 && (e as u32) < inside {
                        pair[e] = math::fma(beta, (*at.wrapping_add(e)).to_f32(), pair[e]);
                    }
                }
                if pairs && inside >= 2 {
                    Pack::<C, 2>::from_f32(pair).store(at);
                } else {
                    for e in 0..2 {
                        if (e as u32) < inside {
                            *at.wrapping_add(e) = C::from_f32(pair[e]);
                        }
                    }
                }
            }
        }
    }
}
