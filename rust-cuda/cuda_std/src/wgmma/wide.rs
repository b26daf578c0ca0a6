//! Products of 16-bit floats and TF32.

use cuda_std_macros::ptx_registers;

use super::{Descriptor, Registers};
use crate::float::Half;

/// Accumulators of 16-bit floats' products: `[f32; N / 2]`. Lets a kernel choose its tile width by the array's length.
pub trait Accumulators: Registers {
    /// Columns of the product.
    const N: u32;

    /// `D = A B + D`, or `A B` unless `accumulate`; 16 deep. See [`m64n256k16`].
    ///
    /// # Safety
    /// As for [`m64n256k16`].
    unsafe fn product<T: Half, const A_MAJOR: u32, const B_MAJOR: u32>(
        &mut self,
        a: Descriptor,
        b: Descriptor,
        accumulate: bool,
    );

    /// [`product`](Self::product) with `A` from registers. See [`m64n256k16_a_registers`].
    ///
    /// # Safety
    /// As for [`m64n256k16`].
    unsafe fn product_a_registers<T: Half, const B_MAJOR: u32>(&mut self, a: [u32; 4], b: Descriptor, accumulate: bool);
}

macro_rules! half {
    ($n:literal, $count:literal, $shape:literal, $name:ident, $name_registers:ident) => {
        #[doc = concat!("Starts `D = A B + D`, or `D = A B` unless `accumulate`, ", $shape, " of `T`.")]
        #[doc = concat!("\n\nPTX `wgmma.mma_async.sync.aligned.", $shape, ".f32.bf16.bf16` (or `.f16.f16`).")]
        ///
        /// # Safety
        /// All warps of the warpgroup execute this, convergently, with the same operands, after a
        /// [`fence`](super::fence). The tiles are valid until the product's group is waited for, as is `d` untouched.
        #[inline(always)]
        pub unsafe fn $name<T: Half, const A_MAJOR: u32, const B_MAJOR: u32>(
            d: &mut [f32; $count],
            a: Descriptor,
            b: Descriptor,
            accumulate: bool,
        ) {
            const { assert!(A_MAJOR <= 1 && B_MAJOR <= 1) };
            // SAFETY: the caller's promise.
            unsafe {
                if T::IS_BF16 {
                    ptx_registers!(
                        "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                        concat!("wgmma.mma_async.sync.aligned.", $shape, ".f32.bf16.bf16 {{{d*}}}, "),
                        "{a}, {b}, p, 1, 1, {a_major}, {b_major};", "}}",
                        array d = [$count] inout(reg32) d,
                        a = in(reg64) a.0, b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                        a_major = const A_MAJOR, b_major = const B_MAJOR,
                        options(nostack),
                    );
                } else {
                    ptx_registers!(
                        "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                        concat!("wgmma.mma_async.sync.aligned.", $shape, ".f32.f16.f16 {{{d*}}}, "),
                        "{a}, {b}, p, 1, 1, {a_major}, {b_major};", "}}",
                        array d = [$count] inout(reg32) d,
                        a = in(reg64) a.0, b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                        a_major = const A_MAJOR, b_major = const B_MAJOR,
                        options(nostack),
                    );
                }
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] with `A` from registers, which are not to be written before the wait.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($name), "`].")]
        #[inline(always)]
        pub unsafe fn $name_registers<T: Half, const B_MAJOR: u32>(
            d: &mut [f32; $count],
            a: [u32; 4],
            b: Descriptor,
            accumulate: bool,
        ) {
            const { assert!(B_MAJOR <= 1) };
            // SAFETY: the caller's promise.
            unsafe {
                if T::IS_BF16 {
                    ptx_registers!(
                        "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                        concat!("wgmma.mma_async.sync.aligned.", $shape, ".f32.bf16.bf16 {{{d*}}}, "),
                        "{{{a*}}}, {b}, p, 1, 1, {b_major};", "}}",
                        array d = [$count] inout(reg32) d,
                        array a = [4] in(reg32) a,
                        b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                        b_major = const B_MAJOR,
                        options(nostack),
                    );
                } else {
                    ptx_registers!(
                        "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                        concat!("wgmma.mma_async.sync.aligned.", $shape, ".f32.f16.f16 {{{d*}}}, "),
                        "{{{a*}}}, {b}, p, 1, 1, {b_major};", "}}",
                        array d = [$count] inout(reg32) d,
                        array a = [4] in(reg32) a,
                        b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                        b_major = const B_MAJOR,
                        options(nostack),
                    );
                }
            }
        }

        impl Accumulators for [f32; $count] {
            const N: u32 = $n;

            #[inline(always)]
            unsafe fn product<T: Half, const A_MAJOR: u32, const B_MAJOR: u32>(
                &mut self,
                a: Descriptor,
                b: Descriptor,
                accumulate: bool,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $name::<T, A_MAJOR, B_MAJOR>(self, a, b, accumulate) }
            }

            #[inline(always)]
            unsafe fn product_a_registers<T: Half, const B_MAJOR: u32>(
                &mut self,
                a: [u32; 4],
                b: Descriptor,
                accumulate: bool,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $name_registers::<T, B_MAJOR>(self, a, b, accumulate) }
            }
        }
    };
}

