//! Product of matrices in MXFP8: 8-bit floats with a power-of-two scale for each 32 elements along k.
//!
//! # Math
//! cᵢⱼ = Σ_g sᵃ(i, g)·sᵇ(j, g)·Σ_{k in group g} aᵢₖ·bⱼₖ, over groups of 32 of k.
//!
//! # Layout
//! `a` is m × k, E4M3 or E5M2, and `b` n × k, E4M3, both K-major; `a_scales` is m × ⌈k/32⌉ and `b_scales` n × ⌈k/32⌉, E8M0, dense: as
//! [`quantize_mxfp8_1x32`](crate::ops::quant::quantize_mxfp8_1x32) writes them.
//!
//! # Mapping
//! Hopper has no instruction that takes such scales: a group is one instruction's 32 elements of k. Each of two
//! consumer warpgroups multiplies it, 64 × 128 of it, starting from zero, and adds the result times its scales to sums
//! in registers. This takes two operations per element: a product with the row's scale, which a thread takes from the
//! word that holds its stage's four, then a fused multiply-add with the column's scale. All warps need the scales of
//! the columns: each thread widens one column's a stage ahead into shared memory, in the order in which lanes load
//! four at once. Few rows are columns of 64 or 32, of swapped operands, whose sums in f32, of pieces along k,
//! [`gemm_sum`](super::gemm::split::gemm_sum) adds. Elsewhere the sums of [`gemm_fp8`](super::gemm_fp8)'s products are scaled twice per stage.
//!
//! # Shared memory
//! Hopper: 5 stages × (128 + 128) × 128 bytes, or 7 × (128 + 64), 9 × (128 + 32), + 4 × 8 KiB for the epilogue + 2 × 2 × 16 bytes a column for
//! scales + barriers. Elsewhere as [`gemm`](super::gemm).
//!
//! # Numerics
//! A group's sum p is a multiple of 2⁻²⁵ below 2³⁰, and scales are between 2⁻¹²⁷ and 2¹²⁷. Scales of A are multiplied
//! by 2¹⁶ and those of B divided by it, or of swapped operands the other way round: then p·sᵃ is exact for every sᵃ below 2⁶⁵,
//! sᵇ is exact always, and the multiply-add rounds once. If a warp meets a greater sᵃ in a stage, or NaN, it applies the part of it that would
//! overflow to B's scale. A NaN scale makes every result that depends on it NaN. The bits that the tensor core loses
//! when it aligns addends are lost within a group only.
//!
//! # Cost
//! 2·m·n·k FLOPs, and 3·m·n·k/32 for the scales, which are the bottleneck: for one group a warp scheduler issues 2 · 128
//! operations on sums and 2 · 8 loads of scales, while the tensor cores work 128 cycles: 326 cycles with the rest of
//! the loop, some 750 TFLOP/s. An H200 takes 590, 370 TFLOP/s for 4096³: both consumers
//! wait, in step, for the same stage and then for their products. With the next group's product under way meanwhile, in registers
//! of its own, it takes longer: columns are fewer then, and instructions more than warps find in their cache.
//!
//! Large products are therefore computed by [`gemm`](super::gemm) in bf16 instead, from operands that
//! [`dequantize_mxfp8`](crate::ops::quant::dequantize_mxfp8) widens: that reads one more byte, and writes and reads two
//! more, per element, but runs the products at twice the rate. An element times its scale is exactly representable in
//! bf16 if the scale's code is between [`LEAST`] and [`GREATEST`]. [`gemm_mxfp8_range`] checks whether all codes are.
//! The kernels here are launched after that product; if all codes are in range they return at once, and otherwise they
//! compute it again, so that the host need not know. Aligning addends then loses what it does in any bf16 product.
//!
//! # Limits
//! As [`gemm_fp8`](super::gemm_fp8).
//!
//! # Sources
//! Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.1.

pub mod hopper;

use core::array;
use core::hint::cold_path;

use cuda_std::float::Element;
use cuda_std::fp8::{Float8, f8e8m0};
use cuda_std::{atomic, f8e4m3, kernel, math, thread, warp};

use super::Problem;
use super::epilogue::Factor;
use super::hopper::STAGE_BYTES;
use super::mma::{self, Place, Shared, Sums};

