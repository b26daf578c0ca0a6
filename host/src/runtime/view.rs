//! Borrowed tensors: what operators take.

use std::marker::PhantomData;
use std::ops::Range;

use cuda_std::launch::{DevicePtr, DevicePtrMut};

use crate::runtime::device::Device;
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::layout::Overlap;
use crate::runtime::part::Part;
use crate::runtime::profile;
use crate::runtime::shape::Shape;
use crate::runtime::storage::Access;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// A tensor to read: shape, strides and a borrow of the device memory.
///
/// Strides are free: rows may be padded, dimensions [permuted](View::permute) or [repeated](View::broadcast). Operators say what they
/// take, and check it with the `require_` methods.
pub struct View<'a, T> {
    pub(crate) part: Part<'a>,
    elements: PhantomData<&'a T>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

/// A tensor to write, with free strides as in a [`View`], but no two elements in the same place.
pub struct ViewMut<'a, T> {
    pub(crate) part: Part<'a>,
    elements: PhantomData<&'a mut T>,
}

/// What rows have that a single stride describes, as an error says it.
pub(crate) const EQUAL_ROWS: &str = "its rows have to be contiguous and equally far apart";

/// What every view can be asked.
macro_rules! shared_methods {
    () => {
        /// Extents, slowest dimension first.
        pub fn shape(&self) -> &Shape {
            &self.part.layout.shape
        }

        /// Strides in elements. That of a dimension with one entry is the one which continues the dimensions inside it.
        pub fn strides(&self) -> &[usize] {
            self.part.layout.strides()
        }

        /// Number of elements.
        pub fn len(&self) -> usize {
            self.shape().elements()
        }

        /// Whether there are no elements.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// Product of all dimensions but the last; 1 for a vector.
        pub fn rows(&self) -> usize {
            self.part.layout.rows()
        }

        /// The last dimension; 1 for a scalar.
        pub fn cols(&self) -> usize {
            self.part.layout.cols()
        }

        /// Elements from one row to the next when rows are contiguous and equally far apart, else `None`. 0 if one row is repeated.
        pub fn row_stride(&self) -> Option<usize> {
            self.part.layout.row_stride()
        }

        /// Whether the elements lie one after the other, in order.
        pub fn is_contiguous(&self) -> bool {
            self.part.layout.is_contiguous()
        }

        /// The largest power of two, up to 256, that divides the first element's address.
        pub fn alignment(&self) -> usize {
            1 << self.part.address().trailing_zeros().min(8)
        }

        /// Whether every row starts at a multiple of `bytes`: what vector loads need.
        pub fn rows_aligned(&self, bytes: usize) -> bool {
            self.part.rows_aligned(bytes)
        }

        /// The device that holds the elements.
        pub fn device(&self) -> &Device {
            self.part.device()
        }

        /// An error that names the argument unless the view is of `stream`'s device.
        pub fn require_device(&self, op: &'static str, arg: &'static str, stream: &Stream) -> Result<()> {
            stream.require_storage(self.part.storage, op, arg)
        }

        /// An error that names the argument unless the view is dense.
        pub fn require_contiguous(&self, op: &'static str, arg: &'static str) -> Result<()> {
            self.part.require_contiguous(op, arg)
        }

        /// An error that names the argument unless the elements of each row follow each other: the last stride is 1.
        pub fn require_inner_contiguous(&self, op: &'static str, arg: &'static str) -> Result<()> {
            match self.part.layout.rows_are_contiguous() {
                true => Ok(()),
                false => Err(self.part.bad_layout(op, arg, "the last stride has to be 1")),
            }
        }

        /// The extents, which must be `N`: `let [rows, cols] = x.dims(op, "x")?`.
        pub fn dims<const N: usize>(&self, op: &'static str, arg: &'static str) -> Result<[usize; N]> {
            let shape = self.shape();
            shape.dims().try_into().map_err(|_| Error::shape(op, arg, shape, format!("{N} dimensions")))
        }

        /// [`row_stride`](Self::row_stride), or an error that names the argument.
        pub fn require_row_stride(&self, op: &'static str, arg: &'static str) -> Result<usize> {
            self.row_stride().ok_or_else(|| self.part.bad_layout(op, arg, $crate::runtime::view::EQUAL_ROWS))
        }

        /// An error that names the argument unless the shape is `expected`.
        pub fn require_shape(&self, op: &'static str, arg: &'static str, expected: &[usize]) -> Result<()> {
            self.part.require_shape(op, arg, expected)
        }
    };
}
pub(crate) use shared_methods;

