//! Product of matrices of 8-bit floats with block-wise scales: activations by 1 × 128, weights by 128 × 128.
//!
//! # Math
//! cᵢⱼ = Σ_g sᵃ(i, g)·sᵇ(⌊j/128⌋, g)·Σ_{k in group g} aᵢₖ·bⱼₖ, over groups of 128 of k.
//!
//! # Layout
//! `a` is m × k and `b` n × k, both E4M3, K-major; `a_scales` is m × ⌈k/128⌉, `b_scales` ⌈n/128⌉ × ⌈k/128⌉, dense: as
//! [`quantize_fp8_1x128`](crate::ops::quant::quantize_fp8_1x128) and [`quantize_fp8_128x128`](crate::ops::quant::quantize_fp8_128x128) write them.
//!
//! # Mapping
//! Hopper: a stage is a group of 128 rows and 256 columns. Each of two consumer warpgroups loads 64 of the rows into
//! registers, multiplies them by one half of the columns after the other, starting from zero, and adds the result times
//! its scales to sums in registers: 64 FMAs per thread and half, while the tensor cores work for the other warpgroup. A
//! half of 128 columns has one scale of B per group, and its sums of a group fit into registers beside all 128 sums of
//! a tile. Where such tiles leave multiprocessors empty, they have 128 columns ([`columns`]), and few rows are computed with swapped operands ([`pieces`]). Elsewhere the sums of [`gemm_fp8`](super::gemm_fp8)'s products are scaled every other stage.
//!
//! # Shared memory
//! Hopper: 4 stages × (128 + 256) × 128 bytes + 4 × 8 KiB for the epilogue + barriers. Elsewhere as [`gemm`](super::gemm).
//!
//! # Numerics
//! What the tensor core loses when it aligns addends is lost within a group only: groups are added in f32. Sums are rounded once to the type of C.
//!
//! # Cost
//! 2·m·n·k FLOPs, and m·n·k/64 for the scales: on Hopper 256 of a warp scheduler's 1024 slots per group. Shared memory
//! moves 128 KiB per group in the 1024 cycles that the products take; with A read from shared memory and tiles of 128
//! columns it was 160 KiB, and a product took 7% longer. The remaining limit of the tensor cores is the dependency
//! chain of a half: product, wait and FMAs.
//!
//! # Limits
//! As [`gemm_fp8`](super::gemm_fp8).
//!
//! # Sources
//! DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), 3.3.

pub mod columns;
pub(super) mod factors;
pub mod pieces;
mod sum;

use cuda_std::float::Element;
use cuda_std::launch::TensorMap;
use cuda_std::vector::Pack;
use cuda_std::wgmma::{self, Descriptor, Registers};
use cuda_std::{f8e4m3, kernel, math, matrix, thread};

use core::array;

use super::Problem;
use super::epilogue::Factor;
use super::hopper::{
    self, CLUSTER, CONSUMERS, Consume, Cursor, Floats8, Matrices, Memory, Output, PANEL_BYTES, STAGE_BYTES, STORE_M,
    Tiles, WARPGROUP, Walk,
};
use super::mma::{self, Place, Shared, Sums};

/// Elements along k that share a scale, and rows of B.
pub const GROUP: u32 = 128;
/// Columns of C a block computes on Hopper.
pub const BLOCK_N: u32 = HALVES as u32 * GROUP;

/// Groups of columns of a tile.
const HALVES: usize = 2;
const B_BYTES: usize = (BLOCK_N * STAGE_BYTES) as usize;
const STAGES: usize = 4;

/// The scales of a tile's rows and columns.
#[derive(Clone, Copy)]
struct Scales {
    a: *const f32,
    b: *const f32,
    /// Of A.
    rows: u32,
    groups: u32,
}

impl Scales {
    /// The scales of the tile whose columns start at `column`.
    #[inline(always)]
    unsafe fn new(a: *const f32, b: *const f32, problem: &Problem, column: u32) -> Self {
        let groups = problem.k.div_ceil(GROUP);
        Self { a, b: b.wrapping_add((u64::from(column / GROUP) * u64::from(groups)) as usize), rows: problem.m, groups }
    }

