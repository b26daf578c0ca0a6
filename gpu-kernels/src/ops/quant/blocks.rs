//! Code that block-wise quantization shares: scales, conversion to and from 8-bit floats, blocks along rows, and
//! dequantization.

use core::array;

use cuda_std::float::Element;
use cuda_std::fp8::{self, Float8, f8e8m0};
use cuda_std::vector::Pack;
use cuda_std::{arch, math, thread, warp};

use crate::lanes;
use crate::map::{In, Out};

/// Threads of a block of [`quantize_rows`] and [`dequantize`].
pub(crate) const BLOCK: u32 = 128;
/// Packs in flight a thread of [`quantize_rows`].
const READ: usize = 2;
/// Packs in flight a thread of [`dequantize`], of one byte an element.
const WIDENED: usize = 4;
/// Elements of such a pack.
const PACK: usize = 8;

/// Elements of a row that a block of [`quantize_rows`] covers, of that many bytes each.
pub(crate) const fn read_by_block(bytes: usize) -> usize {
    BLOCK as usize * READ * (16 / bytes)
}

/// Elements of a row that a block of [`dequantize`] covers.
pub(crate) const WIDENED_BY_BLOCK: usize = BLOCK as usize * WIDENED * PACK;
/// The number of rows that its elements come from if each column has a scale.
pub(crate) const WIDENED_ROWS: usize = WIDENED;

/// The scale of a group, by which its elements are multiplied.
pub(crate) trait Scale: Copy {
    /// The scale of a group whose greatest magnitude is `max`, and its inverse.
    fn of<Q: Float8>(max: f32) -> (Self, f32);

    /// The value.
    fn to_f32(self) -> f32;
}

