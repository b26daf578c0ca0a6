//! Rows of logits that are read only, or replaced by their gradient.

use cuda_std::launch::{DevicePtr, DevicePtrMut};

use crate::ops::model::OpInfo;
use crate::ops::rows::{self, Rows};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::placed::Placed;
use crate::runtime::storage::Storage;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Logits that are read only, or replaced by their gradient.
pub(super) enum Logits<'a, T> {
    Read(View<'a, T>),
    Replaced(ViewMut<'a, T>),
}

impl<'a, T> From<View<'a, T>> for Logits<'a, T> {
    fn from(view: View<'a, T>) -> Self {
        Self::Read(view)
    }
}

impl<'a, T> From<ViewMut<'a, T>> for Logits<'a, T> {
    fn from(view: ViewMut<'a, T>) -> Self {
        Self::Replaced(view)
    }
}

impl<T> Placed for Logits<'_, T> {
    fn place(&self) -> Option<&Storage> {
        match self {
            Self::Read(x) => x.place(),
            Self::Replaced(x) => x.place(),
        }
    }
}

/// What the gradient is written to, with its row stride.
pub(super) type Rewritten<T> = (DevicePtrMut<T>, u64);

impl<T: Float> Logits<'_, T> {
    pub(super) fn shape(&self) -> &[usize] {
        match self {
            Self::Read(x) => x.shape(),
            Self::Replaced(x) => x.shape(),
        }
    }

    /// Whether each row starts at a multiple of 16 bytes.
    pub(super) fn is_aligned(&self) -> bool {
        match self {
            Self::Read(x) => x.rows_aligned(16),
            Self::Replaced(x) => x.rows_aligned(16),
        }
    }

    pub(super) fn row_stride(&self, info: &OpInfo, arg: &'static str) -> Result<u64> {
        let stride = match self {
            Self::Read(x) => x.require_row_stride(info.name, arg),
            Self::Replaced(x) => x.require_row_stride(info.name, arg),
        };
        Ok(stride? as u64)
    }

    /// The addresses of the logits, whose rows are `stride` apart, and of their gradient, null if there is none. A separate
    /// gradient must have `rows` rows.
    pub(super) fn pointers(
        &mut self,
        info: &OpInfo,
        stream: &Stream,
        stride: u64,
        rows: &mut Rows,
        gradient: Option<ViewMut<'_, T>>,
    ) -> Result<(DevicePtr<T>, Rewritten<T>)> {
        match (self, gradient) {
            (Self::Replaced(x), _) => {
                let x = x.ptr_mut(stream)?;
                Ok((x.into(), (x, stride)))
            }
            (Self::Read(x), Some(mut gradient)) => {
                gradient.require_shape(info.name, "gradient", x.shape())?;
                *rows = rows.and_mut(&gradient);
                let g_stride = gradient.require_row_stride(info.name, "gradient")? as u64;
                Ok((x.ptr(stream)?, (gradient.ptr_mut(stream)?, g_stride)))
            }
            (Self::Read(x), None) => Ok((x.ptr(stream)?, (DevicePtrMut::null(), 0))),
        }
    }
}

/// Fails unless the shape has rows, and these, if there are any, have classes.
pub(super) fn require_classes(info: &OpInfo, arg: &'static str, shape: &[usize]) -> Result<()> {
    rows::require(info, arg, shape)?;
    let (outer, classes) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
    if classes == 0 && !outer.contains(&0) {
        return Err(info.shape_error(arg, shape, "at least one class"));
    }
    Ok(())
}
