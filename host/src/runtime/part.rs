//! What views of known and unknown element types share: a part of a storage, and what can be done with it.

use std::ops::Range;

use crate::runtime::device::Device;
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::{Error, Result};
use crate::runtime::layout::{Layout, Overlap};
use crate::runtime::storage::{Access, Storage};
use crate::runtime::stream::Stream;

/// A selection of the elements of a storage. Whoever holds one may read the elements; only types that borrow the storage exclusively write
/// through it.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// Whether other parts may be in use at the same time: see [`Storage::order`].
    pub(crate) split: bool,
}

impl<'a> Part<'a> {
    pub(crate) fn whole(storage: &'a Storage, dtype: DType, layout: Layout) -> Self {
        Self { storage, dtype, layout, split: false }
    }

    fn with(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    pub(crate) fn device(&self) -> &'a Device {
        self.storage.device()
    }

    pub(crate) fn address(&self) -> u64 {
        self.storage.address() + (self.layout.offset * self.dtype.size()) as u64
    }

    /// Bytes that the elements take when they are laid out densely. Repeated elements count each time, so that the size may overflow: then it
    /// is `usize::MAX`.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.shape.elements().saturating_mul(self.dtype.size())
    }

    /// Bytes of the elements, where an element that is repeated by a stride of 0 counts once, and never more than those that are spanned: other
    /// strides repeat elements as well.
    pub(crate) fn distinct_bytes(&self) -> u64 {
        let dims = self.layout.shape.iter().zip(self.layout.strides()).filter(|(_, stride)| **stride != 0);
        let elements: usize = dims.map(|(dim, _)| *dim).product();
        (elements.min(self.layout.span()) * self.dtype.size()) as u64
    }

    /// The address for a use on `stream`, which from here on comes after the uses it conflicts with.
    pub(crate) fn ordered(&self, stream: &Stream, access: Access) -> Result<u64> {
        self.storage.order(stream, access, self.split)?;
        Ok(self.address())
    }

    pub(crate) fn rows_aligned(&self, bytes: usize) -> bool {
        let (shape, strides) = (&self.layout.shape, self.layout.strides());
        let outer = strides.len().saturating_sub(1);
        let aligned = |(&d, &s): (&usize, &usize)| d <= 1 || (s * self.dtype.size()).is_multiple_of(bytes);
        // A stride that is never stepped along is not looked at: in bytes it may overflow.
        let steps = || shape.contains(&0) || shape.iter().zip(strides).take(outer).all(aligned);
        bytes > 0 && self.address().is_multiple_of(bytes as u64) && steps()
    }

    /// An error that the view's strides are not what `expected` says.
    #[cold]
    pub(crate) fn bad_layout(&self, op: &'static str, arg: &'static str, expected: &str) -> Error {
        let (strides, shape) = (self.layout.strides(), self.layout.shape);
        Error::layout(op, arg, format!("has strides {strides:?} for shape {shape}: {expected}"))
    }

    pub(crate) fn require_contiguous(&self, op: &'static str, arg: &'static str) -> Result<()> {
        match self.layout.is_contiguous() {
            true => Ok(()),
            false => Err(self.bad_layout(op, arg, "it has to be contiguous")),
        }
    }

    pub(crate) fn require_shape(&self, op: &'static str, arg: &'static str, expected: &[usize]) -> Result<()> {
        match self.layout.shape.dims() == expected {
            true => Ok(()),
            false => Err(Error::shape(op, arg, &self.layout.shape, format!("{expected:?}"))),
        }
    }

    pub(crate) fn require_dtype(&self, op: &'static str, arg: &'static str, expected: DType) -> Result<()> {
        match self.dtype == expected {
            true => Ok(()),
            false => Err(Error::dtype(op, arg, self.dtype, expected.name())),
        }
    }

    pub(crate) fn slice(self, range: Range<usize>) -> Result<Self> {
        Ok(self.with(self.layout.slice(range)?))
    }

    pub(crate) fn reshape(self, shape: &[usize]) -> Result<Self> {
        Ok(self.with(self.layout.reshape(shape)?))
    }

    pub(crate) fn permute(self, order: &[usize]) -> Result<Self> {
        Ok(self.with(self.layout.permute(order)?))
    }

    pub(crate) fn transposed(self) -> Self {
        self.with(self.layout.transposed())
    }

    pub(crate) fn broadcast(self, shape: &[usize]) -> Result<Self> {
        Ok(self.with(self.layout.broadcast(shape)?))
    }

    pub(crate) fn strided(self, offset: usize, shape: &[usize], strides: &[usize], overlap: Overlap) -> Result<Self> {
        Ok(self.with(self.layout.strided(offset, shape, strides, overlap)?))
    }

    /// Both sides of `mid` in dimension 0.
    pub(crate) fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        let Some(&end) = self.layout.shape.first() else {
            return Err(Error::shape("split_at", "self", &[], "at least one dimension"));
        };
        if mid > end {
            return Err(Error::param("split_at", "mid", mid, format!("at most {end}")));
        }
        let split = |range| Ok(Self { split: true, ..self.slice(range)? });
        Ok((split(0..mid)?, split(mid..end)?))
    }

    /// Copies the elements to the host, densely. Waits for them.
    pub(crate) fn to_vec<T: Dtype>(self, stream: &Stream) -> Result<Vec<T>> {
        let mut elements = zeroed::<T>(self.bytes() / size_of::<T>())?;
        self.download(stream, bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// Copies the elements to the host, densely, over all of `dense`. Waits for them.
    pub(crate) fn download(&self, stream: &Stream, dense: &mut [u8]) -> Result<()> {
        if dense.len() != self.bytes() {
            let expected = format!("{} elements for shape {}", self.layout.shape.elements(), self.layout.shape);
            return Err(Error::shape("read", "dst", &[dense.len() / self.dtype.size()], expected));
        }
        stream.require_device(self.device(), "read", "self")?;
        let address = self.ordered(stream, Access::Read)?;
        if self.layout.is_contiguous() {
            // SAFETY: the layout stays inside the storage, and is dense and as long as `dense`.
            return unsafe { stream.download(dense, address) };
        }
        let mut spanned = zeroed::<u8>(self.layout.span() * self.dtype.size())?;
        // SAFETY: the layout's span stays inside the storage.
        unsafe { stream.download(&mut spanned, address)? };
        self.layout.gather(&spanned, self.dtype.size(), dense);
        Ok(())
    }

    /// Copies bytes to the device; the caller has the view exclusively.
    pub(crate) fn upload(&mut self, stream: &Stream, src: &[u8]) -> Result<()> {
        stream.require_device(self.device(), "write", "self")?;
        self.require_contiguous("write", "self")?;
        if src.len() != self.bytes() {
            let expected = format!("{} elements for shape {}", self.layout.shape.elements(), self.layout.shape);
            return Err(Error::shape("write", "src", &[src.len() / self.dtype.size()], expected));
        }
        let address = self.ordered(stream, Access::Write)?;
        // SAFETY: the layout stays inside the storage, and is dense and as long as `src`.
        unsafe { stream.upload(address, src) }
    }

    /// Copies another view on the device; the caller has this one exclusively.
    pub(crate) fn copy_from(&mut self, stream: &Stream, src: Part<'_>) -> Result<()> {
        stream.require_device(self.device(), "copy", "dst")?;
        stream.require_device(src.device(), "copy", "src")?;
        self.require_contiguous("copy", "dst")?;
        src.require_contiguous("copy", "src")?;
        src.require_dtype("copy", "src", self.dtype)?;
        src.require_shape("copy", "src", &self.layout.shape)?;
        let from = src.ordered(stream, Access::Read)?;
        let to = self.ordered(stream, Access::Write)?;
        // SAFETY: both layouts stay inside their storages, and are dense and equally long.
        unsafe { stream.copy(to, from, self.bytes()) }
    }

    /// Sets every element to these bytes; the caller has the view exclusively.
    pub(crate) fn fill(&mut self, stream: &Stream, element: &[u8]) -> Result<()> {
        stream.require_device(self.device(), "fill", "self")?;
        self.require_contiguous("fill", "self")?;
        let address = self.ordered(stream, Access::Write)?;
        // SAFETY: the layout stays inside the storage and is dense.
        unsafe { stream.fill(address, element, self.bytes() / element.len().max(1)) }
    }
}

/// Zeros, unless the host has not that much memory.
fn zeroed<T: bytemuck::Zeroable>(n: usize) -> Result<Vec<T>> {
    let too_large = |()| Error::too_large("to_vec", "self", format!("{n} elements do not fit into the host's memory"));
    bytemuck::allocation::try_zeroed_vec(n).map_err(too_large)
}
