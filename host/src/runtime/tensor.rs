//! Tensors that own device memory.

use std::marker::PhantomData;
use std::ops::Range;

use crate::runtime::device::Device;
use crate::runtime::dtype::Dtype;
use crate::runtime::error::{Error, Result};
use crate::runtime::layout::Layout;
use crate::runtime::shape::Shape;
use crate::runtime::storage::Storage;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// A dense row-major tensor in device memory.
///
/// The stream it was made on is its home. Other streams may use it: their first use waits for what its home had queued by then,
/// and its memory is freed after all of them. Any further ordering between streams is the caller's, through [`Event`](crate::runtime::stream::Event)s.
#[derive(Debug)]
pub struct Tensor<T> {
    storage: Storage,
    shape: Shape,
    elements: PhantomData<T>,
}

impl<T: Dtype> Tensor<T> {
    /// Memory whose contents are unspecified. Debug builds fill it with `0xFF` (NaN for floats), so that relying on it shows.
    pub fn uninit(stream: &Stream, shape: impl AsRef<[usize]>) -> Result<Self> {
        let shape = Shape::new(shape.as_ref())?;
        let bytes =
            shape.elements().checked_mul(size_of::<T>()).filter(|&n| n <= isize::MAX as usize).ok_or_else(|| {
                let reason = format!("{shape} of {} has more than 2^63 bytes", T::DTYPE);
                Error::too_large("tensor", "shape", reason)
            })?;
        let tensor = Self { storage: Storage::new(stream, bytes)?, shape, elements: PhantomData };
        if cfg!(debug_assertions) {
            // SAFETY: the allocation has this many bytes.
            unsafe { stream.fill(tensor.storage.address(), &[0xFF], bytes)? };
            if bytes > 0 {
                // SAFETY: as above.
                unsafe { stream.forget(tensor.storage.address(), bytes)? };
            }
        }
        Ok(tensor)
    }

    /// All elements zero.
    pub fn zeros(stream: &Stream, shape: impl AsRef<[usize]>) -> Result<Self> {
        Self::filled(stream, shape, T::zeroed())
    }

    /// All elements `value`.
    pub fn filled(stream: &Stream, shape: impl AsRef<[usize]>, value: T) -> Result<Self> {
        let mut tensor = Self::uninit(stream, shape)?;
        tensor.view_mut().fill(stream, value)?;
        Ok(tensor)
    }

    /// Copies `data` to the device. Does not wait for the device: `data` may be dropped at once.
    pub fn from_slice(stream: &Stream, shape: impl AsRef<[usize]>, data: &[T]) -> Result<Self> {
        let shape = Shape::new(shape.as_ref())?;
        if shape.elements() != data.len() {
            return Err(Error::shape(
                "from_slice",
                "data",
                &[data.len()],
                format!("{} elements for shape {shape}", shape.elements()),
            ));
        }
        let mut tensor = Self::uninit(stream, shape)?;
        tensor.view_mut().write(stream, data)?;
        Ok(tensor)
    }

    /// Copies the elements to the host, after everything queued on `stream`. Waits for it.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.view().to_vec(stream)
    }

    /// Replaces all elements. Does not wait for the device.
    pub fn write(&mut self, stream: &Stream, data: &[T]) -> Result<()> {
        self.view_mut().write(stream, data)
    }
}

impl<T> Tensor<T> {
    /// What findings call the tensor.
    pub(crate) fn set_name(&self, name: &str) {
        self.storage.set_name(name);
    }

    /// Elements of the allocation in that range count as never written, where reads are checked.
    pub(crate) fn forget(&self, stream: &Stream, range: Range<usize>) -> Result<()> {
        let range = range.start.min(self.shape.elements())..range.end.min(self.shape.elements());
        if range.is_empty() {
            return Ok(());
        }
        let (size, address) = (size_of::<T>(), self.storage.address());
        // SAFETY: the range was cut to the allocation.
        unsafe { stream.forget(address + (range.start * size) as u64, range.len() * size) }
    }

    /// Extents, slowest dimension first.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.elements()
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
    pub fn view(&self) -> View<'_, T> {
        View::new(&self.storage, Layout::dense(self.shape))
    }

    /// The whole tensor, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(&self.storage, Layout::dense(self.shape))
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
        let layout = Layout::dense(self.shape).reshape(shape.as_ref())?;
        Ok(Self { shape: layout.shape, ..self })
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
