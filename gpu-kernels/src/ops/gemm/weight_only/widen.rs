//! Conversion of integers of few bits to floats: from a lane's loads of a weight to the pairs that a fragment takes.

use core::array;

use cuda_std::float::Half;
use cuda_std::math::{logic3, permute_bytes};
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;

/// The storage format of a weight.
pub(crate) trait Weight {
    /// Of an element.
    const BITS: u32;
    /// [`LANE_DEPTH`](super::LANE_DEPTH) neighbours along k.
    type Lane: Copy;

    unsafe fn load(from: *const u8) -> Self::Lane;

    /// What [`widen`](Self::widen) takes off a row whose zero point is `zero`.
    fn offset<T: Half>(zero: u8) -> u32;

    /// The first or second eight of them, as pairs of floats.
    fn widen<T: Half>(lane: Self::Lane, second: usize, offset: u32) -> [u32; 4];

    /// Where each `unit` of 32 neighbours along k is in a row, in bytes.
    fn chunk(unit: u32) -> u32;

    /// Of a unit the words that have the pairs that lane `quarter` of four takes for two products of 16 of k: those for the first eight of k of one, for the second, and
    /// for those of the other.
    unsafe fn words(from: SharedPtr<u8>, quarter: u32) -> [u32; 4];

    /// The position of the lane's pairs in those words.
    fn selector<T: Half>(quarter: u32) -> u32;

    /// The pair as floats.
    fn pair<T: Half>(word: u32, selector: u32, offset: u32) -> u32;

    /// Of 16 bytes of a row the eight elements from 8 · `index` on, as pairs of floats in an order of their own.
    fn eight<T: Half>(pack: [u32; 4], index: usize, offset: u32) -> [u32; 4];

    /// Eight floats in that order.
    fn paired(floats: [u32; 4]) -> [u32; 4];
}

/// Two of a value of 16 bits.
const fn twice(bits: u16) -> u32 {
    (bits as u32) << 16 | bits as u32
}

/// One, and 2ⁿ with n the length of the mantissa, in `T`.
const fn one<T: Half>() -> u32 {
    twice(if T::IS_BF16 { 0x3f80 } else { 0x3c00 })
}

const fn base<T: Half>() -> u32 {
    twice(if T::IS_BF16 { 0x4300 } else { 0x6400 })
}

/// The zero point of 4-bit integers where none are given, and the bits of one.
pub(super) const ZERO: u8 = 8;
const ZERO_BITS: u8 = 15;

const SIGNS: u32 = twice(0x8000);

/// The lop3 table of a & b | c: with two constants the compiler does not form this one operation by itself.
const AND_OR: u32 = 0xf0 & 0xcc | 0xaa;

/// 8-bit integers.
pub(crate) struct Int8;

impl Weight for Int8 {
    const BITS: u32 = 8;
    type Lane = [u32; 4];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [u32; 4] {
        Pack::<u32, 4>::load(from.cast()).0
    }

    #[inline(always)]
    fn offset<T: Half>(_: u8) -> u32 {
        0
    }

    #[inline(always)]
    fn widen<T: Half>(lane: [u32; 4], second: usize, offset: u32) -> [u32; 4] {
        array::from_fn(|i| Self::pair::<T>(lane[2 * second + i / 2], Self::selector::<T>(i as u32), offset))
    }

    #[inline(always)]
    fn chunk(unit: u32) -> u32 {
        32 * unit
    }

    #[inline(always)]
    unsafe fn words(from: SharedPtr<u8>, quarter: u32) -> [u32; 4] {
        // The second chunk is the first one's neighbour, whichever way it is swizzled.
        let [first, second] = [0, 16].map(|chunk| SharedPtr::<u32>::from_addr((from.addr() ^ chunk) + quarter / 2 * 4));
        [first.read(), first.add(2).read(), second.read(), second.add(2).read()]
    }

    #[inline(always)]
    fn selector<T: Half>(quarter: u32) -> u32 {
        0x4140 + 0x0202 * (quarter % 2)
    }

