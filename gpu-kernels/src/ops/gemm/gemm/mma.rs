//! The entries of the path for every GPU, which the products share: 16-bit operands of any strides.

use cuda_std::float::{Element, Half};
use cuda_std::kernel;

use super::super::Problem;
use super::super::epilogue::Factor;
use super::super::mma::{self, Halves};

pub use super::super::mma::{BLOCK, Shared, THREADS};

/// Depth of a stage.
pub const BLOCK_K: u32 = mma::depth::<u16>();

/// C = α·A·B + β·C of each of the problem's products; α times `scale`, unless that is null.
///
/// # Safety
/// `a`, `b` and `c` are valid for the problem's sizes at its strides; with `V` = 8 `a` and `b` start at multiples of 16 bytes, the stride along k
/// is 1, or along m (`A_MN`) or n (`B_MN`), and the others are multiples of 8; there is a block for every tile; `scale` is null or
/// valid for a read.
#[kernel(
    dtypes(T: half, C: float), values(A_MN: false, true, B_MN: false, true, V: 8, 1),
    where((C == T || C == f32) && (V == 8 || !A_MN && !B_MN)), block = THREADS, shared = Shared, no_spills
)]
pub unsafe fn gemm_mma<T: Half, C: Element, const A_MN: bool, const B_MN: bool, const V: usize>(
    a: *const T,
    b: *const T,
    c: *mut C,
    scale: *const f32,
    problem: Problem,
) {
    let epilogue = Factor::of(problem.alpha, scale);
    mma::run::<Halves<T>, C, _, A_MN, B_MN, V>(a, b, c, problem, epilogue, |_, _, _| ());
}
