//! Tensors whose element type is known at run time only.

use std::ops::Range;

use half::{bf16, f16};

use crate::runtime::device::Device;
use crate::runtime::dtype::{DType, Dtype, for_each_dtype};
use crate::runtime::error::{Error, Result};
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::shape::Shape;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

macro_rules! define {
    ($(($variant:ident, $ty:ty, $name:literal, $doc:literal, $to:expr, $from:expr),)*) => {
        /// A [`Tensor`] of any element type.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyTensor {
            $(#[doc = $doc] $variant(Tensor<$ty>),)*
        }

        /// A [`View`] of any element type.
        #[derive(Debug, Clone, Copy)]
        #[non_exhaustive]
        pub enum AnyView<'a> {
            $(#[doc = $doc] $variant(View<'a, $ty>),)*
        }

        /// A [`ViewMut`] of any element type.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyViewMut<'a> {
            $(#[doc = $doc] $variant(ViewMut<'a, $ty>),)*
        }

        /// Runs `$body` on the content, whatever its element type.
        macro_rules! on_any {
            ($any:ident, $value:expr, $inner:ident => $body:expr) => {
                match $value { $($any::$variant($inner) => $body,)* }
            };
        }

        /// Runs `$body` on the content and wraps its value in the same variant.
        macro_rules! map_any {
            ($any:ident, $value:expr, $inner:ident => $target:ident, $body:expr) => {
                match $value { $($any::$variant($inner) => $target::$variant($body),)* }
            };
        }

        /// Makes a tensor of a type that is known at run time.
        macro_rules! make_any {
            ($dtype:expr, $t:ident => $body:expr) => {
                match $dtype {
                    $(DType::$variant => { type $t = $ty; AnyTensor::$variant($body) })*
                }
            };
        }

        $(
            impl From<Tensor<$ty>> for AnyTensor {
                fn from(tensor: Tensor<$ty>) -> Self {
                    Self::$variant(tensor)
                }
            }

            impl<'a> From<View<'a, $ty>> for AnyView<'a> {
                fn from(view: View<'a, $ty>) -> Self {
                    Self::$variant(view)
                }
            }

            impl<'a> From<ViewMut<'a, $ty>> for AnyViewMut<'a> {
                fn from(view: ViewMut<'a, $ty>) -> Self {
                    Self::$variant(view)
                }
            }
        )*
    };
}
for_each_dtype!(define);

fn dtype_of<T: Dtype>(_: &Tensor<T>) -> DType {
    T::DTYPE
}

fn dtype_of_view<T: Dtype>(_: &View<'_, T>) -> DType {
    T::DTYPE
}

fn dtype_of_view_mut<T: Dtype>(_: &ViewMut<'_, T>) -> DType {
    T::DTYPE
}

impl AnyTensor {
    /// See [`Tensor::uninit`].
    pub fn uninit(stream: &Stream, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(make_any!(dtype, T => Tensor::<T>::uninit(stream, shape)?))
    }

    /// See [`Tensor::zeros`].
    pub fn zeros(stream: &Stream, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Self> {
        Ok(make_any!(dtype, T => Tensor::<T>::zeros(stream, shape)?))
    }

    /// Copies a host tensor to the device. Does not wait for the device.
    pub fn from_host(stream: &Stream, host: &HostTensor) -> Result<Self> {
        Ok(make_any!(host.dtype(), T => {
            let tensor = Tensor::<T>::uninit(stream, host.shape())?;
            // SAFETY: a host tensor's bytes are exactly its elements, and the device tensor has as many.
            unsafe { stream.upload(tensor.view().ptr(stream).addr(), host.bytes())? };
            tensor
        }))
    }

    /// Copies the elements to the host, after everything queued on `stream`. Waits for it.
    pub fn to_host(&self, stream: &Stream) -> Result<HostTensor> {
        self.view().to_host(stream)
    }

    /// What findings call the tensor.
    pub(crate) fn set_name(&self, name: &str) {
        on_any!(AnyTensor, self, t => t.set_name(name));
    }

    /// Elements in that range count as never written, where reads are checked.
    pub(crate) fn forget(&self, stream: &Stream, range: Range<usize>) -> Result<()> {
        on_any!(AnyTensor, self, t => t.forget(stream, range))
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        on_any!(AnyTensor, self, t => dtype_of(t))
    }

    /// Extents, slowest dimension first.
    pub fn shape(&self) -> &Shape {
        on_any!(AnyTensor, self, t => t.shape())
    }

    /// The device that holds the elements.
    pub fn device(&self) -> &Device {
        on_any!(AnyTensor, self, t => t.device())
    }

    /// The whole tensor, to read.
    pub fn view(&self) -> AnyView<'_> {
        map_any!(AnyTensor, self, t => AnyView, t.view())
    }

