//! Storage types of tensors, and their conversion to the `f32` that kernels compute in.
//!
//! Beware of `half`'s own methods: on the *concrete* types, `x.to_f32()` and `bf16::from_f32(x)` are not [`Element`]'s but
//! `half`'s, which convert by integer arithmetic, as its operators do: `x * y` is dozens of instructions. Generic kernels are not
//! affected; others call [`to_f32`] and [`from_f32`], and compute in `f32` or by [`Half::fma_of_registers`].

use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// A float a tensor can hold: `f32`, [`struct@f16`] or [`struct@bf16`].
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Which float this is, in the order of `#[kernel]`'s set `float`.
    #[doc(hidden)]
    const INDEX: usize;

    /// The value, exactly.
    fn to_f32(self) -> f32;

    /// The nearest value of this type, ties to even; overflow gives infinity.
    fn from_f32(value: f32) -> Self;

    /// The greater of the values, each beside its counterpart, that two registers hold: one f32 or two values of 16 bits. Of NaN and a
    /// number it is the number. PTX `max.f32`, `max.f16x2`, `max.bf16x2`, sm_80.
    fn max_of_registers(a: u32, b: u32) -> u32;

    /// The greater values; NaN if either is. PTX `max.NaN.f32`, `max.NaN.f16x2`, `max.NaN.bf16x2`, sm_80.
    fn max_nan_of_registers(a: u32, b: u32) -> u32;

    /// The smaller values; NaN if either is. PTX `min.NaN.f32`, `min.NaN.f16x2`, `min.NaN.bf16x2`, sm_80.
    fn min_nan_of_registers(a: u32, b: u32) -> u32;

    /// The greater of `max` and the magnitudes of x; NaN if either is. PTX `abs` and `max.NaN` of `f32`, `f16x2`, `bf16x2`, sm_80: one
    /// instruction of the hardware.
    fn max_magnitude_of_registers(max: u32, x: u32) -> u32;

    /// [`to_f32`](Self::to_f32) of an array.
    #[inline(always)]
    fn array_to_f32<const N: usize>(values: [Self; N]) -> [f32; N] {
        values.map(Self::to_f32)
    }

    /// [`from_f32`](Self::from_f32) of an array.
    #[inline(always)]
    fn array_from_f32<const N: usize>(values: [f32; N]) -> [Self; N] {
        values.map(Self::from_f32)
    }
}

/// [`Element::to_f32`], of concrete types as well.
#[inline(always)]
pub fn to_f32<T: Element>(value: T) -> f32 {
    value.to_f32()
}

/// [`Element::from_f32`], of concrete types as well.
#[inline(always)]
pub fn from_f32<T: Element>(value: f32) -> T {
    T::from_f32(value)
}

/// A 16-bit float, two of which share a register: what tensor cores take.
pub trait Half: Element {
    /// Whether this is [`struct@bf16`], not [`struct@f16`].
    const IS_BF16: bool;

    /// Rounds two values into one register, `low` in the lower half. PTX `cvt.rn.f16x2.f32`, `cvt.rn.bf16x2.f32`, sm_80.
    fn pack(low: f32, high: f32) -> u32;

    /// The two values of a register, lower half first.
    fn unpack(pair: u32) -> [f32; 2];

    /// a · b + c of the values, each beside its counterparts, that three registers hold; rounded once. PTX `fma.rn.f16x2`,
    /// `fma.rn.bf16x2`, sm_80.
    fn fma_of_registers(a: u32, b: u32, c: u32) -> u32;
}

/// Those functions of [`Element`] that compare NaN as well.
macro_rules! comparisons {
    ($type:literal) => {
        #[inline(always)]
        fn max_nan_of_registers(a: u32, b: u32) -> u32 {
            let greater: u32;
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    concat!("max.NaN.", $type, " {}, {}, {};"),
                    out(reg32) greater, in(reg32) a, in(reg32) b,
                    options(pure, nomem, nostack),
                );
            }
            greater
        }

        #[inline(always)]
        fn min_nan_of_registers(a: u32, b: u32) -> u32 {
            let smaller: u32;
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    concat!("min.NaN.", $type, " {}, {}, {};"),
                    out(reg32) smaller, in(reg32) a, in(reg32) b,
                    options(pure, nomem, nostack),
                );
            }
            smaller
        }

        #[inline(always)]
        fn max_magnitude_of_registers(max: u32, x: u32) -> u32 {
            let greater: u32;
            // SAFETY: arithmetic.
            unsafe {
                ptx!(
                    concat!("{{ .reg .b32 magnitude; abs.", $type, " magnitude, {}; max.NaN.", $type, " {}, {}, magnitude; }}"),
                    in(reg32) x, out(reg32) greater, in(reg32) max,
                    options(pure, nomem, nostack),
                );
            }
            greater
        }
    };
}

impl Element for f32 {
    const INDEX: usize = 0;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn max_of_registers(a: u32, b: u32) -> u32 {
        f32::from_bits(a).max(f32::from_bits(b)).to_bits()
    }

    comparisons!("f32");

    #[inline(always)]
    fn array_to_f32<const N: usize>(values: [Self; N]) -> [f32; N] {
        values
    }

    #[inline(always)]
    fn array_from_f32<const N: usize>(values: [f32; N]) -> [Self; N] {
        values
    }
}

