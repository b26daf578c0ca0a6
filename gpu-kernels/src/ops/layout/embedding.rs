//! Looks up rows of a table by index.
//!
//! # Math
//! y[i, :] = table[ids\[i\], :].
//!
//! # Layout
//! `table` is vocab rows of d elements, `y` one row a token; all rows may be padded. Packs of 16 bytes where all rows lie at such multiples
//! and consist of them.
//!
//! # Mapping
//! A thread moves two packs, see [`runs`](super).
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! Bit by bit. An index outside the table gives zeros.
//!
//! # Cost
//! A row read and written for each token: bound by memory bandwidth.
//!
//! # Limits
//! 2³² − 1 tokens, 2³¹ rows of the table.
//!
//! # Sources
//! Bengio, Ducharme, Vincent and Jauvin, "A Neural Probabilistic Language Model" (JMLR 2003).

use cuda_std::kernel;
use cuda_std::vector::Pack;

use super::{BLOCK, load, move_runs, store};

/// y = table\[ids\] for `runs` tokens, a row being `width` packs of `V` words.
///
/// # Safety
/// `ids` is valid for reads of `runs` numbers, `table` of `vocab` rows, `y` for writes of `runs` rows at their strides; `width` is not 0,
/// and packs of 16 bytes are aligned.
#[kernel(dtypes(W: u16, u32), values(V: 1, 4), where(V == 1 || W == u32), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn embedding<W: Copy + Default, const V: usize>(
    ids: *const i32,
    table: *const W,
    y: *mut W,
    runs: u32,
    width: u32,
    vocab: u32,
    table_stride: u64,
    y_stride: u64,
) {
    move_runs(
        width,
        runs,
        |run, pack| {
            // As an unsigned number, a negative index is past the last row too.
            let id = *ids.add(run as usize) as u32;
            if id < vocab {
                load::<W, V>(table.add((u64::from(id) * table_stride) as usize + pack as usize * V))
            } else {
                Pack::splat(W::default())
            }
        },
        |run, pack, words| store(words, y.add((u64::from(run) * y_stride) as usize + pack as usize * V)),
    );
}