    /// The whole tensor, to write.
    pub fn view_mut(&mut self) -> AnyViewMut<'_> {
        map_any!(AnyTensor, self, t => AnyViewMut, t.view_mut())
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
        let shape = shape.as_ref();
        Ok(map_any!(AnyTensor, self, t => AnyViewMut, t.view_mut().strided(offset, shape, strides)?))
    }

    /// The tensor, if its elements are `T`s; `op` and `arg` go into the error.
    pub fn typed<T: Dtype>(self, op: &'static str, arg: &'static str) -> Result<Tensor<T>> {
        T::tensor_of(self).map_err(|other| Error::dtype(op, arg, other.dtype(), T::DTYPE.name()))
    }
}

impl<'a> AnyView<'a> {
    /// The element type.
    pub fn dtype(&self) -> DType {
        on_any!(AnyView, self, v => dtype_of_view(v))
    }

    /// Extents, slowest dimension first.
    pub fn shape(&self) -> &Shape {
        on_any!(AnyView, self, v => v.shape())
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[usize] {
        on_any!(AnyView, self, v => v.strides())
    }

    /// The view, if its elements are `T`s; `op` and `arg` go into the error.
    pub fn typed<T: Dtype>(&self, op: &'static str, arg: &'static str) -> Result<View<'a, T>> {
        T::view_of(self).ok_or_else(|| Error::dtype(op, arg, self.dtype(), T::DTYPE.name()))
    }

    /// See [`View::slice`].
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        Ok(map_any!(AnyView, self, v => AnyView, v.slice(range)?))
    }

    /// See [`View::strided`].
    pub fn strided(&self, offset: usize, shape: impl AsRef<[usize]>, strides: &[usize]) -> Result<Self> {
        let shape = shape.as_ref();
        Ok(map_any!(AnyView, self, v => AnyView, v.strided(offset, shape, strides)?))
    }

    /// Copies the elements to the host, densely, after everything queued on `stream`. Waits for it.
    pub fn to_host(&self, stream: &Stream) -> Result<HostTensor> {
        on_any!(AnyView, self, v => HostTensor::new(self.dtype(), v.shape(), v.download(stream)?))
    }
}

impl AnyViewMut<'_> {
    /// The element type.
    pub fn dtype(&self) -> DType {
        on_any!(AnyViewMut, self, v => dtype_of_view_mut(v))
    }

    /// Extents, slowest dimension first.
    pub fn shape(&self) -> &Shape {
        on_any!(AnyViewMut, self, v => v.shape())
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[usize] {
        on_any!(AnyViewMut, self, v => v.strides())
    }

    /// The view, if its elements are `T`s; `op` and `arg` go into the error.
    pub fn typed<T: Dtype>(&mut self, op: &'static str, arg: &'static str) -> Result<ViewMut<'_, T>> {
        let found = self.dtype();
        T::view_mut_of(self).ok_or_else(|| Error::dtype(op, arg, found, T::DTYPE.name()))
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> AnyView<'_> {
        map_any!(AnyViewMut, self, v => AnyView, v.as_view())
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> AnyViewMut<'_> {
        map_any!(AnyViewMut, self, v => AnyViewMut, v.reborrow())
    }

    /// Copies a host tensor of the same type and shape; the view has to be contiguous. Does not wait for the device.
    pub fn write(&mut self, stream: &Stream, host: &HostTensor) -> Result<()> {
        if host.dtype() != self.dtype() {
            return Err(Error::dtype("write", "src", host.dtype(), self.dtype().name()));
        }
        on_any!(AnyViewMut, self, v => v.write(stream, &host.to_vec()?))
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
