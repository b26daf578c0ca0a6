//! Tensors, views and streams as `{:?}` shows them: what they are, not how they are kept.

use std::fmt;

use crate::runtime::any::{AnyTensor, AnyView, AnyViewMut};
use crate::runtime::part::Part;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.layout.shape)?;
        if !self.layout.is_contiguous() {
            write!(f, " with strides {:?}", self.layout.strides())?;
        }
        write!(f, " on {}", self.device())
    }
}

macro_rules! shown {
    ($($name:literal: [$($generics:tt)*] $type:ty, |$this:ident| $what:expr;)+) => {$(
        impl<$($generics)*> fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $this = self;
                f.debug_tuple($name).field(&$what).finish()
            }
        }
    )+};
}

shown! {
    "Tensor": [T] Tensor<T>, |this| this.any.part();
    "View": [T] View<'_, T>, |this| this.part;
    "ViewMut": [T] ViewMut<'_, T>, |this| this.part;
    "AnyTensor": [] AnyTensor, |this| this.part();
    "AnyView": [] AnyView<'_>, |this| this.part;
    "AnyViewMut": [] AnyViewMut<'_>, |this| this.part;
    "Stream": [] Stream, |this| this.device();
}
