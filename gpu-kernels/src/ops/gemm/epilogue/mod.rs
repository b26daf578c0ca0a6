//! Epilogues: the operation on sums before they are rounded and stored. An epilogue is a type, which both paths compile
//! into their kernels.

mod swapped;

use core::array;

use cuda_std::float::{Element, Half};
use cuda_std::vector::Pack;

use super::super::activation::{gelu, silu, times_sigmoid};
use super::Problem;

pub(super) use self::swapped::{Raw, Swapped};

/// The type that a sum is held in.
pub(super) trait Sum: Copy {
    /// The sum of nothing.
    const ZERO: Self;

    /// The sum in f32.
    fn to_f32(self) -> f32;

    /// Its bits as those of an f32.
    fn bits(self) -> f32;

    /// The sum of two.
    fn plus(self, other: Self) -> Self;

    /// The sum times a number, which is 1 for integers.
    fn times(self, factor: f32) -> Self;
}

impl Sum for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn bits(self) -> f32 {
        self
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn times(self, factor: f32) -> Self {
        self * factor
    }
}

impl Sum for i32 {
    const ZERO: Self = 0;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn bits(self) -> f32 {
        f32::from_bits(self as u32)
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn times(self, _: f32) -> Self {
        self
    }
}

/// A thread's sums in two neighbouring columns of two rows.
pub(super) type Four<S> = [[S; 2]; 2];

/// Applied to every sum, in f32. A thread's sums are of two rows, and of two columns every 8.
pub(super) trait Epilogue: Copy {
    /// Per-row data, shared by the columns of a row.
    type Row: Copy;
    /// Data that is read for two columns of the two rows.
    type Read: Copy;

    /// Whether a result combines two sums. A thread then has all the first sums before all the second ones.
    const PAIRED: bool = false;

    /// Whether the operands are swapped, so that rows of the sums are columns of C.
    const SWAPPED: bool = false;

    /// Whether sums are stored as they are, in whatever type.
    const RAW: bool = false;

    /// The result of the two sums.
    #[inline(always)]
    fn join<const N: usize>(&self, first: [Four<f32>; N], _: [Four<f32>; N]) -> [Four<f32>; N] {
        first
    }

    /// The factor that all sums are multiplied by first.
    #[inline(always)]
    fn factor(&self) -> f32 {
        1.0
    }

    /// The per-row data of that row, which may be outside of C.
    unsafe fn row(&self, row: u32) -> Self::Row;

    /// Prefetches the data for the sums in `column` and the next, and in those every 8 columns further. They may be
    /// outside of C.
    unsafe fn read<const N: usize>(&self, rows: [Self::Row; 2], column: u32) -> [Self::Read; N];

    /// Applies the epilogue to the sums; by default, leaves them as they are.
    #[inline(always)]
    unsafe fn apply<const N: usize>(
        &self,
        _: [Self::Row; 2],
        _: u32,
        _: [Self::Read; N],
        sums: [Four<f32>; N],
    ) -> [Four<f32>; N] {
        sums
    }
}

/// Applies a function to each sum, given its pair of columns, its row and its column in the pair.
#[inline(always)]
fn each<const N: usize>(f: impl Fn(usize, usize, usize) -> f32) -> [Four<f32>; N] {
    array::from_fn(|i| array::from_fn(|half| array::from_fn(|e| f(i, half, e))))
}

/// All sums times a number.
#[derive(Clone, Copy)]
pub(super) struct Factor(f32);

impl Factor {
    /// The identity epilogue.
    pub(super) const ONE: Self = Self(1.0);

    /// α; if `scale` is not null, it is another factor that is known on the device only.
    #[inline(always)]
    pub(super) unsafe fn of(alpha: f32, scale: *const f32) -> Self {
        Self(if scale.is_null() { alpha } else { alpha * *scale })
    }
}

impl Epilogue for Factor {
    type Row = ();
    type Read = ();

    #[inline(always)]
    fn factor(&self) -> f32 {
        let Self(factor) = *self;
        factor
    }

    #[inline(always)]
    unsafe fn row(&self, _: u32) {}

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, _: [(); 2], _: u32) -> [(); N] {
        [(); N]
    }
}

