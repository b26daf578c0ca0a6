//! Two 16-bit floats in one register, and arithmetic on both at once: CUDA's `half2` and `__nv_bfloat162`.
//!
//! Twice the rate of `f32` and half the registers, for values that may be rounded to 16 bits after every operation. Sums of many of
//! them belong in `f32`.
//!
//! ```ignore
//! // y = a x + y where x is positive, two elements a thread.
//! let (x, y) = (x.cast::<Pair<f16>>().add(i), y.cast::<Pair<f16>>().add(i));
//! let zero = Pair::splat(f16::ZERO);
//! *y = (*x).gt(zero).select(Pair::splat(a).fma(*x, *y), *y);
//! ```
//!
//! | CUDA C++ | here |
//! |---|---|
//! | `__hadd2`, `__hsub2`, `__hmul2`, `__hneg2` | the operators `+`, `-`, `*`, `-` |
//! | `__hfma2`, `__hfma2_relu` | [`Pair::fma`], [`Pair::fma_relu`] |
//! | `__hmax2`, `__hmin2`, `__hmax2_nan`, `__hmin2_nan`, `__habs2` | [`Pair::max`], [`min`](Pair::min), [`max_nan`](Pair::max_nan), [`min_nan`](Pair::min_nan), [`abs`](Pair::abs) |
//! | `__heq2_mask`, `__hneu2_mask`, `__hlt2_mask`, `__hle2_mask`, `__hgt2_mask`, `__hge2_mask`, `__hisnan2` | [`Pair::eq`], [`ne`](Pair::ne), [`lt`](Pair::lt), [`le`](Pair::le), [`gt`](Pair::gt), [`ge`](Pair::ge), [`is_nan`](Pair::is_nan) |
//! | `__hbeq2`, `__hblt2`, … | [`Mask::all`] of a comparison |
//! | `__half2half2`, `__lowhigh2highlow`, `__floats2half2_rn`, `__half22float2` | [`Pair::splat`], [`swap`](Pair::swap), [`from_f32`](Pair::from_f32), [`to_f32`](Pair::to_f32) |

use core::{
    marker::PhantomData,
    ops::{Add, Mul, Neg, Sub},
};

use crate::float::Half;

/// Two values of `T`, the first in the lower half: in memory two neighbours, aligned to 4 bytes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Pair<T>(u32, PhantomData<T>);

/// The instruction for the one type or the other; `T` is known when this is compiled, and nothing is left of the other.
macro_rules! packed {
    ($f16:literal, $bf16:literal, $($operand:expr),*) => {{
        let result: u32;
        // SAFETY: arithmetic.
        unsafe {
            if T::IS_BF16 {
                ptx!($bf16, out(reg32) result, $(in(reg32) $operand,)* options(pure, nomem, nostack));
            } else {
                ptx!($f16, out(reg32) result, $(in(reg32) $operand,)* options(pure, nomem, nostack));
            }
        }
        Self(result, PhantomData)
    }};
}

/// A comparison of both values: of f16 by an instruction, of bf16, for which that is of sm_90, by two in `f32`.
macro_rules! compared {
    ($a:ident, $b:ident, $holds:tt, $f16:literal) => {{
        if T::IS_BF16 || cfg!(not(target_arch = "nvptx64")) {
            let ([a, c], [b, d]) = ($a.to_f32(), $b.to_f32());
            return Mask::new([a $holds b, c $holds d]);
        }
        let result: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!($f16, out(reg32) result, in(reg32) $a.0, in(reg32) $b.0, options(pure, nomem, nostack));
        }
        Mask(result)
    }};
}

impl<T: Half> Pair<T> {
    /// Two values.
    #[inline(always)]
    pub fn new([low, high]: [T; 2]) -> Self {
        // SAFETY: a 16-bit float is its bits.
        let bits = |value: T| u32::from(unsafe { core::mem::transmute_copy::<T, u16>(&value) });
        Self(bits(low) | bits(high) << 16, PhantomData)
    }

    /// The same value twice.
    #[inline(always)]
    pub fn splat(value: T) -> Self {
        Self::new([value; 2])
    }

    /// The two values.
    #[inline(always)]
    pub fn values(self) -> [T; 2] {
        // SAFETY: a 16-bit float is its bits, whatever these are.
        [self.0 as u16, (self.0 >> 16) as u16].map(|bits| unsafe { core::mem::transmute_copy::<u16, T>(&bits) })
    }

    /// The nearest values, ties to even. One instruction: see [`Half::pack`].
    #[inline(always)]
    pub fn from_f32([low, high]: [f32; 2]) -> Self {
        Self(T::pack(low, high), PhantomData)
    }

