//! What an operator tells the rest of the project about itself: [`Operator`].
//!
//! The command line, the checks, the benches and the documentation table all walk the [registry](crate::check::registry) and know
//! operators through this trait alone, so an operator is described once, beside its safe function.

mod args;
mod case;
mod kernel;
pub mod params;
pub mod reference;

pub use args::{Arg, ArgMut, MetaArg, TensorMeta};
pub use case::{Bound, Case, CaseClass, Cost, Dims, Distribution, InputSpec, Layout, Tolerance};
pub use kernel::KernelInfo;

use crate::ops::model::params::{ParamInfo, Params};
use crate::runtime::any::{AnyView, AnyViewMut};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;

/// A named tensor argument of an operator.
#[derive(Clone, Copy, Debug)]
pub struct ArgInfo {
    /// The name that errors, `run`'s tensors and the documentation use.
    pub name: &'static str,
    /// Shape and meaning, in a line.
    pub doc: &'static str,
}

impl ArgInfo {
    /// An argument called `name`.
    pub const fn new(name: &'static str, doc: &'static str) -> Self {
        Self { name, doc }
    }
}

/// A way of computing an operator that can be asked for by name (`--set variant=NAME`) instead of being picked.
#[derive(Clone, Copy, Debug)]
pub struct VariantInfo {
    /// The name.
    pub name: &'static str,
    /// What it is and when it is picked, in a line.
    pub doc: &'static str,
}

/// The fixed facts of an operator.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The operator's name: that of its function and its files.
    pub name: &'static str,
    /// The name its bench rows carry, as in other libraries' rows beside them.
    pub bench_name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// The formula.
    pub math: &'static str,
    /// Tensors read, in order.
    pub inputs: &'static [ArgInfo],
    /// Tensors written, in order.
    pub outputs: &'static [ArgInfo],
    /// Scalar parameters with their defaults.
    pub params: &'static [ParamInfo],
    /// The dtypes that the operator is offered in.
    pub dtypes: &'static [DType],
    /// Every kernel that the operator may launch.
    pub kernels: &'static [KernelInfo],
    /// The named variants, none for most operators.
    pub variants: &'static [VariantInfo],
}

/// An operator: what it takes, how it is launched, and how its results are judged.
///
/// The safe, typed function of an operator stands beside its implementation of this trait; [`launch`](Self::launch) is the
/// same call with types known only at run time.
pub trait Operator: Send + Sync {
    /// The fixed facts.
    fn info(&self) -> &'static OpInfo;

    /// The cases that it is checked and timed on: every production shape, and odd, tiny, empty and boundary ones.
    fn cases(&self) -> Vec<Case>;

    /// What to feed the operator for `case`, in the order of [`OpInfo::inputs`].
    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>>;

    /// Dtype and shape of every output for such inputs, or why they are not acceptable.
    fn outputs(&self, inputs: &[TensorMeta], params: &Params) -> Result<Vec<TensorMeta>>;

    /// Launches the operator. Returns once the work is queued on `stream`.
    fn launch(
        &self,
        stream: &Stream,
        inputs: &[AnyView<'_>],
        outputs: &mut [AnyViewMut<'_>],
        params: &Params,
    ) -> Result<()>;

    /// The given rows of output number `output`, one after the other, in f64 by the obvious loops.
    ///
    /// A row is a run along the last dimension, numbered over all dimensions before it; a 1-D tensor's rows are its
    /// elements. `inputs` are contiguous and have been accepted by [`outputs`](Self::outputs). The helpers in
    /// [`reference`](crate::ops::model::reference) cover the common shapes of loop.
    fn reference(&self, inputs: &[HostTensor], params: &Params, output: usize, rows: &[usize]) -> Result<Vec<f64>>;

    /// How far an output may be from the reference, and why that far.
    fn tolerance(&self, case: &Case) -> Result<Tolerance>;

    /// The least traffic and the useful work.
    fn cost(&self, case: &Case) -> Result<Cost>;

    /// Whether the variant of that name can run `case` on such a device.
    fn supports(&self, _variant: &str, _device: &DeviceInfo, _case: &Case) -> bool {
        true
    }
}

/// Runs a block with a type alias standing for the element type that a run-time dtype names.
///
/// `dispatch!(INFO, dtype, [f32, f16, bf16] => |T| gelu::<T>(stream, x.typed()?, y.typed()?))` evaluates to what the block
/// does; a dtype that is not listed is the operator's dtype error.
#[macro_export]
macro_rules! dispatch {
    ($info:expr, $dtype:expr, [$($ty:ty),+ $(,)?] => |$alias:ident| $body:expr) => {{
        let dtype = $dtype;
        $(if dtype == <$ty as $crate::Dtype>::DTYPE {
            type $alias = $ty;
            $body
        } else)+ {
            Err($info.dtype_error($info.inputs[0].name, dtype))
        }
    }};
}
pub use crate::dispatch;

/// A static slice of [`KernelInfo`], one for each kernel type named: `kernels![gelu::Gelu<f32, 4>, gelu::Gelu<bf16, 8>]`.
#[macro_export]
macro_rules! kernels {
    ($($kernel:ty),* $(,)?) => {
        const { &[$($crate::ops::model::KernelInfo::of::<$kernel>()),*] }
    };
}
pub use crate::runtime::kernels;
