//! What becomes of sums before they are rounded and stored: a type, which both paths compile into their kernels.

use cuda_std::float::Element;

use super::Problem;

/// What a sum is held in.
pub(super) trait Sum: Copy {
    /// The sum in f32.
    fn to_f32(self) -> f32;

    /// The sum times a number, which is 1 for integers.
    fn times(self, factor: f32) -> Self;
}

impl Sum for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn times(self, factor: f32) -> Self {
        self * factor
    }
}

impl Sum for i32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn times(self, _: f32) -> Self {
        self
    }
}

/// Applied to every sum, in f32.
pub(super) trait Epilogue: Copy {
    /// What the columns of a row share.
    type Row: Copy;

    /// What all sums are multiplied with first.
    #[inline(always)]
    fn factor(&self) -> f32 {
        1.0
    }

    /// What the columns of that row share. It may lie outside of C.
    unsafe fn row(&self, row: u32) -> Self::Row;

    /// What becomes of a row's sums in `column` and the next, which may lie outside of C.
    unsafe fn apply(&self, row: Self::Row, column: u32, sums: [f32; 2]) -> [f32; 2];
}

/// All sums times a number.
#[derive(Clone, Copy)]
pub(super) struct Factor(f32);

impl Factor {
    /// What changes nothing.
    pub(super) const ONE: Self = Self(1.0);

    /// α, of which `scale`, unless it is null, is a factor that only the device knows.
    #[inline(always)]
    pub(super) unsafe fn of(alpha: f32, scale: *const f32) -> Self {
        Self(if scale.is_null() { alpha } else { alpha * *scale })
    }
}

impl Epilogue for Factor {
    type Row = ();

    #[inline(always)]
    fn factor(&self) -> f32 {
        let Self(factor) = *self;
        factor
    }

    #[inline(always)]
    unsafe fn row(&self, _: u32) {}

    #[inline(always)]
    unsafe fn apply(&self, (): (), _: u32, sums: [f32; 2]) -> [f32; 2] {
        sums
    }
}

/// A vector with an element for each row or column, or one that all share.
#[derive(Clone, Copy)]
pub(super) struct Along<T> {
    values: *const T,
    /// The last one's number: 0 if all share it.
    last: u32,
}

impl<T: Element> Along<T> {
    /// Of `n` elements `step` apart: 1, or 0 for one.
    #[inline(always)]
    pub(super) fn new(values: *const T, step: u32, n: u32) -> Self {
        Self { values, last: (n - 1) * step }
    }

    /// Element `i`, or the last if there is none: what it is for is outside of C.
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
    pub(super) fn of(problem: &Problem, [a, b]: [*const f32; 2], [a_step, b_step]: [u32; 2]) -> Self {
        Self { rows: Along::new(a, a_step, problem.m), columns: Along::new(b, b_step, problem.n) }
    }
}

impl Epilogue for Scales {
    type Row = f32;

    #[inline(always)]
    unsafe fn row(&self, row: u32) -> f32 {
        self.rows.at(row)
    }

    #[inline(always)]
    unsafe fn apply(&self, row: f32, column: u32, sums: [f32; 2]) -> [f32; 2] {
        let [first, second] = self.columns.pair(column);
        [sums[0] * row * first, sums[1] * row * second]
    }
}
