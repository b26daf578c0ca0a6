//! A gated linear layer: y = act(x·Wgᵀ) ∘ (x·Wuᵀ), the first half of a SwiGLU network, two products whose results stay
//! on the chip.
//!
//! # Math
//! yᵢⱼ = act(Σₖ xᵢₖ·gⱼₖ) · Σₖ xᵢₖ·uⱼₖ; act is one of [`linear`](super::linear)'s.
//!
//! # Layout
//! `x` is m × k, `gate` and `up` n × k, `y` m × n, rows apart as the problem says and those of `up` by themselves. All have the same 16-bit type.
//!
//! # Mapping
//! Hopper: as [`gemm`](super::gemm), with 128 columns of each weight instead of 256 columns of one. Each block of a
//! pair loads half of the pair's B: one loads the gate, the other the values. A thread then has the sums of both for
//! the same row and column, 64 registers apart. Elsewhere a block computes its tile of the gate, keeps the sums, and
//! then computes the other product. Where few rows leave most of these tiles empty, both products are computed in f32 as
//! [`gemm`](super::gemm) computes them, and a third launch adds their pieces and multiplies them ([`linear_glu_sum`]).
//!
//! # Shared memory
//! As [`gemm`](super::gemm).
//!
//! # Numerics
//! Sums as [`gemm`](super::gemm)'s; activation and product in f32, one rounding to the type of y. Infinite or NaN where the formula is.
//!
//! # Cost
//! 4·m·n·k FLOPs. Two separate products of m × n and a third kernel that multiplies them would cause 12·m·n bytes of
//! traffic in 16 bits; here y is written once. The reads are those of a product of 2·n columns with the same FLOPs: a
//! tile's rows of x serve both. The gradient needs both products, which are not stored: training keeps them, by calling
//! [`linear`](super::linear) twice and [`swiglu`](crate::ops::activation::swiglu).
//!
//! # Limits
//! As [`linear`](super::linear).
//!
//! # Sources
//! Shazeer, "GLU Variants Improve Transformer" (arXiv:2002.05202).

use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::{cluster, kernel, thread};

use super::Problem;
use super::epilogue::{Activation, Epilogue, Factor, Gated};
use super::gemm::split::{self, Four, Sums};
use super::hopper::{self, CLUSTER, Halves, Matrices, Tile, Tiles, Walk, Wide};
use super::mma::{self, Shared};

/// Columns of y a block computes on Hopper.
pub const BLOCK_N: u32 = hopper::BLOCK_N / 2;

/// y = act(x·Wgᵀ) ∘ (x·Wuᵀ), for `activation` one of [`linear`](super::linear)'s.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), both operands K-major, `gate` and `up` both being B; the rows of
/// `up` are `up_stride` apart.
#[kernel(dtypes(T: half), values(V: 8, 1), block = mma::THREADS, shared = Shared, no_spills)]
pub unsafe fn linear_glu_mma<T: Half, const V: usize>(
    x: *const T,
    gate: *const T,
    up: *const T,
    y: *mut T,
    problem: Problem,
    up_stride: u64,
    activation: u32,
) {
    let (at, _) = mma::own_tile(&problem);
    let product = |weight, stride| {
        let [_, _, along_k] = problem.b;
        let problem = Problem { b: [0, stride, along_k], ..problem };
        mma::multiply::<mma::Halves<T>, false, false, V>(x, weight, &problem, at, |_, _, _| ())
    };
    let mut sums = product(gate, problem.b[1]);
    // The last stages of the ring are still being read.
    thread::sync_threads();
    let up = product(up, up_stride);
    let gated = Gated(Activation::of(activation));
    let fours = |[a, b, c, d]: [f32; 4]| [[a, b], [c, d]];
    for i in 0..sums.len() {
        let results = gated.join(sums[i].map(fours), up[i].map(fours));
        sums[i] = results.map(|[[a, b], [c, d]]| [a, b, c, d]);
    }
    mma::store(y, &problem, at, Factor::ONE, sums);
}

/// Tiles of y, for which the blocks of a pair load the same columns of a weight each.
#[derive(Clone, Copy)]
struct OfBoth(Tiles);

impl Walk for OfBoth {
    const TWO_BS: bool = true;

    #[inline(always)]
    unsafe fn find(&mut self) -> bool {
        let Self(tiles) = self;
        tiles.find()
    }

    #[inline(always)]
    fn tile(&self) -> Tile {
        let Self(tiles) = self;
        tiles.tile()
    }

    #[inline(always)]
    fn advance(&mut self) {
        let Self(tiles) = self;
        tiles.advance();
    }
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), both operands K-major; the maps of `gate` and `up` are alike.
#[kernel(
    dtypes(T: half), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Wide, arch = "sm_90a", no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn linear_glu_hopper<T: Half>(
    x_map: &TensorMap,
    gate_map: &TensorMap,
    up_map: &TensorMap,
    y_map: &TensorMap,
    y: *mut T,
    problem: Problem,
    store: u32,
    activation: u32,
) {
    let weight = if cluster::rank() == 0 { gate_map } else { up_map };
    let of = Matrices { a: x_map, b: weight, c_map: y_map, c: y, problem, store };
    let gated = Gated(Activation::of(activation));
    hopper::walk::<Halves<T, false, false>, T, _>(of, gated, OfBoth(Tiles::of(&problem, [hopper::BLOCK_M, BLOCK_N])));
}

/// y = act(the sum of the pieces of x·Wgᵀ) ∘ (that of the `up_pieces` of x·Wuᵀ).
///
/// # Safety
/// `gate` and `up` are valid for reads of the pieces, and `y` for writes of its elements. There are pieces of both and packs, and
/// a thread for each pack of a piece.
#[kernel(dtypes(T: half), block = split::THREADS, no_spills, programmatic)]
pub unsafe fn linear_glu_sum<T: Half>(
    gate: *const f32,
    up: *const f32,
    y: *mut T,
    sums: Sums,
    up_pieces: u32,
    activation: u32,
) {
    let Some(Four { row, column, sum: gate }) = Four::of(gate, &sums) else { return };
    let Some(Four { sum: up, .. }) = Four::of(up, &Sums { pieces: up_pieces, ..sums }) else { return };
    let fours = |[a, b, c, d]: [f32; 4]| [[a, b], [c, d]];
    let [[[a, b], [c, d]]] = Gated(Activation::of(activation)).join([fours(gate)], [fours(up)]);
    let y = y.wrapping_add((row * sums.ldc) as usize + column as usize);
    split::store(y, sums.n.saturating_sub(column), [a, b, c, d]);
}
