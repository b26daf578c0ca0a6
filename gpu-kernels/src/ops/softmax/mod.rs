//! Normalised exponentials of rows: the statistics and kernels that the operators share.

pub mod log_softmax;
pub mod log_softmax_backward;
#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod softmax;
pub mod softmax_backward;

use core::f32::consts::LN_2;

use cuda_std::float::Element;
use cuda_std::math;

use crate::rows::{Merge, Team, butterfly};

/// All forms of a kernel: `$kernel` for the teams of every architecture, `$cluster` for rows that only a cluster holds.
macro_rules! row_kernels {
    (
        $(#[$doc:meta])*
        $kernel:ident, $cluster:ident: $partials:literal partials, $inputs:literal inputs;
        |$team:ident: $p:ident, $t:ident| ($($name:ident: $ty:ty),* $(,)?) $body:block
    ) => {
        $(#[$doc])*
        #[cuda_std::kernel(
            dtypes($t: float),
            types($p: Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream),
            block = $p::THREADS,
            min_blocks = crate::rows::blocks::<$p>($inputs),
            shared = <$p as Team>::Partials<$partials>,
            no_spills
        )]
        #[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
        pub unsafe fn $kernel<$t: Element, $p: Team>($($name: $ty,)* rows: u64, d: u64) {
            let Some($team) = $p::of(rows, d) else { return };
            $body
        }

        #[doc = concat!("[`", stringify!($kernel), "`], a cluster a row.")]
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($kernel), "`].")]
        #[cuda_std::kernel(
            dtypes($t: float),
            types($p: Cluster<8>),
            block = $p::THREADS,
            min_blocks = crate::rows::blocks::<$p>($inputs),
            cluster = crate::rows::CLUSTER,
            arch = "sm_90a",
            shared = <$p as Team>::Partials<$partials>,
            no_spills
        )]
        #[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
        pub unsafe fn $cluster<$t: Element, $p: Team>($($name: $ty,)* rows: u64, d: u64) {
            let Some($team) = $p::of(rows, d) else { return };
            $body
        }
    };
}
pub(crate) use row_kernels;

/// `max`, or 0 if no element is greater than −∞: the reference point of exponents.
#[inline(always)]
pub(super) fn shift(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// Maxima, and sums relative to them. In a pair of lanes each sum is scaled to the greater maximum. Over a warp the
/// maximum is reduced first, so that each lane scales its sum once.
pub(super) struct MaxAndSum {
    /// The factor of x, with log₂ e.
    pub(super) scale: f32,
}

impl MaxAndSum {
    /// e to the power of x times the factor.
    #[inline(always)]
    pub(super) fn exp(&self, x: f32) -> f32 {
        math::ex2_approx_ftz(x * self.scale)
    }
}

impl Merge<f32, 2> for MaxAndSum {
    #[inline(always)]
    fn merge(&self, a: [f32; 2], b: [f32; 2]) -> [f32; 2] {
        let max = a[0].max(b[0]);
        let shift = shift(max);
        [max, a[1] * self.exp(a[0] - shift) + b[1] * self.exp(b[0] - shift)]
    }

    #[inline(always)]
    unsafe fn merge_lanes<const W: u32>(&self, [own, sum]: [f32; 2]) -> [f32; 2] {
        let [max] = butterfly::<W, _, 1>([own], |[a], [b]| [a.max(b)]);
        let [sum] = butterfly::<W, _, 1>([sum * self.exp(own - shift(max))], |[a], [b]| [a + b]);
        [max, sum]
    }
}

/// 2^(scale · (x − max)) for many x of an element type, by one fused multiply-add and one exponential each. For f32
/// rows there is time to subtract first, which is exact near the maximum: otherwise the rounding of scale · max would
/// be visible in f32.
#[derive(Clone, Copy)]
pub(super) struct Powers {
    scale: f32,
    /// The maximum, if it is subtracted before x is scaled; otherwise 0.
    max: f32,
    /// scale · max, rounded, if that is subtracted; otherwise 0.
    shift: f32,
    /// The factor that corrects the results for that rounding.
    pub(super) correction: f32,
}

impl Powers {
    /// Relative to `max`, which is no less than any x.
    #[inline(always)]
    pub(super) fn of<T: Element>(max: f32, scale: f32) -> Self {
        if size_of::<T>() == 4 {
            return Self { scale, max, shift: 0.0, correction: 1.0 };
        }
        // From this scale on every x below the maximum has a power of 0 or nearly so, but the correction would exceed
        // f32. A scale that is a power of two, no more than half as great, needs no correction.
        let is_far = (max * scale).abs() >= 2_147_483_648.0;
        let scale = if is_far { f32::from_bits(scale.to_bits() & 0xff80_0000) } else { scale };
        let shift = max * scale;
        let lost = math::fma(max, scale, -shift);
        // 2^−lost; for a small `lost`, the first two terms of its series are more accurate.
        let correction = if lost.abs() < 2.5e-4 { math::fma(lost, -LN_2, 1.0) } else { math::ex2_approx(-lost) };
        Self { scale, max: 0.0, shift, correction }
    }

    /// The power of x, without the correction.
    #[inline(always)]
    pub(super) fn at(&self, x: f32) -> f32 {
        math::ex2_approx_ftz(math::fma(x - self.max, self.scale, -self.shift))
    }
}

/// The greatest x of the row, or 0 if it has none, and Σ 2^((x − max) · scale), which is 0 then. `x` outside the row is −∞.
///
/// A thread that holds its part of the row finds its own maximum first. Otherwise it makes one pass, and rescales the
/// sum so far when a pack has a greater value.
#[inline(always)]
unsafe fn max_and_sum<T: Element, P: Team>(team: &P, x: P::Row<T>, scale: f32) -> (f32, f32) {
    let merge = MaxAndSum { scale };
    let nothing = [f32::NEG_INFINITY, 0.0];
    if let Some(own) = team.held_max(x) {
        let powers = Powers::of::<T>(shift(own), scale);
        let sum = team.fold_packs([x], 0.0, |sum, [pack], _| pack.iter().fold(sum, |sum, x| sum + powers.at(*x)));
        let [max, sum] = team.merge([own, sum * powers.correction], nothing, 0, merge);
        return (shift(max), sum);
    }
    let state = team.fold_packs([x], nothing, |[max, sum], [pack], _| {
        let greatest = pack.iter().fold(max, |max, x| max.max(*x));
        let shift = shift(greatest);
        [greatest, pack.iter().fold(sum * merge.exp(max - shift), |sum, x| sum + merge.exp(x - shift))]
    });
    let [max, sum] = team.merge(state, nothing, 0, merge);
    (shift(max), sum)
}

/// The number of columns that a row sees: all d, up to the diagonal of its query where `q_len` is not 0, and up to its
/// length where there are `lengths`. Invalid lengths and offsets are clamped to the nearest valid value.
#[inline(always)]
unsafe fn visible<P: Team>(team: &P, q_len: u64, offset: i64, lengths: *const i32, rows_per_length: u64) -> usize {
    let (row, mut n) = (team.row(), team.columns() as i64);
    if q_len > 0 {
        n = n.min(offset + (row % q_len) as i64 + 1);
    }
    if !lengths.is_null() {
        n = n.min(i64::from(*lengths.add((row / rows_per_length.max(1)) as usize)));
    }
    n.max(0) as usize
}
