//! Borrowed tensors: what operators take.

use std::marker::PhantomData;
use std::ops::Range;

use cuda_std::launch::{DevicePtr, DevicePtrMut};

use crate::runtime::device::Device;
use crate::runtime::dtype::Dtype;
use crate::runtime::error::{Error, Result};
use crate::runtime::layout::Layout;
use crate::runtime::shape::Shape;
use crate::runtime::storage::Storage;
use crate::runtime::stream::Stream;

/// A tensor to read: shape, strides and a borrow of the device memory.
///
/// Rows are contiguous (the last stride is 1) and no two elements overlap; outer dimensions may be padded.
#[derive(Debug)]
pub struct View<'a, T> {
    storage: &'a Storage,
    layout: Layout,
    elements: PhantomData<&'a T>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

/// A tensor to write.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    storage: &'a Storage,
    layout: Layout,
    elements: PhantomData<&'a mut T>,
}

macro_rules! shared_methods {
    () => {
        /// Extents, slowest dimension first.
        pub fn shape(&self) -> &Shape {
            &self.layout.shape
        }

        /// Strides in elements.
        pub fn strides(&self) -> &[usize] {
            self.layout.strides()
        }

        /// Number of elements.
        pub fn len(&self) -> usize {
            self.layout.shape.elements()
        }

        /// Whether there are no elements.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// Product of all dimensions but the last; 1 for a vector.
        pub fn rows(&self) -> usize {
            self.layout.rows()
        }

        /// The last dimension; 1 for a scalar.
        pub fn cols(&self) -> usize {
            self.layout.cols()
        }

        /// Elements from one row to the next when all rows are equally far apart, else `None`.
        pub fn row_stride(&self) -> Option<usize> {
            self.layout.row_stride()
        }

        /// Whether there is no padding between elements.
        pub fn is_contiguous(&self) -> bool {
            self.layout.is_contiguous()
        }

        /// The largest power of two, up to 256, that divides the first element's address.
        pub fn alignment(&self) -> usize {
            1 << self.address().trailing_zeros().min(8)
        }

        /// Whether every row starts at a multiple of `bytes`: what vector loads need.
        pub fn rows_aligned(&self, bytes: usize) -> bool {
            let outer = self.strides().split_last().map_or(&[][..], |(_, outer)| outer);
            let extents = &self.shape()[..outer.len()];
            self.address().is_multiple_of(bytes as u64)
                && outer.iter().zip(extents).all(|(s, &d)| d <= 1 || (s * size_of::<T>()).is_multiple_of(bytes))
        }

        /// The device that holds the elements.
        pub fn device(&self) -> &Device {
            self.storage.device()
        }

        fn address(&self) -> u64 {
            self.storage.address() + (self.layout.offset * size_of::<T>()) as u64
        }

        /// An error that names the argument unless the view is dense.
        pub fn require_contiguous(&self, op: &'static str, arg: &'static str) -> Result<()> {
            if self.is_contiguous() {
                return Ok(());
            }
            Err(Error::layout(
                op,
                arg,
                format!("has strides {:?} for shape {}: it has to be contiguous", self.strides(), self.shape()),
            ))
        }

        /// The extents, which must be `N`: `let [rows, cols] = x.dims(op, "x")?`.
        pub fn dims<const N: usize>(&self, op: &'static str, arg: &'static str) -> Result<[usize; N]> {
            let shape = self.shape();
            shape.dims().try_into().map_err(|_| Error::shape(op, arg, shape, format!("{N} dimensions")))
        }

        /// [`row_stride`](Self::row_stride), or an error that names the argument.
        pub fn require_row_stride(&self, op: &'static str, arg: &'static str) -> Result<usize> {
            self.row_stride().ok_or_else(|| {
                let (strides, shape) = (self.strides(), self.shape());
                Error::layout(
                    op,
                    arg,
                    format!("has strides {strides:?} for shape {shape}: its rows have to be equally far apart"),
                )
            })
        }

        /// An error that names the argument unless the shape is `expected`.
        pub fn require_shape(&self, op: &'static str, arg: &'static str, expected: &[usize]) -> Result<()> {
            if self.shape().dims() == expected {
                return Ok(());
            }
            Err(Error::shape(op, arg, self.shape(), format!("{expected:?}")))
        }
    };
}

impl<'a, T> View<'a, T> {
    shared_methods!();

    pub(crate) fn new(storage: &'a Storage, layout: Layout) -> Self {
        Self { storage, layout, elements: PhantomData }
    }

    /// The first element's address, for a launch on `stream`; the memory then outlives that launch.
    pub fn ptr(&self, stream: &Stream) -> DevicePtr<T> {
        self.storage.mark_used(stream);
        DevicePtr::from_raw(self.address())
    }

    /// Part of dimension 0; of a vector, a range of its elements.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        Ok(Self::new(self.storage, self.layout.slice(range)?))
    }

    /// The same elements with other dimensions; the view has to be contiguous.
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(Self::new(self.storage, self.layout.reshape(shape.as_ref())?))
    }

    /// Any row-major selection of this contiguous view's elements, rows possibly padded.
    pub fn strided(&self, offset: usize, shape: impl AsRef<[usize]>, strides: &[usize]) -> Result<Self> {
        let layout = self.layout.strided(offset, shape.as_ref(), strides)?;
        Ok(Self::new(self.storage, layout))
    }
}

