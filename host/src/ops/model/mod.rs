//! The description of an operator for the rest of the project: [`Operator`].
//!
//! The command line, the checks, the benches and the documentation table all walk the [registry](crate::ops::registry) and
//! access operators only through this trait, so an operator is described once, next to its safe function.

mod argument;
mod arguments;
mod arrangement;
mod case;
mod cost;
mod gradient;
mod metas;
pub mod params;
pub mod reference;
mod tensors;
mod tolerance;
mod values;

pub use argument::{ArgInfo, Role};
pub use arguments::Arguments;
pub use arrangement::Arrangement;
pub use case::{Case, CaseClass, Dims};
pub use cost::{Bound, Cost};
pub use gradient::Gradient;
pub use metas::{MetaArg, Metas, TensorMeta};
pub use params::{ParamInfo, ParamValue, Params};
pub use tensors::Tensors;
pub use tolerance::{Tolerance, roundoff};
pub use values::{InputSpec, Values};

use std::fmt;

use cuda_std::launch::Instance;

use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;

/// An implementation of an operator that can be requested by name (`--set variant=NAME`) instead of being selected automatically.
#[derive(Clone, Copy)]
pub struct Variant {
    /// The name.
    pub name: &'static str,
    /// What it is and when it is selected, in one line.
    pub doc: &'static str,
    /// Whether it can run the case on such a device.
    pub applies: fn(&DeviceInfo, &Case) -> bool,
    /// Launches it. A problem that it cannot run is an error.
    pub launch: fn(&Stream, &mut Arguments<'_>, &Params) -> Result<()>,
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The static description of an operator.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The operator's name, which is that of its function.
    pub name: &'static str,
    /// The name of its bench rows, which matches that of other libraries' rows.
    pub bench_name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// The formula.
    pub math: &'static str,
    /// The tensors, in order.
    pub args: &'static [ArgInfo],
    /// Scalar parameters with their defaults.
    pub params: &'static [ParamInfo],
    /// The element types that the operator supports: those of every argument without types of its own.
    pub dtypes: &'static [DType],
    /// Every kernel that the operator may launch, as the kernels' files list them.
    pub kernels: &'static [&'static [Instance]],
    /// The named variants, none for most operators.
    pub variants: &'static [Variant],
}

impl OpInfo {
    /// The tensors that are read, including those that are also written.
    pub fn inputs(&self) -> impl Iterator<Item = &'static ArgInfo> + use<> {
        self.args.iter().filter(|arg| arg.role != Role::Out)
    }

    /// The tensors that are written, including those that are also read.
    pub fn outputs(&self) -> impl Iterator<Item = &'static ArgInfo> + use<> {
        self.args.iter().filter(|arg| arg.role != Role::In)
    }

    /// Every kernel that the operator may launch.
    pub fn instances(&self) -> impl Iterator<Item = &'static Instance> + use<> {
        self.kernels.iter().copied().flatten()
    }

    /// The variant called `name`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] lists the variants there are.
    pub fn variant(&self, name: &str) -> Result<&'static Variant> {
        self.variants.iter().find(|variant| variant.name == name).ok_or_else(|| {
            let names: Vec<_> = self.variants.iter().map(|variant| variant.name).collect();
            let wanted = if names.is_empty() {
                "no variant: the operator has a single one".to_owned()
            } else {
                format!("one of {}", names.join(", "))
            };
            self.param_error(params::VARIANT, name, wanted)
        })
    }

    /// The error for a dtype that is not one of `wanted`.
    pub fn dtype_error(&self, arg: &'static str, found: DType, wanted: &[DType]) -> Error {
        let names: Vec<_> = wanted.iter().map(|d| d.name()).collect();
        Error::dtype(self.name, arg, found, names.join(" or "))
    }

    /// The error for a shape other than the expected one.
    pub fn shape_error(&self, arg: &'static str, found: &[usize], wanted: impl Into<String>) -> Error {
        Error::shape(self.name, arg, found, wanted)
    }

    /// The error for a parameter with an unexpected value.
    pub fn param_error(&self, param: impl Into<String>, found: impl fmt::Display, wanted: impl Into<String>) -> Error {
        Error::param(self.name, param, found, wanted)
    }
}

/// An operator: its arguments, its launch, and how its results are judged.
///
/// The safe, typed function of an operator is defined next to its implementation of this trait; [`launch`](Self::launch)
/// is the same call with types known only at run time.
pub trait Operator: Send + Sync {
    /// The static description.
    fn info(&self) -> &'static OpInfo;

    /// The cases that it is checked and timed on: every production shape, and odd, tiny, empty and boundary ones.
    fn cases(&self) -> Vec<Case>;