/// max / [`Float8::MAX`], at least the least normal number, so that neither it nor the inverse loses bits.
impl Scale for f32 {
    #[inline(always)]
    fn of<Q: Float8>(max: f32) -> (Self, f32) {
        let max = math::max_nan(max, Q::MAX * f32::MIN_POSITIVE);
        (max / Q::MAX, Q::MAX / max)
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
}

/// 2^(⌊log₂ max⌋ − ⌊log₂ [`Float8::MAX`]⌋), at least 2⁻¹²⁷; NaN where max is not finite.
impl Scale for f8e8m0 {
    #[inline(always)]
    fn of<Q: Float8>(max: f32) -> (Self, f32) {
        let exponent = |x: f32| x.to_bits() >> 23;
        if exponent(max) == 255 {
            return (Self::NAN, f32::NAN);
        }
        let code = exponent(max).saturating_sub(exponent(Q::MAX) - 127);
        (Self::from_bits(code as u8), f32::from_bits((254 - code) << 23))
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        Self::to_f32(self)
    }
}

/// [`Float8::from_f32`] of a pack, by the hardware's instruction where there is one.
#[inline(always)]
pub(crate) fn narrow<Q: Float8, const N: usize>(values: [f32; N]) -> Pack<Q, N> {
    Pack(if arch::number() < 89 { values.map(Q::from_f32) } else { fp8::array_from_f32(values) })
}

/// [`Float8::to_f32`] of a pack, likewise.
#[inline(always)]
pub(crate) fn widen<Q: Float8, const N: usize>(pack: Pack<Q, N>) -> [f32; N] {
    if arch::number() < 89 { pack.0.map(Q::to_f32) } else { fp8::array_to_f32(pack.0) }
}

/// The row, or row of groups, that the y and z indices of the grid select.
#[inline(always)]
pub(crate) fn row_of_grid() -> u64 {
    u64::from(thread::block_idx_z()) * u64::from(thread::grid_dim_y()) + u64::from(thread::block_idx_y())
}

/// The pack that starts at element `at` of a row of `d`, with zeros beyond its end; `packed` where it may be read at once.
#[inline(always)]
pub(crate) unsafe fn load<T: Element, const N: usize>(row: *const T, at: u64, d: u64, packed: bool) -> Pack<T, N> {
    if packed && at + N as u64 <= d {
        return Pack::load_nc(row.add(at as usize));
    }
    elements(row, at, d)
}

/// The same from a row that all rows share: it is evicted from the cache last.
#[inline(always)]
pub(crate) unsafe fn load_kept<T: Element, const N: usize>(row: *const T, at: u64, d: u64, packed: bool) -> Pack<T, N> {
    if packed && at + N as u64 <= d {
        return Pack::load_nc_evict_last(row.add(at as usize));
    }
    elements(row, at, d)
}

#[inline(always)]
unsafe fn elements<T: Element, const N: usize>(row: *const T, at: u64, d: u64) -> Pack<T, N> {
    Pack(array::from_fn(|e| if at + (e as u64) < d { *row.add(at as usize + e) } else { T::from_f32(0.0) }))
}

/// [`load`] from several rows, each given by its start and its length; without branches between them where all is `whole`.
#[inline(always)]
pub(crate) unsafe fn load_column<T: Element, const N: usize, const ROWS: usize>(
    row: impl Fn(usize) -> (*const T, u64),
    at: u64,
    packed: bool,
    whole: bool,
) -> [Pack<T, N>; ROWS] {
    if whole {
        array::from_fn(|i| Pack::load_nc(row(i).0.add(at as usize)))
    } else {
        array::from_fn(|i| load(row(i).0, at, row(i).1, packed))
    }
}

/// Whether every row may be moved by packs of `N`.
#[inline(always)]
pub(crate) fn is_packed<T, const N: usize>(start: *const T, stride: u64, rows: u64) -> bool {
    (start as usize).is_multiple_of(size_of::<T>() * N) && (rows == 1 || stride.is_multiple_of(N as u64))
}

/// Writes a pack to where element `at` of a row of `d` is, likewise.
#[inline(always)]
pub(crate) unsafe fn store<U: Copy, const N: usize>(pack: Pack<U, N>, row: *mut U, at: u64, d: u64, packed: bool) {
    if packed && at + N as u64 <= d {
        return pack.store_global(row.add(at as usize));
    }
    for e in 0..N {
        if at + (e as u64) < d {
            *row.add(at as usize + e) = pack.0[e];
        }
    }
}

/// Values of a lane as 8-bit floats, and the scale of their group.
pub(crate) struct Narrowed<Q, S, const N: usize> {
    pub(crate) values: Pack<Q, N>,
    pub(crate) scale: S,
}

impl<Q: Float8, S: Scale, const N: usize> Narrowed<Q, S, N> {
    /// Of a group that is the `WIDTH` values of neighbouring lanes, of those that are `inside` the row. Warp-wide.
    #[inline(always)]
    pub(crate) unsafe fn of_lanes<const WIDTH: usize>(values: [f32; N], inside: bool) -> Self {
        let (scale, inverse) = S::of::<Q>(greatest_of_lanes::<N, WIDTH>(values, inside));
        Self { values: narrow(values.map(|x| x * inverse)), scale }
    }
}

/// The greatest magnitude of the `WIDTH` values of neighbouring lanes, of those that are `inside` the row. Warp-wide.
#[inline(always)]
pub(crate) unsafe fn greatest_of_lanes<const N: usize, const WIDTH: usize>(values: [f32; N], inside: bool) -> f32 {
    let mut max = if inside { values.into_iter().fold(0.0, math::max_magnitude) } else { 0.0 };
    let mut lanes = WIDTH / N / 2;
    while lanes > 0 {
        max = math::max_nan(max, warp::shuffle_xor(max, lanes as u32));
        lanes /= 2;
    }
    max
}

/// Quantizes f of `rows` rows of `d` elements by groups of `WIDTH` neighbours; f of zeros is 0. The scales of a row follow those of the row before.
#[inline(always)]
pub(crate) unsafe fn quantize_rows<T: Element, Q: Float8, S: Scale, const K: usize, const WIDTH: usize>(
    inputs: [In<T>; K],
    q: Out<Q>,
    scales: *mut S,
    rows: u64,
    d: u64,
    f: impl Fn([f32; K]) -> f32,
) {
    match lanes::<T>() {
        4 => quantize_rows_by::<T, Q, S, K, WIDTH, 4>(inputs, q, scales, rows, d, f),
        _ => quantize_rows_by::<T, Q, S, K, WIDTH, 8>(inputs, q, scales, rows, d, f),
    }
}

#[inline(always)]
unsafe fn quantize_rows_by<T: Element, Q: Float8, S: Scale, const K: usize, const WIDTH: usize, const N: usize>(
    inputs: [In<T>; K],
    (q, q_stride): Out<Q>,
    scales: *mut S,
    rows: u64,
    d: u64,
    f: impl Fn([f32; K]) -> f32,
) {
    let row = row_of_grid();
    if row >= rows {
        return;
    }
    let inputs = inputs.map(|(x, stride)| x.add((row * stride) as usize));
    let q = q.add((row * q_stride) as usize);
    let scales = scales.add((row * d.div_ceil(WIDTH as u64)) as usize);
    let packed = inputs.iter().all(|x| (*x as usize).is_multiple_of(16)) && (q as usize).is_multiple_of(N);
    let start = u64::from(thread::block_idx_x()) * read_by_block(size_of::<T>()) as u64;
    let tid = thread::thread_idx_x() as usize;
    let at = |i: usize| start + ((tid + i * BLOCK as usize) * N) as u64;
    let whole = packed && start + read_by_block(size_of::<T>()) as u64 <= d;
    let loaded: [[Pack<T, N>; K]; READ] = if whole {
        array::from_fn(|i| inputs.map(|x| Pack::load_nc(x.add(at(i) as usize))))
    } else {
        array::from_fn(|i| inputs.map(|x| load(x, at(i), d, packed)))
    };
    for i in 0..READ {
        let values = loaded[i].map(Pack::to_f32);
        let block =
            Narrowed::<Q, S, N>::of_lanes::<WIDTH>(array::from_fn(|e| f(array::from_fn(|k| values[k][e]))), true);
        if at(i).is_multiple_of(WIDTH as u64) && at(i) < d {
            *scales.add((at(i) / WIDTH as u64) as usize) = block.scale;
        }
        if whole {
            block.values.store_global(q.add(at(i) as usize));
        } else {
            store(block.values, q, at(i), d, packed);
        }
    }
}

/// Widens `rows` rows of `d` elements of a byte, with a scale for each group of 2^`row_shift` × 2^`column_shift`: of one column, or of a multiple
/// of [`PACK`]. A shift of 63 is one group for all. The scales of a row of groups follow those of the row before. Where each column has its own,
/// groups are of [`WIDENED_ROWS`] rows or a multiple, and y and z of the grid name as many.
#[inline(always)]
pub(crate) unsafe fn dequantize<T: Element, U: Copy, S: Scale>(
    (q, q_stride): In<U>,
    scales: *const S,
    (y, y_stride): Out<T>,
    rows: u64,
    d: u64,
    [row_shift, column_shift]: [u32; 2],
    value: impl Fn([U; PACK]) -> [f32; PACK],
) {
    if column_shift == 0 {
        return dequantize_columns((q, q_stride), scales, (y, y_stride), rows, d, row_shift, value);
    }
    let row = row_of_grid();
    if row >= rows {
        return;
    }
    let (q, y) = (q.add((row * q_stride) as usize), y.add((row * y_stride) as usize));
    let blocks = (d + (1 << column_shift) - 1) >> column_shift;
    let scales = scales.add(((row >> row_shift) * blocks) as usize);
    let packed = (q as usize).is_multiple_of(PACK) && (y as usize).is_multiple_of(16);
    let start = u64::from(thread::block_idx_x()) * WIDENED_BY_BLOCK as u64;
    let tid = thread::thread_idx_x() as usize;
    let at = |i: usize| start + ((tid + i * BLOCK as usize) * PACK) as u64;
    let scale = |at: u64| (*scales.add((at.min(d - 1) >> column_shift) as usize)).to_f32();
    let scaled = |pack: Pack<U, PACK>, scale: f32| Pack::from_f32(value(pack.0).map(|value| value * scale));
    if packed && start + WIDENED_BY_BLOCK as u64 <= d {
        let loaded: [_; WIDENED] = array::from_fn(|i| Pack::load_nc(q.add(at(i) as usize)));
        let scales: [_; WIDENED] = array::from_fn(|i| scale(at(i)));
        for i in 0..WIDENED {
            scaled(loaded[i], scales[i]).store_global(y.add(at(i) as usize));
        }
        return;
    }
    for i in 0..WIDENED {
        if packed && at(i) + PACK as u64 <= d {
            let pack = Pack::load_nc(q.add(at(i) as usize));
            scaled(pack, scale(at(i))).store_global(y.add(at(i) as usize));
        } else {
            // Past the end, the row's first element is read instead.
            let inside = |e: usize| at(i) + (e as u64) < d;
            let pack = Pack(array::from_fn(|e| if inside(e) { *q.add(at(i) as usize + e) } else { q.read() }));
            store(scaled(pack, scale(at(i))), y, at(i), d, false);
        }
    }
}

/// The same where each column has a scale: a thread's packs lie below each other, so that it widens their scales once.
#[inline(always)]
unsafe fn dequantize_columns<T: Element, U: Copy, S: Scale>(
    (q, q_stride): In<U>,
    scales: *const S,
    (y, y_stride): Out<T>,
    rows: u64,
    d: u64,
    row_shift: u32,
    value: impl Fn([U; PACK]) -> [f32; PACK],
) {
    let first = row_of_grid() * WIDENED_ROWS as u64;
    let at = (u64::from(thread::block_idx_x()) * u64::from(BLOCK) + u64::from(thread::thread_idx_x())) * PACK as u64;
    if first >= rows || at >= d {
        return;
    }
    let count = (rows - first).min(WIDENED_ROWS as u64) as usize;
    let (q, y) = (q.add((first * q_stride) as usize), y.add((first * y_stride) as usize));
    let from = |i: usize| q.add((i as u64 * q_stride + at) as usize);
    let row = |i: usize| y.add((i as u64 * y_stride) as usize);
    let whole = at + PACK as u64 <= d;
    let packed = whole
        && (q as usize | q_stride as usize).is_multiple_of(PACK)
        && (y as usize | (y_stride as usize * size_of::<T>())).is_multiple_of(16);
    let scales = scales.add(((first >> row_shift) * d + at) as usize);
    let scale: [f32; PACK] = if whole && (scales as usize).is_multiple_of((PACK * size_of::<S>()).min(16)) {
        Pack::<S, PACK>::load_nc(scales).0.map(S::to_f32)
    } else {
        array::from_fn(|e| (*scales.add((e as u64).min(d - 1 - at) as usize)).to_f32())
    };
    let scaled = |pack: Pack<U, PACK>| -> Pack<T, PACK> {
        let values = value(pack.0);
        Pack::from_f32(array::from_fn(|e| values[e] * scale[e]))
    };
    if packed && count == WIDENED_ROWS {
        let loaded: [_; WIDENED_ROWS] = array::from_fn(|i| Pack::load_nc(from(i)));
        for i in 0..WIDENED_ROWS {
            scaled(loaded[i]).store_global(row(i).add(at as usize));
        }
        return;
    }
    for i in 0..count {
        // Past the end, the pack's first element is read instead.
        let one = |e: usize| if at + (e as u64) < d { *from(i).add(e) } else { from(i).read() };
        let pack = if packed { Pack::load_nc(from(i)) } else { Pack(array::from_fn(one)) };
        store(scaled(pack), row(i), at, d, packed);
    }
}
