//! The element types of a cache: floats of the queries' type, or 8 bits with a scale for every token and head.
//!
//! No element is ever multiplied by its scale: a key's scale is applied to its score, a value's scale to its weight.

use cuda_std::float::Half;
use cuda_std::math::permute_bytes;

use cuda_std::shared::SharedPtr;
use cuda_std::{bf16, f8e4m3, f16, thread};

use crate::ops::attention::fragments;

/// An element of a cache.
pub trait Stored: Copy + 'static {
    /// Whether there are scales.
    const SCALED: bool;

    /// The value, without a scale.
    fn widen(self) -> f32;
}

/// Conversion of a tile of such elements to tensor-core operands, for queries of type `T`; float elements must have
/// type `T`. A tile is rows of `CH` 16-byte chunks, addressed in elements of `T`.
pub trait Operand: Stored {
    /// The type in which weights and values are multiplied. A value's scale is part of its weight, and f16 would lose
    /// weights below 6·10⁻⁵.
    type Weight: Half;
    /// Constants that [`keys`](Operand::keys) and [`values`](Operand::values) would otherwise compute anew each time.
    type Constants: Copy;

    /// These, for queries of type `T`.
    fn constants<T: Half>() -> Self::Constants;

    /// Of 16 keys, columns 32 · `pair` and on of d as operand A of two steps.
    ///
    /// Where there are scales, position 2i of a step is column 4i, position 2i + 1 column 4i + 2, and those 8 further the columns after these:
    /// see `interleave`.
    unsafe fn keys<T: Half, const CH: usize>(
        tile: SharedPtr<T>,
        pair: u32,
        lane: u32,
        constants: Self::Constants,
    ) -> [[u32; 4]; 2];

    /// Of 16 values, columns 32 · `pair` and on of d as rows of two operands A, 16 each; where there are scales, the even ones and then the odd
    /// ones of each 16.
    unsafe fn values<T: Half, const CH: usize>(
        tile: SharedPtr<T>,
        pair: u32,
        lane: u32,
        constants: Self::Constants,
    ) -> [[u32; 4]; 2];
}

macro_rules! float {
    ($t:ident) => {
        impl Stored for $t {
            const SCALED: bool = false;

            #[inline(always)]
            fn widen(self) -> f32 {
                cuda_std::float::to_f32(self)
            }
        }
    };
    ($($t:ident),+) => {$(
        float!($t);

        impl Operand for $t {
            type Weight = $t;
            type Constants = ();

            #[inline(always)]
            fn constants<T: Half>() {}

            #[inline(always)]
            unsafe fn keys<T: Half, const CH: usize>(tile: SharedPtr<T>, pair: u32, lane: u32, (): ()) -> [[u32; 4]; 2] {
                [0, 1].map(|step| fragments::a::<T, CH>(tile, 0, 2 * pair + step, lane))
            }

            #[inline(always)]
            unsafe fn values<T: Half, const CH: usize>(tile: SharedPtr<T>, pair: u32, lane: u32, (): ()) -> [[u32; 4]; 2] {
                [0, 1].map(|group| {
                    let [[a0, a2], [a1, a3]] = fragments::b_transposed::<T, CH>(tile, 0, 2 * pair + group, lane);
                    [a0, a1, a2, a3]
                })
            }
        }
    )+};
}
float!(f32);
float!(f16, bf16);