/// How views are made of views. The receiver is what a view gives up for it.
macro_rules! derived_views {
    ($overlap:expr, $self:ident: $($receiver:tt)+) => {
        /// Part of dimension 0; of a vector, a range of its elements.
        pub fn slice($($receiver)+, range: Range<usize>) -> Result<Self> {
            Ok(Self::of($self.part.slice(range)?))
        }

        /// The same elements with other dimensions; the view has to be contiguous.
        pub fn reshape($($receiver)+, shape: impl AsRef<[usize]>) -> Result<Self> {
            Ok(Self::of($self.part.reshape(shape.as_ref())?))
        }

        /// The dimensions in another order: `order[i]` is which of them becomes dimension `i`.
        pub fn permute($($receiver)+, order: impl AsRef<[usize]>) -> Result<Self> {
            Ok(Self::of($self.part.permute(order.as_ref())?))
        }

        /// The last two dimensions exchanged; the same view if it has fewer.
        pub fn t($($receiver)+) -> Self {
            Self::of($self.part.transposed())
        }

        /// Any selection of this contiguous view's elements, `offset` and `strides` counted in elements. To be written to, each stride has
        /// to step over all that smaller ones reach, so that no two of them are the same. One of no elements may begin anywhere up to the
        /// view's end, whatever its strides.
        ///
        /// # Errors
        /// [`Error::InvalidParam`] names the strides if there are not as many as dimensions, or they are negative, reach beyond the view or could let
        /// elements meet, and else the offset; [`Error::TooLarge`] if what they span cannot be counted, [`Error::Layout`] if the view is not
        /// contiguous.
        pub fn strided($($receiver)+, offset: usize, shape: impl AsRef<[usize]>, strides: &[usize]) -> Result<Self> {
            Ok(Self::of($self.part.strided(offset, shape.as_ref(), strides, $overlap)?))
        }
    };
}
pub(crate) use derived_views;

impl<'a, T> View<'a, T> {
    shared_methods!();
    derived_views!(Overlap::Allowed, self: &self);

    /// A part whose elements are `T`s.
    pub(crate) fn of(part: Part<'a>) -> Self {
        Self { part, elements: PhantomData }
    }

    /// The first element's address, for a launch on `stream` that reads: it comes after what other streams have written, and what
    /// they write next, and the memory's end, come after it. See [`Stream::launch`] for how long the pointer may be used.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if the stream is another device's.
    pub fn ptr(&self, stream: &Stream) -> Result<DevicePtr<T>> {
        profile::operand(&self.part);
        self.part.ordered(stream, Access::Read).map(DevicePtr::from_raw)
    }

    /// Repeats dimensions of one entry, and adds outer ones, until the shape is `shape`: their stride is 0.
    pub fn broadcast(&self, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(Self::of(self.part.broadcast(shape.as_ref())?))
    }
}

impl<T: Dtype> View<'_, T> {
    /// Copies the elements to the host, densely, after everything queued on `stream`. Waits for it.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.part.to_vec(stream)
    }

    /// Copies the elements, densely, to a new tensor on `stream`, which may be another device's. Waits for the elements.
    pub fn to_device(&self, stream: &Stream) -> Result<Tensor<T>> {
        Tensor::from_slice(stream, self.shape(), &self.to_vec(self.part.storage.home())?)
    }
}

impl<T: Float> View<'_, T> {
    /// [`to_vec`](Self::to_vec), each element exactly as an `f32`.
    ///
    /// # Errors
    /// As of [`to_vec`](Self::to_vec).
    pub fn to_f32(&self, stream: &Stream) -> Result<Vec<f32>> {
        Ok(self.to_vec(stream)?.into_iter().map(|value| value.to_f64() as f32).collect())
    }
}

impl<'a, T> ViewMut<'a, T> {
    shared_methods!();
    derived_views!(Overlap::Refused, self: self);

    /// A part whose elements are `T`s and which nobody else has.
    pub(crate) fn of(part: Part<'a>) -> Self {
        Self { part, elements: PhantomData }
    }

    /// The first element's address, for a launch on `stream` that writes or reads: it comes after all that other streams have done
    /// with the memory, and what they do next, and the memory's end, come after it. See [`Stream::launch`] for how long the pointer
    /// may be used.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] if the stream is another device's.
    pub fn ptr_mut(&mut self, stream: &Stream) -> Result<DevicePtrMut<T>> {
        profile::operand(&self.part);
        self.part.ordered(stream, Access::Write).map(DevicePtrMut::from_raw)
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> View<'_, T> {
        View::of(self.part)
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut::of(self.part)
    }

    /// Splits dimension 0 at `mid`.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        let (head, tail) = self.part.split_at(mid)?;
        Ok((Self::of(head), Self::of(tail)))
    }
}

impl<T: Dtype> ViewMut<'_, T> {
    /// Copies `src` to the device; the view has to be contiguous. `src` may be changed at once: see [`Tensor::from_slice`].
    pub fn write(&mut self, stream: &Stream, src: &[T]) -> Result<()> {
        self.part.upload(stream, bytemuck::cast_slice(src))
    }

    /// Copies another view on the device; both have to be contiguous and of one shape.
    pub fn copy_from(&mut self, stream: &Stream, src: View<'_, T>) -> Result<()> {
        self.part.copy_from(stream, src.part)
    }

    /// Sets every element; the view has to be contiguous.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.part.fill(stream, bytemuck::bytes_of(&value))
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
        View::of(view.part)
    }
}
