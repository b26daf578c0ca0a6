//! A step of AdamW, in place: Adam with decoupled weight decay.
//!
//! # Math
//! With g the gradient, times the factor that clips it, in step t from 1 on:
//! - m ← β₁ · m + (1 − β₁) · g
//! - v ← β₂ · v + (1 − β₂) · g²
//! - w ← w · (1 − lr · decay) − lr · m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ).
//!
//! # Layout
//! All tensors contiguous. Weights are the parameters themselves, or f32 master weights, of which the parameters become a copy.
//!
//! # Mapping
//! Blocks of 128 threads, four elements per thread: 16 bytes of every f32 tensor and 8 of a 16-bit one. A block whose
//! elements are not all there, and every block where a tensor is not aligned, goes element by element.
//!
//! # Shared memory
//! None.
//!
//! # Numerics
//! f32. What the host derives from lr, β, ε and t comes rounded from f64: 1 − β₂ of a β₂ in f32 would be off by 10⁻⁵. sqrt.approx errs by
//! 2⁻²² relative, div.full by 2 ulp. Weights in a 16-bit type are rounded in each step, and lose steps below half their spacing.
//!
//! # Cost
//! Reads w, g, m and v and writes w, m and v: 28 bytes a parameter in f32, 22 in a 16-bit type, 28 with master weights and 30 if their gradients
//! are in f32. About 15 FLOPs: bound by memory bandwidth.
//!
//! # Limits
//! (2³¹ − 1) · 512 parameters.
//!
//! # Sources
//! Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv:1711.05101), algorithm 2; Kingma and Ba, "Adam"
//! (arXiv:1412.6980); Micikevicius et al., "Mixed Precision Training" (arXiv:1710.03740), for master weights.

use core::array;

use cuda_std::float::Element;
use cuda_std::vector::Pack;
use cuda_std::{kernel, math, thread};

use super::clip_scale;

/// Threads of a block.
pub const BLOCK: u32 = 128;
/// Elements of a thread.
const LANES: usize = 4;
/// Elements of a block.
pub const PER_BLOCK: usize = BLOCK as usize * LANES;

/// What all elements of a step share.
#[derive(Clone, Copy)]
struct Step {
    /// What gradients are multiplied with.
    scale: f32,
    /// β and 1 − β of both moments.
    beta1: [f32; 2],
    beta2: [f32; 2],
    /// 1 − lr · decay.
    keep: f32,
    /// lr / (1 − β₁ᵗ).
    rate: f32,
    /// 1 / √(1 − β₂ᵗ).
    correction: f32,
    eps: f32,
}

impl Step {
    /// The weight, m and v after the step.
    #[inline(always)]
    fn of(self, weight: f32, grad: f32, m: f32, v: f32) -> [f32; 3] {
        let grad = grad * self.scale;
        let m = self.beta1[0] * m + self.beta1[1] * grad;
        let v = self.beta2[0] * v + self.beta2[1] * grad * grad;
        let norm = math::sqrt_approx(v) * self.correction + self.eps;
        [weight * self.keep - self.rate * math::div_full(m, norm), m, v]
    }
}

/// The tensors, whose elements are those of weights `W`, parameters `T` and gradients `G`.
struct Tensors<T, W, G> {
    weights: *mut W,
    /// Null where the weights are the parameters.
    params: *mut T,
    grads: *const G,
    m: *mut f32,
    v: *mut f32,
}

impl<T: Element, W: Element, G: Element> Tensors<T, W, G> {
    /// Steps with `n` elements.
    #[inline(always)]
    unsafe fn step(&self, n: u64, step: Step) {
        let start = u64::from(thread::block_idx_x()) * PER_BLOCK as u64;
        let tid = thread::thread_idx_x() as usize;
        if start + PER_BLOCK as u64 <= n && self.is_aligned() {
            self.move_pack::<LANES>(start as usize + tid * LANES, step);
            return;
        }
        for i in 0..LANES {
            let at = start + (tid + i * BLOCK as usize) as u64;
            if at < n {
                self.move_pack::<1>(at as usize, step);
            }
        }
    }

    /// Whether packs of `LANES` elements are aligned in every tensor.
    #[inline(always)]
    fn is_aligned(&self) -> bool {
        let of_f32 = self.m as usize | self.v as usize;
        (self.params as usize).is_multiple_of(LANES * size_of::<T>())
            && (self.grads as usize).is_multiple_of(LANES * size_of::<G>())
            && (self.weights as usize).is_multiple_of(LANES * size_of::<W>())
            && of_f32.is_multiple_of(LANES * size_of::<f32>())
    }

    /// Steps with the `N` elements from `at` on.
    #[inline(always)]
    unsafe fn move_pack<const N: usize>(&self, at: usize, step: Step) {
        let grads = Pack::<G, N>::load_nc(self.grads.add(at)).to_f32();
        let weights = Pack::<W, N>::load_global(self.weights.add(at)).to_f32();
        let m = Pack::<f32, N>::load_global(self.m.add(at)).0;
        let v = Pack::<f32, N>::load_global(self.v.add(at)).0;
        let next: [[f32; 3]; N] = array::from_fn(|e| step.of(weights[e], grads[e], m[e], v[e]));
        let [weights, m, v]: [[f32; N]; 3] = array::from_fn(|i| array::from_fn(|e| next[e][i]));
        Pack::<W, N>::from_f32(weights).store_global(self.weights.add(at));
        Pack(m).store_global(self.m.add(at));
        Pack(v).store_global(self.v.add(at));
        if !self.params.is_null() {
            Pack::<T, N>::from_f32(weights).store_global(self.params.add(at));
        }
    }
}

/// The factor that clips gradients: 1 where there is no norm.
#[inline(always)]
unsafe fn scale(norm: *const f32, max_norm: f32) -> f32 {
    if norm.is_null() { 1.0 } else { clip_scale(*norm, max_norm) }
}

/// A step with `n` parameters of their own type.
///
/// # Safety
/// `grads` is valid for reads and the others for reads and writes of `n` elements, `norm` null or valid for a read.
#[kernel(dtypes(T: float), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn adamw<T: Element>(
    params: *mut T,
    grads: *const T,
    m: *mut f32,
    v: *mut f32,
    norm: *const f32,
    n: u64,
    max_norm: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    keep: f32,
    rate: f32,
    correction: f32,
    eps: f32,
) {
    let (beta1, beta2) = ([beta1, one_minus_beta1], [beta2, one_minus_beta2]);
    let step = Step { scale: scale(norm, max_norm), beta1, beta2, keep, rate, correction, eps };
    Tensors { weights: params, params: core::ptr::null_mut::<T>(), grads, m, v }.step(n, step);
}

/// A step with `n` master weights, rounded to parameters.
///
/// # Safety
/// As of [`adamw`], and `params` is valid for writes of `n` elements.
#[kernel(dtypes(T: half, G: float), where(G == T || G == f32), block = BLOCK, no_spills)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn adamw_master<T: Element, G: Element>(
    master: *mut f32,
    params: *mut T,
    grads: *const G,
    m: *mut f32,
    v: *mut f32,
    norm: *const f32,
    n: u64,
    max_norm: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    keep: f32,
    rate: f32,
    correction: f32,
    eps: f32,
) {
    let (beta1, beta2) = ([beta1, one_minus_beta1], [beta2, one_minus_beta2]);
    let step = Step { scale: scale(norm, max_norm), beta1, beta2, keep, rate, correction, eps };
    Tensors { weights: master, params, grads, m, v }.step(n, step);
}
