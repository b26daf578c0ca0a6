//! What elementwise kernels share: y[r, c] = f(x₀[r, c], x₁[r, c], …) over rows that may be padded.
//!
//! # Layout
//! `rows` rows of d adjacent elements each, every operand at its own distance from row to row: any stride for an input, 0 for
//! one row that all share. What is contiguous throughout is passed as a single row. Rows at multiples of 16 bytes are moved 16
//! bytes at a time and their last few elements one by one; others go one by one altogether.
//!
//! # Mapping
//! Blocks of [`block`] threads; x goes along the row, [`per_block`] elements a block, and y and then z over the rows. Of B threads
//! thread t moves packs t, t + B and so on of its block: neighbours touch neighbouring packs, and two loads of each operand are in
//! flight before the first is used.
//!
//! A block that loads once and ends makes room for the next one's loads, and memory is never without: short blocks, of 128 threads
//! and 4 KB an operand, are as fast as a copy where a pack takes few instructions. Where it takes many, as eight elements of 16
//! bits do with a function or two each, the time between a block's end and the next one's loads is missed, unless so many short blocks
//! are there that others load meanwhile ([`min_blocks`]); where their registers leave no room for that, 256 threads that load
//! twice are faster. Each kernel says which it is by `SHORT`: [`LIGHT`], [`HEAVY`] or [`BUSY`].

use core::array;

use cuda_std::float::Element;
use cuda_std::thread;
use cuda_std::vector::Pack;

/// The blocks of kernels with few instructions a pack, or with so few registers that [`min_blocks`] are resident: short ones, of packs of up to
/// as many elements.
pub const LIGHT: usize = 16;
/// Those of other kernels with a function or two an element: short where a pack has four elements, not where it has eight.
pub const HEAVY: usize = 4;
/// Those of kernels that compute longer than memory takes: never short.
pub const BUSY: usize = 0;

/// Threads of a block where the widest element has `bytes` bytes, and packs of up to `short` elements have short blocks.
pub const fn block(bytes: usize, short: usize) -> u32 {
    if 16 / bytes <= short { 128 } else { 256 }
}

/// Blocks that a multiprocessor is to hold of those of [`block`], where `others` will do: short ones of 16-bit elements only wait for memory
/// if there are many, and eight elements a pack would take the registers of twice as many.
pub const fn min_blocks(bytes: usize, short: usize, others: u32) -> u32 {
    if bytes == 2 && block(bytes, short) == 128 { 12 } else { others }
}

/// Packs of each operand in flight a thread.
const PACKS: usize = 2;

/// How often a thread of a long block has as many in flight. With few operands, what a block costs before its first load is a part
/// of its time that shows: more elements share it. With many there is enough to do, and short blocks end more evenly.
const fn rounds(threads: u32, inputs: usize) -> usize {
    if threads > 128 && inputs <= 2 { 2 } else { 1 }
}

/// Elements of a row that a block of that many threads covers, of that many inputs, where the widest element has `bytes` bytes.
pub const fn per_block(threads: u32, bytes: usize, inputs: usize) -> usize {
    threads as usize * PACKS * rounds(threads, inputs) * (16 / bytes)
}

/// One operand: its first element, and elements from a row to the next.
pub type In<T> = (*const T, u64);
/// The result, likewise.
pub type Out<T> = (*mut T, u64);

/// `f` over float operands, computed in f32, in blocks of [`block`] threads by `SHORT`. The last `KEPT` inputs are read by many blocks,
/// and leave the cache last.
///
/// # Safety
/// The inputs are valid for reads and the output for writes of `rows` rows of `d` elements at their strides; d and rows are at least 1.
#[inline(always)]
pub unsafe fn zip<T: Element, U: Element, const K: usize, const KEPT: usize, const SHORT: usize>(
    inputs: [In<T>; K],
    output: Out<U>,
    rows: u64,
    d: u64,
    f: impl Fn([f32; K]) -> f32,
) {
    let one = |values: [T; K]| [U::from_f32(f(values.map(T::to_f32)))];
    if size_of::<T>() == 4 || size_of::<U>() == 4 {
        move_packs::<T, U, K, KEPT, 1, 4, SHORT>(inputs, [output], rows, d, |packs| [zip_packs(packs, &f)], one);
    } else {
        move_packs::<T, U, K, KEPT, 1, 8, SHORT>(inputs, [output], rows, d, |packs| [zip_packs(packs, &f)], one);
    }
}

#[inline(always)]
fn zip_packs<T: Element, U: Element, const K: usize, const N: usize>(
    packs: [Pack<T, N>; K],
    f: impl Fn([f32; K]) -> f32,
) -> Pack<U, N> {
    let values = packs.map(Pack::to_f32);
    Pack::from_f32(array::from_fn(|e| f(array::from_fn(|k| values[k][e]))))
}

/// [`zip`] with several results.
#[inline(always)]
pub(crate) unsafe fn zip_to_many<
    T: Element,
    U: Element,
    const K: usize,
    const KEPT: usize,
    const O: usize,
    const SHORT: usize,
>(
    inputs: [In<T>; K],
    outputs: [Out<U>; O],
    rows: u64,
    d: u64,
    f: impl Fn([f32; K]) -> [f32; O],
) {
    let one = |values: [T; K]| f(values.map(T::to_f32)).map(U::from_f32);
    if size_of::<T>() == 4 || size_of::<U>() == 4 {
        move_packs::<T, U, K, KEPT, O, 4, SHORT>(inputs, outputs, rows, d, |packs| zip_packs_to_many(packs, &f), one);
    } else {
        move_packs::<T, U, K, KEPT, O, 8, SHORT>(inputs, outputs, rows, d, |packs| zip_packs_to_many(packs, &f), one);
    }
}

