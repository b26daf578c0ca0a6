//! Formulas over rows: [`row!`](crate::row!), reductions over a row and a result for each of its elements.
//!
//! ```
//! use cuda_std::math;
//!
//! gpu_kernels::row! {
//!     /// y = softmax(x / temperature).
//!     pub fn soften([x]: [f32; 1], temperature: f32) -> f32 {
//!         let greatest = max(x);
//!         let total = sum(math::exp((x - greatest) / temperature));
//!         math::exp((x - greatest) / temperature) / total
//!     }
//!
//!     /// y = (x − mean) / √variance · weight, and every second element with its sign turned.
//!     pub fn alternate([x, weight]: [f32; 2], [column, columns]: [usize; 2]) -> f32 {
//!         let (total, squares) = (sum(x), sum(x * x));
//!         let mean = total / columns as f32;
//!         let scale = 1.0 / (squares / columns as f32 - mean * mean).sqrt();
//!         {
//!             let y = (x - mean) * scale * weight;
//!             if column % 2 == 0 { y } else { -y }
//!         }
//!     }
//! }
//!
//! // What a formula says is plain Rust, on the host as well.
//! let mut y = [0.0; 2];
//! soften(1.0).values([&[0.0, 0.0]], &mut y);
//! assert_eq!(y, [0.5, 0.5]);
//! alternate.values([&[1.0, 3.0], &[1.0, 10.0]], &mut y);
//! assert_eq!(y, [-1.0, -10.0]);
//! ```
//!
//! The kernels are those of [`rows`](crate::rows): a team of threads holds a row in registers, so that memory is read
//! once; rows too long for any team are read again for each reduction.

mod macros;

use core::array;

use cuda_std::float::Element;
use cuda_std::launch::{Args, DevicePtr, DevicePtrMut, Instance, Kernel};

use super::Strides;
use crate::map::{In, Out};
use crate::rows::Team;

/// The greatest number of values that a formula reduces to.
pub const MAX_REDUCTIONS: usize = 8;

/// Up to this many inputs, a thread has room for eight packs of each; with more inputs it holds four.
const MANY: usize = 2;

/// The most packs that a thread holds for a formula of that many inputs.
pub const fn packs(inputs: usize) -> usize {
    if inputs <= MANY { 8 } else { 4 }
}

/// How the values of a row are reduced.
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, reason = "as they are written in a formula")]
pub enum Reduction {
    /// Their sum.
    sum,
    /// Their sum, divided by their number: the mean.
    mean,
    /// The greatest value; NaN does not count.
    max,
    /// The least value; NaN does not count.
    min,
}

impl Reduction {
    #[inline(always)]
    const fn of_none(self) -> f32 {
        match self {
            Self::sum | Self::mean => 0.0,
            Self::max => f32::NEG_INFINITY,
            Self::min => f32::INFINITY,
        }
    }

    #[inline(always)]
    fn of_two(self, a: f32, b: f32) -> f32 {
        match self {
            Self::sum | Self::mean => a + b,
            Self::max => a.max(b),
            Self::min => a.min(b),
        }
    }

    #[inline(always)]
    fn finish(self, value: f32, columns: usize) -> f32 {
        if matches!(self, Self::mean) { value / columns as f32 } else { value }
    }
}

/// One row of each of `K` inputs, and of the output. Code that [`row!`](crate::row!) generates is generic over it: rows
/// on the device, or slices.
pub trait Row<const K: usize>: Sized {
    /// The type of a formula's last expression, so that a formula cannot return early: every thread of a team takes
    /// part in every reduction.
    type Written;

    /// Elements of the row.
    fn columns(&self) -> usize;

    /// Reduces the values of all elements; the results are numbers `FIRST` and up among the formula's reductions.
    fn reduce<const FIRST: usize, const M: usize>(
        &self,
        kinds: [Reduction; M],
        values: impl Fn([f32; K], usize) -> [f32; M],
    ) -> [f32; M];

    /// Writes the value of every element.
    fn write(self, value: impl Fn([f32; K], usize) -> f32) -> Self::Written;
}

/// Proof that a row has been written.
#[derive(Debug)]
pub struct Written(());

/// The rows of a team on the device.
#[allow(missing_debug_implementations, reason = "registers of many threads")]
pub struct OfTeam<P: Team, T: Element, const K: usize> {
    team: P,
    rows: [P::Row<T>; K],
    output: Out<T>,
}

impl<P: Team, T: Element, const K: usize> Row<K> for OfTeam<P, T, K> {
    type Written = Written;

    #[inline(always)]
    fn columns(&self) -> usize {
        self.team.columns()
    }

    #[inline(always)]
    fn reduce<const FIRST: usize, const M: usize>(
        &self,
        kinds: [Reduction; M],
        values: impl Fn([f32; K], usize) -> [f32; M],
    ) -> [f32; M] {
        const { assert!(FIRST + M <= MAX_REDUCTIONS, "a formula over rows has at most eight reductions") };
        let of_two = |a: [f32; M], b: [f32; M]| array::from_fn(|i| kinds[i].of_two(a[i], b[i]));
        let of_none = kinds.map(Reduction::of_none);
        // SAFETY: the caller of `run` guarantees that the rows are valid. A formula has no branch around a reduction
        // and no early return, so every thread reaches this point, and each reduction has its own slots.
        let reduced = unsafe {
            let own = self.team.fold_packs(self.rows, of_none, |folded, packs, at| {
                let mut folded = folded;
                for e in 0..packs[0].len() {
                    folded = of_two(folded, values(packs.map(|pack| pack[e]), at + e));
                }
                folded
            });
            self.team.reduce(own, of_none, FIRST as u32, of_two)
        };
        array::from_fn(|i| kinds[i].finish(reduced[i], self.team.columns()))
    }

