//! Products of 8-bit floats and integers. Both operands are K-major.

use cuda_std_macros::ptx_registers;

use super::Descriptor;

macro_rules! narrow {
    (
        $accumulator:ty, $count:literal, $shape:literal, $types:literal, $scales:literal,
        $name:ident, $name_registers:ident
    ) => {
        #[doc = concat!("Starts `D = A B + D`, or `D = A B` unless `accumulate`, ", $shape, " of `", $types, "` (D, A, B).")]
        #[doc = concat!("\n\nPTX `wgmma.mma_async.sync.aligned.", $shape, $types, "`.")]
        ///
        /// # Safety
        /// As for [`m64n256k16`](super::m64n256k16).
        #[inline(always)]
        pub unsafe fn $name(d: &mut [$accumulator; $count], a: Descriptor, b: Descriptor, accumulate: bool) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                    concat!("wgmma.mma_async.sync.aligned.", $shape, $types, " {{{d*}}}, {a}, {b}, p", $scales, ";"), "}}",
                    array d = [$count] inout(reg32) d,
                    a = in(reg64) a.0, b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                    options(nostack),
                );
            }
        }

        #[doc = concat!("[`", stringify!($name), "`] with `A` from registers, which are not to be written before the wait.")]
        ///
        /// # Safety
        /// As for [`m64n256k16`](super::m64n256k16).
        #[inline(always)]
        pub unsafe fn $name_registers(d: &mut [$accumulator; $count], a: [u32; 4], b: Descriptor, accumulate: bool) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    "{{", ".reg .pred p;", "setp.ne.u32 p, {accumulate}, 0;",
                    concat!("wgmma.mma_async.sync.aligned.", $shape, $types, " {{{d*}}}, {{{a*}}}, {b}, p", $scales, ";"),
                    "}}",
                    array d = [$count] inout(reg32) d,
                    array a = [4] in(reg32) a,
                    b = in(reg64) b.0, accumulate = in(reg32) u32::from(accumulate),
                    options(nostack),
                );
            }
        }
    };
}

macro_rules! fp8 {
    (
        $count:literal, $shape:literal, $e4m3:ident, $e4m3_registers:ident, $e5m2:ident, $e5m2_registers:ident,
        $by_e5m2:ident, $by_e5m2_registers:ident
    ) => {
        narrow!(f32, $count, $shape, ".f32.e4m3.e4m3", ", 1, 1", $e4m3, $e4m3_registers);
        narrow!(f32, $count, $shape, ".f32.e5m2.e4m3", ", 1, 1", $e5m2, $e5m2_registers);
        narrow!(f32, $count, $shape, ".f32.e4m3.e5m2", ", 1, 1", $by_e5m2, $by_e5m2_registers);
    };
}

fp8!(
    16,
    "m64n32k32",
    m64n32k32_e4m3,
    m64n32k32_e4m3_a_registers,
    m64n32k32_e5m2_e4m3,
    m64n32k32_e5m2_e4m3_a_registers,
    m64n32k32_e4m3_e5m2,
    m64n32k32_e4m3_e5m2_a_registers
);
fp8!(
    32,
    "m64n64k32",
    m64n64k32_e4m3,
    m64n64k32_e4m3_a_registers,
    m64n64k32_e5m2_e4m3,
    m64n64k32_e5m2_e4m3_a_registers,
    m64n64k32_e4m3_e5m2,
    m64n64k32_e4m3_e5m2_a_registers
);
fp8!(
    40,
    "m64n80k32",
    m64n80k32_e4m3,
    m64n80k32_e4m3_a_registers,
    m64n80k32_e5m2_e4m3,
    m64n80k32_e5m2_e4m3_a_registers,
    m64n80k32_e4m3_e5m2,
    m64n80k32_e4m3_e5m2_a_registers
);
fp8!(
    48,
    "m64n96k32",
    m64n96k32_e4m3,
    m64n96k32_e4m3_a_registers,
    m64n96k32_e5m2_e4m3,
    m64n96k32_e5m2_e4m3_a_registers,
    m64n96k32_e4m3_e5m2,
    m64n96k32_e4m3_e5m2_a_registers
);
fp8!(
    56,
    "m64n112k32",
    m64n112k32_e4m3,
    m64n112k32_e4m3_a_registers,
    m64n112k32_e5m2_e4m3,
    m64n112k32_e5m2_e4m3_a_registers,
    m64n112k32_e4m3_e5m2,
    m64n112k32_e4m3_e5m2_a_registers
);
fp8!(
    64,
    "m64n128k32",
    m64n128k32_e4m3,
    m64n128k32_e4m3_a_registers,
    m64n128k32_e5m2_e4m3,
    m64n128k32_e5m2_e4m3_a_registers,
    m64n128k32_e4m3_e5m2,
    m64n128k32_e4m3_e5m2_a_registers
);
fp8!(
    80,
    "m64n160k32",
    m64n160k32_e4m3,
    m64n160k32_e4m3_a_registers,
    m64n160k32_e5m2_e4m3,
    m64n160k32_e5m2_e4m3_a_registers,
    m64n160k32_e4m3_e5m2,
    m64n160k32_e4m3_e5m2_a_registers
);
fp8!(
    96,
    "m64n192k32",
    m64n192k32_e4m3,
    m64n192k32_e4m3_a_registers,
    m64n192k32_e5m2_e4m3,
    m64n192k32_e5m2_e4m3_a_registers,
    m64n192k32_e4m3_e5m2,
    m64n192k32_e4m3_e5m2_a_registers
);
fp8!(
    104,
    "m64n208k32",
    m64n208k32_e4m3,
    m64n208k32_e4m3_a_registers,
    m64n208k32_e5m2_e4m3,
    m64n208k32_e5m2_e4m3_a_registers,
    m64n208k32_e4m3_e5m2,
    m64n208k32_e4m3_e5m2_a_registers
);
fp8!(
    128,
    "m64n256k32",
    m64n256k32_e4m3,
    m64n256k32_e4m3_a_registers,
    m64n256k32_e5m2_e4m3,
    m64n256k32_e5m2_e4m3_a_registers,
    m64n256k32_e4m3_e5m2,
    m64n256k32_e4m3_e5m2_a_registers
);

narrow!(i32, 16, "m64n32k32", ".s32.s8.s8", "", m64n32k32_s8, m64n32k32_s8_a_registers);
narrow!(i32, 32, "m64n64k32", ".s32.s8.s8", "", m64n64k32_s8, m64n64k32_s8_a_registers);
narrow!(i32, 40, "m64n80k32", ".s32.s8.s8", "", m64n80k32_s8, m64n80k32_s8_a_registers);
narrow!(i32, 48, "m64n96k32", ".s32.s8.s8", "", m64n96k32_s8, m64n96k32_s8_a_registers);
narrow!(i32, 56, "m64n112k32", ".s32.s8.s8", "", m64n112k32_s8, m64n112k32_s8_a_registers);
narrow!(i32, 64, "m64n128k32", ".s32.s8.s8", "", m64n128k32_s8, m64n128k32_s8_a_registers);
narrow!(i32, 80, "m64n160k32", ".s32.s8.s8", "", m64n160k32_s8, m64n160k32_s8_a_registers);
narrow!(i32, 96, "m64n192k32", ".s32.s8.s8", "", m64n192k32_s8, m64n192k32_s8_a_registers);
narrow!(i32, 104, "m64n208k32", ".s32.s8.s8", "", m64n208k32_s8, m64n208k32_s8_a_registers);
narrow!(i32, 128, "m64n256k32", ".s32.s8.s8", "", m64n256k32_s8, m64n256k32_s8_a_registers);
