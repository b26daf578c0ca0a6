//! The device side of Warpsmith: everything a GPU kernel in Rust needs beside `core`.
//!
//! Each module covers one topic of the PTX instruction set with thin, always-inlined functions; a kernel written with
//! them reads as Rust and compiles to the instruction each function's documentation names. [`kernel`] turns a function
//! into an entry point, and [`launch`] is what the host needs to call it.
//!
//! ```
//! use cuda_std::{bf16, float::Element, kernel, launch::Kernel, thread, vector::Pack};
//!
//! /// y = a x, `V` elements a thread; `n` is a multiple of `V`.
//! #[kernel(dtypes(T: float), values(V: 1, 4), block = 256)]
//! pub unsafe fn scale<T: Element, const V: usize>(x: *const T, y: *mut T, n: u64, a: f32) {
//!     let i = thread::index_1d() * V;
//!     if i < n as usize {
//!         unsafe {
//!             let values = Pack::<T, V>::load(x.add(i)).to_f32();
//!             Pack::<T, V>::from_f32(values.map(|value| a * value)).store(y.add(i));
//!         }
//!     }
//! }
//!
//! // On the host:
//! assert_eq!(Scale::<bf16, 4>::SYMBOL, "scale_bf16_v4");
//! assert_eq!(SCALE.len(), 6);
//! ```
//!
//! The crate compiles for `nvptx64-nvidia-cuda` and for the host. On the host every device function type-checks, so
//! editors, documentation and lints see whole kernels, but panics if it is called. Arithmetic on `f32` is there as well, so that a formula can
//! be tested.
//!
//! # Safety
//!
//! Functions that touch memory, or that lanes of a warp or threads of a block must execute together, are `unsafe`.
//! Unless a function says otherwise: pointers and shared addresses must be valid for the access and aligned to its
//! width, all 32 lanes of a warp execute a warp-wide function together (*convergently*), and the architecture it names
//! is the one the kernel is built for or a lower one.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, core_float_math, stdarch_nvptx))]
// Without the device the bodies end where their assembly would start.
#![cfg_attr(
    not(target_arch = "nvptx64"),
    allow(unreachable_code, unused_assignments, unused_mut, unused_unsafe, unused_variables)
)]
#![allow(clippy::missing_safety_doc, reason = "the crate's documentation states what every unsafe function expects")]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

// The macros name this crate by its path, here as well.
extern crate self as cuda_std;

/// `core::arch::asm!` on the device.
#[cfg(target_arch = "nvptx64")]
macro_rules! ptx {
    ($($tokens:tt)*) => { ::core::arch::asm!($($tokens)*) };
}

/// On the host, the end of the road.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! ptx {
    ($($tokens:tt)*) => {
        $crate::device_only()
    };
}

pub mod arch;
pub mod atomic;
pub mod block;
pub mod cluster;
pub mod cp_async;
pub mod fence;
pub mod float;
pub mod fp8;
pub mod grid;
pub mod launch;
pub mod math;
pub mod matrix;
pub mod mbarrier;
pub mod mma;
pub mod pair;
mod panic;
pub mod printf;
pub mod random;
pub mod regs;
pub mod shared;
pub mod thread;
pub mod tile;
pub mod time;
pub mod tma;
pub mod trap;
pub mod vector;
pub mod warp;
pub mod wgmma;

pub use cuda_std_macros::{gpu_printf, kernel};
pub use fp8::{f8e4m3, f8e5m2, f8e8m0};
pub use half::{bf16, f16};

#[cfg(not(target_arch = "nvptx64"))]
#[cold]
#[inline(never)]
fn device_only() -> ! {
    panic!("this function runs on the GPU only")
}