impl<'a, T: Dtype> View<'a, T> {
    /// Copies the elements to the host, densely, after everything queued on `stream`. Waits for it.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let span = self.layout.span();
        let mut spanned = vec![T::zeroed(); span];
        self.storage.mark_used(stream);
        // SAFETY: the layout stays inside the storage.
        unsafe { stream.download(bytemuck::cast_slice_mut(&mut spanned), self.address())? };
        Ok(if self.is_contiguous() { spanned } else { self.layout.gather(&spanned) })
    }

    /// The bytes of [`to_vec`](Self::to_vec). Of a contiguous view they are downloaded to where they stay.
    pub(crate) fn download(&self, stream: &Stream) -> Result<Vec<u8>> {
        if !self.is_contiguous() {
            return Ok(bytemuck::cast_slice(&self.to_vec(stream)?).to_vec());
        }
        let mut bytes = vec![0; self.len() * size_of::<T>()];
        self.storage.mark_used(stream);
        // SAFETY: the layout stays inside the storage, and is dense and as long as `bytes`.
        unsafe { stream.download(&mut bytes, self.address())? };
        Ok(bytes)
    }
}

impl<'a, T> ViewMut<'a, T> {
    shared_methods!();

    pub(crate) fn new(storage: &'a Storage, layout: Layout) -> Self {
        Self { storage, layout, elements: PhantomData }
    }

    /// The first element's address, for a launch on `stream`; the memory then outlives that launch.
    pub fn ptr_mut(&mut self, stream: &Stream) -> DevicePtrMut<T> {
        self.storage.mark_used(stream);
        DevicePtrMut::from_raw(self.address())
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> View<'_, T> {
        View::new(self.storage, self.layout)
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.storage, self.layout)
    }

    /// Part of dimension 0; of a vector, a range of its elements.
    pub fn slice(self, range: Range<usize>) -> Result<Self> {
        Ok(Self::new(self.storage, self.layout.slice(range)?))
    }

    /// The same elements with other dimensions; the view has to be contiguous.
    pub fn reshape(self, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(Self::new(self.storage, self.layout.reshape(shape.as_ref())?))
    }

    /// Any row-major selection of this contiguous view's elements, rows possibly padded.
    pub fn strided(self, offset: usize, shape: impl AsRef<[usize]>, strides: &[usize]) -> Result<Self> {
        let layout = self.layout.strided(offset, shape.as_ref(), strides)?;
        Ok(Self::new(self.storage, layout))
    }

    /// Splits dimension 0 at `mid`.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        let end = self.shape().first().copied().unwrap_or(0);
        let (head, tail) = (self.layout.slice(0..mid)?, self.layout.slice(mid..end)?);
        Ok((Self::new(self.storage, head), Self::new(self.storage, tail)))
    }
}

impl<T: Dtype> ViewMut<'_, T> {
    /// Copies `src` to the device; the view has to be contiguous. Does not wait for the device.
    pub fn write(&mut self, stream: &Stream, src: &[T]) -> Result<()> {
        self.require_contiguous("write", "self")?;
        if src.len() != self.len() {
            return Err(Error::shape(
                "write",
                "src",
                &[src.len()],
                format!("{} elements for shape {}", self.len(), self.shape()),
            ));
        }
        self.storage.mark_used(stream);
        // SAFETY: the layout stays inside the storage, and is dense and as long as `src`.
        unsafe { stream.upload(self.address(), bytemuck::cast_slice(src)) }
    }

    /// Copies another view on the device; both have to be contiguous and of one shape.
    pub fn copy_from(&mut self, stream: &Stream, src: View<'_, T>) -> Result<()> {
        self.require_contiguous("copy", "dst")?;
        src.require_contiguous("copy", "src")?;
        src.require_shape("copy", "src", self.shape())?;
        self.storage.mark_used(stream);
        src.storage.mark_used(stream);
        let bytes = self.len() * size_of::<T>();
        // SAFETY: both layouts stay inside their storages, and are dense and equally long.
        unsafe { stream.copy(self.address(), src.address(), bytes) }
    }

    /// Sets every element; the view has to be contiguous.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.require_contiguous("fill", "self")?;
        self.storage.mark_used(stream);
        // SAFETY: the layout stays inside the storage and is dense.
        unsafe { stream.fill(self.address(), bytemuck::bytes_of(&value), self.len()) }
    }
}

impl<'a, T> From<&View<'a, T>> for View<'a, T> {
    fn from(view: &View<'a, T>) -> Self {
        *view
    }
}

impl<'a, 'v: 'a, T> From<&'a mut ViewMut<'v, T>> for ViewMut<'a, T> {
    fn from(view: &'a mut ViewMut<'v, T>) -> Self {
        view.reborrow()
    }
}

impl<'a, T> From<ViewMut<'a, T>> for View<'a, T> {
    fn from(view: ViewMut<'a, T>) -> Self {
        View::new(view.storage, view.layout)
    }
}
