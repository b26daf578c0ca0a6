//! How to request a row-major product from a column-major library.
//!
//! # Math
//! cuBLAS uses FORTRAN's order: the elements of a column are contiguous, and the *leading dimension* is the distance from one
//! column to the next. Here the elements of a row are contiguous. No data has to be moved between the two, since the same bytes
//! are the transpose: a row-major `[rows, columns]` matrix whose rows are `ld` apart, read in column-major order, is a
//! `[columns, rows]` matrix with leading dimension `ld`. Without flags, the library therefore takes Aᵀ and Bᵀ as operands and
//! writes Cᵀ, and the request is for that product:
//!
//! ```text
//! row-major     C  = A  · B      [m, n] = [m, k] · [k, n]
//! column-major  Cᵀ = Bᵀ · Aᵀ     [n, m] = [n, k] · [k, m]
//! ```
//!
//! The operands are swapped, as are m and n; k, the leading dimensions and the factors stay. No flag is set. The flag `T` is
//! for an operand that is transposed in memory, column-major here: its order is that of the library, so the library must
//! transpose it.
//!
//! # Limits
//! One of a matrix's two strides must be 1, and the other at least the length that it steps over: a broadcast has no leading
//! dimension. Numbers of rows and columns are `int`s.
//!
//! # Sources
//! NVIDIA, cuBLAS, "Data Layout" and `cublasGemmStridedBatchedEx`.

use std::fmt;

/// The layout of a matrix or a batch of matrices. Distances are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixLayout {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// From one row to the next, and from one column to the next.
    pub(super) strides: [usize; 2],
    /// From one matrix to the next: 0 if all products share one.
    pub(super) step: usize,
}

impl MatrixLayout {
    /// The layout of a tensor of two or three dimensions.
    pub(super) fn of(shape: &[usize], strides: &[usize]) -> Option<Self> {
        match (shape, strides) {
            (&[rows, columns], &[row, column]) => Some(Self { rows, columns, strides: [row, column], step: 0 }),
            (&[_, rows, columns], &[step, row, column]) => Some(Self { rows, columns, strides: [row, column], step }),
            _ => None,
        }
    }

    /// Its transpose, in the same place.
    pub(super) fn t(self) -> Self {
        let Self { rows, columns, strides: [row, column], step } = self;
        Self { rows: columns, columns: rows, strides: [column, row], step }
    }

    /// The leading dimension, if the elements of a row are contiguous. The stride of a single row, or of a single column, does
    /// not matter.
    fn leading(&self) -> Option<usize> {
        let Self { rows, columns, strides: [row, column], .. } = *self;
        match rows {
            _ if columns > 1 && column != 1 => None,
            0 | 1 => Some(columns.max(1)),
            _ => Some(row).filter(|row| *row >= columns.max(1)),
        }
    }

    /// Whether the library has to transpose it, and its leading dimension.
    fn operand(self) -> Option<Operand> {
        let turned = |transposed: bool, layout: Self| {
            let (leading, step) = (layout.leading()?.try_into().ok()?, layout.step.try_into().ok()?);
            Some(Operand { transposed, leading, step })
        };
        turned(false, self).or_else(|| turned(true, self.t()))
    }
}

impl fmt::Display for MatrixLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}] with strides {:?}", self.rows, self.columns, self.strides)
    }
}

/// An operand in the form that the library takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) transposed: bool,
    pub(super) leading: i32,
    pub(super) step: i64,
}

/// The request for a product: its first operand is our `b`, its second our `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnMajor {
    /// The numbers of rows and columns of the library's result, and the depth.
    pub(super) sizes: [i32; 3],
    pub(super) first: Operand,
    pub(super) second: Operand,
    pub(super) result: Operand,
    pub(super) batch: i32,
}

