//! Tensor-core products of a warp: `D = A B + D` on fragments in registers.
//!
//! `A` is 16 rows, `B` 8 columns. With `g = lane / 4` and `t = lane % 4`, lane by lane:
//! - `D` (16x8): `d[0]`, `d[1]` are row `g`, columns `2t`, `2t + 1`; `d[2]`, `d[3]` the same of row `g + 8`.
//! - 16-bit `A` (16x16): `a[0]` is row `g`, columns `2t`, `2t + 1` (lower half first), `a[1]` row `g + 8`, `a[2]` and
//!   `a[3]` the same 8 columns further. This is what [`matrix::load_x4`](crate::matrix::load_x4) gives.
//! - 16-bit `B` (16x8): `b[0]` is column `g`, rows `2t`, `2t + 1`; `b[1]` the same 8 rows further.
//! - 8-bit types: each register holds four neighbours along the inner dimension, so `2t` becomes `4t` and 8 becomes 16.
//! - TF32: one element a register; `a[0]` is row `g`, column `t`; `b[0]` row `t`, column `g`; 4 in place of 8.
//!
//! All functions are warp-wide; they touch no memory.

use cuda_std_macros::ptx_registers;

use crate::float::Half;

macro_rules! product {
    (
        $(#[$doc:meta])*
        $name:ident: $accumulator:ty, $a:literal, $b:literal, $instruction:literal, $arch:literal
    ) => {
        $(#[$doc])*
        #[doc = concat!("\n\nPTX `", $instruction, "`, ", $arch, ".\n\n# Safety\nWarp-wide.")]
        #[inline(always)]
        pub unsafe fn $name(d: &mut [$accumulator; 4], a: [u32; $a], b: [u32; $b]) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!($instruction, " {{{d*}}}, {{{a*}}}, {{{b*}}}, {{{d*}}};"),
                    array d = [4] inout(reg32) d,
                    array a = [$a] in(reg32) a,
                    array b = [$b] in(reg32) b,
                    options(nomem, nostack),
                );
            }
        }
    };
}

product! {
    /// 16x8x16 of `f16`, accumulated in `f32`.
    m16n8k16_f16: f32, 4, 2, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"
}
product! {
    /// 16x8x16 of `bf16`, accumulated in `f32`.
    m16n8k16_bf16: f32, 4, 2, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80"
}
product! {
    /// 16x8x8 of `f16`, accumulated in `f32`.
    m16n8k8_f16: f32, 2, 1, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_75"
}
product! {
    /// 16x8x8 of `bf16`, accumulated in `f32`.
    m16n8k8_bf16: f32, 2, 1, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_80"
}
product! {
    /// 16x8x8 of TF32: `f32` bits, of which the lower 13 are to be cleared (see [`math::to_tf32`](crate::math::to_tf32)).
    m16n8k8_tf32: f32, 4, 2, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"
}
product! {
    /// 16x8x32 of `i8`, accumulated in `i32`, wrapping.
    m16n8k32_s8: i32, 4, 2, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_80"
}
product! {
    /// 16x8x32 of `u8` by `i8`, accumulated in `i32`, wrapping.
    m16n8k32_u8_s8: i32, 4, 2, "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", "sm_80"
}
product! {
    /// 16x8x16 of `i8`, accumulated in `i32`, wrapping.
    m16n8k16_s8: i32, 2, 1, "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", "sm_80"
}
product! {
    /// 16x8x32 of 8-bit floats E4M3, accumulated in `f32`. Needs PTX ISA 8.4.
    m16n8k32_e4m3: f32, 4, 2, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89"
}
product! {
    /// 16x8x32 of 8-bit floats E5M2, accumulated in `f32`. Needs PTX ISA 8.4.
    m16n8k32_e5m2: f32, 4, 2, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", "sm_89"
}

/// 16x8x16 of `T`, accumulated in `f32`: [`m16n8k16_f16`] or [`m16n8k16_bf16`].
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn m16n8k16<T: Half>(d: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        if T::IS_BF16 {
            m16n8k16_bf16(d, a, b);
        } else {
            m16n8k16_f16(d, a, b);
        }
    }
}

/// 16x8x8 of `T`, accumulated in `f32`: [`m16n8k8_f16`] or [`m16n8k8_bf16`].
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn m16n8k8<T: Half>(d: &mut [f32; 4], a: [u32; 2], b: [u32; 1]) {
    // SAFETY: the caller's promise.
    unsafe {
        if T::IS_BF16 {
            m16n8k8_bf16(d, a, b);
        } else {
            m16n8k8_f16(d, a, b);
        }
    }
}
