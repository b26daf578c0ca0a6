//! Where the elements of a view lie: offset, shape and strides, with every derivation bounds-checked.

use std::ops::Range;

use crate::runtime::error::{Error, Result};
use crate::runtime::shape::{MAX_RANK, Shape};

/// A selection of a storage's elements. All that it names lies inside the storage.
///
/// A dimension that is never stepped along (it has one entry, or the view has no elements) gets the stride that continues the inner ones,
/// whatever it was given. So no stride, and no product of a stride with its extent, overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Elements from the start of the storage.
    pub(crate) offset: usize,
    pub(crate) shape: Shape,
    strides: [usize; MAX_RANK],
}

/// Whether two elements of a view may be one in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlap {
    Allowed,
    Refused,
}

impl Layout {
    pub(crate) fn dense(shape: Shape) -> Self {
        Self { offset: 0, shape, strides: shape.dense_strides() }
    }

    fn new(offset: usize, shape: Shape, mut strides: [usize; MAX_RANK]) -> Self {
        if shape.elements() == 0 {
            return Self { offset, ..Self::dense(shape) };
        }
        let mut next = 1;
        for i in (0..shape.rank()).rev() {
            if shape[i] == 1 {
                strides[i] = next;
            }
            next = strides[i] * shape[i];
        }
        Self { offset, shape, strides }
    }

    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides[..self.shape.rank()]
    }

    pub(crate) fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    pub(crate) fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Whether the elements of a row follow each other.
    pub(crate) fn rows_are_contiguous(&self) -> bool {
        self.strides().last().is_none_or(|&s| s == 1)
    }

    pub(crate) fn row_stride(&self) -> Option<usize> {
        if !self.rows_are_contiguous() {
            return None;
        }
        let outer = self.shape.rank().saturating_sub(1);
        // The innermost outer dimension that has more than one entry sets the distance; those outside have to continue it.
        let mut stepped = (0..outer).rev().filter(|&i| self.shape[i] != 1);
        let Some(first) = stepped.next() else {
            return Some(self.cols());
        };
        let mut next = self.strides[first] * self.shape[first];
        for i in stepped {
            if self.strides[i] != next {
                return None;
            }
            next = self.strides[i] * self.shape[i];
        }
        Some(self.strides[first])
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
        1 + self.shape.iter().zip(self.strides()).map(|(d, s)| (d - 1) * s).sum::<usize>()
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
        // An empty slice points at the start: one past the end is not an element of the storage.
        let skipped = if dims.contains(&0) { 0 } else { range.start * self.strides[0] };
        Ok(Self::new(self.offset + skipped, Shape::from_checked(dims), self.strides))
    }

    pub(crate) fn reshape(&self, dims: &[usize]) -> Result<Self> {
        let shape = Shape::new(dims)?;
        if shape.elements() != self.shape.elements() {
            let expected = format!("{} elements as in {}", self.shape.elements(), self.shape);
            return Err(Error::shape("reshape", "shape", dims, expected));
        }
        self.require_contiguous("reshape")?;
        Ok(Self { offset: self.offset, ..Self::dense(shape) })
    }

    /// The dimensions in another order: `order[i]` is which of them becomes dimension `i`.
    pub(crate) fn permute(&self, order: &[usize]) -> Result<Self> {
        let rank = self.shape.rank();
        let mut seen = [false; MAX_RANK];
        let fits = order.len() == rank && order.iter().all(|&i| i < rank && !std::mem::replace(&mut seen[i], true));
        if !fits {
            return Err(Error::param("permute", "order", format!("{order:?}"), format!("each of 0..{rank} once")));
        }
        let (mut dims, mut strides) = ([1; MAX_RANK], [1; MAX_RANK]);
        for (i, &from) in order.iter().enumerate() {
            (dims[i], strides[i]) = (self.shape[from], self.strides[from]);
        }
        Ok(Self::new(self.offset, Shape::from_checked(&dims[..rank]), strides))
    }

    /// The last two dimensions exchanged; nothing changes with fewer.
    pub(crate) fn transposed(&self) -> Self {
        let mut order = [0, 1, 2, 3, 4];
        let order = &mut order[..self.shape.rank()];
        if let [.., a, b] = order {
            std::mem::swap(a, b);
        }
        self.permute(order).unwrap_or(*self)
    }

    /// Repeats dimensions of one entry, and adds outer ones, until the shape is `dims`.
    pub(crate) fn broadcast(&self, dims: &[usize]) -> Result<Self> {
        let shape = Shape::new(dims)?;
        let bad = || Error::shape("broadcast", "shape", dims, format!("{}, its entries of 1 repeated", self.shape));
        let outer = shape.rank().checked_sub(self.shape.rank()).ok_or_else(bad)?;
        let mut strides = [0; MAX_RANK];
        for (i, (&d, &s)) in self.shape.iter().zip(self.strides()).enumerate() {
            match shape[outer + i] {
                wanted if wanted == d => strides[outer + i] = s,
                _ if d == 1 => {}
                _ => return Err(bad()),
            }
        }
        Ok(Self::new(self.offset, shape, strides))
    }

    /// Any selection of this contiguous layout's elements.
    pub(crate) fn strided(&self, offset: usize, dims: &[usize], strides: &[usize], overlap: Overlap) -> Result<Self> {
        let shape = Shape::new(dims)?;
        self.require_contiguous("strided")?;
        let bad = |expected: String| Error::param("strided", "strides", format!("{strides:?}"), expected);
        if strides.len() != dims.len() {
            return Err(bad(format!("{} strides for shape {shape}", dims.len())));
        }
        let mut inline = [1; MAX_RANK];
        inline[..strides.len()].copy_from_slice(strides);
        let layout = Self { offset: 0, shape, strides: inline };
        let available = self.shape.elements();
        let used = if shape.elements() == 0 { 0 } else { layout.checked_span()? };
        if overlap == Overlap::Refused && used > 0 && layout.overlaps() {
            let expected = "strides that each step over all that smaller ones reach";
            return Err(bad(format!("{expected}, so that no two elements of shape {shape} meet")));
        }
        if used > available {
            return Err(bad(format!("a span of at most {available} elements, not {used} for shape {shape}")));
        }
        if offset > available - used {
            let expected = format!("at most {}: {used} of {available} elements are spanned", available - used);
            return Err(Error::param("strided", "offset", offset, expected));
        }
        Ok(Self::new(self.offset + if used == 0 { 0 } else { offset }, shape, inline))
    }

    /// [`span`](Self::span) of strides that nobody has checked yet, of a layout with elements.
    fn checked_span(&self) -> Result<usize> {
        let (shape, strides) = (&self.shape, self.strides());
        let stepped = || shape.iter().zip(strides).filter(|(d, _)| **d > 1);
        if let Some((_, &stride)) = stepped().find(|(_, stride)| **stride > isize::MAX as usize) {
            let expected = format!("none that is negative, as {} is in two's complement", stride as isize);
            return Err(Error::param("strided", "strides", format!("{strides:?}"), expected));
        }
        let span = stepped().try_fold(1usize, |n, (d, s)| n.checked_add((d - 1).checked_mul(*s)?));
        let reason = || format!("{strides:?} for shape {shape} span 2^64 elements or more");
        span.ok_or_else(|| Error::too_large("strided", "strides", reason()))
    }

    /// Whether two elements may be one, the span having been checked: each stride has to step over all that smaller ones reach.
    fn overlaps(&self) -> bool {
        let mut steps = [(0, 0); MAX_RANK];
        let steps = &mut steps[..self.shape.rank()];
        for (i, step) in steps.iter_mut().enumerate() {
            *step = (self.strides[i], self.shape[i] - 1);
        }
        steps.sort_unstable();
        let mut reach = 0;
        steps.iter().filter(|(_, more)| *more > 0).any(|&(stride, more)| {
            let meets = stride <= reach;
            reach += stride * more;
            meets
        })
    }

    fn require_contiguous(&self, op: &'static str) -> Result<()> {
        if self.is_contiguous() {
            return Ok(());
        }
        let reason = format!("has strides {:?} for shape {}: it has to be contiguous", self.strides(), self.shape);
        Err(Error::layout(op, "self", reason))
    }

    /// Copies the elements, each of `size` bytes, from the bytes of the whole span to where they lie densely.
    pub(crate) fn gather(&self, spanned: &[u8], size: usize, dense: &mut [u8]) {
        let (outer, cols) = (self.shape.rank().saturating_sub(1), self.cols());
        let stride = self.strides().last().copied().unwrap_or(1);
        let mut index = [0usize; MAX_RANK];
        for row in dense.chunks_exact_mut((cols * size).max(1)) {
            let start: usize = (0..outer).map(|i| index[i] * self.strides[i]).sum();
            if stride == 1 {
                row.copy_from_slice(&spanned[start * size..(start + cols) * size]);
            } else {
                for (j, element) in row.chunks_exact_mut(size).enumerate() {
                    element.copy_from_slice(&spanned[(start + j * stride) * size..][..size]);
                }
            }
            for i in (0..outer).rev() {
                index[i] += 1;
                if index[i] < self.shape[i] {
                    break;
                }
                index[i] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
