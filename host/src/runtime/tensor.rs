//! Tensors that own device memory.

use std::marker::PhantomData;
use std::ops::Range;

use crate::runtime::any::AnyTensor;
use crate::runtime::device::Device;
use crate::runtime::dtype::{Dtype, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// A dense row-major tensor in device memory.
///
/// Any stream of its device may use it. Uses on different streams are ordered, and its memory is freed after all of them: see
/// [`Stream`].
pub struct Tensor<T> {
    pub(crate) any: AnyTensor,
    elements: PhantomData<T>,
}

impl<T: Dtype> Tensor<T> {
    /// Memory whose contents are unspecified. Debug builds fill it with `0xFF` (NaN for floats), so that relying on it shows.
    pub fn uninit(stream: &Stream, shape: impl AsRef<[usize]>) -> Result<Self> {
        AnyTensor::uninit(stream, T::DTYPE, shape).map(Self::of)
    }

    /// Memory for a result of an operator. If there is not enough, the error comes when the address is asked for, and names the result.
    pub(crate) fn result(stream: &Stream, shape: impl AsRef<[usize]>) -> Result<Self> {
        AnyTensor::result(stream, T::DTYPE, shape).map(Self::of)
    }

    /// [`result`](Self::result) of a shape that no argument has. If there is no such shape, the error names the result.
    pub(crate) fn result_as(
        op: &'static str,
        arg: &'static str,
        stream: &Stream,
        shape: impl AsRef<[usize]>,
    ) -> Result<Self> {
        Self::result(stream, shape).map_err(|error| error.of(op, arg))
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
        require_len("from_slice", &shape, data.len())?;
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

impl<T: Float> Tensor<T> {
    /// [`from_slice`](Self::from_slice) of each value rounded to the nearest `T`, ties to even; overflow gives infinity, NaN stays NaN.
    ///
    /// # Errors
    /// As of [`from_slice`](Self::from_slice).
    ///
    /// ```
    /// # use warpsmith::{Device, Tensor, bf16};
    /// # fn main() -> warpsmith::Result<()> {
    /// let stream = Device::open()?.stream()?;
    /// let x = Tensor::<bf16>::from_f32(&stream, [2], &[0.5, 1.001])?;
    /// assert_eq!(x.to_vec(&stream)?, [bf16::from_f32(0.5), bf16::ONE]);
    /// assert_eq!(x.to_f32(&stream)?, [0.5, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_f32(stream: &Stream, shape: impl AsRef<[usize]>, data: &[f32]) -> Result<Self> {
        let shape = Shape::new(shape.as_ref())?;
        require_len("from_f32", &shape, data.len())?;
        let rounded: Vec<T> = data.iter().map(|value| T::from_f64(f64::from(*value))).collect();
        Self::from_slice(stream, shape, &rounded)
    }

    /// [`to_vec`](Self::to_vec), each element exactly as an `f32`.
    ///
    /// # Errors
    /// As of [`to_vec`](Self::to_vec).
    pub fn to_f32(&self, stream: &Stream) -> Result<Vec<f32>> {
        self.view().to_f32(stream)
    }
}

/// An error unless there are as many values as the shape has elements.
fn require_len(op: &'static str, shape: &Shape, len: usize) -> Result<()> {
    if shape.elements() == len {
        return Ok(());
    }
    Err(Error::shape(op, "data", &[len], format!("{} elements for shape {shape}", shape.elements())))
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
