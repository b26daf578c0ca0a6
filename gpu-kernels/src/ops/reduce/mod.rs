//! Reductions of each row to one value: [`rows`](crate::rows) has what the operators share, and each file defines what
//! it folds.
//!
//! A whole tensor is reduced in stages: its long rows to partial results, and those again until one value is left.

pub mod argmax;
pub mod l2_norm;
pub mod max;
pub mod sum;
pub mod top_k;

/// An integer key that is greater for greater x, and greatest for NaN; at least 1.
#[inline(always)]
pub fn key(x: f32) -> u32 {
    // −0 becomes +0.
    let bits = (x + 0.0).to_bits();
    if x.is_nan() {
        u32::MAX
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

/// The kernel of a reduction, which folds every x of a row into `first` by `fold` and combines a team's folded values
/// by `combine`; the row's result is `finish` of the combined value and a factor.
macro_rules! reduction {
    ($kernel:ident, first: $first:expr, fold: $fold:expr, combine: $combine:expr, finish: $finish:expr $(,)?) => {
        /// y\[r\] of every row, a team `P` a row.
        ///
        /// # Safety
        /// `x` is valid for reads of `rows` rows of `d` elements at their stride and `y` for writes of `rows`; rows is at least 1, and
        /// rows are such as the team holds.
        #[cuda_std::kernel(
                                                            dtypes(T: float),
                                                            types(P: Lanes<2>, Warp<4>, Block<2>, Block<8>, Stream),
                                                            block = P::THREADS,
                                                            min_blocks = crate::rows::blocks::<P>(1),
                                                            shared = <P as Team>::Partials<1>,
                                                            no_spills
                                                        )]
        pub unsafe fn $kernel<T: Element, P: Team>(
            x: *const T,
            y: *mut f32,
            rows: u64,
            d: u64,
            x_stride: u64,
            factor: f32,
        ) {
            let Some(team) = P::of(rows, d) else { return };
            let fold: fn(f32, f32) -> f32 = $fold;
            let combine: fn(f32, f32) -> f32 = $combine;
            let finish: fn(f32, f32) -> f32 = $finish;
            let folded = team.fold([team.load((x, x_stride))], $first, |folded, [x]| fold(folded, x));
            let [result] = team.reduce([folded], [$first], 0, |[a], [b]| [combine(a, b)]);
            if team.leads() {
                *y.add(team.row() as usize) = finish(result, factor);
            }
        }
    };
}
pub(crate) use reduction;
