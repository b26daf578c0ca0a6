//! Loops that references share. A reference is evaluated in f64 for the rows that a check requests; a check splits many rows
//! into parts, which run in parallel.

use std::cell::OnceCell;

use crate::runtime::host_tensor::HostTensor;

/// The number of elements in a row of a tensor of that shape: its last dimension, or 1 for a tensor of fewer than two dimensions.
pub fn row_len(shape: &[usize]) -> usize {
    if shape.len() < 2 { 1 } else { shape[shape.len() - 1] }
}

/// The number of rows in a tensor of that shape.
pub fn row_count(shape: &[usize]) -> usize {
    let outer = if shape.len() < 2 { shape } else { &shape[..shape.len() - 1] };
    // Saturating: shapes are examined before it is known whether such a tensor is possible.
    outer.iter().fold(1, |rows: usize, extent| rows.saturating_mul(*extent))
}

/// One row of `tensor`, in f64; empty if there is no such row, which makes the result too short to be accepted.
pub fn row(tensor: &HostTensor, row: usize) -> Vec<f64> {
    let len = row_len(tensor.shape());
    tensor.range_f64(row * len..(row + 1) * len).unwrap_or_default()
}

/// Rows of a tensor that a reference reads repeatedly, each widened once.
pub struct Widened<'a> {
    tensor: &'a HostTensor,
    rows: Vec<OnceCell<Vec<f64>>>,
}

impl<'a> Widened<'a> {
    /// With no row widened yet.
    pub fn new(tensor: &'a HostTensor) -> Self {
        Self { tensor, rows: vec![OnceCell::new(); row_count(tensor.shape())] }
    }

    /// As [`row`].
    pub fn row(&self, row: usize) -> &[f64] {
        self.rows.get(row).map_or(&[], |cell| cell.get_or_init(|| self::row(self.tensor, row)))
    }
}

/// The given rows of `tensor`, one after the other, in f64; fewer if some do not exist.
pub fn select(tensor: &HostTensor, rows: &[usize]) -> Vec<f64> {
    match row_len(tensor.shape()) {
        // Millions, of large vectors.
        1 => tensor.select_f64(rows.iter().copied()).unwrap_or_default(),
        _ => by_row(rows, |r| row(tensor, r)),
    }
}

/// `f` applied to every element of the rows.
pub fn elementwise(x: &HostTensor, rows: &[usize], f: impl Fn(f64) -> f64) -> Vec<f64> {
    select(x, rows).into_iter().map(f).collect()
}

/// The results of `f` for every row, one after the other.
pub fn by_row(rows: &[usize], f: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
    rows.iter().flat_map(|r| f(*r)).collect()
}

/// The dot product of rows of equal length, in eight partial sums, which a processor can add at the same time.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// Rows of a·bᵀ for row-major `a` (m×k) and `b` (n×k). Each row of `b` is widened once for all requested rows.
pub fn matmul_nt(a: &HostTensor, b: &HostTensor, rows: &[usize]) -> Vec<f64> {
    let wanted: Vec<_> = rows.iter().map(|r| row(a, *r)).collect();
    let n = row_count(b.shape());
    let columns: Vec<Vec<f64>> = (0..n)
        .map(|c| {
            let b = row(b, c);
            wanted.iter().map(|a| dot(a, &b)).collect()
        })
        .collect();
    (0..wanted.len()).flat_map(|r| columns.iter().map(move |column| column[r])).collect()
}

/// Rows of a·b for row-major `a` (m×k) and `b` (k×n).
pub fn matmul_nn(a: &HostTensor, b: &HostTensor, rows: &[usize]) -> Vec<f64> {
    let n = row_len(b.shape());
    let b: Vec<_> = (0..row_count(b.shape())).map(|k| row(b, k)).collect();
    by_row(rows, |r| {
        let mut sums = vec![0.0; n];
        for (a, b) in row(a, r).into_iter().zip(&b) {
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
        }
        sums
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::dtype::DType;

    fn tensor(shape: [usize; 2], values: &[f64]) -> HostTensor {
        HostTensor::from_f64(DType::F32, shape, values).unwrap()
    }

    #[test]
    fn dot_products_of_any_length() {
        for length in 0..40u32 {
            let a: Vec<_> = (0..length).map(f64::from).collect();
            let b: Vec<_> = a.iter().map(|a| a + 2.0).collect();
            assert_eq!(dot(&a, &b), a.iter().map(|a| a * (a + 2.0)).sum::<f64>());
        }
    }

    #[test]
    fn products_of_small_matrices() {
        let a = tensor([3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let b = tensor([2, 2], &[1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(matmul_nn(&a, &b, &[2, 0]), [605.0, 6050.0, 201.0, 2010.0]);
        assert_eq!(matmul_nt(&a, &b, &[2, 0]), [65.0, 6500.0, 21.0, 2100.0]);
        assert_eq!(matmul_nt(&tensor([2, 0], &[]), &tensor([2, 0], &[]), &[1]), [0.0, 0.0]);
        assert_eq!(matmul_nn(&tensor([2, 0], &[]), &tensor([0, 3], &[]), &[1]), [0.0, 0.0, 0.0]);
    }

    #[test]
    fn rows_of_vectors_are_elements() {
        assert_eq!((row_len(&[7]), row_count(&[7])), (1, 7));
        assert_eq!((row_len(&[2, 3, 5]), row_count(&[2, 3, 5])), (5, 6));
        assert_eq!((row_len(&[]), row_count(&[])), (1, 1));
        let x = tensor([2, 2], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(elementwise(&x, &[1], |v| -v), [-3.0, -4.0]);
        assert_eq!(row(&x, 2), [0.0; 0]);
        let widened = Widened::new(&x);
        assert_eq!([widened.row(1), widened.row(1), widened.row(2)], [&[3.0, 4.0][..], &[3.0, 4.0], &[]]);
        assert_eq!(select(&x, &[1, 0]), [3.0, 4.0, 1.0, 2.0]);
        let vector = HostTensor::from_f64(DType::F32, [3], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((select(&vector, &[2, 0]), select(&vector, &[3])), (vec![3.0, 1.0], vec![]));
    }
}