impl ColumnMajor {
    /// The request for `batch` products of these, or the argument that the library cannot take, with the reason.
    pub(super) fn new(
        a: MatrixLayout,
        b: MatrixLayout,
        c: MatrixLayout,
        batch: usize,
    ) -> Result<Self, (&'static str, String)> {
        let named = [("a", a), ("b", b), ("c", c)];
        if let Some((name, empty)) =
            named.iter().find(|(_, layout)| layout.rows == 0 || layout.columns == 0 || batch == 0)
        {
            return Err((name, format!("is empty: {empty}")));
        }
        let operand = |(name, layout): (&'static str, MatrixLayout)| {
            layout.operand().ok_or_else(|| (name, format!("has no leading dimension: {layout}")))
        };
        let [a_taken, b_taken, result] = named.map(operand);
        let (second, first, result) = (a_taken?, b_taken?, result?);
        if result.transposed {
            return Err(("c", format!("lies by columns: {c}")));
        }
        let int =
            |name, size: usize| size.try_into().map_err(|_| (name, format!("has {size} rows, columns or matrices")));
        let sizes = [int("c", c.columns)?, int("c", c.rows)?, int("a", a.columns)?];
        Ok(Self { sizes, first, second, result, batch: int("c", batch)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The computation of a column-major library: C = op(A)·op(B), by the definition, with its requirements on leading dimensions.
    fn column_major(asked: &ColumnMajor, first: &[i64], second: &[i64], result: &mut [i64]) {
        let [m, n, k] = asked.sizes.map(|size| size as usize);
        let at = |operand: &Operand, row: usize, column: usize, product: usize, [rows, columns]: [usize; 2]| {
            let (row, column, rows) = if operand.transposed { (column, row, columns) } else { (row, column, rows) };
            assert!(operand.leading as usize >= rows.max(1), "{asked:?}");
            row + column * operand.leading as usize + product * operand.step as usize
        };
        for product in 0..asked.batch as usize {
            for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                let of = |l| {
                    let (a, b) =
                        (at(&asked.first, row, l, product, [m, k]), at(&asked.second, l, column, product, [k, n]));
                    first[a] * second[b]
                };
                result[at(&asked.result, row, column, product, [m, n])] = (0..k).map(of).sum();
            }
        }
    }

    /// A batch of matrices, by rows or by columns, padded, with values by their places in memory. One of several may be shared.
    fn tensor(
        [rows, columns]: [usize; 2],
        by_columns: bool,
        pad: usize,
        batch: usize,
        shared: bool,
    ) -> (MatrixLayout, Vec<i64>) {
        let (outer, inner) = if by_columns { (columns, rows) } else { (rows, columns) };
        let lead = inner + pad;
        let strides = if by_columns { [1, lead] } else { [lead, 1] };
        let step = if shared { 0 } else { outer * lead + pad };
        let layout = MatrixLayout { rows, columns, strides, step };
        let values = (0..batch * (outer * lead + pad)).map(|i| (i * 31 % 17) as i64 - 8).collect();
        (layout, values)
    }

    fn value(layout: &MatrixLayout, values: &[i64], product: usize, row: usize, column: usize) -> i64 {
        values[product * layout.step + row * layout.strides[0] + column * layout.strides[1]]
    }

    proptest! {
        #[test]
        fn products_of_every_layout_come_out_by_rows(
            sizes in [1usize..8, 1..8, 1..8],
            by_columns: [bool; 2],
            pads in [0usize..4, 0..4, 0..4],
            batch in 1usize..4,
            shared: [bool; 2],
        ) {
            let [m, n, k] = sizes;
            let (a, a_values) = tensor([m, k], by_columns[0], pads[0], batch, shared[0]);
            let (b, b_values) = tensor([k, n], by_columns[1], pads[1], batch, shared[1]);
            let (c, mut c_values) = tensor([m, n], false, pads[2], batch, false);
            let before = c_values.clone();
            let asked = ColumnMajor::new(a, b, c, batch).unwrap();
            column_major(&asked, &b_values, &a_values, &mut c_values);
            let mut expected = before;
            for product in 0..batch {
                for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                    let of = |l| value(&a, &a_values, product, row, l) * value(&b, &b_values, product, l, column);
                    expected[product * c.step + row * c.strides[0] + column] = (0..k).map(of).sum();
                }
            }
            prop_assert_eq!(c_values, expected);
        }
    }

    fn layout(rows: usize, columns: usize, strides: [usize; 2]) -> MatrixLayout {
        MatrixLayout { rows, columns, strides, step: 0 }
    }

    #[test]
    fn operands_change_places_and_no_flag_is_set() {
        let asked = ColumnMajor::new(layout(5, 7, [8, 1]), layout(7, 3, [4, 1]), layout(5, 3, [3, 1]), 1).unwrap();
        let operand = |leading| Operand { transposed: false, leading, step: 0 };
        assert_eq!(
            (asked.sizes, asked.first, asked.second, asked.result),
            ([3, 5, 7], operand(4), operand(8), operand(3))
        );
        // A linear layer's Bᵀ, of rows of 7: what lies by columns is turned.
        let asked = ColumnMajor::new(layout(5, 7, [8, 1]), layout(3, 7, [9, 1]).t(), layout(5, 3, [3, 1]), 1).unwrap();
        assert_eq!(asked.first, Operand { transposed: true, leading: 9, step: 0 });
    }

    #[test]
    fn what_has_no_leading_dimension_is_refused() {
        let (a, b, c) = (layout(5, 7, [7, 1]), layout(7, 3, [3, 1]), layout(5, 3, [3, 1]));
        let refused = |a, b, c, batch| {
            let (name, why) = ColumnMajor::new(a, b, c, batch).unwrap_err();
            format!("{name} {why}")
        };
        // A row for all, an element for a row, every second element, rows that overlap.
        assert_eq!(refused(layout(5, 7, [0, 1]), b, c, 1), "a has no leading dimension: [5, 7] with strides [0, 1]");
        assert!(refused(a, layout(7, 3, [1, 0]), c, 1).starts_with("b has no leading"));
        assert!(refused(a, layout(7, 3, [6, 2]), c, 1).starts_with("b has no leading"));
        assert!(refused(layout(5, 7, [4, 1]), b, c, 1).starts_with("a has no leading"));
        assert_eq!(refused(a, b, layout(5, 3, [1, 5]), 1), "c lies by columns: [5, 3] with strides [1, 5]");
        assert!(refused(a, b, c, 0).contains("is empty"));
        assert!(refused(layout(5, 0, [1, 1]), layout(0, 3, [3, 1]), c, 1).starts_with("a is empty"));
        assert!(
            refused(layout(5, 1 << 33, [1 << 33, 1]), layout(1 << 33, 3, [3, 1]), c, 1).starts_with("a has no leading")
        );
        // A single row, a single column.
        assert!(ColumnMajor::new(layout(1, 7, [0, 1]), b, layout(1, 3, [0, 1]), 1).is_ok());
        assert!(ColumnMajor::new(a, layout(7, 1, [5, 9]), layout(5, 1, [4, 0]), 1).is_ok());
    }
}
