//! Product of matrices of 8-bit floats on the tensor cores, with scales: C = diag(sᵃ)·(A·Bᵀ)·diag(sᵇ).
//!
//! # Math
//! cᵢⱼ = sᵃᵢ·sᵇⱼ·Σₖ aᵢₖ·bⱼₖ; either scale may be one for all.
//!
//! # Layout
//! `a` is m × k in E4M3 or E5M2, `b` is n × k in E4M3, `c` is m × n, with the problem's row strides: activations, or
//! gradients, times a weight.
//!
//! # Mapping
//! As [`gemm`](super::gemm), in products of m64n256k32 on Hopper; for few rows, or rows that leave these tiles empty, with swapped operands; as pieces
//! along k, and where TMA does not store C, into f32, which a second launch adds and scales. Elsewhere elements become f16, exactly, and products are of m16n8k16.
//!
//! # Shared memory
//! As [`gemm`](super::gemm): a stage has the same bytes, and twice the elements along k.
//!
//! # Numerics
//! Products are exact. Hopper's tensor cores align the addends of 32 products, and the sum so far, to the greatest of
//! them and keep some 13 bits below its leading one: over a long k sums lose up to a percent, as they do in cuBLAS with
//! fast accumulation. [`gemm_fp8_blocks`](super::gemm_fp8_blocks) adds to f32 every 128 elements of k. Elsewhere sums
//! have f32's 24 bits. A sum is multiplied by the row's scale, then by the column's, and rounded to the type of C. NaN
//! propagates; E5M2's infinities do too.
//!
//! # Cost
//! 2·m·n·k FLOPs against m·k + n·k bytes and C: Hopper's tensor cores do twice as many in 8 bits as in 16, from half of
//! the bytes. Elsewhere the rate is that of f16, less the cost of widening, which is done in software below compute
//! capability 8.9.
//!
//! # Limits
//! m, n, k below 2³¹, 2³¹ − 1 tiles. The Hopper path takes rows of `a` and `b` at multiples of 16 bytes.
//!
//! # Sources
//! Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv:2209.05433); DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), on the
//! precision of sums.

use cuda_std::float::Element;
use cuda_std::fp8::Float8;
use cuda_std::launch::TensorMap;
use cuda_std::{f8e4m3, kernel};

use super::Problem;
use super::epilogue::{Raw, Scales, Swapped};
use super::gemm::split::{self, Sums};
use super::hopper::{self, CLUSTER, Matrices, Wide, shared_bytes, swapped_bytes};
use super::mma::{self, Shared};

/// C = diag(sᵃ)·(A·Bᵀ)·diag(sᵇ). Scales are `a_step` and `b_step` apart, 1, or 0 for one that all share.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), `V` = 16 in place of 8 and both operands K-major; the scales are valid for those steps.
#[kernel(dtypes(Q: float8, C: float), values(V: 16, 1), block = mma::THREADS, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_mma<Q: Float8, C: Element, const V: usize>(
    a: *const Q,
    b: *const f8e4m3,
    c: *mut C,
    problem: Problem,
    a_scales: *const f32,
    b_scales: *const f32,
    a_step: u32,
    b_step: u32,
) {
    let scales = Scales::of(&problem, [a_scales, b_scales], [a_step, b_step]);
    mma::run::<mma::Floats8<Q>, C, _, false, false, V>(a, b, c, problem, scales, |_, _, _| ());
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), boxes having 128 elements of k; the scales as for [`gemm_fp8_mma`].
#[kernel(
    dtypes(Q: float8, C: float), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Wide, arch = "sm_90a",
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_hopper<Q: Float8, C: Element>(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    problem: Problem,
    store: u32,
    a_scales: *const f32,
    b_scales: *const f32,
    a_step: u32,
    b_step: u32,
) {
    let scales = Scales::of(&problem, [a_scales, b_scales], [a_step, b_step]);
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    hopper::run::<hopper::Floats8<Q>, C, _>(of, scales);
}

/// The same by tiles of `N` rows and 256 columns of C: operands are swapped, as [`gemm_swapped`](super::gemm::hopper::gemm_swapped)'s, whose tiles may
/// be `NARROW`. `problem` is that of the swapped operands.
///
/// # Safety
/// As for [`gemm_swapped`](super::gemm::hopper::gemm_swapped), boxes having 128 elements of k; the scales as for [`gemm_fp8_mma`].
#[kernel(
    dtypes(Q: float8, C: float), values(N: 224, 208, 192, 160, 128, 96, 64, NARROW: false, true),
    where(NARROW && N % 32 == 0 && N != 192 && N != 96 || !NARROW && N < 224),
    block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { swapped_bytes(N, NARROW) }, arch = "sm_90a", no_spills, programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_swapped<Q: Float8, C: Element, const N: u32, const NARROW: bool>(
    b_map: &TensorMap,
    a_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut C,
    problem: Problem,
    store: u32,
    a_scales: *const f32,
    b_scales: *const f32,
    a_step: u32,
    b_step: u32,
) {
    let scales = Swapped(Scales::new([problem.n, problem.m], [a_scales, b_scales], [a_step, b_step]));
    let of = Matrices { a: b_map, b: a_map, c_map, c, problem, store };
    if NARROW {
        hopper::run_narrow_8::<hopper::Swapped8<Q>, f32, C, _, N>(of, scales);
    } else {
        hopper::run_swapped_8::<hopper::Swapped8<Q>, f32, C, _, N>(of, scales, 0);
    }
}

/// Sums of A·Bᵀ without their scales, as they are: of all of k, or of pieces of `each` elements if that is not 0. Operands are swapped,
/// as [`gemm_swapped`](super::gemm::hopper::gemm_swapped)'s: a tile has 256 columns of C and `N` rows.
///
/// # Safety
/// As for [`gemm_swapped`](super::gemm::hopper::gemm_swapped), boxes having 128 elements of k.
#[kernel(
    dtypes(Q: float8), values(N: 208, 128, 64), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(N) }, arch = "sm_90a", no_spills, programmatic
)]
pub unsafe fn gemm_fp8_pieces<Q: Float8, const N: u32>(
    b_map: &TensorMap,
    a_map: &TensorMap,
    pieces_map: &TensorMap,
    pieces: *mut f32,
    problem: Problem,
    store: u32,
    each: u32,
) {
    let of = Matrices { a: b_map, b: a_map, c_map: pieces_map, c: pieces, problem, store };
    hopper::run_swapped_8::<hopper::Swapped8<Q>, f32, f32, _, N>(of, Raw, each);
}

/// C = diag(sᵃ)·(the sum of the pieces)·diag(sᵇ).
///
/// # Safety
/// `pieces` is valid for reads of the pieces and `c` for writes of its elements; the scales are as for [`gemm_fp8_mma`]. There are pieces and packs, and a
/// thread for each pack of a piece.
#[kernel(dtypes(C: float), block = split::THREADS, no_spills, programmatic)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_fp8_sum<C: Element>(
    pieces: *const f32,
    c: *mut C,
    sums: Sums,
    a_scales: *const f32,
    b_scales: *const f32,
    a_step: u32,
    b_step: u32,
) {
    split::scaled(pieces, c, sums, [a_scales, b_scales], [a_step, b_step]);
}