/// Elements along k that share a scale.
pub const GROUP: u32 = 32;
/// Groups of a stage on Hopper, whose scales are a word.
const GROUPS: u32 = STAGE_BYTES / GROUP;

/// From this code on, the smallest E5M2 value times a scale is representable in bf16, which represents subnormal ones
/// too.
pub const LEAST: u32 = 10;
/// Up to this code, the greatest value is.
pub const GREATEST: u32 = 239;
/// Threads of a block that looks at scales.
pub const RANGE_BLOCK: u32 = 256;
/// Scales that a block looks at.
pub const RANGE: u32 = 16 * RANGE_BLOCK;

/// Scales of rows are made greater, and those of columns smaller, by this many powers of two.
const SHIFT: u32 = 16;
/// Scale codes from here on, and NaN, are called great.
const GREAT: u32 = 0xc0;

/// A row's scale that is not great, as f32.
#[inline(always)]
fn row_factor(code: u32) -> f32 {
    // The smallest scale has code 0, for which f32 has no normal number with that exponent field.
    f32::from_bits((code + SHIFT) << 23)
}

/// Any scale of a row as two factors, of which the first keeps all products with a group's sums exact.
#[inline(always)]
fn row_factors(code: u32) -> [f32; 2] {
    match code {
        0xff => [f32::NAN, 1.0],
        GREAT.. => [f32::from_bits((code + SHIFT - 64) << 23), f32::from_bits((127 + 64) << 23)],
        _ => [row_factor(code), 1.0],
    }
}

/// A column's scale.
#[inline(always)]
fn column_factor(code: u32) -> f32 {
    f8e8m0::from_bits(code as u8).to_f32() * f32::from_bits((127 - SHIFT) << 23)
}

/// Adds a group's products of two rows, the first of each four numbers being two columns of one and the others the same of the other, times the codes' scales
/// and those of the columns.
#[inline(always)]
fn add_scaled<const N: usize, const GREAT_ROWS: bool>(
    sums: &mut [f32; N],
    products: &[f32; N],
    rows: [u32; 2],
    column: impl Fn(usize) -> f32,
) {
    let plain = rows.map(row_factor);
    let parts = rows.map(row_factors);
    let mut i = 0;
    while i < N {
        let (row, column) = (i / 2 % 2, column(i / 4 * 2 + i % 2));
        if GREAT_ROWS {
            let [first, second] = parts[row];
            // The second factor goes to the product if the column's scale is at least 1, so that it overflows only
            // where the result does, and otherwise to the column's scale.
            let [to_product, to_column] = if column < 1.0 { [1.0, second] } else { [second, 1.0] };
            sums[i] = math::fma(products[i] * first * to_product, column * to_column, sums[i]);
        } else {
            sums[i] = math::fma(products[i] * plain[row], column, sums[i]);
        }
        i += 1;
    }
}

/// Where the scales of an operand's rows are.
#[derive(Clone, Copy)]
struct Scales {
    codes: *const u8,
    rows: u32,
    groups: u32,
}

impl Scales {
    #[inline(always)]
    fn new(scales: *const f8e8m0, rows: u32, k: u32) -> Self {
        Self { codes: scales.cast(), rows, groups: k.div_ceil(GROUP) }
    }

    /// The scales of a row, or of the last row if there is no such row.
    #[inline(always)]
    unsafe fn row(&self, row: u32) -> *const u8 {
        self.codes.add((u64::from(row.min(self.rows - 1)) * u64::from(self.groups)) as usize)
    }

    /// The scale of a group.
    #[inline(always)]
    unsafe fn code(&self, row: u32, group: u32) -> u32 {
        u32::from(*self.row(row).add(group as usize))
    }

    /// Whether a stage's scales can be loaded as one word.
    #[inline(always)]
    fn in_words(&self) -> bool {
        self.groups.is_multiple_of(GROUPS) && (self.codes as usize).is_multiple_of(4)
    }