/// A vector with one element for each row or column, or a single element that all share.
#[derive(Clone, Copy)]
pub(super) struct Along<T> {
    values: *const T,
    /// The index of the last element: 0 if all share it.
    last: u32,
}

impl<T: Element> Along<T> {
    /// Of `n` elements `step` apart: 1, or 0 for one.
    #[inline(always)]
    pub(super) fn new(values: *const T, step: u32, n: u32) -> Self {
        Self { values, last: (n - 1) * step }
    }

    /// Element `i`, or the last one if `i` is out of range: its result is outside of C anyway.
    #[inline(always)]
    unsafe fn at(self, i: u32) -> f32 {
        (*self.values.add(i.min(self.last) as usize)).to_f32()
    }

    /// Elements `i` and the next.
    #[inline(always)]
    unsafe fn pair(self, i: u32) -> [f32; 2] {
        [self.at(i), self.at(i + 1)]
    }
}

/// Times the scale of the row, then that of the column.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    rows: Along<f32>,
    columns: Along<f32>,
}

impl Scales {
    /// Those of A's rows and of B's, `steps` apart.
    #[inline(always)]
    pub(super) fn of(problem: &Problem, scales: [*const f32; 2], steps: [u32; 2]) -> Self {
        Self::new([problem.m, problem.n], scales, steps)
    }

    /// Those of `m` rows of A and of `n` of B.
    #[inline(always)]
    pub(super) fn new([m, n]: [u32; 2], [a, b]: [*const f32; 2], [a_step, b_step]: [u32; 2]) -> Self {
        Self { rows: Along::new(a, a_step, m), columns: Along::new(b, b_step, n) }
    }

    /// Neighbouring sums of a row times their scales.
    #[inline(always)]
    pub(super) unsafe fn times<S: Sum, const N: usize>(&self, row: u32, column: u32, sums: [S; N]) -> [f32; N] {
        let scale = self.rows.at(row);
        array::from_fn(|i| sums[i].to_f32() * scale * self.columns.at(column + i as u32))
    }
}

impl Epilogue for Scales {
    type Row = f32;
    // A column's scale is read when it is needed: it is the same for all rows, and there are no registers to read more
    // ahead.
    type Read = ();

    #[inline(always)]
    unsafe fn row(&self, row: u32) -> f32 {
        self.rows.at(row)
    }

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, _: [f32; 2], _: u32) -> [(); N] {
        [(); N]
    }

    #[inline(always)]
    unsafe fn apply<const N: usize>(
        &self,
        rows: [f32; 2],
        column: u32,
        _: [(); N],
        sums: [Four<f32>; N],
    ) -> [Four<f32>; N] {
        let columns: [_; N] = array::from_fn(|i| self.columns.pair(column + 8 * i as u32));
        each(|i, half, e| sums[i][half][e] * rows[half] * columns[i][e])
    }
}

/// No activation.
pub const NONE: u32 = 0;
/// max(x, 0).
pub const RELU: u32 = 1;
/// x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))).
pub const GELU: u32 = 2;
/// x · σ(x).
pub const SILU: u32 = 3;

/// One of these activations, in the form that is computed.
#[derive(Clone, Copy)]
pub(super) struct Activation {
    /// Whether the activation is x·σ of a polynomial, and its coefficients.
    is_curved: bool,
    exponent: [f32; 2],
    /// The lower bound of the results of any other activation.
    least: f32,
}

impl Activation {
    #[inline(always)]
    pub(super) fn of(number: u32) -> Self {
        Self {
            is_curved: number == GELU || number == SILU,
            exponent: if number == GELU { gelu::EXPONENT } else { silu::EXPONENT },
            least: if number == RELU { 0.0 } else { f32::NEG_INFINITY },
        }
    }

    /// Applies the activation to all sums. The branch is taken once for all of them: a branch for each would prevent
    /// their latencies from overlapping.
    #[inline(always)]
    pub(super) fn apply<const N: usize>(self, x: [Four<f32>; N]) -> [Four<f32>; N] {
        if self.is_curved {
            each(|i, half, e| times_sigmoid(x[i][half][e], self.exponent))
        } else {
            // NaN is kept.
            each(|i, half, e| if x[i][half][e] <= self.least { self.least } else { x[i][half][e] })
        }
    }
}

