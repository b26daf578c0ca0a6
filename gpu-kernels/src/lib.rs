//! Warpsmith's GPU kernels.
//!
//! The crate compiles twice. For `nvptx64-nvidia-cuda` every `#[kernel]` becomes a PTX entry for each of its instances;
//! for the host the same signature becomes a type that implements [`cuda_std::launch::Kernel`], and the bodies are only
//! type-checked. This crate knows nothing about the host: tile sizes and shared-memory layouts are declared beside the
//! kernels, and the host reads them from here.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
// Kernels are unsafe as a whole: their contract is stated once, on the entry.
#![allow(unsafe_op_in_unsafe_fn)]
// Each entry's contract is its `# Safety` section; its helper functions share it.
#![allow(clippy::missing_safety_doc)]
// Fragments and accumulators are indexed together: the indices are rows and columns of the matrix, not of one array.
#![allow(clippy::needless_range_loop)]
// Code that operators share is compiled without the operator features as well.
#![cfg_attr(not(feature = "ops"), allow(dead_code, unused_imports))]

#[cfg(feature = "ops")]
pub mod columns;
#[cfg(feature = "ops")]
pub mod diagnostics;
pub mod fuse;
#[cfg(feature = "ops")]
pub mod lessons;
pub mod map;
#[cfg(feature = "ops")]
pub mod ops;
pub mod rows;

/// Elements of `T` in a 16-byte pack, the widest access a thread makes.
pub const fn lanes<T>() -> usize {
    16 / size_of::<T>()
}

/// The quotient and the remainder of `n` divided by `by`.
///
/// # Safety
/// `by` is not 0.
#[inline(always)]
pub(crate) unsafe fn div_rem(n: u32, by: u32) -> (u32, u32) {
    let by = core::num::NonZeroU32::new_unchecked(by);
    (n / by, n % by)
}
