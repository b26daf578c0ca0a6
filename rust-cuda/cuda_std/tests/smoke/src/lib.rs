//! Kernels that use every function of cuda_std. They compute nothing of sense: what counts is that each compiles and assembles.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

pub mod conformance;
pub mod copies;
pub mod elementwise;
pub mod gemm;
pub mod hopper;
pub mod scalar;
pub mod sync;
pub mod tensor_cores;
