//! Merges the results of the pieces of a sequence's keys into one.

use cuda_std::float::Half;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread, warp};

use crate::div_rem;
use crate::ops::attention::{self, LOG2_E, Problem};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Columns of a block, four a lane: d above that takes several blocks along y.
pub const COLUMNS: u32 = 128;
const WARPS: u32 = THREADS / 32;

/// What warps have: sums of columns, then of weights.
#[repr(C, align(16))]
pub struct Shared {
    columns: [[f32; COLUMNS as usize]; WARPS as usize],
    weights: [f32; WARPS as usize],
}

/// O and its logsumexp of up to `splits` pieces.
///
/// # Safety
/// `partial_o` and `partial_lse` hold what [`attention_decode`](super::mma::attention_decode) wrote for the same problem; `o` is valid at its
/// strides, `sinks` as there, `lse` for batch · heads · q_len values. The grid has a block for each of those along x, and for every [`COLUMNS`] along y.
#[kernel(dtypes(T: half), block = THREADS, shared = Shared, no_spills, programmatic)]
pub unsafe fn attention_decode_combine<T: Half>(
    partial_o: *const f32,
    partial_lse: *const f32,
    lengths: *const i32,
    sinks: *const f32,
    o: *mut T,
    lse: *mut f32,
    splits: u32,
    problem: Problem,
) {
    let memory = shared::dynamic::<Shared>();
    let (columns, weights): (SharedPtr<f32>, SharedPtr<f32>) =
        (cuda_std::shared_field!(memory.columns).cast(), cuda_std::shared_field!(memory.weights).cast());
    let (thread, lane, warp) = (thread::thread_idx_x(), warp::lane_id(), warp::warp_id());
    let row = thread::block_idx_x();
    let (rest, query) = div_rem(row, problem.q_len);
    let (batch, head) = div_rem(rest, problem.heads);
    let (first, end, per_split) = problem.pieces(&problem.decoded(batch, lengths), splits);
    // The other pieces did not run.
    let (used, _) = div_rem(end - first + (per_split - 1), per_split);

    let rows = u64::from(thread::grid_dim_x());
    let index = |split: u32| u64::from(split) * rows + u64::from(row);
    let sink = attention::sink(sinks, head);
    let mut max = sink;
    let mut split = lane;
    while split < used {
        max = max.max(*partial_lse.add(index(split) as usize));
        split += 32;
    }
    let max = warp::reduce_max(max);
    // No piece saw a key: the reference point is 0.
    let reference = if max == f32::NEG_INFINITY { 0.0 } else { max };

    let column = thread::block_idx_y() * COLUMNS + lane * 4;
    let mut sums = [0.0f32; 4];
    let mut total = if warp == 0 { math::ex2_approx_ftz((sink - reference) * LOG2_E) } else { 0.0 };
    let mut split = warp;
    while split < used {
        let weight = math::ex2_approx_ftz((*partial_lse.add(index(split) as usize) - reference) * LOG2_E);
        total += weight;
        if column < problem.d {
            let at = index(split) * u64::from(problem.d) + u64::from(column);
            let values = Pack::<f32, 4>::load(partial_o.add(at as usize)).0;
            for e in 0..4 {
                sums[e] = math::fma(weight, values[e], sums[e]);
            }
        }
        split += WARPS;
    }
    Pack(sums).store(columns.add(warp * COLUMNS + lane * 4).as_ptr());
    if lane == 0 {
        weights.add(warp).write(total);
    }
    thread::sync_threads();

    let column = thread::block_idx_y() * COLUMNS + thread;
    if thread >= COLUMNS || column >= problem.d {
        return;
    }
    let (mut sum, mut total) = (0.0, 0.0);
    for i in 0..WARPS {
        sum += columns.add(i * COLUMNS + thread).read();
        total += weights.add(i).read();
    }
    let inverse = if total == 0.0 { 0.0 } else { 1.0 / total };
    *o.add(Problem::at(problem.o, batch, head, query) + column as usize) = T::from_f32(sum * inverse);
    if column == 0 {
        *lse.add(row as usize) = if total == 0.0 { f32::NEG_INFINITY } else { max + math::log(total) };
    }
}