    #[inline(always)]
    fn write(self, value: impl Fn([f32; K], usize) -> f32) -> Written {
        // SAFETY: the caller of `run` guarantees that the rows are valid.
        unsafe { self.team.store_places(self.rows, [self.output], |at, elements| [value(elements, at)]) };
        Written(())
    }
}

/// A kernel's work: applies `formula` to the row of this thread's team.
///
/// # Safety
/// The inputs are valid for reads and the output for writes of `rows` rows of `d` elements at their strides; `rows` is
/// at least 1, and the team is able to hold such rows. The kernel has [`MAX_REDUCTIONS`] slots, and all of its threads
/// call this.
#[inline(always)]
pub unsafe fn run<T: Element, P: Team, const K: usize>(
    inputs: [In<T>; K],
    output: Out<T>,
    rows: u64,
    d: u64,
    formula: impl FnOnce(OfTeam<P, T, K>) -> Written,
) {
    let Some(team) = P::of(rows, d) else { return };
    let rows = inputs.map(|(x, stride)| if stride == 0 { team.load_shared(x) } else { team.load((x, stride)) });
    formula(OfTeam { team, rows, output });
}

/// Rows in slices, for evaluating the formula on the host.
#[derive(Debug)]
pub struct OfSlices<'a, const K: usize> {
    inputs: [&'a [f32]; K],
    output: &'a mut [f32],
}

impl<'a, const K: usize> OfSlices<'a, K> {
    /// Takes rows of equal length.
    ///
    /// # Panics
    /// If their lengths differ.
    pub fn new(inputs: [&'a [f32]; K], output: &'a mut [f32]) -> Self {
        for input in inputs {
            assert_eq!(input.len(), output.len(), "an input has as many elements as the output");
        }
        Self { inputs, output }
    }

    fn element(&self, at: usize) -> [f32; K] {
        self.inputs.map(|input| input[at])
    }
}

impl<const K: usize> Row<K> for OfSlices<'_, K> {
    type Written = Written;

    fn columns(&self) -> usize {
        self.output.len()
    }

    fn reduce<const FIRST: usize, const M: usize>(
        &self,
        kinds: [Reduction; M],
        values: impl Fn([f32; K], usize) -> [f32; M],
    ) -> [f32; M] {
        let all = (0..self.columns()).fold(kinds.map(Reduction::of_none), |folded, at| {
            let values = values(self.element(at), at);
            array::from_fn(|i| kinds[i].of_two(folded[i], values[i]))
        });
        array::from_fn(|i| kinds[i].finish(all[i], self.columns()))
    }

    fn write(self, value: impl Fn([f32; K], usize) -> f32) -> Written {
        for at in 0..self.columns() {
            self.output[at] = value(self.element(at), at);
        }
        Written(())
    }
}

/// A formula of `K` rows for which there are kernels: the result of [`row!`](crate::row!).
///
/// # Safety
/// Take a launch of a kernel with [`args`](Self::args) in the shape that its [team](crate::rows) requires, on rows that
/// each team of this name holds (`Block` and `Cluster` with [`packs`] of `K` per thread). Such a launch reads `rows`
/// rows of `d` elements of each input at its stride, writes as many of the output at its own, and does nothing else.
pub unsafe trait RowFormula<const K: usize>: Copy {
    /// The name that errors give.
    const NAME: &'static str;
    /// The names of the inputs.
    const INPUTS: [&'static str; K];
    /// Every instance of the kernel except those for clusters.
    const KERNELS: &'static [Instance];
    /// The instances for clusters.
    const CLUSTERED: &'static [Instance];
    /// The arguments of the kernels.
    type Args<T: Element>: Args;
    /// The kernel for elements of type `T` and rows that eight lanes hold.
    type Lanes<T: Element>: Kernel<Args = Self::Args<T>>;
    /// The kernel for rows that a warp holds.
    type Warp<T: Element>: Kernel<Args = Self::Args<T>>;
    /// The kernel for rows that a block holds with two packs per thread.
    type ShortBlock<T: Element>: Kernel<Args = Self::Args<T>>;
    /// The kernel for rows that a block holds with more packs per thread.
    type Block<T: Element>: Kernel<Args = Self::Args<T>>;
    /// The kernel for rows that a cluster holds.
    type Cluster<T: Element>: Kernel<Args = Self::Args<T>>;
    /// The kernel for all other rows.
    type Stream<T: Element>: Kernel<Args = Self::Args<T>>;

    /// The kernels' arguments.
    fn args<T: Element>(
        self,
        inputs: [DevicePtr<T>; K],
        output: DevicePtrMut<T>,
        rows: u64,
        d: u64,
        strides: Strides<K>,
    ) -> Self::Args<T>;
}
