//! The cosines and sines of rotary position embedding.
//!
//! # Math
//! cos[p, j] and sin[p, j] of 2π · p · turnsⱼ, where turnsⱼ is how much of a turn pair j makes from a position to the next.
//!
//! # Layout
//! `turns` holds h fixed-point numbers, 2⁶⁴ to the turn; `cos` and `sin` are dense, positions × h. `V` is 4 where 4 divides h and all
//! three are aligned to 16 bytes, else 1.
//!
//! # Mapping
//! A thread computes `V` neighbours of both tables; 256 threads a block.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! p · turnsⱼ in 64 bits, wrapping: whole turns drop out exactly, so that the error of an angle is p · 2⁻⁶⁵ turns at any position. What
//! remains is split into a quadrant and at most an eighth of a turn, which alone is rounded to f32: 2 ulp.
//!
//! # Cost
//! 8 bytes written for each angle, some 30 instructions: bound by memory bandwidth.
//!
//! # Limits
//! 2³² − 1 positions, 2³¹ − 1 blocks.
//!
//! # Sources
//! Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (arXiv:2104.09864); Payne and Hanek, "Radian reduction
//! for trigonometric functions" (1983), for reducing by a fraction of a turn.

use core::array;

use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use crate::div_rem;

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// Both tables, for the `width` packs of each of so many positions: those below `positions`.
///
/// # Safety
/// `turns` is valid for reads of `width`·`V` values, `cos` and `sin` for writes of `positions` rows of them; `width` is not 0.
#[kernel(values(V: 1, 4), block = BLOCK, no_spills)]
pub unsafe fn rope_table<const V: usize>(turns: *const i64, cos: *mut f32, sin: *mut f32, positions: u32, width: u32) {
    let per_block = if width >= BLOCK { 1 } else { div_rem(BLOCK, width).0 };
    let (along, pack) = if width >= BLOCK {
        (0, thread::block_idx_y() * BLOCK + thread::thread_idx_x())
    } else {
        div_rem(thread::thread_idx_x(), width)
    };
    let position = u64::from(thread::block_idx_x()) * u64::from(per_block) + u64::from(along);
    if along >= per_block || pack >= width || position >= u64::from(positions) {
        return;
    }
    let turns = Pack::<i64, V>::load_nc(turns.add(pack as usize * V)).0;
    let both = turns.map(|turns| cos_sin((turns as u64).wrapping_mul(position)));
    let at = (position * u64::from(width) + u64::from(pack)) as usize * V;
    Pack::<f32, V>(array::from_fn(|i| both[i].0)).store(cos.add(at));
    Pack::<f32, V>(array::from_fn(|i| both[i].1)).store(sin.add(at));
}

/// The cosine and the sine of an angle, 2⁶⁴ to the turn.
#[inline(always)]
fn cos_sin(angle: u64) -> (f32, f32) {
    const EIGHTH: u64 = 1 << 61;
    const UNIT: f32 = (core::f64::consts::TAU / 18_446_744_073_709_551_616.0) as f32;
    let nearest = angle.wrapping_add(EIGHTH);
    let quadrant = nearest >> 62;
    let rest = (nearest & (2 * EIGHTH - 1)) as i64 - EIGHTH as i64;
    let (sin, cos) = math::sin_cos(rest as f32 * UNIT);
    let (cos, sin) = if quadrant & 1 == 0 { (cos, sin) } else { (-sin, cos) };
    if quadrant & 2 == 0 { (cos, sin) } else { (-cos, -sin) }
}
