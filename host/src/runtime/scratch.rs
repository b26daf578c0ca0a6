//! Workspace of operators: memory that one stream needs for a while.

use std::marker::PhantomData;

use cuda_std::launch::DevicePtrMut;

use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;

/// Device memory for what a stream queues while this lives, with unspecified contents. Freed behind that work, without waiting: the
/// same bytes soon serve again.
#[derive(Debug)]
pub struct Scratch<T> {
    stream: Stream,
    address: u64,
    len: usize,
    elements: PhantomData<T>,
}

impl Stream {
    /// Memory for `n` elements, for work that is queued on this stream before the result is dropped.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::OutOfMemory`].
    pub fn scratch<T: Copy>(&self, n: usize) -> Result<Scratch<T>> {
        let bytes = n.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| {
            Error::too_large(
                "scratch",
                "n",
                format!("{n} elements of {} bytes are more than 2^63 bytes", size_of::<T>()),
            )
        })?;
        let address = if bytes == 0 { 0 } else { self.alloc(bytes)? };
        self.device().name(address, "scratch");
        Ok(Scratch { stream: self.clone(), address, len: n, elements: PhantomData })
    }

    /// The same for an operator, whose name its errors have.
    pub(crate) fn workspace<T: Copy>(&self, op: &'static str, n: usize) -> Result<Scratch<T>> {
        self.scratch(n).map_err(|error| error.of(op, "workspace"))
    }
}

impl<T> Scratch<T> {
    /// The first element's address, for launches on the stream that the memory is of, before this is dropped; null if there is none.
    pub fn ptr_mut(&self) -> DevicePtrMut<T> {
        DevicePtrMut::from_raw(self.address)
    }

    /// Queues that every byte becomes zero.
    ///
    /// # Errors
    /// A fault of earlier work.
    pub fn clear(&self) -> Result<()> {
        // SAFETY: these are the bytes that this value owns.
        unsafe { self.stream.fill(self.address, &[0], self.len * size_of::<T>()) }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        if self.address != 0 {
            // SAFETY: the address is this value's own; launches that use it are on the same stream and queued before this.
            // An error has nowhere to go; a fault shows again at the next call.
            let _ = unsafe { self.stream.free(self.address) };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::runtime::device::Device;

    #[test]
    fn what_an_operator_has_no_memory_for_is_its_workspace() {
        let stream = Device::open_backend("sim".parse().unwrap()).unwrap().stream().unwrap();
        let total = stream.device().memory().unwrap().1 as usize;
        for (n, said) in
            [(total, "sum: `workspace`: out of device memory"), (usize::MAX, "sum: `workspace` is too large: 1844674")]
        {
            let error = stream.workspace::<u64>("sum", n).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