    /// The values, exactly: what to compare, or to add up many of.
    #[inline(always)]
    pub fn to_f32(self) -> [f32; 2] {
        T::unpack(self.0)
    }

    /// The register, as [`Half`] and tensor cores take it.
    #[inline(always)]
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// What a register holds.
    #[inline(always)]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits, PhantomData)
    }

    /// self · b + c, rounded once. PTX `fma.rn.f16x2`, `fma.rn.bf16x2`, sm_80.
    #[inline(always)]
    pub fn fma(self, b: Self, c: Self) -> Self {
        Self(T::fma_of_registers(self.0, b.0, c.0), PhantomData)
    }

    /// The greater values; of NaN and a number the number. PTX `max.f16x2`, `max.bf16x2`, sm_80.
    #[inline(always)]
    pub fn max(self, b: Self) -> Self {
        Self(T::max_of_registers(self.0, b.0), PhantomData)
    }

    /// The smaller values; of NaN and a number the number. PTX `min.f16x2`, `min.bf16x2`, sm_80.
    #[inline(always)]
    pub fn min(self, b: Self) -> Self {
        packed!("min.f16x2 {}, {}, {};", "min.bf16x2 {}, {}, {};", self.0, b.0)
    }

    /// The greater values; NaN if either is. PTX `max.NaN.f16x2`, `max.NaN.bf16x2`, sm_80.
    #[inline(always)]
    pub fn max_nan(self, b: Self) -> Self {
        Self(T::max_nan_of_registers(self.0, b.0), PhantomData)
    }

    /// The smaller values; NaN if either is. PTX `min.NaN.f16x2`, `min.NaN.bf16x2`, sm_80.
    #[inline(always)]
    pub fn min_nan(self, b: Self) -> Self {
        Self(T::min_nan_of_registers(self.0, b.0), PhantomData)
    }

    /// The magnitudes.
    #[inline(always)]
    #[must_use]
    pub fn abs(self) -> Self {
        Self(self.0 & 0x7fff_7fff, PhantomData)
    }

    /// self · b + c, rounded once, and 0 where that is negative; NaN stays NaN. PTX `fma.rn.relu.f16x2`, `fma.rn.relu.bf16x2`, sm_80.
    #[inline(always)]
    pub fn fma_relu(self, b: Self, c: Self) -> Self {
        packed!("fma.rn.relu.f16x2 {}, {}, {}, {};", "fma.rn.relu.bf16x2 {}, {}, {}, {};", self.0, b.0, c.0)
    }

    /// The second value first.
    #[inline(always)]
    #[must_use]
    pub fn swap(self) -> Self {
        Self(self.0.rotate_left(16), PhantomData)
    }

    /// Where the values are equal; NaN equals nothing. PTX `set.eq.u32.f16x2`; comparisons in `f32` for bf16, as all that follow.
    #[inline(always)]
    pub fn eq(self, b: Self) -> Mask {
        compared!(self, b, ==, "set.eq.u32.f16x2 {}, {}, {};")
    }

    /// Where the values differ, or either is NaN. PTX `set.neu.u32.f16x2`.
    #[inline(always)]
    pub fn ne(self, b: Self) -> Mask {
        compared!(self, b, !=, "set.neu.u32.f16x2 {}, {}, {};")
    }

    /// Where `self` is less; not where either is NaN. PTX `set.lt.u32.f16x2`.
    #[inline(always)]
    pub fn lt(self, b: Self) -> Mask {
        compared!(self, b, <, "set.lt.u32.f16x2 {}, {}, {};")
    }

    /// Where `self` is less or equal; not where either is NaN. PTX `set.le.u32.f16x2`.
    #[inline(always)]
    pub fn le(self, b: Self) -> Mask {
        compared!(self, b, <=, "set.le.u32.f16x2 {}, {}, {};")
    }

    /// Where `self` is greater; not where either is NaN. PTX `set.gt.u32.f16x2`.
    #[inline(always)]
    pub fn gt(self, b: Self) -> Mask {
        compared!(self, b, >, "set.gt.u32.f16x2 {}, {}, {};")
    }

    /// Where `self` is greater or equal; not where either is NaN. PTX `set.ge.u32.f16x2`.
    #[inline(always)]
    pub fn ge(self, b: Self) -> Mask {
        compared!(self, b, >=, "set.ge.u32.f16x2 {}, {}, {};")
    }

    /// Where the values are NaN.
    #[inline(always)]
    pub fn is_nan(self) -> Mask {
        self.ne(self)
    }
}

/// Where something holds of a [`Pair`]: of the first value, of the second, of both or of neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(u32);