    /// The inputs of the operator for `case`: every argument that is read, in order, except optional ones that the case omits.
    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>>;

    /// Dtype and shape of every argument that is only written, for these inputs, or an error if the inputs are not acceptable.
    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>>;

    /// Launches the operator. Returns once the work is queued on `stream`.
    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()>;

    /// The given rows of the output called `output`, one after the other, in f64 by straightforward loops.
    ///
    /// A row is a run along the last dimension, numbered over all dimensions before it; a 1-D tensor's rows are its
    /// elements. `inputs` are contiguous and have been accepted by [`outputs`](Self::outputs). The helpers in
    /// [`mod@reference`] cover the common shapes of loop.
    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>>;

    /// The number of elements of a row of an output of that shape, in the sense of [`reference`](Self::reference): one if each
    /// element takes a pass over an input.
    fn row_len(&self, _output: &str, shape: &[usize]) -> usize {
        reference::row_len(shape)
    }

    /// Whether the output of that name is bitwise the same every time, for a variant or for the automatic choice. Sums in no
    /// fixed order are not.
    fn reproducible(&self, _output: &str, _variant: Option<&str>) -> bool {
        true
    }

    /// How far the output of that name may be from the reference, with the reason.
    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance>;

    /// The minimum traffic and the useful work.
    fn cost(&self, case: &Case) -> Result<Cost>;

    /// The operator that this is the backward of, if any.
    fn gradient(&self) -> Option<Gradient> {
        None
    }
}

/// Dtype and shape of every output, in the order of the arguments, after the inputs have been checked against the operator's
/// description.
///
/// # Errors
/// Those of [`Metas::accept`] and of [`Operator::outputs`].
pub fn outputs(op: &dyn Operator, inputs: &[TensorMeta], params: &Params) -> Result<Vec<TensorMeta>> {
    let info = op.info();
    let metas = Metas::accept(info, inputs)?;
    let mut written = op.outputs(&metas, params)?.into_iter();
    let of_role = |arg: &'static ArgInfo| match arg.role {
        Role::InOut => metas.optional(arg.name).map(|meta| Ok(meta.meta().clone())),
        _ => written.next().map(Ok),
    };
    info.outputs().filter_map(of_role).collect()
}

/// The number of rows of an output of that shape, in the sense of the operator's reference.
pub fn row_count(op: &dyn Operator, output: &str, shape: &[usize]) -> usize {
    shape.iter().product::<usize>().checked_div(op.row_len(output, shape)).unwrap_or(0)
}

/// Launches the operator, in the variant that `params` force or in the automatically selected one.
///
/// # Errors
/// Those of the operator's function, and [`Error::InvalidParam`] if the variant does not take the arguments.
pub fn launch(op: &dyn Operator, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
    let Some(variant) = params.variant() else { return op.launch(stream, args, params) };
    // Variants that share a kernel share its check, which does not know the name that was requested.
    (variant.launch)(stream, args, params).map_err(|error| match error {
        Error::InvalidParam { op, param, expected, .. } if param == params::VARIANT => {
            Error::param(op, param, variant.name, expected)
        }
        error => error,
    })
}

/// Runs a block with a type alias for the element type that a run-time dtype names.
///
/// `dispatch!(INFO, dtype, float => |T| gelu_into::<T>(stream, args.input("x")?, args.output("y")?))` evaluates to the value of
/// the block; a dtype that is not listed gives the operator's dtype error. `float` is every [`Float`](crate::Float), `all`
/// every type; a list names other sets.
#[macro_export]
macro_rules! dispatch {
    ($info:expr, $dtype:expr, float => |$alias:ident| $body:expr) => {
        $crate::dispatch!($info, $dtype, [f32, $crate::f16, $crate::bf16] => |$alias| $body)
    };
    ($info:expr, $dtype:expr, all => |$alias:ident| $body:expr) => {
        $crate::dispatch!(
            $info,
            $dtype,
            [f32, f64, $crate::f16, $crate::bf16, $crate::f8e4m3, $crate::f8e5m2, $crate::f8e8m0, i8, u8, i16, u16, i32, u32, i64, u64] => |$alias| $body
        )
    };
    ($info:expr, $dtype:expr, [$($ty:ty),+ $(,)?] => |$alias:ident| $body:expr) => {{
        let dtype = $dtype;
        $(if dtype == <$ty as $crate::Dtype>::DTYPE {
            type $alias = $ty;
            $body
        } else)+ {
            Err($info.dtype_error($info.args[0].name, dtype, &[$(<$ty as $crate::Dtype>::DTYPE),+]))
        }
    }};
}
pub use crate::dispatch;