macro_rules! byte {
    ($t:ident, $widen:expr, $constants:ident, $all:expr) => {
        impl Stored for $t {
            const SCALED: bool = true;

            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
        }

        impl Operand for $t {
            type Weight = bf16;
            type Constants = [$constants; 2];

            #[inline(always)]
            fn constants<T: Half>() -> Self::Constants {
                $all
            }

            #[inline(always)]
            unsafe fn keys<T: Half, const CH: usize>(
                tile: SharedPtr<T>,
                pair: u32,
                lane: u32,
                constants: Self::Constants,
            ) -> [[u32; 4]; 2] {
                let [of_keys, _] = constants;
                // A chunk is a step: four neighbours of d a register.
                let [a, b, c, d] = fragments::a::<T, CH>(tile, 0, pair, lane);
                [[a, b], [c, d]].map(|[first, last]| {
                    let ([a0, a2], [a1, a3]) = (of_keys.pairs::<T>(first), of_keys.pairs::<T>(last));
                    [a0, a1, a2, a3]
                })
            }

            #[inline(always)]
            unsafe fn values<T: Half, const CH: usize>(
                tile: SharedPtr<T>,
                pair: u32,
                lane: u32,
                constants: Self::Constants,
            ) -> [[u32; 4]; 2] {
                let [_, of_values] = constants;
                // A register has two columns of one value, and below them the same of the next.
                fragments::b_transposed::<T, CH>(tile, 0, pair, lane).map(|[first, last]| {
                    let ([a0, a1], [a2, a3]) = (of_values.pairs::<bf16>(first), of_values.pairs::<bf16>(last));
                    [a0, a1, a2, a3]
                })
            }
        }
    };
}
byte!(i8, f32::from, Integers, [Integers::of::<T>(), Integers::of::<bf16>()]);
byte!(f8e4m3, f8e4m3::to_f32, Floats, [Floats; 2]);

/// Widens 8-bit integers.
#[derive(Clone, Copy)]
pub struct Integers {
    anchors: [u32; 2],
}

impl Integers {
    /// For pairs of `T`.
    #[inline(always)]
    fn of<T: Half>() -> Self {
        let anchor = if T::IS_BF16 { 0x4300_4300 } else { 0x6400_6400 };
        // An instruction has room for one immediate, and the anchors would be its second constant: they stay in
        // registers only if ptxas takes them for variables. Grids are one-dimensional.
        let zero = thread::grid_dim_z() - 1;
        Self { anchors: [anchor + zero, (anchor | 0x8000_8000) + zero] }
    }

    /// Four integers as pairs of `T`, exactly: the first and the third, the second and the last.
    ///
    /// With l the lower 7 bits and s the sign, the integer is l − 128·s. As the last bits of a mantissa they are 128 + l (or 1024 + l) and
    /// 128 + 128·s (1024 + 128·s): one mask each, and one difference.
    #[inline(always)]
    fn pairs<T: Half>(self, word: u32) -> [u32; 2] {
        let [positive, negative] = self.anchors;
        let one = if T::IS_BF16 { 0x3f80_3f80 } else { 0x3c00_3c00 };
        [word, word >> 8].map(|pair| {
            let (low, sign) = (pair & 0x007f_007f | positive, pair & 0x0080_0080 | negative);
            T::fma_of_registers(low, one, sign)
        })
    }
}

/// Widens E4M3.
#[derive(Clone, Copy)]
pub struct Floats;

impl Floats {
    /// Four of them as pairs of `T`, exactly: the first and the third, the second and the last.
    ///
    /// With exponent and mantissa at the positions of `T`'s, the bits are a number whose exponent is too small by the
    /// difference of the biases; this holds for subnormals too.
    #[inline(always)]
    fn pairs<T: Half>(self, word: u32) -> [u32; 2] {
        let (down, mask, factor) =
            if T::IS_BF16 { (4, 0x07f0_07f0, 0x7b80_7b80) } else { (1, 0x3f80_3f80, 0x5c00_5c00) };
        // 0x7f, which would be 480, is NaN. It is the only code that carries into the sign bit, which fills the added
        // mask.
        let carry = (word & 0x7f7f_7f7f).wrapping_add(0x0101_0101);
        [(word << 8, 0xaa88), (word, 0xbb99)].map(|(pair, signs)| {
            let number = pair >> down & mask | pair & 0x8000_8000;
            T::fma_of_registers(number, factor, permute_bytes(carry, 0, signs))
        })
    }
}

/// 16 columns of a query in the order of [`keys`](Operand::keys) with scales: their even pairs, then the odd ones, each taken apart.
#[inline(always)]
pub(super) fn interleave(words: [[u32; 4]; 2]) -> [[u32; 4]; 2] {
    let [[a, b, c, d], [e, f, g, h]] = words;
    let pairs = [[a, b], [c, d], [e, f], [g, h]];
    [0x5410, 0x7632].map(|which| pairs.map(|[low, high]| permute_bytes(low, high, which)))
}
