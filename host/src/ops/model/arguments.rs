use std::fmt;

use super::{OpInfo, Role};
use crate::runtime::any::{AnyView, AnyViewMut};
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::{Error, Result};
use crate::runtime::view::{View, ViewMut};

/// The tensors of one launch, by name, their element types known only at run time.
pub struct Arguments<'a> {
    info: &'static OpInfo,
    read: Vec<(&'static str, AnyView<'a>)>,
    written: Vec<(&'static str, AnyViewMut<'a>)>,
}

impl<'a> Arguments<'a> {
    /// No tensors yet, for the operator with this description.
    pub fn new(info: &'static OpInfo) -> Self {
        Self { info, read: Vec::new(), written: Vec::new() }
    }

    /// Adds a tensor to read.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if the operator has no such input, or it is there already.
    pub fn read(&mut self, name: &str, view: impl Into<AnyView<'a>>) -> Result<()> {
        let name = self.declared(name, &[Role::In])?;
        self.read.push((name, view.into()));
        Ok(())
    }

    /// Adds a tensor to write, or to read and write.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if the operator has no such output, or it is there already.
    pub fn write(&mut self, name: &str, view: impl Into<AnyViewMut<'a>>) -> Result<()> {
        let name = self.declared(name, &[Role::Out, Role::InOut])?;
        self.written.push((name, view.into()));
        Ok(())
    }

    /// The element type of a tensor that has not been taken yet.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if there is no tensor of that name.
    pub fn dtype(&self, name: &str) -> Result<DType> {
        let read = self.read.iter().find(|(n, _)| *n == name).map(|(_, view)| view.dtype());
        let written = || self.written.iter().find(|(n, _)| *n == name).map(|(_, view)| view.dtype());
        read.or_else(written).ok_or_else(|| self.missing(name))
    }

    /// Whether an optional input tensor is present.
    pub fn has(&self, name: &str) -> bool {
        self.read.iter().any(|(n, _)| *n == name)
    }

    /// The tensor of that name as a view of `T`, which must match its dtype.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if it is missing, [`Error::DType`](crate::Error::DType) if it has another type.
    pub fn input<T: Dtype>(&self, name: &str) -> Result<View<'a, T>> {
        self.optional_input(name)?.ok_or_else(|| self.missing(name))
    }

    /// [`input`](Self::input), or `None` if the caller omitted it.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) if it has another type.
    pub fn optional_input<T: Dtype>(&self, name: &str) -> Result<Option<View<'a, T>>> {
        let found = self.read.iter().find(|(n, _)| *n == name);
        found.map(|(name, view)| view.typed(self.info.name, name)).transpose()
    }

    /// Takes the output tensor of that name as a view of `T`, which must match its dtype.
    ///
    /// # Errors
    /// Same as [`input`](Self::input).
    pub fn output<T: Dtype>(&mut self, name: &str) -> Result<ViewMut<'a, T>> {
        match self.written.iter().position(|(n, _)| *n == name) {
            Some(at) => {
                let (name, view) = self.written.swap_remove(at);
                view.into_typed(self.info.name, name)
            }
            None => Err(self.missing(name)),
        }
    }

    fn declared(&self, name: &str, roles: &[Role]) -> Result<&'static str> {
        let here = |n: &str| self.read.iter().any(|(m, _)| *m == n) || self.written.iter().any(|(m, _)| *m == n);
        let mut known = self.info.args.iter().filter(|arg| roles.contains(&arg.role));
        known.find(|arg| arg.name == name && !here(name)).map(|arg| arg.name).ok_or_else(|| {
            let names: Vec<_> = self.info.args.iter().map(|arg| arg.name).collect();
            self.info.param_error("arguments", name, format!("each of {} once", names.join(", ")))
        })
    }

    fn missing(&self, name: &str) -> Error {
        self.info.param_error("arguments", format!("nothing called `{name}`"), "a tensor of that name")
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.read.iter().map(|(name, _)| name).chain(self.written.iter().map(|(name, _)| name));
        f.debug_tuple("Arguments").field(&self.info.name).field(&names.collect::<Vec<_>>()).finish()
    }
}
