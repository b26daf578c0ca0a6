//! Code that elementwise kernels share: y[r, c] = f(x₀[r, c], x₁[r, c], …) over rows that may be padded.
//!
//! # Layout
//! `rows` rows of d adjacent elements each; every operand has its own row stride. An input may have any stride; stride
//! 0 is one row that all rows share. Operands that are all contiguous are passed as a single row. Rows at multiples of
//! 16 bytes are moved 16 bytes at a time and their last few elements one by one; all other rows are moved one element
//! at a time.
//!
//! # Mapping
//! Blocks of [`block`] threads; x goes along the row, [`per_block`] elements per block, and y and then z over the rows.
//! In a block of B threads, thread t moves packs t, t + B and so on: neighbouring threads touch neighbouring packs, and
//! two loads of each operand are in flight before the first is used.
//!
//! A block that loads once and ends makes room for the next block's loads, so that memory always has requests in
//! flight: short blocks, of 128 threads and 4 KB per operand, are as fast as a copy where a pack takes few
//! instructions. Where a pack takes many, as eight 16-bit elements do with one or two functions each, memory idles
//! between a block's end and the next block's loads, unless so many short blocks are resident that others load
//! meanwhile ([`min_blocks`]); where register pressure does not allow that, 256 threads that load twice are faster.
//! Each kernel declares its class by `SHORT`: [`LIGHT`], [`HEAVY`] or [`BUSY`].

use core::array;

use cuda_std::float::Element;
use cuda_std::thread;
use cuda_std::vector::Pack;

/// `SHORT` of kernels with few instructions per pack, or with so few registers that [`min_blocks`] are resident: blocks
/// are short for packs of up to this many elements.
pub const LIGHT: usize = 16;
/// `SHORT` of other kernels with one or two functions per element: blocks are short where a pack has four elements, not
/// where it has eight.
pub const HEAVY: usize = 4;
/// `SHORT` of kernels whose computation takes longer than their memory traffic: blocks are never short.
pub const BUSY: usize = 0;

/// Threads of a block where the widest element has `bytes` bytes, and blocks are short for packs of up to `short`
/// elements.
pub const fn block(bytes: usize, short: usize) -> u32 {
    if 16 / bytes <= short { 128 } else { 256 }
}

/// The number of blocks of size [`block`] to keep resident on a multiprocessor; kernels that do not need this get
/// `others`. Short blocks of 16-bit elements hide memory latency only if many are resident, and with eight elements per
/// pack ptxas would otherwise use twice the registers that this allows.
pub const fn min_blocks(bytes: usize, short: usize, others: u32) -> u32 {
    if bytes == 2 && block(bytes, short) == 128 { 12 } else { others }
}

/// Packs of each operand in flight per thread.
const PACKS: usize = 2;

/// How many times a thread of a long block has that many packs in flight. With few operands, a block's startup before
/// its first load is a visible part of its time, so that more elements share it. With many operands there is enough
/// work, and shorter blocks end more evenly.
const fn rounds(threads: u32, inputs: usize) -> usize {
    if threads > 128 && inputs <= 2 { 2 } else { 1 }
}

/// Elements of a row that a block of that many threads covers, for that many inputs, where the widest element has
/// `bytes` bytes.
pub const fn per_block(threads: u32, bytes: usize, inputs: usize) -> usize {
    threads as usize * PACKS * rounds(threads, inputs) * (16 / bytes)
}

/// One operand: its first element, and its row stride in elements.
pub type In<T> = (*const T, u64);
/// The result: its first element, and its row stride in elements.
pub type Out<T> = (*mut T, u64);

/// Applies `f` to float operands, computing in f32, in blocks of [`block`] threads by `SHORT`. The last `KEPT` inputs
/// are read by many blocks, and are evicted from the cache last.
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
    // This does not use the read-only path, because the kernel writes what it reads.
    let load = |_: usize, from: *const T| Pack::<T, N>::load_global(from);
    let pack = |[pack]: [Pack<T, N>; 1], _: u64| [Pack::from_f32(pack.to_f32().map(&f))];
    let one = |[value]: [T; 1], _: u64| [T::from_f32(f(value.to_f32()))];
    let (read, written) = ([(x.cast_const(), stride)], [(x, stride)]);
    move_packs_by::<T, T, 1, 1, N, LIGHT>(read, written, rows, d, load, pack, one);
}

/// The traffic of all elementwise kernels: `load` gets a pack of an input by the input's number and the address; `pack`
/// and `one` also get the index of the first element, counted over all rows.
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
