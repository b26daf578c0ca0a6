//! LLM operators whose GPU kernels are written in Rust.
//!
//! A [`Device`] is opened once, a [`Stream`] queues work on it, a [`Tensor`] owns memory on it, and operators take views of
//! tensors. Nothing waits for the device except copies to the host and what says so.
//!
//! ```no_run
//! use warpsmith::{Device, Tensor};
//!
//! # fn main() -> warpsmith::Result<()> {
//! let device = Device::open()?;
//! let stream = device.stream()?;
//! let x = Tensor::from_slice(&stream, [2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
//! assert_eq!(x.to_vec(&stream)?, [1.0, 2.0, 3.0, 4.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Environment
//!
//! - `WARPSMITH_BACKEND`: `cuda` or `sim`, the backend that [`Device::open`] uses.
//! - `WARPSMITH_KERNELS`: the archive of kernels to use; see [`kernels::images`].
//! - `WARPSMITH_SIM_DEVICES`: how many simulated devices there are, 1 if it is not set.
//! - `WARPSMITH_SIM_CHECKS`, `WARPSMITH_SIM_ASYNC`, `WARPSMITH_SIM_SEED`, `WARPSMITH_SIM_THREADS`: see [`sim::Settings::from_env`].
//! - `WARPSMITH_LIBCUDA`: the driver library to load instead of `libcuda.so.1`. One that is not there is an error, and not the simulator.
//! - `WARPSMITH_CUBLAS`: the folder of the cuBLAS that `bench` and `verify` put beside the products, if it is not where the linker looks.
//! - `WARPSMITH_CUPTI`: the folder of the CUPTI that times what [`profile`] records, if it is not where the linker looks; `off` does without.
//! - `WARPSMITH_TUNED`: the file with the choices of `warpsmith tune` instead of the one in the user's cache; `off` uses none. See [`Device::tuned`].
//! - `WARPSMITH_PROFILE`: the file for a trace of the whole program; see [`profile`].
//! - `CUDA_VISIBLE_DEVICES`: as everywhere; [`Device::open`] takes the first visible GPU.

// Some of what the runtime offers inside the crate is for the checks alone.
#![cfg_attr(not(feature = "check"), allow(dead_code))]

#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
pub mod ops;
mod runtime;

/// 8-bit floats, and the scales of their blocks.
pub use cuda_std::fp8::{f8e4m3, f8e5m2, f8e8m0};
/// Typed kernel launches: [`launch::Kernel`] and what its arguments are made of.
pub use cuda_std::launch;
/// The crate that [`struct@bf16`] and [`struct@f16`] are of: its conversions of whole slices, for example, need no dependency of the right version.
pub use half;
pub use half::{bf16, f16};

pub use runtime::any::{AnyTensor, AnyView, AnyViewMut};
pub use runtime::device::{BackendKind, Device, DeviceInfo};
pub use runtime::dtype::{DType, Dtype, Float, Float8, Half};
pub use runtime::error::{CudaVersion, Error, Result};
pub use runtime::host_tensor::HostTensor;
pub use runtime::kernels::Arch;
pub use runtime::scratch::Scratch;
pub use runtime::shape::{MAX_RANK, Shape};
pub use runtime::stream::{Event, Stream};
pub use runtime::tensor::Tensor;
pub use runtime::tensor_map::{L2Promotion, OobFill, Swizzle, TensorMapDesc};
pub use runtime::view::{View, ViewMut};
pub use runtime::{kernels, profile, sim, tuned};