    /// The scales of a row of A, or of the last row if there is no such row.
    #[inline(always)]
    unsafe fn row(&self, row: u32) -> *const f32 {
        self.a.add((u64::from(row.min(self.rows - 1)) * u64::from(self.groups)) as usize)
    }
}

/// C of A·Bᵀ with scales by block.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), `V` = 16 in place of 8 and both operands K-major; the scales are valid for every block.
#[kernel(dtypes(C: float), values(V: 16, 1), block = mma::THREADS, shared = Shared, no_spills)]
pub unsafe fn gemm_fp8_blocks_mma<C: Element, const V: usize>(
    a: *const f8e4m3,
    b: *const f8e4m3,
    c: *mut C,
    problem: Problem,
    a_scales: *const f32,
    b_scales: *const f32,
) {
    type Products = mma::Floats8<f8e4m3>;
    const SLICES: u32 = GROUP / mma::SLICE_BYTES;
    let slices = mma::SLICES * problem.k.div_ceil(mma::depth::<f8e4m3>());
    let mut total: Sums<f32> = [[[0.0; 4]; _]; _];
    let settle = |slice: u32, place: Place, sums: &mut Sums<f32>| {
        let is_last = slice + 1 == slices;
        if slice % SLICES != SLICES - 1 && !is_last {
            return;
        }
        let scales = Scales::new(a_scales, b_scales, &problem, place.column);
        for i in 0..total.len() {
            let group = (slice / SLICES) as usize;
            let rows =
                [0, 8].map(|below| *scales.row(place.row + i as u32 * 16 + below).add(group) * *scales.b.add(group));
            for j in 0..total[0].len() {
                for e in 0..4 {
                    total[i][j][e] = math::fma(sums[i][j][e], rows[e / 2], total[i][j][e]);
                    sums[i][j][e] = if is_last { total[i][j][e] } else { 0.0 };
                }
            }
        }
    };
    mma::run::<Products, C, _, false, false, V>(a, b, c, problem, Factor::ONE, settle);
}

/// The block's shared memory on Hopper.
pub type Stages = hopper::Shared<B_BYTES, STAGES>;

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), boxes having 128 elements of k and those of B 64 rows; the scales are valid for every
/// block.
#[kernel(
    dtypes(C: float), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Stages, arch = "sm_90a"
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_blocks_hopper<C: Element>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    problem: Problem,
    store: u32,
    a_scales: *const f32,
    b_scales: *const f32,
) {
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    let tiles = Tiles::of(&of.problem, [hopper::BLOCK_M, BLOCK_N]);
    let consumers = Scaled { a_scales, b_scales };
    hopper::split::<Floats8<f8e4m3>, C, Factor, _, _, B_BYTES, STAGES, _>(of, Factor::ONE, tiles, consumers);
}

/// A thread's sums of a consumer's part of a tile, and of half of it.
type PartSums = [f32; (BLOCK_N / 2) as usize];
type HalfSums = [f32; (GROUP / 2) as usize];

/// Consumers that multiply the stages of every tile of this cluster, scale each, and store C.
struct Scaled {
    a_scales: *const f32,
    b_scales: *const f32,
}

impl<C: Element> Consume<C, Factor, B_BYTES, STAGES> for Scaled {
    // Each warp reads its own rows of A.
    const RELEASES: u32 = CONSUMERS * WARPGROUP / 32;

