//! Where the elements of a view lie: offset, shape and strides, with every derivation bounds-checked.

use std::ops::Range;

use crate::runtime::error::{Error, Result};
use crate::runtime::shape::{MAX_RANK, Shape};

/// Row-major, last stride 1, never overlapping itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Elements from the start of the storage.
    pub(crate) offset: usize,
    pub(crate) shape: Shape,
    strides: [usize; MAX_RANK],
}

impl Layout {
    pub(crate) fn dense(shape: Shape) -> Self {
        Self { offset: 0, shape, strides: shape.dense_strides() }
    }

    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides[..self.shape.rank()]
    }

    pub(crate) fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    pub(crate) fn rows(&self) -> usize {
        match self.shape.split_last() {
            Some((_, outer)) => outer.iter().product(),
            None => 1,
        }
    }

    pub(crate) fn row_stride(&self) -> Option<usize> {
        let rank = self.shape.rank();
        if rank < 2 {
            return Some(self.cols());
        }
        // The innermost outer dimension that has more than one entry sets the distance; those outside have to continue it.
        let mut expected = None;
        for i in (0..rank - 1).rev() {
            if self.shape[i] == 1 {
                continue;
            }
            match expected {
                None => expected = Some((self.strides[i], self.strides[i] * self.shape[i])),
                Some((_, next)) if next != self.strides[i] => return None,
                Some((first, next)) => expected = Some((first, next * self.shape[i])),
            }
        }
        Some(expected.map_or(self.strides[rank - 2].max(self.cols()), |(first, _)| first))
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        let dense = self.shape.dense_strides();
        self.shape.elements() == 0 || (0..self.shape.rank()).all(|i| self.shape[i] == 1 || self.strides[i] == dense[i])
    }

    /// Elements from the first to one past the last.
    pub(crate) fn span(&self) -> usize {
        if self.shape.elements() == 0 {
            return 0;
        }
        let last: usize = self.shape.iter().zip(self.strides()).map(|(d, s)| (d - 1) * s).sum();
        last + 1
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> Result<Self> {
        let Some(&extent) = self.shape.first() else {
            return Err(Error::shape("slice", "self", &[], "at least one dimension"));
        };
        if range.start > range.end || range.end > extent {
            return Err(Error::param("slice", "range", format!("{range:?}"), format!("a range within 0..{extent}")));
        }
        let mut dims = [0; MAX_RANK];
        let dims = &mut dims[..self.shape.rank()];
        dims.copy_from_slice(&self.shape);
        dims[0] = range.len();
        let empty = dims.contains(&0);
        Ok(Self {
            // An empty slice points at the start: one past the end is not an element of the storage.
            offset: self.offset + if empty { 0 } else { range.start * self.strides[0] },
            shape: Shape::from_checked(dims),
            strides: self.strides,
        })
    }

    pub(crate) fn reshape(&self, dims: &[usize]) -> Result<Self> {
        let shape = Shape::new(dims)?;
        if shape.elements() != self.shape.elements() {
            return Err(Error::shape(
                "reshape",
                "shape",
                dims,
                format!("{} elements as in {}", self.shape.elements(), self.shape),
            ));
        }
        if !self.is_contiguous() {
            return Err(Error::layout(
                "reshape",
                "self",
                format!("has strides {:?}: it has to be contiguous", self.strides()),
            ));
        }
        Ok(Self { offset: self.offset, ..Self::dense(shape) })
    }

    pub(crate) fn strided(&self, offset: usize, dims: &[usize], strides: &[usize]) -> Result<Self> {
        let shape = Shape::new(dims)?;
        if !self.is_contiguous() {
            return Err(Error::layout(
                "strided",
                "self",
                format!("has strides {:?}: it has to be contiguous", self.strides()),
            ));
        }
        let bad = |expected: &str| Error::param("strided", "strides", format!("{strides:?}"), expected);
        if strides.len() != dims.len() {
            return Err(bad(&format!("{} strides for shape {shape}", dims.len())));
        }
        if strides.last().is_some_and(|&s| s != 1) {
            return Err(bad("a last stride of 1"));
        }
        let mut inline = [1; MAX_RANK];
        inline[..strides.len()].copy_from_slice(strides);
        let extents = if shape.elements() == 0 { &[][..] } else { dims };
        // Each stride must step over everything inside it; the span is counted on the way, with overflow checks.
        let mut span = 1usize;
        for (&d, &s) in extents.iter().zip(strides).rev() {
            if d > 1 && s < span {
                return Err(bad("strides that step over the inner dimensions"));
            }
            span = d
                .saturating_sub(1)
                .checked_mul(s)
                .and_then(|n| n.checked_add(span))
                .ok_or_else(|| Error::too_large("strided", "strides", "the span overflows"))?;
        }
        let used = if shape.elements() == 0 { 0 } else { span };
        let available = self.shape.elements();
        if offset.checked_add(used).is_none_or(|end| end > available) {
            return Err(Error::param(
                "strided",
                "offset",
                offset,
                format!("offset + {used} spanned elements within the {available} of the tensor"),
            ));
        }
        Ok(Self { offset: self.offset + if used == 0 { 0 } else { offset }, shape, strides: inline })
    }

    /// The elements of this layout in order, from a slice of its whole span.
    pub(crate) fn gather<T: Copy>(&self, spanned: &[T]) -> Vec<T> {
        let mut out = Vec::with_capacity(self.shape.elements());
        if self.shape.elements() == 0 {
            return out;
        }
        let outer = self.shape.rank().saturating_sub(1);
        let mut index = [0usize; MAX_RANK];
        for _ in 0..self.rows() {
            let start: usize = (0..outer).map(|i| index[i] * self.strides[i]).sum();
            out.extend_from_slice(&spanned[start..start + self.cols()]);
            for i in (0..outer).rev() {
                index[i] += 1;
                if index[i] < self.shape[i] {
                    break;
                }
                index[i] = 0;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(dims: &[usize]) -> Layout {
        Layout::dense(Shape::new(dims).unwrap())
    }

    #[test]
    fn padded_rows_gather_in_order() {
        let padded = dense(&[20]).strided(1, [2, 3].as_slice(), &[5, 1]).unwrap();
        assert_eq!(padded.span(), 8);
        assert_eq!(padded.row_stride(), Some(5));
        assert!(!padded.is_contiguous());
        let all: Vec<u32> = (1..9).collect();
        assert_eq!(padded.gather(&all), [1, 2, 3, 6, 7, 8]);
        let inner = padded.slice(1..2).unwrap();
        assert_eq!((inner.offset, inner.span()), (6, 3));
        assert!(inner.is_contiguous());
    }

    #[test]
    fn three_dimensions_with_one_row_stride() {
        let all = dense(&[1000]);
        let even = all.strided(0, &[2, 3, 4], &[24, 8, 1]).unwrap();
        assert_eq!((even.rows(), even.row_stride()), (6, Some(8)));
        let uneven = all.strided(0, &[2, 3, 4], &[100, 8, 1]).unwrap();
        assert_eq!(uneven.row_stride(), None);
        assert_eq!(uneven.span(), 100 + 16 + 4);
        let single = all.strided(0, &[1, 3, 4], &[7, 8, 1]).unwrap();
        assert_eq!(single.row_stride(), Some(8));
    }

    #[test]
    fn selections_outside_or_overlapping_are_refused() {
        let all = dense(&[10]);
        assert!(all.strided(0, &[2, 5], &[5, 1]).is_ok());
        assert!(all.strided(1, &[2, 5], &[5, 1]).is_err());
        assert!(all.strided(0, &[2, 5], &[4, 1]).is_err());
        assert!(all.strided(0, &[2, 2], &[5, 2]).is_err());
        assert!(all.strided(0, &[2], &[5, 1]).is_err());
        assert!(all.strided(0, &[2, 2], &[usize::MAX, 1]).is_err());
        assert!(all.strided(usize::MAX, &[2], &[1]).is_err());
        assert!(all.strided(11, &[0], &[1]).is_err());
        assert!(all.slice(3..11).is_err());
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = all.slice(5..4);
        assert!(reversed.is_err());
        assert!(dense(&[]).slice(0..0).is_err());
        assert!(dense(&[4, 3]).reshape(&[5]).is_err());
        assert!(dense(&[4, 3]).reshape(&[2, 6]).is_ok());
    }

    #[test]
    fn empty_selections_have_no_span() {
        let none = dense(&[4, 3]).slice(4..4).unwrap();
        assert_eq!((none.offset, none.span(), none.rows()), (0, 0, 0));
        assert!(none.gather::<u8>(&[]).is_empty());
    }
}
