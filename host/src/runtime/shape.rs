//! Shapes of up to five dimensions, stored inline.

use std::fmt;
use std::ops::Deref;

use crate::runtime::error::{Error, Result};

/// The most dimensions a tensor can have (a TMA descriptor's limit as well).
pub const MAX_RANK: usize = 5;

/// The extents of a tensor, slowest dimension first. Behaves as a `&[usize]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// At most [`MAX_RANK`] dimensions whose product can be addressed.
    pub fn new(dims: &[usize]) -> Result<Self> {
        if dims.len() > MAX_RANK {
            return Err(Error::shape("shape", "dims", dims, format!("at most {MAX_RANK} dimensions")));
        }
        // Zero extents are taken as one, so that every sub-shape and stride can be counted as well.
        let product = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
        if product.is_none_or(|n| n > isize::MAX as usize) {
            return Err(Error::too_large("shape", "dims", format!("{dims:?} has more than 2^63 elements")));
        }
        Ok(Self::from_checked(dims))
    }

    pub(crate) fn from_checked(dims: &[usize]) -> Self {
        let mut inline = [1; MAX_RANK];
        inline[..dims.len()].copy_from_slice(dims);
        Self { dims: inline, rank: dims.len() as u8 }
    }

    /// The extents.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }

    /// Number of dimensions; 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Number of elements; 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// Strides, in elements, of a dense row-major layout.
    pub(crate) fn dense_strides(&self) -> [usize; MAX_RANK] {
        let mut strides = [1; MAX_RANK];
        for i in (0..self.rank().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * self.dims[i + 1].max(1);
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        self.dims()
    }
}

impl AsRef<[usize]> for Shape {
    fn as_ref(&self) -> &[usize] {
        self.dims()
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        self.dims() == other
    }
}

impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self.dims() == other
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dims().fmt(f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_checked() {
        assert!(Shape::new(&[1; 6]).is_err());
        assert!(Shape::new(&[usize::MAX, 2]).is_err());
        assert!(Shape::new(&[usize::MAX, 2, 0]).is_err());
        assert!(Shape::new(&[1 << 40, 1 << 20]).is_ok());
        assert_eq!(Shape::new(&[]).unwrap().elements(), 1);
        assert_eq!(Shape::new(&[3, 0, 5]).unwrap().elements(), 0);
    }

    #[test]
    fn dense_strides_are_row_major() {
        let shape = Shape::new(&[2, 3, 4]).unwrap();
        assert_eq!(shape.dense_strides()[..3], [12, 4, 1]);
        assert_eq!(shape.to_string(), "[2, 3, 4]");
        assert_eq!(shape, [2, 3, 4]);
    }
}