impl Mask {
    /// Whether it holds of the first value, and of the second.
    #[inline(always)]
    pub fn new([low, high]: [bool; 2]) -> Self {
        Self((if low { 0xffff } else { 0 }) | (if high { 0xffff_0000 } else { 0 }))
    }

    /// Whether it holds of the first value, and of the second.
    #[inline(always)]
    pub fn values(self) -> [bool; 2] {
        [self.0 & 1 != 0, self.0 >> 31 != 0]
    }

    /// Whether it holds of both.
    #[inline(always)]
    pub fn all(self) -> bool {
        self.0 == u32::MAX
    }

    /// Whether it holds of either.
    #[inline(always)]
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// The values of `a` where it holds, and of `b` elsewhere. PTX `lop3`.
    #[inline(always)]
    pub fn select<T: Half>(self, a: Pair<T>, b: Pair<T>) -> Pair<T> {
        Pair(a.0 & self.0 | b.0 & !self.0, PhantomData)
    }

    /// The register: all ones in a half where it holds, zeros elsewhere.
    #[inline(always)]
    pub fn to_bits(self) -> u32 {
        self.0
    }
}

/// Rounded to nearest. PTX `add.rn.f16x2`; `fma.rn.bf16x2` with 1, which older GPUs than sm_90 have in place of a sum.
impl<T: Half> Add for Pair<T> {
    type Output = Self;

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        packed!(
            "add.rn.f16x2 {}, {}, {};",
            "{{ .reg .b32 one; mov.b32 one, 0x3f803f80; fma.rn.bf16x2 {}, {}, one, {}; }}",
            self.0,
            b.0
        )
    }
}

/// Rounded to nearest. PTX `sub.rn.f16x2`; `fma.rn.bf16x2` with -1.
impl<T: Half> Sub for Pair<T> {
    type Output = Self;

    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        packed!(
            "sub.rn.f16x2 {}, {}, {};",
            "{{ .reg .b32 minus; mov.b32 minus, 0xbf80bf80; fma.rn.bf16x2 {0}, {2}, minus, {1}; }}",
            self.0,
            b.0
        )
    }
}

/// Rounded to nearest. PTX `mul.rn.f16x2`; `fma.rn.bf16x2` with -0.
impl<T: Half> Mul for Pair<T> {
    type Output = Self;

    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        packed!(
            "mul.rn.f16x2 {}, {}, {};",
            "{{ .reg .b32 zero; mov.b32 zero, 0x80008000; fma.rn.bf16x2 {}, {}, {}, zero; }}",
            self.0,
            b.0
        )
    }
}

/// Both signs turned, also of zeros and NaN.
impl<T: Half> Neg for Pair<T> {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0 ^ 0x8000_8000, PhantomData)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn pairs_keep_their_order_and_signs() {
        fn check<T: Half + PartialEq + core::fmt::Debug>() {
            let pair = Pair::<T>::from_f32([1.5, -0.25]);
            assert_eq!(pair.to_f32(), [1.5, -0.25]);
            assert_eq!(pair.values(), [1.5, -0.25].map(T::from_f32));
            assert_eq!(Pair::<T>::new(pair.values()).to_bits(), pair.to_bits());
            assert_eq!(pair.abs().to_f32(), [1.5, 0.25]);
            assert_eq!((-pair).to_f32(), [-1.5, 0.25]);
            assert_eq!(Pair::<T>::from_bits(pair.to_bits()).to_f32(), pair.to_f32());
            assert_eq!(Pair::splat(pair.values()[1]).to_f32(), [-0.25; 2]);
            assert_eq!(pair.swap().to_f32(), [-0.25, 1.5]);
        }
        check::<f16>();
        check::<bf16>();
        assert_eq!((size_of::<Pair<f16>>(), align_of::<Pair<bf16>>()), (4, 4));
    }

    #[test]
    fn comparisons_tell_both_values_apart() {
        fn check<T: Half>() {
            let (a, b) = (Pair::<T>::from_f32([1.0, f32::NAN]), Pair::from_f32([2.0, 0.0]));
            let held = [a.eq(b), a.ne(b), a.lt(b), a.le(b), a.gt(b), a.ge(b), a.is_nan(), b.ge(b)];
            let expected =
                [[false; 2], [true; 2], [true, false], [true, false], [false; 2], [false; 2], [false, true], [true; 2]];
            assert_eq!(held.map(Mask::values), expected);
            assert_eq!(held.map(|mask| (mask.all(), mask.any())), expected.map(|[x, y]| (x && y, x || y)));
            assert_eq!(a.lt(b).select(a, b).to_f32(), [1.0, 0.0]);
            assert_eq!(held[2].to_bits(), 0xffff);
        }
        check::<f16>();
        check::<bf16>();
    }
}
