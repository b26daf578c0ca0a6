//! Appends new keys and values to a cache: one contiguous cache per sequence, or pages that tables point to.
//!
//! # Math
//! cache[page, position mod page_size] = new[b, n] with position = lengths_before\[b\] + n and page = table[b, ⌊position / page_size⌋], for keys
//! and for values. A contiguous cache is one page a sequence, found without a table.
//!
//! # Layout
//! Runs of d adjacent words (a token's vector of one head), which may lie anywhere apart along each of the other dimensions: see
//! [`runs`](super).
//!
//! # Mapping
//! A thread moves two packs; z is 0 for keys and 1 for values, which go in one launch where they lie alike.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! Bit by bit. Tokens without a valid place are not written: a negative length, a position past the last page, a page
//! number that is not in the cache. If two tokens have the same place by their tables, either one ends up there.
//!
//! # Cost
//! One read and one write of what is new: bound by memory bandwidth. Lengths and tables come from L1.
//!
//! # Limits
//! 2³² − 1 runs; positions below 2³².
//!
//! # Sources
//! Pope et al., "Efficiently Scaling Transformer Inference" (arXiv:2211.05102), for the cache; Kwon et al., "Efficient Memory Management
//! for Large Language Model Serving with PagedAttention" (arXiv:2309.06180), for pages.

use cuda_std::{kernel, thread};

use super::{BLOCK, load, move_runs, store};
use crate::div_rem;

/// Writes `runs` runs of `width` packs of `V` words, `tokens` · `heads` a sequence; without `pages` a sequence's page is its number.
/// `k` and `v`, and their caches, have the same strides.
///
/// # Safety
/// `k` and `v` are valid for reads of these runs, `k_cache` and `v_cache` for writes of `page_count` pages of `page_size` tokens, at their
/// strides; `lengths_before` for reads of a value a sequence, `pages`, if not null, of `max_pages`. No size is 0, and packs of 16 bytes are
/// aligned.
#[kernel(dtypes(W: u16, u32), values(V: 1, 4), where(V == 1 || W == u32), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn append_kv<W: Copy, const V: usize>(
    k: *const W,
    v: *const W,
    k_cache: *mut W,
    v_cache: *mut W,
    lengths_before: *const i32,
    pages: *const i32,
    runs: u32,
    width: u32,
    tokens: u32,
    heads: u32,
    page_size: u32,
    page_count: u32,
    max_pages: u32,
    x_sequence: u64,
    x_token: u64,
    x_head: u64,
    page_stride: u64,
    place_stride: u64,
    head_stride: u64,
) {
    let (x, cache) = if thread::block_idx_z() == 0 { (k, k_cache) } else { (v, v_cache) };
    let at = |[a, b, c]: [u32; 3], [along_a, along_b, along_c]: [u64; 3], pack: u32| {
        (u64::from(a) * along_a + u64::from(b) * along_b + u64::from(c) * along_c) as usize + pack as usize * V
    };
    move_runs(
        width,
        runs,
        |run, pack| {
            let (rest, head) = div_rem(run, heads);
            let (sequence, token) = div_rem(rest, tokens);
            let from = x.add(at([sequence, token, head], [x_sequence, x_token, x_head], pack));
            (load::<W, V>(from), [sequence, token, head])
        },
        // Places are looked up while the loads of the new data are in flight.
        |_, pack, (words, [sequence, token, head])| {
            let sizes = [page_size, page_count, max_pages];
            if let Some([page, place]) = place_of(sequence, token, lengths_before, pages, sizes) {
                store(words, cache.add(at([page, place, head], [page_stride, place_stride, head_stride], pack)));
            }
        },
    );
}

/// The page of a new token and its place there, if it has one: `page_size`, `page_count` and `max_pages` are the cache's.
///
/// # Safety
/// As for [`append_kv`].
#[inline(always)]
pub(super) unsafe fn place_of(
    sequence: u32,
    token: u32,
    lengths_before: *const i32,
    pages: *const i32,
    [page_size, page_count, max_pages]: [u32; 3],
) -> Option<[u32; 2]> {
    let length = *lengths_before.add(sequence as usize);
    // Below 2³², unless the length is one of those that are rejected.
    let position = (length as u32).wrapping_add(token);
    if pages.is_null() {
        return (length >= 0 && position < page_size && sequence < page_count).then_some([sequence, position]);
    }
    let (logical, place) = div_rem(position, page_size);
    if length < 0 || logical >= max_pages {
        return None;
    }
    let entry = u64::from(sequence) * u64::from(max_pages) + u64::from(logical);
    let page = *pages.add(entry as usize) as u32;
    // As an unsigned number, a negative page is past the last one too.
    (page < page_count).then_some([page, place])
}
