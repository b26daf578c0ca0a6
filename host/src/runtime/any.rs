//! Tensors whose element type is known at run time only. A [`Tensor`] and its views are these, with a type.

use std::marker::PhantomData;
use std::ops::Range;

use crate::runtime::device::Device;
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::{Error, Result};
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::layout::{Layout, Overlap};
use crate::runtime::part::Part;
use crate::runtime::shape::Shape;
use crate::runtime::storage::{Access, Storage};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut, derived_views, shared_methods};

/// A [`Tensor`] of any element type.
pub struct AnyTensor {
    storage: Storage,
    dtype: DType,
    layout: Layout,
}

/// A [`View`] of any element type.
#[derive(Clone, Copy)]
pub struct AnyView<'a> {
    pub(crate) part: Part<'a>,
}

/// A [`ViewMut`] of any element type.
pub struct AnyViewMut<'a> {
    pub(crate) part: Part<'a>,
    exclusive: PhantomData<&'a mut ()>,
}

impl AnyTensor {
    /// See [`Tensor::uninit`].
    pub fn uninit(stream: &Stream, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Self> {
        Self::allocated_by(|stream, bytes| Storage::new(stream, bytes?), stream, dtype, shape)
    }

    /// See [`Storage::of_result`].
    pub(crate) fn result(stream: &Stream, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Self> {
        Self::allocated_by(Storage::of_result, stream, dtype, shape)
    }

    fn allocated_by(
        storage: fn(&Stream, Result<usize>) -> Result<Storage>,
        stream: &Stream,
        dtype: DType,
        shape: impl AsRef<[usize]>,
    ) -> Result<Self> {
        let shape = Shape::new(shape.as_ref())?;
        let bytes = shape.elements().checked_mul(dtype.size()).filter(|&n| n <= isize::MAX as usize);
        let bytes = bytes
            .ok_or_else(|| Error::too_large("tensor", "shape", format!("{shape} of {dtype} has more than 2^63 bytes")));
        let mut tensor = Self { storage: storage(stream, bytes)?, dtype, layout: Layout::dense(shape) };
        if cfg!(debug_assertions) && tensor.storage.is_there() {
            tensor.part().fill(stream, &[0xFF])?;
            tensor.forget(stream, 0..shape.elements())?;
        }
        Ok(tensor)
    }

    /// See [`Tensor::zeros`].
    pub fn zeros(stream: &Stream, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Self> {
        let tensor = Self::uninit(stream, dtype, shape)?;
        tensor.part().fill(stream, &[0])?;
        Ok(tensor)
    }

    /// Copies a host tensor to the device: see [`Tensor::from_slice`].
    pub fn from_host(stream: &Stream, host: &HostTensor) -> Result<Self> {
        let tensor = Self::uninit(stream, host.dtype(), host.shape())?;
        tensor.part().upload(stream, host.bytes())?;
        Ok(tensor)
    }

    /// Copies the elements to the host, after everything queued on `stream`. Waits for it.
    pub fn to_host(&self, stream: &Stream) -> Result<HostTensor> {
        self.view().to_host(stream)
    }

    /// Copies the elements to the host. Waits for them.
    pub(crate) fn read_bytes(&self, stream: &Stream, bytes: &mut [u8]) -> Result<()> {
        self.part().download(stream, bytes)
    }

    /// See [`View::to_device`].
    pub fn to_device(&self, stream: &Stream) -> Result<Self> {
        Self::from_host(stream, &self.to_host(self.storage.home())?)
    }

    /// What findings call the tensor.
    pub(crate) fn set_name(&self, name: &str) {
        self.storage.set_name(name);
    }

    /// Elements in that range count as never written, where reads are checked.
    pub(crate) fn forget(&mut self, stream: &Stream, range: Range<usize>) -> Result<()> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        if range.is_empty() {
            return Ok(());
        }
        let size = self.dtype.size();
        let address = self.part().ordered(stream, Access::Write)?;
        // SAFETY: the range was cut to the allocation.
        unsafe { stream.forget(address + (range.start * size) as u64, range.len() * size) }
    }

    pub(crate) fn part(&self) -> Part<'_> {
        Part::whole(&self.storage, self.dtype, self.layout)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, slowest dimension first.
    pub fn shape(&self) -> &Shape {
        &self.layout.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape().elements()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device that holds the elements.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// The whole tensor, to read.
    pub fn view(&self) -> AnyView<'_> {
        AnyView::of(self.part())
    }

    /// The whole tensor, to write.
    pub fn view_mut(&mut self) -> AnyViewMut<'_> {
        AnyViewMut::of(self.part())
    }

    /// The same memory with other dimensions.
    pub fn reshape(self, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(Self { layout: self.layout.reshape(shape.as_ref())?, ..self })
    }

    /// See [`View::strided`].
    pub fn strided(&self, offset: usize, shape: impl AsRef<[usize]>, strides: &[usize]) -> Result<AnyView<'_>> {
        self.view().strided(offset, shape, strides)
    }

