//! Products of the first rows of each expert's matrix with the expert's weight: a mixture (MoE) whose tokens are stored
//! in buffers of a fixed size.
//!
//! # Math
//! y(e)ᵢⱼ = Σₖ x(e)ᵢₖ·w(e)ⱼₖ for the rows i < counts\[e\] of expert e. The contents of other rows are ignored, and
//! those of `y` are left unchanged.
//!
//! # Layout
//! `x` is experts × m × k, `y` experts × m × n and `weight` experts × n × k, its matrices K-major or MN-major. All have
//! the same 16-bit type. `counts` are known only on the device; they need not be valid and are clamped to 0 ..= m.
//!
//! # Mapping
//! On Hopper as [`gemm_grouped`](super::gemm_grouped), each expert's rows being a group. Elsewhere the grid has a block
//! for each possible tile, and blocks whose tile has no rows end at once.
//!
//! # Shared memory
//! As [`gemm`](super::gemm).
//!
//! # Numerics
//! As [`gemm`](super::gemm).
//!
//! # Cost
//! 2·n·k FLOPs for each valid row, and, as for [`gemm_grouped`](super::gemm_grouped), up to 127 more rows per expert.
//! Copies load whole boxes: rows of x after an expert's last may be read, but no result depends on them.
//!
//! # Limits
//! As [`gemm`](super::gemm); ⌈m/128⌉ · experts rows of tiles.
//!
//! # Sources
//! DeepSeek-AI, DeepGEMM, for the name and the use case: decoding with CUDA graphs, where the host does not know how
//! many tokens an expert gets.

use cuda_std::float::Half;
use cuda_std::kernel;
use cuda_std::launch::TensorMap;

use super::Problem;
use super::epilogue::Factor;
use super::gemm_grouped::whole_units;
use super::groups::{Counts, Groups, Rows};
use super::hopper::{self, CLUSTER, Halves, Matrices, Wide};
use super::mma::{self, Shared};

/// The first rows of each of the problem's products.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), `x` K-major; `counts` is valid for reads of a number for each product.
#[kernel(
    dtypes(T: half), values(W_MN: false, true, V: 8, 1), where(V == 8 || !W_MN), block = mma::THREADS, shared = Shared,
    no_spills
)]
pub unsafe fn gemm_grouped_masked_mma<T: Half, const W_MN: bool, const V: usize>(
    x: *const T,
    weight: *const T,
    y: *mut T,
    mut problem: Problem,
    counts: *const i32,
) {
    let (at, expert) = mma::own_tile(&problem);
    [_, problem.m] = Counts { counts, groups: problem.batch, rows: problem.m }.of(expert, 0);
    if at[0] >= problem.m {
        return;
    }
    let expert = u64::from(expert);
    let x = x.add((expert * problem.a[0]) as usize);
    let weight = weight.add((expert * problem.b[0]) as usize);
    let y = y.add((expert * problem.c[0]) as usize);
    mma::tile::<mma::Halves<T>, T, _, false, W_MN, V>(x, weight, y, problem, at, Factor::ONE, |_, _, _| ());
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), `x` K-major and `store` not [`DIRECT`](hopper::DIRECT); `counts` as for
/// [`gemm_grouped_masked_mma`].
#[kernel(
    dtypes(T: half), values(W_MN: false, true), block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Wide,
    arch = "sm_90a", no_spills
)]
pub unsafe fn gemm_grouped_masked_hopper<T: Half, const W_MN: bool>(
    x_map: &TensorMap,
    weight_map: &TensorMap,
    y_map: &TensorMap,
    y: *mut T,
    problem: Problem,
    store: u32,
    counts: *const i32,
) {
    let tiles = Groups::new(Counts { counts, groups: problem.batch, rows: problem.m }, problem.n);
    let of = Matrices { a: x_map, b: weight_map, c_map: y_map, c: y, problem, store: whole_units(store) };
    hopper::walk::<Halves<T, false, W_MN>, T, _>(of, Factor::ONE, tiles);
}
