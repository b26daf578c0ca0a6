//! The CUDA driver API without linking to the driver.
//!
//! `cust` and `cust_raw` expect the linker to find `libcuda`, which ties a binary to machines that have a driver. This crate
//! defines the same functions as trampolines through a table that is filled when `libcuda.so.1` is loaded, on the first call
//! of `cuInit` or [`driver`]. A binary then links without a toolkit and starts without a driver, where `cuInit` returns
//! `CUDA_ERROR_NO_DEVICE`.
//!
//! `WARPSMITH_LIBCUDA` names a file to load instead of `libcuda.so.1`.

mod driver;
mod error;
mod symbols;
mod trampoline;

pub use driver::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmemoryPool, CUmodule, CUresult, CUstream, Driver, driver,
};
pub use error::LoadError;

/// Names the library to load, for drivers in unusual places and for tests.
pub const LIBRARY_VARIABLE: &str = "WARPSMITH_LIBCUDA";