    /// See [`ViewMut::strided`].
    pub fn strided_mut(
        &mut self,
        offset: usize,
        shape: impl AsRef<[usize]>,
        strides: &[usize],
    ) -> Result<AnyViewMut<'_>> {
        self.view_mut().strided(offset, shape, strides)
    }

    /// The tensor, if its elements are `T`s; `op` and `arg` go into the error.
    pub fn typed<T: Dtype>(self, op: &'static str, arg: &'static str) -> Result<Tensor<T>> {
        self.part().require_dtype(op, arg, T::DTYPE)?;
        Ok(Tensor::of(self))
    }
}

impl<'a> AnyView<'a> {
    shared_methods!();
    derived_views!(Overlap::Allowed, self: &self);

    fn of(part: Part<'a>) -> Self {
        Self { part }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.part.dtype
    }

    /// The view, if its elements are `T`s; `op` and `arg` go into the error.
    pub fn typed<T: Dtype>(&self, op: &'static str, arg: &'static str) -> Result<View<'a, T>> {
        self.part.require_dtype(op, arg, T::DTYPE)?;
        Ok(View::of(self.part))
    }

    /// See [`View::broadcast`].
    pub fn broadcast(&self, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(Self::of(self.part.broadcast(shape.as_ref())?))
    }

    /// Copies the elements to the host, densely, after everything queued on `stream`. Waits for it.
    pub fn to_host(&self, stream: &Stream) -> Result<HostTensor> {
        HostTensor::new(self.dtype(), self.shape(), self.part.to_vec::<u8>(stream)?)
    }
}

impl<'a> AnyViewMut<'a> {
    shared_methods!();
    derived_views!(Overlap::Refused, self: self);

    /// A part that nobody else has.
    fn of(part: Part<'a>) -> Self {
        Self { part, exclusive: PhantomData }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.part.dtype
    }

    /// The view, if its elements are `T`s; `op` and `arg` go into the error.
    pub fn typed<T: Dtype>(&mut self, op: &'static str, arg: &'static str) -> Result<ViewMut<'_, T>> {
        self.part.require_dtype(op, arg, T::DTYPE)?;
        Ok(ViewMut::of(self.part))
    }

    /// The view itself, if its elements are `T`s; `op` and `arg` go into the error.
    pub fn into_typed<T: Dtype>(self, op: &'static str, arg: &'static str) -> Result<ViewMut<'a, T>> {
        self.part.require_dtype(op, arg, T::DTYPE)?;
        Ok(ViewMut::of(self.part))
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> AnyView<'_> {
        AnyView::of(self.part)
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> AnyViewMut<'_> {
        AnyViewMut::of(self.part)
    }

    /// Copies a host tensor of the same type and shape; the view has to be contiguous. See [`Tensor::from_slice`].
    pub fn write(&mut self, stream: &Stream, host: &HostTensor) -> Result<()> {
        if host.dtype() != self.dtype() {
            return Err(Error::dtype("write", "src", host.dtype(), self.dtype().name()));
        }
        if host.shape() != self.shape() {
            return Err(Error::shape("write", "src", host.shape(), self.shape().to_string()));
        }
        self.part.upload(stream, host.bytes())
    }

    /// Copies all elements from the host.
    pub(crate) fn write_bytes(&mut self, stream: &Stream, bytes: &[u8]) -> Result<()> {
        self.part.upload(stream, bytes)
    }

    /// Sets every element to these bytes, which are one element's.
    pub(crate) fn fill_bytes(&mut self, stream: &Stream, element: &[u8]) -> Result<()> {
        self.part.fill(stream, element)
    }
}

impl<T: Dtype> From<Tensor<T>> for AnyTensor {
    fn from(tensor: Tensor<T>) -> Self {
        tensor.any
    }
}

impl<'a, T: Dtype> From<View<'a, T>> for AnyView<'a> {
    fn from(view: View<'a, T>) -> Self {
        Self::of(view.part)
    }
}

impl<'a, T: Dtype> From<ViewMut<'a, T>> for AnyViewMut<'a> {
    fn from(view: ViewMut<'a, T>) -> Self {
        Self::of(view.part)
    }
}

impl<'a> From<&'a AnyTensor> for AnyView<'a> {
    fn from(tensor: &'a AnyTensor) -> Self {
        tensor.view()
    }
}

impl<'a> From<&'a mut AnyTensor> for AnyViewMut<'a> {
    fn from(tensor: &'a mut AnyTensor) -> Self {
        tensor.view_mut()
    }
}