/// The first sum through an activation, times the second.
#[derive(Clone, Copy)]
pub(super) struct Gated(pub(super) Activation);

impl Epilogue for Gated {
    type Row = ();
    type Read = ();

    const PAIRED: bool = true;

    #[inline(always)]
    fn join<const N: usize>(&self, gate: [Four<f32>; N], up: [Four<f32>; N]) -> [Four<f32>; N] {
        let Self(activation) = *self;
        let gate = activation.apply(gate);
        each(|i, half, e| gate[i][half][e] * up[i][half][e])
    }

    #[inline(always)]
    unsafe fn row(&self, _: u32) {}

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, _: [(); 2], _: u32) -> [(); N] {
        [(); N]
    }
}

/// Adds the bias of the column, applies an activation, and adds an element of a matrix of the shape of C.
#[derive(Clone, Copy)]
pub(super) struct Linear<T> {
    /// Null if there is none.
    bias: *const T,
    /// Null if there is none.
    residual: *const T,
    residual_stride: u64,
    activation: Activation,
    last_row: u32,
    last_column: u32,
    /// Whether two neighbours can be read at once.
    in_pairs: bool,
}

impl<T: Half> Linear<T> {
    /// For a problem, the number of an activation, a bias, and a residual whose rows are `residual_stride` apart.
    #[inline(always)]
    pub(super) fn of(
        problem: &Problem,
        activation: u32,
        bias: *const T,
        (residual, residual_stride): (*const T, u64),
    ) -> Self {
        let aligned = (bias as usize | residual as usize).is_multiple_of(2 * size_of::<T>());
        Self {
            bias,
            residual,
            residual_stride,
            activation: Activation::of(activation),
            last_row: problem.m - 1,
            last_column: problem.n - 1,
            in_pairs: aligned && residual_stride.is_multiple_of(2) && problem.n.is_multiple_of(2),
        }
    }

    /// Two neighbours of a row, every 8 columns from `column` on, which is even; zeros if there is no row. Columns
    /// outside of C get an arbitrary element of the row.
    #[inline(always)]
    unsafe fn pairs<const N: usize>(&self, row: *const T, column: u32) -> [Pack<T, 2>; N] {
        if row.is_null() {
            return [Pack::from_f32([0.0; 2]); N];
        }
        let columns = |i: usize| column + 8 * i as u32;
        if self.in_pairs {
            array::from_fn(|i| Pack::load(row.add(columns(i).min(self.last_column - 1) as usize)))
        } else {
            let at = |column: u32| *row.add(column.min(self.last_column) as usize);
            array::from_fn(|i| Pack([at(columns(i)), at(columns(i) + 1)]))
        }
    }
}

impl<T: Half> Epilogue for Linear<T> {
    /// The row of the residual, or null.
    type Row = *const T;
    /// Of the bias, and of the residual's two rows.
    type Read = [Pack<T, 2>; 3];

    #[inline(always)]
    unsafe fn row(&self, row: u32) -> *const T {
        let first = u64::from(row.min(self.last_row)) * self.residual_stride;
        if self.residual.is_null() { self.residual } else { self.residual.add(first as usize) }
    }

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, [upper, lower]: [*const T; 2], column: u32) -> [[Pack<T, 2>; 3]; N] {
        let bias = self.pairs::<N>(self.bias, column);
        let (upper, lower) = (self.pairs::<N>(upper, column), self.pairs::<N>(lower, column));
        array::from_fn(|i| [bias[i], upper[i], lower[i]])
    }

    #[inline(always)]
    unsafe fn apply<const N: usize>(
        &self,
        _: [*const T; 2],
        _: u32,
        read: [[Pack<T, 2>; 3]; N],
        sums: [Four<f32>; N],
    ) -> [Four<f32>; N] {
        let read = read.map(|packs| packs.map(Pack::to_f32));
        let x: [Four<f32>; N] = each(|i, half, e| sums[i][half][e] + read[i][0][e]);
        let y = self.activation.apply(x);
        each(|i, half, e| y[i][half][e] + read[i][1 + half][e])
    }
}
