//! Writes Vᵀ, with keys permuted to the order in which registers hold the weights.

use core::array;

use cuda_std::math::permute_bytes;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{f8e4m3, kernel, thread};

use crate::div_rem;
use crate::ops::attention::{Problem, bounded};

/// Threads of a block, which have 32 keys and 4 columns of V each.
pub const THREADS: u32 = 128;
const KEYS: u32 = 32;
const COLUMNS: u32 = 4;

/// A block's elements, of all d columns.
const TILE: u32 = THREADS * KEYS * COLUMNS;
/// Bytes that are moved at a time: 16 keys.
const CHUNK: u32 = 16;

/// Keys of a block.
pub const fn keys(d: u32) -> u32 {
    TILE / d
}

/// Columns of Vᵀ for so many keys.
pub const fn columns(keys: u32) -> u32 {
    keys.next_multiple_of(KEYS)
}

/// `transposed`, `[batch, heads of V, d, columns]`. The values of a sequence end with its row, and zeros are before them. Of every 16 columns, 4t to
/// 4t + 3 are those of keys 2t, 2t + 1, 2t + 8 and 2t + 9.
///
/// # Safety
/// `v` is valid at its strides with rows at multiples of 4 bytes, `transposed` for writes of that shape; `key_lengths` is valid or null. d is `D`, and
/// the grid has a block for every [`keys`] columns of a head.
#[kernel(values(D: 64, 128), block = THREADS, shared = { TILE as usize }, arch = "sm_90a", no_spills)]
pub unsafe fn attention_fp8_prepare<const D: u32>(
    v: *const f8e4m3,
    transposed: *mut f8e4m3,
    key_lengths: *const i32,
    heads: u32,
    problem: Problem,
) {
    let k_len = problem.k_len;
    let (row, width) = (columns(k_len), keys(D));
    let (head, tile) = div_rem(thread::block_idx_x(), row.div_ceil(width));
    let (batch, kv_head) = div_rem(head, heads);
    let len = if key_lengths.is_null() { k_len } else { bounded(key_lengths, batch, 0, k_len) };
    // Neighbours read neighbouring columns of V.
    let (part, quad) = div_rem(thread::thread_idx_x(), D / COLUMNS);
    let first = (tile * width + part * KEYS + len) as i32 - row as i32;
    let [.., stride] = problem.v;
    let from = v.add(Problem::at(problem.v, batch, kv_head, 0) + (quad * COLUMNS) as usize);
    // Chunks of a row of Vᵀ are permuted, so that neither quads of columns nor neighbouring chunks conflict in a bank.
    let place = |column: u32, chunk: u32| -> SharedPtr<u32> {
        let chunk = chunk ^ (column / COLUMNS % 8);
        shared::dynamic::<u8>().add(column * width + chunk * CHUNK).cast()
    };
    for group in 0..KEYS / 16 {
        let words: [u32; 16] = array::from_fn(|i| {
            // As an unsigned number, a negative key is large and therefore out of range.
            let key = (first + (16 * group) as i32 + i as i32) as u32;
            if key < len { *from.add((u64::from(key) * stride) as usize).cast::<u32>() } else { 0 }
        });
        let rows = [0, 2, 4, 6].map(|t| transpose([words[t], words[t + 1], words[t + 8], words[t + 9]]));
        for column in 0..COLUMNS {
            let pack = Pack(rows.map(|of_columns| of_columns[column as usize]));
            pack.store(place(quad * COLUMNS + column, part * (KEYS / 16) + group).as_ptr());
        }
    }
    thread::sync_threads();
    let to = transposed.add((u64::from(head) * u64::from(D) * u64::from(row) + u64::from(tile * width)) as usize);
    for i in 0..TILE / CHUNK / THREADS {
        let (column, chunk) = div_rem(i * THREADS + thread::thread_idx_x(), width / CHUNK);
        if tile * width + chunk * CHUNK < row {
            let at = u64::from(column) * u64::from(row) + u64::from(chunk * CHUNK);
            Pack::<u32, 4>::load(place(column, chunk).as_ptr()).store(to.add(at as usize).cast());
        }
    }
}

/// 4 × 4 bytes with rows and columns exchanged.
#[inline(always)]
fn transpose([a, b, c, d]: [u32; 4]) -> [u32; 4] {
    let halves = |which| [permute_bytes(a, b, which), permute_bytes(c, d, which)];
    let ([ab, cd], [ab_high, cd_high]) = (halves(0x5140), halves(0x7362));
    [
        permute_bytes(ab, cd, 0x5410),
        permute_bytes(ab, cd, 0x7632),
        permute_bytes(ab_high, cd_high, 0x5410),
        permute_bytes(ab_high, cd_high, 0x7632),
    ]
}
