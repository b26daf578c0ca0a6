//! The path for every GPU from Ampere on: mma.sync on tiles that cp.async loads.
//!
//! Four warps own a tile, of queries in [`dq`] and of keys in [`dkv`], `MT` times 16 rows each, and walk over tiles of
//! 64 tokens of the other side, 32 at a time. The owned side is operand A of the products that form S and dP: its rows
//! are those of the accumulators, so that P and dS can be operand A of the products that follow, and never leave the
//! registers. [`dkv`] computes Sᵀ for that reason.
//!
//! Registers: the gradients of 16 rows take d/2 per lane; S and dP take 16 each for 32 tokens of the other side. Beyond
//! d = 128 dK and dV no longer fit together and are computed by one launch each.

use cuda_std::float::Half;
use cuda_std::mma;
use cuda_std::shared::SharedPtr;

use super::super::fragments;

pub mod dkv;
pub mod dq;

/// Threads of a block: four warps.
pub const THREADS: u32 = 128;

/// Tokens that a block owns, for heads of up to `d` elements.
pub const fn owned(d: u32) -> u32 {
    if d <= 64 { 128 } else { 64 }
}

/// Tokens of a tile that is walked over.
const WALKED: u32 = 64;
/// The tokens of such a tile that are processed at a time.
const PART: u32 = 32;
/// Products of 8 columns in a part.
const NT: usize = (PART / 8) as usize;

/// Bytes of the tiles: two owned tiles, and two buffers of two walked tiles with their per-token numbers.
pub const fn shared_bytes(d: u32) -> usize {
    (2 * owned(d) * d * 2 + 4 * WALKED * d * 2 + 4 * WALKED * 4) as usize
}

/// A warp's rows by a part's columns.
type Square<const MT: usize> = [[[f32; 4]; NT]; MT];

/// `acc` += rows of `own` by rows of `other`, transposed.
#[inline(always)]
unsafe fn product<T: Half, const DT: usize, const MT: usize>(
    acc: &mut Square<MT>,
    own: SharedPtr<T>,
    row: u32,
    other: SharedPtr<T>,
    part: u32,
    lane: u32,
) {
    for step in 0..DT as u32 / 2 {
        let a: [[u32; 4]; MT] = core::array::from_fn(|i| fragments::a::<T, DT>(own, row + i as u32 * 16, step, lane));
        for j in 0..NT / 2 {
            let b = fragments::b::<T, DT>(other, part + j as u32 * 16, step, lane);
            for i in 0..MT {
                mma::m16n8k16::<T>(&mut acc[i][2 * j], a[i], b[0]);
                mma::m16n8k16::<T>(&mut acc[i][2 * j + 1], a[i], b[1]);
            }
        }
    }
}

/// `acc` += `weights` by rows of `other`.
#[inline(always)]
unsafe fn accumulate<T: Half, const DT: usize, const MT: usize>(
    acc: &mut [[[f32; 4]; DT]; MT],
    weights: &Square<MT>,
    other: SharedPtr<T>,
    part: u32,
    lane: u32,
) {
    for step in 0..NT / 2 {
        let a: [[u32; 4]; MT] =
            core::array::from_fn(|i| fragments::pack::<T>(weights[i][2 * step], weights[i][2 * step + 1]));
        for j in 0..DT / 2 {
            let b = fragments::b_transposed::<T, DT>(other, part + step as u32 * 16, j as u32, lane);
            for i in 0..MT {
                mma::m16n8k16::<T>(&mut acc[i][2 * j], a[i], b[0]);
                mma::m16n8k16::<T>(&mut acc[i][2 * j + 1], a[i], b[1]);
            }
        }
    }
}
