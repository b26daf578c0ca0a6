//! Product of matrices of 8-bit integers on the tensor cores, with scales: C = diag(sᵃ)·(A·Bᵀ)·diag(sᵇ).
//!
//! # Math
//! cᵢⱼ = sᵃᵢ·sᵇⱼ·Σₖ aᵢₖ·bⱼₖ; either scale may be one for all.
//!
//! # Layout
//! `a` is m × k, `b` is n × k, `c` is m × n, rows apart as the problem says: activations quantized by row times a weight quantized by output
//! channel.
//!
//! # Mapping
//! As [`gemm`](super::gemm), in products of m64n256k32 on Hopper, and of m16n8k32 elsewhere; for few rows, or rows that leave these tiles empty, with
//! swapped operands; as pieces along k, and where TMA does not store C, into i32, which a second launch adds and scales.
//!
//! # Shared memory
//! As [`gemm`](super::gemm): a stage has the same bytes, and twice the elements along k.
//!
//! # Numerics
//! Products and sums are exact in i32. A sum is rounded to f32 (only above 2²⁴), multiplied by the row's scale, then by the column's, and rounded to
//! the type of C.
//!
//! # Cost
//! 2·m·n·k operations against m·k + n·k bytes and C: the tensor cores do twice as many in 8 bits as in 16, from half of the bytes.
//!
//! # Limits
//! m and n below 2³¹, 2³¹ − 1 tiles; k below 2¹⁷, so that sums of products up to 2¹⁴ cannot overflow. The Hopper path takes rows of `a` and `b` at
//! multiples of 16 bytes.
//!
//! # Sources
//! Dettmers et al., "LLM.int8()" (arXiv:2208.07339), for scales by row and column; Jacob et al., "Quantization and training of neural networks for
//! efficient integer-arithmetic-only inference" (arXiv:1712.05877).

use cuda_std::float::Element;
use cuda_std::kernel;
use cuda_std::launch::TensorMap;

use super::Problem;
use super::epilogue::{Raw, Scales, Swapped};
use super::gemm::split::{self, Sums};
use super::hopper::{self, CLUSTER, Matrices, Wide, shared_bytes, swapped_bytes};
use super::mma::{self, Shared};

/// The greatest k.
pub const MAX_K: u32 = (1 << 17) - 1;

/// C = diag(sᵃ)·(A·Bᵀ)·diag(sᵇ). Scales are `a_step` and `b_step` apart, 1, or 0 for one that all share.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), `V` = 16 in place of 8 and both operands K-major; the scales are valid for those steps; k is at most
/// [`MAX_K`].
#[kernel(dtypes(C: float), values(V: 16, 1), block = mma::THREADS, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_int8_mma<C: Element, const V: usize>(
    a: *const i8,
    b: *const i8,
    c: *mut C,
    problem: Problem,
    a_scales: *const f32,
    b_scales: *const f32,
    a_step: u32,
    b_step: u32,
) {
    let scales = Scales::of(&problem, [a_scales, b_scales], [a_step, b_step]);
    mma::run::<mma::Integers8, C, _, false, false, V>(a, b, c, problem, scales, |_, _, _| ());
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), boxes having 128 elements of k; the scales as for [`gemm_int8_mma`].
#[kernel(
    dtypes(C: float), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Wide, arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_int8_hopper<C: Element>(
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
    hopper::run::<hopper::Integers8, C, _>(of, scales);
}

/// The same by tiles of `N` rows and 256 columns of C: operands are swapped, as [`gemm_swapped`](super::gemm::hopper::gemm_swapped)'s, whose tiles may
/// be `NARROW`. `problem` is that of the swapped operands.
///
/// # Safety
/// As for [`gemm_swapped`](super::gemm::hopper::gemm_swapped), boxes having 128 elements of k; the scales as for [`gemm_int8_mma`].
#[kernel(
    dtypes(C: float), values(N: 224, 208, 192, 160, 128, 96, 64, NARROW: false, true),
    where(NARROW && N % 32 == 0 && N != 192 && N != 96 || !NARROW && N < 224),
    block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { swapped_bytes(N, NARROW) }, arch = "sm_90a", no_spills, programmatic
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_int8_swapped<C: Element, const N: u32, const NARROW: bool>(
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
        hopper::run_narrow_8::<hopper::Integers8, i32, C, _, N>(of, scales);
    } else {
        hopper::run_swapped_8::<hopper::Integers8, i32, C, _, N>(of, scales, 0);
    }
}

/// Sums of A·Bᵀ without their scales, as bits of i32: of all of k, or of pieces of `each` elements if that is not 0. Operands are swapped,
/// as [`gemm_swapped`](super::gemm::hopper::gemm_swapped)'s: a tile has 256 columns of C and `N` rows.
///
/// # Safety
/// As for [`gemm_swapped`](super::gemm::hopper::gemm_swapped), boxes having 128 elements of k.
#[kernel(
    values(N: 208, 128, 64), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(N) }, arch = "sm_90a", no_spills, programmatic
)]
pub unsafe fn gemm_int8_pieces<const N: u32>(
    b_map: &TensorMap,
    a_map: &TensorMap,
    pieces_map: &TensorMap,
    pieces: *mut f32,
    problem: Problem,
    store: u32,
    each: u32,
) {
    let of = Matrices { a: b_map, b: a_map, c_map: pieces_map, c: pieces, problem, store };
    hopper::run_swapped_8::<hopper::Integers8, i32, f32, _, N>(of, Raw, each);
}

/// C = diag(sᵃ)·(the sum of the pieces)·diag(sᵇ).
///
/// # Safety
/// `pieces` is valid for reads of the pieces and `c` for writes of its elements; the scales are as for [`gemm_int8_mma`]. There are pieces and packs, and a
/// thread for each pack of a piece.
#[kernel(dtypes(C: float), block = split::THREADS, no_spills, programmatic)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn gemm_int8_sum<C: Element>(
    pieces: *const f32,
    c: *mut C,
    sums: Sums,
    a_scales: *const f32,
    b_scales: *const f32,
    a_step: u32,
    b_step: u32,
) {
    split::scaled::<i32, C>(pieces.cast(), c, sums, [a_scales, b_scales], [a_step, b_step]);
}
