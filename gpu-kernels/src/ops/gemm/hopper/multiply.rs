//! The multiplication of a stage: the operands' types and layouts.

use core::marker::PhantomData;

use cuda_std::float::Half;
use cuda_std::fp8::Float8;
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR, MN_MAJOR};

use super::super::epilogue::Sum;
use super::SUMS;

/// The properties that the producer has to know.
pub(in super::super) trait Operands {
    /// Bytes of an element.
    const BYTES: u32;
    /// Whether elements along m are adjacent in A, in place of those along k.
    const A_MN: bool = false;
    /// Whether elements along n are adjacent in B.
    const B_MN: bool = false;
}

/// Products of 64 rows of A and 2·`R` columns of B over 32 bytes of k: an instruction. A warpgroup has `R` sums per
/// thread.
pub(in super::super) trait Multiply<const R: usize>: Operands {
    /// What sums are held in.
    type Sum: Sum;

    /// Starts the product, added to `sums` if `accumulate` and in place of them otherwise.
    unsafe fn multiply(sums: &mut [Self::Sum; R], a: Descriptor, b: Descriptor, accumulate: bool);
}

/// 16-bit floats, either way.
pub(in super::super) struct Halves<T, const A_MN: bool, const B_MN: bool>(PhantomData<T>);

impl<T: Half, const A_MN: bool, const B_MN: bool> Operands for Halves<T, A_MN, B_MN> {
    const BYTES: u32 = 2;
    const A_MN: bool = A_MN;
    const B_MN: bool = B_MN;
}

impl<T: Half, const A_MN: bool, const B_MN: bool, const R: usize> Multiply<R> for Halves<T, A_MN, B_MN>
where
    [f32; R]: Accumulators,
{
    type Sum = f32;

    #[inline(always)]
    unsafe fn multiply(sums: &mut [f32; R], a: Descriptor, b: Descriptor, accumulate: bool) {
        match (A_MN, B_MN) {
            (false, false) => sums.product::<T, K_MAJOR, K_MAJOR>(a, b, accumulate),
            (false, true) => sums.product::<T, K_MAJOR, MN_MAJOR>(a, b, accumulate),
            (true, false) => sums.product::<T, MN_MAJOR, K_MAJOR>(a, b, accumulate),
            (true, true) => sums.product::<T, MN_MAJOR, MN_MAJOR>(a, b, accumulate),
        }
    }
}

/// `Q` by E4M3.
pub(in super::super) struct Floats8<Q>(PhantomData<Q>);

/// E4M3 by `Q`: the operands of [`Floats8`] swapped.
pub(in super::super) struct Swapped8<Q>(PhantomData<Q>);

/// Integers of 8 bits.
pub(in super::super) struct Integers8;

impl<Q: Float8> Operands for Floats8<Q> {
    const BYTES: u32 = 1;
}

impl<Q: Float8> Operands for Swapped8<Q> {
    const BYTES: u32 = 1;
}

impl Operands for Integers8 {
    const BYTES: u32 = 1;
}

/// The products of 8-bit floats, `Q` being E4M3 or E5M2, by their numbers of sums.
macro_rules! floats8 {
    ($of:ident: $($sums:expr => $e4m3:ident, $e5m2:ident;)+) => {$(
        impl<Q: Float8> Multiply<{ $sums }> for $of<Q> {
            type Sum = f32;

            #[inline(always)]
            unsafe fn multiply(sums: &mut [f32; $sums], a: Descriptor, b: Descriptor, accumulate: bool) {
                if Q::IS_E4M3 {
                    wgmma::$e4m3(sums, a, b, accumulate);
                } else {
                    wgmma::$e5m2(sums, a, b, accumulate);
                }
            }
        }
    )+};
}

floats8! { Floats8:
    64 => m64n128k32_e4m3, m64n128k32_e5m2_e4m3;
    SUMS => m64n256k32_e4m3, m64n256k32_e5m2_e4m3;
}

floats8! { Swapped8:
    16 => m64n32k32_e4m3, m64n32k32_e4m3_e5m2;
    32 => m64n64k32_e4m3, m64n64k32_e4m3_e5m2;
    40 => m64n80k32_e4m3, m64n80k32_e4m3_e5m2;
    48 => m64n96k32_e4m3, m64n96k32_e4m3_e5m2;
    56 => m64n112k32_e4m3, m64n112k32_e4m3_e5m2;
    64 => m64n128k32_e4m3, m64n128k32_e4m3_e5m2;
    80 => m64n160k32_e4m3, m64n160k32_e4m3_e5m2;
    96 => m64n192k32_e4m3, m64n192k32_e4m3_e5m2;
    104 => m64n208k32_e4m3, m64n208k32_e4m3_e5m2;
}

/// The products of 8-bit integers.
macro_rules! integers8 {
    ($($sums:expr => $s8:ident;)+) => {$(
        impl Multiply<{ $sums }> for Integers8 {
            type Sum = i32;

            #[inline(always)]
            unsafe fn multiply(sums: &mut [i32; $sums], a: Descriptor, b: Descriptor, accumulate: bool) {
                wgmma::$s8(sums, a, b, accumulate);
            }
        }
    )+};
}

integers8! {
    16 => m64n32k32_s8;
    32 => m64n64k32_s8;
    40 => m64n80k32_s8;
    48 => m64n96k32_s8;
    56 => m64n112k32_s8;
    64 => m64n128k32_s8;
    80 => m64n160k32_s8;
    96 => m64n192k32_s8;
    104 => m64n208k32_s8;
    SUMS => m64n256k32_s8;
}

/// f32, of which the tensor cores take the upper 19 bits.
pub(in super::super) struct Tf32;

impl Operands for Tf32 {
    const BYTES: u32 = 4;
}

impl Multiply<SUMS> for Tf32 {
    type Sum = f32;

    #[inline(always)]
    unsafe fn multiply(sums: &mut [f32; SUMS], a: Descriptor, b: Descriptor, accumulate: bool) {
        wgmma::m64n256k8_tf32(sums, a, b, accumulate);
    }
}