    #[inline(always)]
    fn pair<T: Half>(word: u32, selector: u32, _: u32) -> u32 {
        if T::IS_BF16 {
            // The mantissa has seven bits. The eighth bit, which is worth −128, falls into the exponent, where it turns
            // 128 into 256.
            let pair = permute_bytes(word, base::<T>() >> 8, selector);
            T::fma_of_registers(pair & !twice(0x80), one::<T>(), logic3::<AND_OR>(pair, !twice(0x7f), SIGNS))
        } else {
            let pair = permute_bytes(word ^ 0x8080_8080, base::<T>() >> 8, selector);
            T::fma_of_registers(pair, one::<T>(), base::<T>() | twice(0x80) | SIGNS)
        }
    }

    #[inline(always)]
    fn eight<T: Half>(pack: [u32; 4], index: usize, _: u32) -> [u32; 4] {
        Self::widen::<T>(pack, index, 0)
    }

    #[inline(always)]
    fn paired(floats: [u32; 4]) -> [u32; 4] {
        floats
    }
}

/// Integers of 4 bits, two a byte, the one with the lower k in the lower half, each stored as a number from 0 to 15 that is more by its zero point.
pub(in super::super) struct Int4;

impl Weight for Int4 {
    const BITS: u32 = 4;
    type Lane = [u32; 2];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [u32; 2] {
        Pack::<u32, 2>::load(from.cast()).0
    }

    #[inline(always)]
    fn offset<T: Half>(zero: u8) -> u32 {
        let zero = u32::from(zero & ZERO_BITS);
        let low = base::<T>() & 0xffff | zero;
        // Of f16 the upper one's power is a sixteenth.
        let high = if T::IS_BF16 { low } else { 0x5400 | zero << 4 };
        high << 16 | low | SIGNS
    }

    #[inline(always)]
    fn widen<T: Half>(lane: [u32; 2], second: usize, offset: u32) -> [u32; 4] {
        array::from_fn(|i| Self::pair::<T>(lane[second], Self::selector::<T>(i as u32), offset))
    }

    #[inline(always)]
    fn chunk(unit: u32) -> u32 {
        16 * unit
    }

    #[inline(always)]
    unsafe fn words(from: SharedPtr<u8>, _: u32) -> [u32; 4] {
        Pack::<u32, 4>::load(from.as_ptr().cast()).0
    }

    #[inline(always)]
    fn selector<T: Half>(quarter: u32) -> u32 {
        if T::IS_BF16 { 0x4440 + quarter } else { 0x4040 + 0x0101 * quarter }
    }

    /// Shifts and permutations run at half the rate of multiplications, in other units.
    #[inline(always)]
    fn pair<T: Half>(word: u32, selector: u32, offset: u32) -> u32 {
        let byte = permute_bytes(word, 0, selector);
        if T::IS_BF16 {
            // The byte and, 12 bits further up, once more: its upper half where the upper integer is wanted.
            let both = byte.wrapping_mul(0x1001);
            T::fma_of_registers(logic3::<AND_OR>(both, twice(0xf), base::<T>()), one::<T>(), offset)
        } else {
            // The byte in both halves. The upper integer stays where it is in its byte, 16 times as much: a sixteenth is taken of it, with its power.
            T::fma_of_registers(logic3::<AND_OR>(byte, 0xf0_000f, base::<T>()), 0x2c00_3c00, offset)
        }
    }

    /// Pairs of elements that are four apart: of a word each mask finds one in both halves. f16's mantissa has room for a second mask, whose integers are 16 times as much.
    #[inline(always)]
    fn eight<T: Half>(pack: [u32; 4], index: usize, offset: u32) -> [u32; 4] {
        let word = pack[index];
        let masked = |word: u32, mask: u16| logic3::<AND_OR>(word, twice(mask), base::<T>());
        if T::IS_BF16 {
            return [0, 4, 8, 12].map(|shift| T::fma_of_registers(masked(word >> shift, 0xf), one::<T>(), offset));
        }
        let [low, high] = [0x1010, 0x3232].map(|half| permute_bytes(offset, offset, half));
        let [[a, b], [c, d]] = [word, word >> 8].map(|word| {
            let upper = T::fma_of_registers(masked(word, 0xf0), twice(0x2c00), high);
            [T::fma_of_registers(masked(word, 0xf), one::<T>(), low), upper]
        });
        [a, b, c, d]
    }

    #[inline(always)]
    fn paired(floats: [u32; 4]) -> [u32; 4] {
        let halves = |i: usize| [0x5410, 0x7632].map(|selector| permute_bytes(floats[i], floats[i + 2], selector));
        let ([a, b], [c, d]) = (halves(0), halves(1));
        [a, b, c, d]
    }
}
