//! Arguments paired with the operator and name they have, so that checks are short and errors say whose argument it was.

use super::OpInfo;
use crate::runtime::any::{AnyView, AnyViewMut};
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::{Error, Result};
use crate::runtime::view::{View, ViewMut};

/// Dtype and shape of a tensor that may not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMeta {
    /// The argument it is for.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
}

impl TensorMeta {
    /// Elements, or `None` past what fits.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))
    }
}

/// One input's dtype and shape, ready to be checked.
#[derive(Clone, Copy, Debug)]
pub struct MetaArg<'a> {
    info: &'static OpInfo,
    name: &'static str,
    meta: &'a TensorMeta,
}

impl MetaArg<'_> {
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.meta.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &[usize] {
        &self.meta.shape
    }

    /// The shape, which must have exactly `N` dimensions: `let [rows, cols] = x.dims()?`.
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        self.shape().try_into().map_err(|_| self.info.shape_error(self.name, self.shape(), format!("{N} dimensions")))
    }

    /// The shape must be exactly this.
    pub fn has_shape(&self, shape: &[usize]) -> Result<()> {
        if self.shape() == shape {
            return Ok(());
        }
        Err(self.info.shape_error(self.name, self.shape(), format!("{shape:?}")))
    }

    /// The dtype must be one of the operator's.
    pub fn has_dtype(&self) -> Result<()> {
        self.has_dtype_of(self.info.dtypes)
    }

    /// The dtype must be one of these.
    pub fn has_dtype_of(&self, dtypes: &[DType]) -> Result<()> {
        if dtypes.contains(&self.dtype()) {
            return Ok(());
        }
        Err(self.info.dtype_error_of(self.name, self.dtype(), dtypes))
    }
}

/// One input's data, its element type known only at run time.
#[derive(Clone, Copy)]
pub struct Arg<'a, 'v> {
    info: &'static OpInfo,
    name: &'static str,
    view: &'a AnyView<'v>,
}

impl<'a> Arg<'a, '_> {
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.view.dtype()
    }

    /// The view as one of `T`, which its dtype must be.
    pub fn typed<T: Dtype>(&self) -> Result<View<'a, T>> {
        self.view.typed(self.info.name, self.name)
    }
}

/// One output's space, its element type known only at run time.
pub struct ArgMut<'a, 'v> {
    info: &'static OpInfo,
    name: &'static str,
    view: &'a mut AnyViewMut<'v>,
}

impl ArgMut<'_, '_> {
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.view.dtype()
    }

    /// The view as one of `T`, which its dtype must be.
    pub fn typed<T: Dtype>(&mut self) -> Result<ViewMut<'_, T>> {
        self.view.typed(self.info.name, self.name)
    }
}

impl OpInfo {
    /// The inputs' dtypes and shapes, `N` of them or an error: `let [x, weight] = INFO.metas(inputs)?`.
    pub fn metas<'a, const N: usize>(&'static self, inputs: &'a [TensorMeta]) -> Result<[MetaArg<'a>; N]> {
        let all: &[TensorMeta; N] = inputs.try_into().map_err(|_| self.count_error("input", N, inputs.len()))?;
        let mut i = 0;
        Ok(all.each_ref().map(|meta| {
            i += 1;
            MetaArg { info: self, name: self.input_name(i - 1), meta }
        }))
    }

    /// The inputs' data, `N` of them or an error: `let [x, weight] = INFO.args(inputs)?`.
    pub fn args<'a, 'v, const N: usize>(&'static self, inputs: &'a [AnyView<'v>]) -> Result<[Arg<'a, 'v>; N]> {
        let all: &[AnyView<'v>; N] = inputs.try_into().map_err(|_| self.count_error("input", N, inputs.len()))?;
        let mut i = 0;
        Ok(all.each_ref().map(|view| {
            i += 1;
            Arg { info: self, name: self.input_name(i - 1), view }
        }))
    }

    /// The outputs' space, `N` of them or an error: `let [mut y] = INFO.args_mut(outputs)?`.
    pub fn args_mut<'a, 'v, const N: usize>(
        &'static self,
        outputs: &'a mut [AnyViewMut<'v>],
    ) -> Result<[ArgMut<'a, 'v>; N]> {
        let count = outputs.len();
        let all: &mut [AnyViewMut<'v>; N] = outputs.try_into().map_err(|_| self.count_error("output", N, count))?;
        let mut i = 0;
        Ok(all.each_mut().map(|view| {
            i += 1;
            ArgMut { info: self, name: self.output_name(i - 1), view }
        }))
    }

    /// Output number `i` with that dtype and shape.
    pub fn output(&self, i: usize, dtype: DType, shape: impl Into<Vec<usize>>) -> TensorMeta {
        TensorMeta { name: self.output_name(i).to_owned(), dtype, shape: shape.into() }
    }

    fn input_name(&self, i: usize) -> &'static str {
        self.inputs.get(i).map_or("input", |a| a.name)
    }

    fn output_name(&self, i: usize) -> &'static str {
        self.outputs.get(i).map_or("output", |a| a.name)
    }
}

/// The errors an operator gives, with its name filled in.
impl OpInfo {
    /// A dtype that the operator does not take.
    pub fn dtype_error(&self, arg: &'static str, found: DType) -> Error {
        self.dtype_error_of(arg, found, self.dtypes)
    }

    /// A dtype that is none of `wanted`.
    pub fn dtype_error_of(&self, arg: &'static str, found: DType, wanted: &[DType]) -> Error {
        let names: Vec<_> = wanted.iter().map(|d| d.name()).collect();
        Error::dtype(self.name, arg, found, names.join(" or "))
    }

    /// A shape other than what is wanted.
    pub fn shape_error(&self, arg: &'static str, found: &[usize], wanted: impl Into<String>) -> Error {
        Error::shape(self.name, arg, found, wanted)
    }

    /// A parameter that is not what is wanted.
    pub fn param_error(
        &self,
        param: impl Into<String>,
        found: impl std::fmt::Display,
        wanted: impl Into<String>,
    ) -> Error {
        Error::param(self.name, param, found, wanted)
    }

    fn count_error(&self, what: &str, wanted: usize, found: usize) -> Error {
        Error::param(self.name, format!("{what}s"), found, format!("{wanted} {what} tensors"))
    }
}
