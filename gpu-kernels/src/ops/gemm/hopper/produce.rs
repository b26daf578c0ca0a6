//! The producer: one thread that issues every copy.

use core::hint::cold_path;

use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::{cluster, tma};

use super::super::Problem;
use super::{CLUSTER, Cursor, Memory, Operands, PANEL, PANEL_BYTES, STAGE_BYTES, STORE_M, TOLD, Tile, Walk};

const EVERY_BLOCK: u16 = (1 << CLUSTER) - 1;

/// Fills the stages of every tile of this cluster, in order, from `first` on, at which `tiles` is. Run by one thread.
///
/// No A is loaded for a block without rows, if its consumers `skip` the stages: with 64 columns, 384 × 5120 × 5120 took 83
/// µs where 512 rows took 52.
#[inline(always)]
pub(super) unsafe fn produce<O: Operands, W: Walk, const B: usize, const STAGES: usize, const H: usize>(
    memory: Memory<B, STAGES, H>,
    a: &TensorMap,
    b: &TensorMap,
    problem: &Problem,
    mut tiles: W,
    first: Option<Tile>,
    skip: bool,
) {
    const { assert!(!W::TOLD || STAGES < TOLD) };
    let depth = STAGE_BYTES / O::BYTES;
    let block_m = H as u32 * STORE_M;
    // What of a tile a block loads: all rows and half of the columns, or the reverse.
    let rows_each = if W::SHARES_A { block_m / CLUSTER } else { block_m };
    let b_columns = B as u32 / STAGE_BYTES / if W::SHARES_A { 1 } else { CLUSTER };
    let rank = cluster::rank();
    // A matrix that all products share stays the same for the next product.
    let of_product = |stride: u64, product: u32| if stride == 0 { 0 } else { product as i32 };
    let (mut at, mut number) = (Cursor::default(), 0);
    let mut found = first;
    while let Some(Tile { row, column, product, b: matrix, end, k, alone }) = found {
        let [first, last] = k.unwrap_or([0, problem.k]);
        let column0 = column + if W::TWO_BS || W::SHARES_A || alone { 0 } else { rank * b_columns };
        let rows = if skip && row >= problem.m { 0 } else { block_m };
        let (a_product, b_product) = (of_product(problem.a[0], product), of_product(problem.b[0], matrix));
        for step in 0..W::steps(last - first, depth) {
            // A fresh barrier counts as having completed the phase before its first, so the first round does not wait.
            memory.empty(at.stage).wait_parity(at.parity ^ 1);
            if W::TOLD && step == 0 {
                memory.told(number).write([row, column, product, end.unwrap_or(problem.m), last - first]);
            }
            let full = memory.full(at.stage);
            full.arrive_expect_tx(rows * STAGE_BYTES + B as u32);
            let k0 = (first + step * depth) as i32;
            if rows != 0 {
                let first = if W::SHARES_A { rank * rows_each } else { 0 };
                let to = memory.a(at.stage).add(first * STAGE_BYTES);
                load(to, a, [row + first, rows_each], k0, a_product, full, O::A_MN, W::SHARES_A);
            } else {
                cold_path();
            }
            let to = memory.b(at.stage);
            if W::SHARES_A {
                load(to, b, [column0, b_columns], k0, b_product, full, O::B_MN, false);
            } else if alone {
                let half = B as u32 / CLUSTER;
                load(to, b, [column0, b_columns], k0, b_product, full, O::B_MN, false);
                load(to.add(half), b, [column0 + b_columns, b_columns], k0, b_product, full, O::B_MN, false);
            } else if O::B_MN && !b_columns.is_multiple_of(PANEL) {
                load_halves(to, b, [column, rank, b_columns], k0, b_product, full);
            } else {
                let to = to.add(rank * (B as u32 / CLUSTER));
                load(to, b, [column0, b_columns], k0, b_product, full, O::B_MN, true);
            }
            at.advance(STAGES);
        }
        tiles.advance();
        found = tiles.find().then(|| tiles.tile());
        number += 1;
    }
    if W::TOLD {
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        memory.told(number).write([0; 5]);
        memory.full(at.stage).arrive();
    }
    // If this block ended, the shared memory that its peer still signals would be gone: this thread stays until all
    // stages are released.
    for _ in 0..STAGES {
        memory.empty(at.stage).wait_parity(at.parity ^ 1);
        at.advance(STAGES);
    }
}

/// Starts the copy of `rows` rows along k of an operand, from `first` on, at `k0`: of a box of them, or, MN-major, of panels. To every block of the
/// cluster if they share it.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // Where from, where to and how.
unsafe fn load(
    to: SharedPtr<u8>,
    map: &TensorMap,
    [first, rows]: [u32; 2],
    k0: i32,
    product: i32,
    full: SharedPtr<Barrier>,
    is_mn_major: bool,
    is_shared: bool,
) {
    let copy = |to: SharedPtr<u8>, from: [i32; 3]| {
        if is_shared {
            tma::load_3d_multicast(to, map, from, full, EVERY_BLOCK);
        } else {
            tma::load_3d(to, map, from, full);
        }
    };
    if is_mn_major {
        let mut panel = 0;
        while panel < rows / PANEL {
            copy(to.add(panel * PANEL_BYTES), [(first + panel * PANEL) as i32, k0, product]);
            panel += 1;
        }
    } else {
        copy(to, [k0, first as i32, product]);
    }
}

/// Starts the copies, to every block of the cluster, of what a block of it loads of panels that are not a whole number for each: of as many halves along
/// k as make `columns` columns, it takes the next ones behind those of the `rank` blocks before it.
#[inline(always)]
unsafe fn load_halves(
    to: SharedPtr<u8>,
    map: &TensorMap,
    [first, rank, columns]: [u32; 3],
    k0: i32,
    product: i32,
    full: SharedPtr<Barrier>,
) {
    let halves = 2 * columns / PANEL;
    let mut i = 0;
    while i < halves {
        let (panel, low) = ((rank * halves + i) / 2, (rank * halves + i) % 2);
        let to = to.add(panel * PANEL_BYTES + low * (PANEL_BYTES / 2));
        let from = [(first + panel * PANEL) as i32, k0 + (low * (PANEL / 2)) as i32, product];
        tma::load_3d_multicast(to, map, from, full, EVERY_BLOCK);
        i += 1;
    }
}
