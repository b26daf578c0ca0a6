//! Epilogues of swapped operands.

use core::array;

use cuda_std::float::Half;

use super::{Epilogue, Factor, Four, Linear, Scales, each};

/// Applies another epilogue to the sums of the swapped operands, where a row of sums is a column of C.
#[derive(Clone, Copy)]
pub(in super::super) struct Swapped<E>(pub(in super::super) E);

/// Stores the sums of swapped operands as they are, for a launch that adds them.
#[derive(Clone, Copy)]
pub(in super::super) struct Raw;

impl Epilogue for Raw {
    type Row = ();
    type Read = ();

    const SWAPPED: bool = true;
    const RAW: bool = true;

    #[inline(always)]
    unsafe fn row(&self, _: u32) {}

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, _: [(); 2], _: u32) -> [(); N] {
        [(); N]
    }
}

impl Epilogue for Swapped<Factor> {
    type Row = ();
    type Read = ();

    const SWAPPED: bool = true;

    #[inline(always)]
    fn factor(&self) -> f32 {
        self.0.factor()
    }

    #[inline(always)]
    unsafe fn row(&self, _: u32) {}

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, _: [(); 2], _: u32) -> [(); N] {
        [(); N]
    }
}

/// Neighbouring sums of a row have the scales of neighbouring rows of C.
impl Epilogue for Swapped<Scales> {
    /// The scale of the column of C.
    type Row = f32;
    // As of the scales of columns where operands are not swapped.
    type Read = ();

    const SWAPPED: bool = true;

    #[inline(always)]
    unsafe fn row(&self, row: u32) -> f32 {
        self.0.columns.at(row)
    }

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, _: [f32; 2], _: u32) -> [(); N] {
        [(); N]
    }

    #[inline(always)]
    unsafe fn apply<const N: usize>(
        &self,
        columns: [f32; 2],
        row: u32,
        _: [(); N],
        sums: [Four<f32>; N],
    ) -> [Four<f32>; N] {
        let rows: [_; N] = array::from_fn(|i| self.0.rows.pair(row + 8 * i as u32));
        each(|i, half, e| sums[i][half][e] * rows[i][e] * columns[half])
    }
}

/// The bias belongs to the rows of the sums, and neighbouring sums are in different rows of the residual, which is
/// therefore read element by element.
impl<T: Half> Epilogue for Swapped<Linear<T>> {
    /// The bias, and the first of the column of the residual, or null.
    type Row = (f32, *const T);
    type Read = Four<T>;

    const SWAPPED: bool = true;

    #[inline(always)]
    unsafe fn row(&self, row: u32) -> (f32, *const T) {
        let Self(Linear { bias, residual, last_row, .. }) = *self;
        let at = row.min(last_row) as usize;
        let bias = if bias.is_null() { 0.0 } else { (*bias.add(at)).to_f32() };
        (bias, if residual.is_null() { residual } else { residual.add(at) })
    }

    #[inline(always)]
    unsafe fn read<const N: usize>(&self, rows: [(f32, *const T); 2], column: u32) -> [Four<T>; N] {
        let Self(Linear { residual, residual_stride, last_column, .. }) = *self;
        if residual.is_null() {
            return [[[T::from_f32(0.0); 2]; 2]; N];
        }
        let at = |column: u32| (u64::from(column.min(last_column)) * residual_stride) as usize;
        array::from_fn(|i| {
            let columns = [column + 8 * i as u32, column + 8 * i as u32 + 1].map(at);
            rows.map(|(_, first)| columns.map(|at| *first.add(at)))
        })
    }

    #[inline(always)]
    unsafe fn apply<const N: usize>(
        &self,
        rows: [(f32, *const T); 2],
        _: u32,
        read: [Four<T>; N],
        sums: [Four<f32>; N],
    ) -> [Four<f32>; N] {
        let x: [Four<f32>; N] = each(|i, half, e| sums[i][half][e] + rows[half].0);
        let y = self.0.activation.apply(x);
        each(|i, half, e| y[i][half][e] + read[i][half][e].to_f32())
    }
}