#[inline(always)]
fn zip_packs_to_many<T: Element, U: Element, const K: usize, const N: usize, const O: usize>(
    packs: [Pack<T, N>; K],
    f: impl Fn([f32; K]) -> [f32; O],
) -> [Pack<U, N>; O] {
    let values = packs.map(Pack::to_f32);
    let results: [[f32; O]; N] = array::from_fn(|e| f(array::from_fn(|k| values[k][e])));
    array::from_fn(|o| Pack::from_f32(array::from_fn(|e| results[e][o])))
}

/// The traffic of elementwise kernels: `pack` for packs of `N` elements, `one` for single elements. The last `KEPT` inputs are read
/// by many blocks.
#[inline(always)]
pub(crate) unsafe fn move_packs<
    T: Copy,
    U: Copy,
    const K: usize,
    const KEPT: usize,
    const O: usize,
    const N: usize,
    const SHORT: usize,
>(
    inputs: [In<T>; K],
    outputs: [Out<U>; O],
    rows: u64,
    d: u64,
    pack: impl Fn([Pack<T, N>; K]) -> [Pack<U, N>; O],
    one: impl Fn([T; K]) -> [U; O],
) {
    let load = |k: usize, from: *const T| {
        if k + KEPT >= K { Pack::load_nc_evict_last(from) } else { Pack::load_nc(from) }
    };
    let (pack, one) = (|packs, _| pack(packs), |values, _| one(values));
    move_packs_by::<T, U, K, O, N, SHORT>(inputs, outputs, rows, d, load, pack, one);
}

/// [`move_packs`] in place, by a [`LIGHT`] `f` in f32.
#[inline(always)]
pub(crate) unsafe fn update<T: Element>((x, stride): Out<T>, rows: u64, d: u64, f: impl Fn(f32) -> f32) {
    if size_of::<T>() == 4 {
        update_packs::<T, 4>((x, stride), rows, d, f);
    } else {
        update_packs::<T, 8>((x, stride), rows, d, f);
    }
}

#[inline(always)]
unsafe fn update_packs<T: Element, const N: usize>((x, stride): Out<T>, rows: u64, d: u64, f: impl Fn(f32) -> f32) {
    // Not through the read-only path: the kernel writes what it reads.
    let load = |_: usize, from: *const T| Pack::<T, N>::load_global(from);
    let pack = |[pack]: [Pack<T, N>; 1], _: u64| [Pack::from_f32(pack.to_f32().map(&f))];
    let one = |[value]: [T; 1], _: u64| [T::from_f32(f(value.to_f32()))];
    let (read, written) = ([(x.cast_const(), stride)], [(x, stride)]);
    move_packs_by::<T, T, 1, 1, N, LIGHT>(read, written, rows, d, load, pack, one);
}

/// The traffic of all elementwise kernels: `load` gets a pack of an input by its number and address; `pack` and `one` are also told
/// the place of the first element, counted over all rows.
#[inline(always)]
pub(crate) unsafe fn move_packs_by<
    T: Copy,
    U: Copy,
    const K: usize,
    const O: usize,
    const N: usize,
    const SHORT: usize,
>(
    inputs: [In<T>; K],
    outputs: [Out<U>; O],
    rows: u64,
    d: u64,
    load: impl Fn(usize, *const T) -> Pack<T, N>,
    pack: impl Fn([Pack<T, N>; K], u64) -> [Pack<U, N>; O],
    one: impl Fn([T; K], u64) -> [U; O],
) {
    let (threads, rounds) = const {
        let threads = block(16 / N, SHORT);
        (threads as usize, rounds(threads, K))
    };
    let per_block = threads * PACKS * rounds * N;
    let start = u64::from(thread::block_idx_x()) * per_block as u64;
    let count = (d - start).min(per_block as u64) as usize;
    let tid = thread::thread_idx_x() as usize;
    let at = |i: usize| (tid + i * threads) * N;
    let row = u64::from(thread::block_idx_z()) * u64::from(thread::grid_dim_y()) + u64::from(thread::block_idx_y());
    if row >= rows {
        return;
    }
    let xs = inputs.map(|(x, stride)| x.add((row * stride + start) as usize));
    let ys = outputs.map(|(y, stride)| y.add((row * stride + start) as usize));
    let store = |packs: [Pack<U, N>; O], at: usize| {
        for o in 0..O {
            packs[o].store_global(ys[o].add(at));
        }
    };
    let load = |i: usize| -> [Pack<T, N>; K] { array::from_fn(|k| load(k, xs[k].add(at(i)))) };
    let place = |at: usize| row * d + start + at as u64;
    let addresses =
        xs.into_iter().fold(0, |bits, x| bits | x as usize) | ys.into_iter().fold(0, |bits, y| bits | y as usize);
    let mut whole = 0;
    if addresses.is_multiple_of(16) {
        if count == per_block {
            for round in 0..rounds {
                let first = round * PACKS;
                let loaded: [_; PACKS] = array::from_fn(|i| load(first + i));
                for (i, packs) in loaded.into_iter().enumerate() {
                    store(pack(packs, place(at(first + i))), at(first + i));
                }
            }
            return;
        }
        for i in 0..PACKS * rounds {
            if at(i) + N <= count {
                store(pack(load(i), place(at(i))), at(i));
            }
        }
        whole = count / N * N;
    }
    let mut i = whole + tid;
    while i < count {
        let results = one(xs.map(|x| *x.add(i)), place(i));
        for o in 0..O {
            *ys[o].add(i) = results[o];
        }
        i += threads;
    }
}