    #[inline(always)]
    unsafe fn consume<W: Walk>(
        self,
        memory: Memory<B_BYTES, STAGES>,
        consumer: u32,
        output: &Output<'_, C, Factor>,
        mut tiles: W,
    ) {
        let lane = thread::thread_idx_x() % WARPGROUP;
        let problem = &output.problem;
        let groups = problem.k.div_ceil(GROUP);
        let mut at = Cursor::default();
        while tiles.find() {
            let mut group_sums: HalfSums = [0.0; _];
            let tile = tiles.tile();
            let m0 = tile.row + consumer * STORE_M;
            let row = m0 + lane / 32 * 16 + lane % 32 / 4;
            let scales = Scales::new(self.a_scales, self.b_scales, problem, tile.column);
            let rows = [scales.row(row), scales.row(row + 8)];
            // The second half may be outside of B.
            let right = if tile.column + GROUP < problem.n { groups } else { 0 };
            let columns = [scales.b, scales.b.add(right as usize)];
            let mut sums: PartSums = [0.0; _];
            // Scales are read a group ahead, so that their latency is hidden.
            let of_group = |group: u32| {
                let rows = rows.map(|row| *row.add(group as usize));
                columns.map(|column| rows.map(|row| row * *column.add(group as usize)))
            };
            let mut factors = of_group(0);
            // A lane points at a row, or at the bytes to the right of it.
            let (place, chunk) = (lane / 32 * 16 + lane % 16, lane % 32 / 16);
            let rows_at = |stage: u32| -> [u32; 16] {
                let from = memory.a(stage).add(consumer * PANEL_BYTES + place * STAGE_BYTES);
                let [a, b, c, d] =
                    array::from_fn(|i| matrix::load_x4(from.add(((2 * i as u32 + chunk) ^ (place % 8)) * 16)));
                concat([a, b, c, d])
            };
            memory.full(at.stage).wait_parity(at.parity);
            let mut a = rows_at(at.stage);
            for group in 0..groups {
                let b = hopper::descriptors(memory.b(at.stage), false);
                self::multiply(&mut group_sums, a, b);
                let next = of_group((group + 1).min(groups - 1));
                wgmma::wait_for::<0>(&mut group_sums);
                scale(&mut sums, &group_sums, factors[0], 0);
                // This is here, and does not overlap the next products, because those would need other registers, and
                // there are none.
                sums.pin();
                let stage = at.stage;
                at.advance(STAGES);
                if group + 1 < groups {
                    memory.full(at.stage).wait_parity(at.parity);
                }
                let b = hopper::descriptors(memory.b(stage).add(GROUP * STAGE_BYTES), false);
                self::multiply(&mut group_sums, a, b);
                wgmma::wait_for::<0>(&mut group_sums);
                a.pin();
                memory.release(stage, lane % 32);
                if group + 1 < groups {
                    a = rows_at(at.stage);
                }
                scale(&mut sums, &group_sums, factors[1], 1);
                factors = next;
            }
            // The store addresses are computed only now: there are no registers to keep them during the products.
            let Pack([hidden, ..]) = Pack([lane, 0, 0, 0]).forget();
            output.part(hidden, consumer, tile).store(&mut sums);
            tiles.advance();
        }
        output.finish(lane);
    }
}

/// Starts the product of a consumer's rows and half of a tile's columns.
#[inline(always)]
unsafe fn multiply(sums: &mut HalfSums, mut a: [u32; 16], b: [Descriptor; 4]) {
    a.pin();
    wgmma::fence_for(sums);
    wgmma::m64n128k32_e4m3_a_registers(sums, [a[0], a[1], a[2], a[3]], b[0], false);
    wgmma::m64n128k32_e4m3_a_registers(sums, [a[4], a[5], a[6], a[7]], b[1], true);
    wgmma::m64n128k32_e4m3_a_registers(sums, [a[8], a[9], a[10], a[11]], b[2], true);
    wgmma::m64n128k32_e4m3_a_registers(sums, [a[12], a[13], a[14], a[15]], b[3], true);
    wgmma::commit();
}

/// Adds a group's sums times the scales of their rows.
#[inline(always)]
fn scale(sums: &mut PartSums, of_group: &HalfSums, rows: [f32; 2], half: usize) {
    let mut i = 0;
    while i < of_group.len() {
        let sum = &mut sums[half * of_group.len() + i];
        *sum = math::fma(of_group[i], rows[i / 2 % 2], *sum);
        i += 1;
    }
}

#[inline(always)]
fn concat(parts: [[u32; 4]; 4]) -> [u32; 16] {
    array::from_fn(|i| parts[i / 4][i % 4])
}
