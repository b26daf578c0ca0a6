//! Asynchronous tensor-core products of a warpgroup (four warps): `D = A B + D`, 64 rows by 8 to 256 columns. sm_90a.
//!
//! `B`, and `A` unless it comes from registers, are tiles in shared memory, named by a [`Descriptor`]. `D` is an array of
//! registers. The order of a step:
//!
//! ```
//! # use cuda_std::{bf16, wgmma::{self, Descriptor, K_MAJOR}};
//! # unsafe fn step(mut d: [f32; 128], a: Descriptor, b: Descriptor, accumulate: bool) { unsafe {
//! wgmma::fence_for(&mut d); // what was written to `d` is seen by the products
//! wgmma::m64n256k16::<bf16, K_MAJOR, K_MAJOR>(&mut d, a, b, accumulate);
//! wgmma::m64n256k16::<bf16, K_MAJOR, K_MAJOR>(&mut d, a.advance(32), b.advance(32), true);
//! wgmma::commit();
//! wgmma::wait_for::<0>(&mut d); // from here on `d` may be read
//! # } }
//! ```
//!
//! Between the first product and its wait nothing may touch `d`, and the code between should not branch on anything but
//! loops: otherwise `ptxas` serializes the products.
//!
//! **Accumulators.** Lane `l` of warp `w` in the warpgroup holds, for `j` in `0..N / 8`, in `d[4j]` and `d[4j + 1]` the row
//! `16w + l / 4`, columns `8j + 2 (l % 4)` and the next; in `d[4j + 2]` and `d[4j + 3]` the same of the row 8 below.
//! **`A` in registers** is laid out as for [`mma`](crate::mma), warp `w` holding rows `16w` to `16w + 15`.

mod descriptor;
mod narrow;
mod wide;

pub use descriptor::{Descriptor, Swizzle};
pub use narrow::*;
pub use wide::*;

use cuda_std_macros::ptx_registers;

/// An operand whose inner dimension (K) is contiguous: `A` by rows, `B` by columns.
pub const K_MAJOR: u32 = 0;

/// An operand whose outer dimension (M or N) is contiguous. 16-bit types only.
pub const MN_MAJOR: u32 = 1;

/// Orders this thread's register writes, and earlier products, before the products that follow.
/// PTX `wgmma.fence.sync.aligned`.
///
/// # Safety
/// All warps of the warpgroup execute this, convergently.
#[inline(always)]
pub unsafe fn fence() {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("wgmma.fence.sync.aligned;", options(nostack));
    }
}

/// [`fence`], for `registers` written since their last products: accumulators set up, or an `A` operand. The compiler
/// could otherwise write them after the fence, and `ptxas` would add another.
///
/// # Safety
/// As for [`fence`].
#[inline(always)]
pub unsafe fn fence_for(registers: &mut impl Registers) {
    registers.pin();
    // SAFETY: the caller's promise.
    unsafe { fence() };
}

/// Closes the group of products since the last one. PTX `wgmma.commit_group.sync.aligned`.
///
/// # Safety
/// As for [`fence`].
#[inline(always)]
pub unsafe fn commit() {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("wgmma.commit_group.sync.aligned;", options(nostack));
    }
}

/// Waits until at most `PENDING` of the latest groups are unfinished. The compiler does not know which registers that
/// settles: before reading accumulators use [`wait_for`]. PTX `wgmma.wait_group.sync.aligned`.
///
/// # Safety
/// As for [`fence`].
#[inline(always)]
pub unsafe fn wait<const PENDING: u32>() {
    const { assert!(PENDING < 8) };
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("wgmma.wait_group.sync.aligned {};", const PENDING, options(nostack));
    }
}

/// [`wait`], after which `accumulators` may be read.
///
/// # Safety
/// As for [`fence`]; the products into `accumulators` are in groups this waits for.
#[inline(always)]
pub unsafe fn wait_for<const PENDING: u32>(accumulators: &mut impl Registers) {
    // SAFETY: the caller's promise.
    unsafe { wait::<PENDING>() };
    accumulators.pin();
}

/// An array of accumulators, or `[u32; N]`, an `A` operand of `N / 4` products.
pub trait Registers: sealed::Sealed {
    /// Keeps the compiler from moving reads or writes of these registers across this point. Emits nothing.
    ///
    /// With several arrays in flight: `pin` each, then [`fence`]; [`wait`], then `pin` each.
    fn pin(&mut self);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! registers {
    ($($count:literal)*) => { $(
        registers!(@one $count f32);
        registers!(@one $count i32);
    )* };
    (@one $count:literal $ty:ty) => {
        impl sealed::Sealed for [$ty; $count] {}
        impl Registers for [$ty; $count] {
            #[inline(always)]
            fn pin(&mut self) {
                let d = self;
                // SAFETY: no instruction.
                unsafe {
                    ptx_registers!("// {d*}", array d = [$count] inout(reg32) d, options(nomem, nostack));
                }
            }
        }
    };
}

registers!(4 8 16 24 32 40 48 52 56 64 72 80 88 96 104 112 120 128);
registers!(@one 4 u32);
registers!(@one 8 u32);
registers!(@one 16 u32);
registers!(@one 32 u32);
