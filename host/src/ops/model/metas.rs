//! Dtypes and shapes of inputs that may not exist yet, checked with errors that name the argument.

use super::{ArgInfo, OpInfo};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// Dtype and shape of a tensor that may not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMeta {
    /// The name of the argument.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

impl TensorMeta {
    /// A tensor for the argument `name`.
    pub fn new(name: &str, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.to_owned(), dtype, shape: shape.into() }
    }

    /// The dtype and shape of an existing tensor, for the argument `name`.
    pub fn of(name: &str, tensor: &HostTensor) -> Self {
        Self::new(name, tensor.dtype(), tensor.shape().to_vec())
    }

    /// The number of elements, or `None` if it overflows.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))
    }
}

/// The inputs' dtypes and shapes: all required inputs and no unknown ones, each of a permitted type.
#[derive(Clone, Debug)]
pub struct Metas<'a> {
    info: &'static OpInfo,
    all: Vec<MetaArg<'a>>,
    dtype: DType,
}

impl<'a> Metas<'a> {
    /// Checks names and types against the operator's description.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if an input is missing, there twice or not declared,
    /// [`Error::DType`](crate::Error::DType) if one is of a type that it may not have.
    pub fn accept(info: &'static OpInfo, inputs: &'a [TensorMeta]) -> Result<Self> {
        let mut all: Vec<MetaArg<'a>> = Vec::new();
        for arg in info.inputs() {
            let mut of_arg = inputs.iter().filter(|meta| meta.name == arg.name);
            match (of_arg.next(), of_arg.next()) {
                (Some(meta), None) => all.push(MetaArg { info, arg, meta }),
                (None, _) if arg.optional => {}
                (found, _) => {
                    let found = if found.is_some() { "several" } else { "none" };
                    let wanted = "one input tensor of that name";
                    return Err(info.param_error("inputs", format!("{found} called `{}`", arg.name), wanted));
                }
            }
        }
        if let Some(other) = inputs.iter().find(|meta| !all.iter().any(|known| std::ptr::eq(known.meta, *meta))) {
            let names: Vec<_> = info.inputs().map(|arg| arg.name).collect();
            let wanted = format!("input tensors called {}", names.join(", "));
            return Err(info.param_error("inputs", format!("`{}`", other.name), wanted));
        }
        let mut common = None;
        for MetaArg { arg, meta, .. } in &all {
            let shared = common.as_ref().map(std::slice::from_ref);
            let wanted = if arg.dtypes.is_empty() { shared.unwrap_or(info.dtypes) } else { arg.dtypes };
            if !wanted.contains(&meta.dtype) {
                return Err(info.dtype_error(arg.name, meta.dtype, wanted));
            }
            if arg.dtypes.is_empty() {
                common = Some(meta.dtype);
            }
        }
        let dtype = common.or(info.dtypes.first().copied()).unwrap_or(DType::F32);
        Ok(Self { info, all, dtype })
    }

    /// The element type of the arguments without types of their own.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The input of that name.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if it was left out.
    pub fn get(&self, name: &str) -> Result<MetaArg<'a>> {
        self.optional(name).ok_or_else(|| {
            self.info.param_error("inputs", format!("none called `{name}`"), "an input tensor of that name")
        })
    }

    /// The input of that name, if it was not omitted.
    pub fn optional(&self, name: &str) -> Option<MetaArg<'a>> {
        self.all.iter().find(|input| input.arg.name == name).copied()
    }
}

/// The dtype and shape of one input, with checks.
#[derive(Clone, Copy, Debug)]
pub struct MetaArg<'a> {
    info: &'static OpInfo,
    arg: &'static ArgInfo,
    meta: &'a TensorMeta,
}

impl<'a> MetaArg<'a> {
    /// Name, dtype and shape.
    pub fn meta(&self) -> &'a TensorMeta {
        self.meta
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.meta.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &'a [usize] {
        &self.meta.shape
    }

    /// The shape, which must have exactly `N` dimensions: `let [rows, cols] = x.dims()?`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if it has another number of dimensions.
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        let wanted = || format!("{N} dimensions");
        self.shape().try_into().map_err(|_| self.info.shape_error(self.arg.name, self.shape(), wanted()))
    }

    /// Checks that the shape is exactly this.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if it is another.
    pub fn has_shape(&self, shape: &[usize]) -> Result<()> {
        if self.shape() == shape {
            return Ok(());
        }
        Err(self.info.shape_error(self.arg.name, self.shape(), format!("{shape:?}")))
    }
}
