//! Tensors that own device memory.

use std::marker::PhantomData;
use std::ops::Range;

use crate::runtime::any::AnyTensor;
use crate::runtime::device::Device;
use crate::runtime::dtype::Dtype;
use crate::runtime::error::{Error, Result};
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// A dense row-major tensor in device memory.
///
/// Any stream of its device may use it. Uses on different streams are ordered, and its memory is freed after all of them: see
/// [`Stream`].
#[derive(Debug)]
pub struct Tensor<T> {
    pub(crate) any: AnyTensor,
    elements: PhantomData<T>,
}

impl<T: Dtype> Tensor<T> {
    /// Memory whose contents are unspecified. Debug builds fill it with `0xFF` (NaN for floats), so that relying on it shows.
    pub fn uninit(stream: &Stream, shape: impl AsRef<[usize]>) -> Result<Self> {
        AnyTensor::uninit(stream, T::DTYPE, shape).map(Self::of)
    }

    /// All elements zero.
    pub fn zeros(stream: &Stream, shape: impl AsRef<[usize]>) -> Result<Self> {
        AnyTensor::zeros(stream, T::DTYPE, shape).map(Self::of)
    }

    /// All elements `value`.
    pub fn filled(stream: &Stream, shape: impl AsRef<[usize]>, value: T) -> Result<Self> {
        let mut tensor = Self::uninit(stream, shape)?;
        tensor.view_mut().fill(stream, value)?;
        Ok(tensor)
    }

    /// Copies `data` to the device. `data` may be dropped at once: it is copied twice, and the call does not wait for earlier work on
    /// the stream, unless 256 MiB of earlier copies are still under way.
    pub fn from_slice(stream: &Stream, shape: impl AsRef<[usize]>, data: &[T]) -> Result<Self> {
        let shape = Shape::new(shape.as_ref())?;
        if shape.elements() != data.len() {
            let expected = format!("{} elements for shape {shape}", shape.elements());
            return Err(Error::shape("from_slice", "data", &[data.len()], expected));
        }
        let mut tensor = Self::uninit(stream, shape)?;
        tensor.write(stream, data)?;
        Ok(tensor)
    }

    /// Copies the elements to the host, after everything queued on `stream`. Waits for it.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.view().to_vec(stream)
    }

    /// See [`View::to_device`].
    pub fn to_device(&self, stream: &Stream) -> Result<Self> {
        self.view().to_device(stream)
    }

    /// Replaces all elements. `data` may be changed at once: see [`from_slice`](Self::from_slice).
    pub fn write(&mut self, stream: &Stream, data: &[T]) -> Result<()> {
        self.view_mut().write(stream, data)
    }
}

impl<T> Tensor<T> {
    /// A tensor whose elements are `T`s.
    pub(crate) fn of(any: AnyTensor) -> Self {
        Self { any, elements: PhantomData }
    }

    /// Extents, slowest dimension first.
    pub fn shape(&self) -> &Shape {
        self.any.shape()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.any.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.any.is_empty()
    }

    /// The device that holds the elements.
    pub fn device(&self) -> &Device {
        self.any.device()
    }

    /// The whole tensor, to read.
    pub fn view(&self) -> View<'_, T> {
        View::of(self.any.part())
    }

    /// The whole tensor, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::of(self.any.part())
    }

    /// Part of dimension 0; of a vector, a range of its elements.
    pub fn slice(&self, range: Range<usize>) -> Result<View<'_, T>> {
        self.view().slice(range)
    }

    /// Part of dimension 0, to write.
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<ViewMut<'_, T>> {
        self.view_mut().slice(range)
    }

    /// The same memory with other dimensions.
    pub fn reshape(self, shape: impl AsRef<[usize]>) -> Result<Self> {
        self.any.reshape(shape).map(Self::of)
    }
}

impl<'a, T> From<&'a Tensor<T>> for View<'a, T> {
    fn from(tensor: &'a Tensor<T>) -> Self {
        tensor.view()
    }
}

impl<'a, T> From<&'a mut Tensor<T>> for ViewMut<'a, T> {
    fn from(tensor: &'a mut Tensor<T>) -> Self {
        tensor.view_mut()
    }
}