impl Element for f16 {
    const INDEX: usize = 1;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        if cfg!(not(target_arch = "nvptx64")) {
            return f16::to_f32(self);
        }
        let value: f32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!("cvt.f32.f16 {}, {};", out(reg32) value, in(reg16) self.to_bits(), options(pure, nomem, nostack));
        }
        value
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        if cfg!(not(target_arch = "nvptx64")) {
            return f16::from_f32(value);
        }
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            ptx!("cvt.rn.f16.f32 {}, {};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack));
        }
        Self::from_bits(bits)
    }

    #[inline(always)]
    fn max_of_registers(a: u32, b: u32) -> u32 {
        let greater: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!("max.f16x2 {}, {}, {};", out(reg32) greater, in(reg32) a, in(reg32) b, options(pure, nomem, nostack));
        }
        greater
    }

    comparisons!("f16x2");

    #[inline(always)]
    fn array_from_f32<const N: usize>(values: [f32; N]) -> [Self; N] {
        pack_array(values)
    }
}

impl Element for bf16 {
    const INDEX: usize = 2;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// PTX `cvt.rn.bf16.f32`, sm_80.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        if cfg!(not(target_arch = "nvptx64")) {
            return bf16::from_f32(value);
        }
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            ptx!("cvt.rn.bf16.f32 {}, {};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack));
        }
        Self::from_bits(bits)
    }

    #[inline(always)]
    fn max_of_registers(a: u32, b: u32) -> u32 {
        let greater: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!("max.bf16x2 {}, {}, {};", out(reg32) greater, in(reg32) a, in(reg32) b, options(pure, nomem, nostack));
        }
        greater
    }

    comparisons!("bf16x2");

    #[inline(always)]
    fn array_from_f32<const N: usize>(values: [f32; N]) -> [Self; N] {
        pack_array(values)
    }
}

impl Half for f16 {
    const IS_BF16: bool = false;

    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        if cfg!(not(target_arch = "nvptx64")) {
            let [low, high] = [low, high].map(|value| u32::from(f16::from_f32(value).to_bits()));
            return low | high << 16;
        }
        let pair: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!(
                "cvt.rn.f16x2.f32 {}, {}, {};",
                out(reg32) pair, in(reg32) high, in(reg32) low,
                options(pure, nomem, nostack),
            );
        }
        pair
    }

    #[inline(always)]
    fn unpack(pair: u32) -> [f32; 2] {
        // Not `half`'s own method, which converts by integer arithmetic.
        [pair as u16, (pair >> 16) as u16].map(|bits| to_f32(Self::from_bits(bits)))
    }

    #[inline(always)]
    fn fma_of_registers(a: u32, b: u32, c: u32) -> u32 {
        let sum: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!(
                "fma.rn.f16x2 {}, {}, {}, {};",
                out(reg32) sum, in(reg32) a, in(reg32) b, in(reg32) c,
                options(pure, nomem, nostack),
            );
        }
        sum
    }
}

impl Half for bf16 {
    const IS_BF16: bool = true;

    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        if cfg!(not(target_arch = "nvptx64")) {
            let [low, high] = [low, high].map(|value| u32::from(bf16::from_f32(value).to_bits()));
            return low | high << 16;
        }
        let pair: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!(
                "cvt.rn.bf16x2.f32 {}, {}, {};",
                out(reg32) pair, in(reg32) high, in(reg32) low,
                options(pure, nomem, nostack),
            );
        }
        pair
    }

    #[inline(always)]
    fn unpack(pair: u32) -> [f32; 2] {
        [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)]
    }

    #[inline(always)]
    fn fma_of_registers(a: u32, b: u32, c: u32) -> u32 {
        let sum: u32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!(
                "fma.rn.bf16x2 {}, {}, {}, {};",
                out(reg32) sum, in(reg32) a, in(reg32) b, in(reg32) c,
                options(pure, nomem, nostack),
            );
        }
        sum
    }
}

/// Converts pairs by one instruction each, and an odd last element alone.
#[inline(always)]
fn pack_array<T: Half, const N: usize>(values: [f32; N]) -> [T; N] {
    let mut result = core::mem::MaybeUninit::<[T; N]>::uninit();
    let elements = result.as_mut_ptr().cast::<T>();
    let mut index = 0;
    // SAFETY: every element is written, inside the array.
    unsafe {
        while index + 1 < N {
            let pair = T::pack(*values.as_ptr().add(index), *values.as_ptr().add(index + 1));
            elements.add(index).cast::<u32>().write_unaligned(pair);
            index += 2;
        }
        if index < N {
            elements.add(index).write(T::from_f32(*values.as_ptr().add(index)));
        }
        result.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_converts_as_well() {
        fn there_and_back<T: Half>(value: f32) -> [f32; 5] {
            let [a, b, c] = T::array_from_f32([value; 3]).map(T::to_f32);
            let [d, e] = T::unpack(T::pack(value, -value));
            [a, b, c, d, -e]
        }
        assert_eq!(there_and_back::<f16>(1.0 + 1.0 / 2048.0), [1.0; 5]);
        assert_eq!(there_and_back::<f16>(65520.0), [f32::INFINITY; 5]);
        assert_eq!(there_and_back::<bf16>(1.0 + 3.0 / 256.0), [1.0 + 1.0 / 64.0; 5]);
        assert_eq!(from_f32::<f32>(to_f32(0.1f32)), 0.1);
    }
}
