//! Product of f32 matrices on the tensor cores, which take 10 bits of their mantissas: C = α·A·Bᵀ + β·C.
//!
//! # Math
//! cᵢⱼ = α·Σₖ aᵢₖ·bⱼₖ + β·cᵢⱼ. With β = 0 C is not read.
//!
//! # Layout
//! `a` is m × k, `b` is n × k, each with strides of its rows and along k; `c` is m × n with the problem's row stride.
//! wgmma reads 32-bit operands only if they are K-major, and ldmatrix too distributes elements that are adjacent along
//! k: the packs of both paths are along k. Other strides are loaded through registers one element at a time.
//!
//! # Mapping
//! As [`gemm`](super::gemm), in products of m64n256k8 on Hopper, and of m16n8k8 elsewhere.
//!
//! # Shared memory
//! As [`gemm`](super::gemm): a stage has the same bytes, and half the elements along k.
//!
//! # Numerics
//! TF32 has f32's sign and exponent, and 10 bits of mantissa. Hopper's tensor cores drop the lower 13 bits of what they
//! read from shared memory: a factor loses up to 2⁻¹⁰ of itself, towards zero, so that a product is 2⁻¹⁰ too small on
//! average, and a NaN that only those bits tell from infinity becomes one. The path for every GPU first rounds to
//! nearest, to 2⁻¹¹, so that values next to f32's greatest become infinite there. Products of such factors are exact in
//! f32 and accumulate in f32 in the order of the tensor core, which truncates when it aligns addends; α and β are
//! applied in f32.
//!
//! # Cost
//! 2·m·n·k FLOPs against 4·(m·k + n·k + m·n) bytes: the tensor cores do half as many as in 16 bits, from twice the bytes, eight times what the CUDA
//! cores do in full precision.
//!
//! # Limits
//! m, n, k below 2³¹; 2³¹ − 1 tiles. The Hopper path takes rows of `a` and `b` at multiples of 16 bytes.
//!
//! # Sources
//! NVIDIA, *PTX ISA*, on wgmma and mma with .tf32; Kharya, "TensorFloat-32 in the A100 GPU" (NVIDIA, 2020).

use cuda_std::kernel;
use cuda_std::launch::TensorMap;

use super::Problem;
use super::epilogue::Factor;
use super::hopper::{self, CLUSTER, Matrices, Wide};
use super::mma::{self, Shared};

/// C = α·A·Bᵀ + β·C.
///
/// # Safety
/// As for [`gemm_mma`](super::gemm::mma::gemm_mma), `V` = 4 in place of 8 and then both operands K-major.
#[kernel(values(V: 4, 1), block = mma::THREADS, shared = Shared, no_spills)]
pub unsafe fn gemm_tf32_mma<const V: usize>(a: *const f32, b: *const f32, c: *mut f32, problem: Problem) {
    let epilogue = Factor::of(problem.alpha, core::ptr::null());
    mma::run::<mma::Tf32, f32, _, false, false, V>(a, b, c, problem, epilogue, |_, _, _| ());
}

/// The same on Hopper.
///
/// # Safety
/// As for [`gemm_hopper`](super::gemm::hopper::gemm_hopper), both operands K-major and boxes having 32 elements of k.
#[kernel(block = hopper::THREADS, min_blocks = 1, cluster = CLUSTER, shared = Wide, arch = "sm_90a", no_spills)]
pub unsafe fn gemm_tf32_hopper(
    a_map: &TensorMap,
    b_map: &TensorMap,
    c_map: &TensorMap,
    c: *mut f32,
    problem: Problem,
    store: u32,
) {
    let of = Matrices { a: a_map, b: b_map, c_map, c, problem, store };
    hopper::run::<hopper::Tf32, f32, _>(of, Factor::of(problem.alpha, core::ptr::null()));
}