half!(8, 4, "m64n8k16", m64n8k16, m64n8k16_a_registers);
half!(16, 8, "m64n16k16", m64n16k16, m64n16k16_a_registers);
half!(32, 16, "m64n32k16", m64n32k16, m64n32k16_a_registers);
half!(48, 24, "m64n48k16", m64n48k16, m64n48k16_a_registers);
half!(64, 32, "m64n64k16", m64n64k16, m64n64k16_a_registers);
half!(80, 40, "m64n80k16", m64n80k16, m64n80k16_a_registers);
half!(96, 48, "m64n96k16", m64n96k16, m64n96k16_a_registers);
half!(104, 52, "m64n104k16", m64n104k16, m64n104k16_a_registers);
half!(128, 64, "m64n128k16", m64n128k16, m64n128k16_a_registers);
half!(144, 72, "m64n144k16", m64n144k16, m64n144k16_a_registers);
half!(160, 80, "m64n160k16", m64n160k16, m64n160k16_a_registers);
half!(176, 88, "m64n176k16", m64n176k16, m64n176k16_a_registers);
half!(192, 96, "m64n192k16", m64n192k16, m64n192k16_a_registers);
half!(208, 104, "m64n208k16", m64n208k16, m64n208k16_a_registers);
half!(224, 112, "m64n224k16", m64n224k16, m64n224k16_a_registers);
half!(240, 120, "m64n240k16", m64n240k16, m64n240k16_a_registers);
half!(256, 128, "m64n256k16", m64n256k16, m64n256k16_a_registers);

macro_rules! tf32 {
    ($count:literal, $shape:literal, $name:ident, $name_registers:ident) => {
        #[doc = concat!("Starts `D = A B + D`, or `D = A B` unless `accumulate`, ", $shape, " of TF32, both K-major.")]
        #[doc = concat!("\n\nPTX `wgmma.mma_async.sync.aligned.", $shape, ".f32.tf32.tf32`.")]
        ///
        /// # Safety
        /// As for [`m64n256k16`].
        #[inline(always)]
        pub unsafe fn $name(d: &mut [f32; $count], a: Descriptor, b: Descriptor, accumulate: bool) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                    concat!("wgmma.mma_async.sync.aligned.", $shape, ".f32.tf32.tf32 {{{d*}}}, {a}, {b}, p, 1, 1;"), "}}",
                    array d = [$count] inout(reg32) d,
                    a = in(reg64) a.0, b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                    options(nostack),
                );
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] with `A` from registers, which are not to be written before the wait.")]
        ///
        /// # Safety
        /// As for [`m64n256k16`].
        #[inline(always)]
        pub unsafe fn $name_registers(d: &mut [f32; $count], a: [u32; 4], b: Descriptor, accumulate: bool) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                    concat!("wgmma.mma_async.sync.aligned.", $shape, ".f32.tf32.tf32 {{{d*}}}, {{{a*}}}, {b}, p, 1, 1;"), "}}",
                    array d = [$count] inout(reg32) d,
                    array a = [4] in(reg32) a,
                    b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                    options(nostack),
                );
            }
        }
    };
}

tf32!(32, "m64n64k8", m64n64k8_tf32, m64n64k8_tf32_a_registers);
tf32!(64, "m64n128k8", m64n128k8_tf32, m64n128k8_tf32_a_registers);
tf32!(96, "m64n192k8", m64n192k8_tf32, m64n192k8_tf32_a_registers);
tf32!(128, "m64n256k8", m64n256k8_tf32, m64n256k8_tf32_a_registers);