    /// The scales of a stage, and zeros for those that do not exist.
    #[inline(always)]
    unsafe fn word(&self, row: *const u8, stage: u32, in_words: bool) -> u32 {
        let first = stage * GROUPS;
        let row = row.add(first as usize);
        if in_words {
            return row.cast::<u32>().read();
        }
        cold_path();
        // A loop, which ptxas does not turn into predicated loads: each would wait for the word.
        let (mut word, mut i) = (0, 0);
        while i < GROUPS.min(self.groups - first) {
            word |= u32::from(*row.add(i as usize)) << (8 * i);
            i += 1;
        }
        word
    }
}

/// Whether this launch can be skipped.
#[inline(always)]
unsafe fn is_spared(needed: *const u32) -> bool {
    !needed.is_null() && needed.read() == 0
}

/// Sets `outside` to one if any scale of either operand is outside [`LEAST`] to [`GREATEST`]: blocks with y = 0 check
/// A, those with y = 1 check B. NaN does not count, because bf16 has it.
///
/// # Safety
/// The scales are valid for reads of their counts; `outside` is valid for an atomic access, and zero.
#[kernel(block = RANGE_BLOCK)]
pub unsafe fn gemm_mxfp8_range(
    a_scales: *const f8e8m0,
    a_count: u64,
    b_scales: *const f8e8m0,
    b_count: u64,
    outside: *mut u32,
) {
    let (scales, count) = if thread::block_idx_y() == 0 { (a_scales, a_count) } else { (b_scales, b_count) };
    let first = u64::from(thread::block_idx_x()) * u64::from(RANGE) + u64::from(thread::thread_idx_x());
    let mut any = false;
    for i in 0..u64::from(RANGE / RANGE_BLOCK) {
        let at = first + i * u64::from(RANGE_BLOCK);
        if at < count {
            let code = u32::from(*scales.cast::<u8>().add(at as usize));
            any |= code < LEAST || code > GREATEST && code != 0xff;
        }
    }
    if any {
        atomic::red_max_u32(outside, 1);
    }
}

/// C of A·Bᵀ with block-wise scales. Does nothing if `needed` is not null and points to zero.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), `V` = 16 in place of 8 and both operands K-major; the scales are valid for every block.
#[kernel(dtypes(Q: float8, C: float), values(V: 16, 1), block = mma::THREADS, shared = Shared, no_spills)]
pub unsafe fn gemm_mxfp8_mma<Q: Float8, C: Element, const V: usize>(
    a: *const Q,
    b: *const f8e4m3,
    c: *mut C,
    problem: Problem,
    a_scales: *const f8e8m0,
    b_scales: *const f8e8m0,
    needed: *const u32,
) {
    if is_spared(needed) {
        return;
    }
    const TILES: usize = size_of::<Sums<f32>>() / size_of::<[[f32; 4]; 4]>();
    let slices = mma::SLICES * problem.k.div_ceil(mma::depth::<Q>());
    let of_a = Scales::new(a_scales, problem.m, problem.k);
    let of_b = Scales::new(b_scales, problem.n, problem.k);
    let mut total: Sums<f32> = [[[0.0; 4]; _]; _];
    let settle = |slice: u32, place: Place, sums: &mut Sums<f32>| {
        // There are zeros past the last group.
        let group = slice.min(of_a.groups - 1);
        let column = |j: usize, e: usize| column_factor(of_b.code(place.column + (j * 8 + e) as u32, group));
        let columns: [[f32; 2]; TILES] = array::from_fn(|j| array::from_fn(|e| column(j, e)));
        let row = |i: usize, below: u32| of_a.code(place.row + i as u32 * 16 + below, group);
        let rows: [[u32; 2]; TILES] = array::from_fn(|i| [row(i, 0), row(i, 8)]);
        let great = warp::any(rows.iter().flatten().any(|code| *code >= GREAT));
        for i in 0..TILES {
            for j in 0..TILES {
                let (total, sums, column) = (&mut total[i][j], &sums[i][j], |c: usize| columns[j][c]);
                if great {
                    add_scaled::<4, true>(total, sums, rows[i], column);
                } else {
                    add_scaled::<4, false>(total, sums, rows[i], column);
                }
            }
        }
        *sums = if slice + 1 == slices { total } else { [[[0.0; 4]; _]; _] };
    };
    mma::run::<mma::Floats8<Q>, C, _, false, false, V>(a, b, c, problem, Factor::ONE, settle);
}
