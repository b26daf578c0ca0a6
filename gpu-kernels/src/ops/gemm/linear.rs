//! A linear layer with its epilogue: y = act(x·Wᵀ + bias) + residual, one product whose results are rounded and written
//! once.
//!
//! # Math
//! yᵢⱼ = act(Σₖ xᵢₖ·wⱼₖ + biasⱼ) + residualᵢⱼ; act is the identity, relu, gelu in its tanh form or silu, and bias and residual may be missing.
//!
//! # Layout
//! `x` is m × k, `weight` n × k, `y` and `residual` m × n, rows apart as the problem says; `bias` is n elements. All have the same 16-bit type.
//!
//! # Mapping
//! As [`gemm`](super::gemm), both operands K-major. gelu and silu are x·σ of a polynomial, whose coefficients are
//! arguments; relu and the identity are a lower bound on the result. The choice between these two forms is made once
//! for eight sums of a thread, so that one kernel serves all activations. A thread reads the residual for its own sums,
//! in pairs of columns. Rows that fill no tiles of 256 are computed with swapped operands, like those of [`gemm`](super::gemm):
//! then the bias belongs to the rows of the sums, and the residual is read element by element. Where few tiles leave
//! multiprocessors empty, or operands are copied first, the product is computed in f32 as [`gemm`](super::gemm) computes
//! it, and a second launch adds its pieces and does the rest ([`linear_sum`]).
//!
//! # Shared memory
//! As [`gemm`](super::gemm).
//!
//! # Numerics
//! Sums as in [`gemm`](super::gemm); bias, activation and residual in f32, one rounding to the type of y. ex2.approx
//! and rcp.approx err by about 2⁻²² relative. NaN propagates; gelu and silu of −∞ are NaN, as the formulas are. The
//! gradient needs the input of act, which only a call without act stores.
//!
//! # Cost
//! 2·m·n·k FLOPs, of a product whose m × n results make no further trip to memory: as separate kernels, bias,
//! activation and residual would each read and write them once. On Hopper gelu takes two results of the
//! special-function units per element, which make 16 per clock and multiprocessor: 4096 clocks for a tile of 128 × 256,
//! against 65,536 that the tensor cores take over it with k = 4096. Reads of bias and residual are in flight while the
//! 64 columns before are computed, and those for the first columns during the last products.
//!
//! # Limits
//! m, n, k below 2³¹; 2³¹ − 1 tiles. The Hopper path takes rows of `x` and `weight` at multiples of 16 bytes.
//!
//! # Sources
//! Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), for the layers; Thakkar et al., CUTLASS, for epilogues of products.

use cuda_std::float::Half;
use cuda_std::kernel;
use cuda_std::launch::TensorMap;

use super::Problem;
use super::epilogue::{Activation, Linear, Swapped};
pub use super::epilogue::{GELU, NONE, RELU, SILU};
use super::gemm::split::{self, Four, Sums};
use super::hopper::{self, CLUSTER, Halves, Matrices, shared_bytes, swapped_bytes};
use super::mma::{self, Shared};

/// y = act(x·Wᵀ + bias) + residual, for `activation` one of [`NONE`], [`RELU`], [`GELU`] and [`SILU`].
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), both operands K-major; `bias` is null or valid for reads of n elements, and `residual` null or valid
/// for reads of m rows of n, `residual_stride` apart.
#[kernel(dtypes(T: half), values(V: 8, 1), block = mma::THREADS, shared = Shared, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn linear_mma<T: Half, const V: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    problem: Problem,
    bias: *const T,
    residual: *const T,
    residual_stride: u64,
    activation: u32,
) {
    let epilogue = Linear::of(&problem, activation, bias, (residual, residual_stride));
    mma::run::<mma::Halves<T>, T, _, false, false, V>(x, weight, y, problem, epilogue, |_, _, _| ());
}

/// The same on Hopper, by tiles of `N` columns.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), both operands K-major; `bias` and `residual` as for [`linear_mma`].
#[kernel(
    dtypes(T: half), values(N: 256, 192, 128, 64), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { shared_bytes(N) }, arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn linear_hopper<T: Half, const N: u32>(
    x_map: &TensorMap,
    weight_map: &TensorMap,
    y_map: &TensorMap,
    y: *mut T,
    problem: Problem,
    store: u32,
    bias: *const T,
    residual: *const T,
    residual_stride: u64,
    activation: u32,
) {
    let epilogue = Linear::of(&problem, activation, bias, (residual, residual_stride));
    let of = Matrices { a: x_map, b: weight_map, c_map: y_map, c: y, problem, store };
    hopper::run_by::<Halves<T, false, false>, T, _, N>(of, epilogue, 0);
}

/// The same by tiles of `N` rows and 256 columns of y: operands are swapped, as [`gemm_swapped`](super::gemm::hopper::gemm_swapped)'s, whose tiles may be
/// `NARROW`.
///
/// # Safety
/// As for [`gemm_swapped`](super::gemm::hopper::gemm_swapped); `bias` and `residual` as for [`linear_mma`].
#[kernel(
    dtypes(T: half), values(N: 208, 192, 160, 144, 128, 96, 64, NARROW: false, true), where(!NARROW || N != 192 && N != 144),
    block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER,
    shared = { swapped_bytes(N, NARROW) }, arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn linear_swapped<T: Half, const N: u32, const NARROW: bool>(
    weight_map: &TensorMap,
    x_map: &TensorMap,
    y_map: &TensorMap,
    y: *mut T,
    problem: Problem,
    store: u32,
    bias: *const T,
    residual: *const T,
    residual_stride: u64,
    activation: u32,
) {
    let epilogue = Swapped(Linear::of(&problem, activation, bias, (residual, residual_stride)));
    let of = Matrices { a: weight_map, b: x_map, c_map: y_map, c: y, problem, store };
    if NARROW {
        hopper::run_narrow::<Halves<T, false, false>, T, _, N>(of, epilogue);
    } else {
        hopper::run_by::<Halves<T, false, false>, T, _, N>(of, epilogue, 0);
    }
}

/// y = act(the sum of the pieces + bias) + residual, of a product that is computed in f32 first, in pieces along k or in one.
///
/// # Safety
/// `pieces` is valid for reads of the pieces, `y` for writes of its elements, `bias` and `residual` are as for [`linear_mma`]. There
/// are pieces and packs, and a thread for each pack of a piece.
#[kernel(dtypes(T: half), block = split::THREADS, no_spills, programmatic)]
pub unsafe fn linear_sum<T: Half>(
    pieces: *const f32,
    y: *mut T,
    sums: Sums,
    bias: *const T,
    residual: *const T,
    residual_stride: u64,
    activation: u32,
) {
    let Some(Four { row, column, sum }) = Four::of(pieces, &sums) else { return };
    let left = sums.n.saturating_sub(column);
    let read = |from: *const T, row: u64| {
        let first = from.wrapping_add(row as usize + column as usize);
        if from.is_null() { [0.0; 4] } else { split::load(first, left) }
    };
    let (bias, residual) = (read(bias, 0), read(residual, row * residual_stride));
    let x = [[sum[0] + bias[0], sum[1] + bias[1]], [sum[2] + bias[2], sum[3] + bias[3]]];
    let [[[a, b], [c, d]]] = Activation::of(activation).apply([x]);
    let y = y.wrapping_add((row * sums.ldc) as usize + column as usize);
    split::store(y, left, [a + residual[0], b + residual[1], c + residual[2], d + residual[3]]);
}
