//! Operators that write a tensor and read none: their launch, and their registry entries.

use cuda_std::launch::{DevicePtrMut, Kernel};

use crate::ops::elementwise::{Operand, Plan, longest_block, pointwise_shape};
use crate::ops::model::*;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::ViewMut;

/// The description of the output of a generator, whose shape is that of the existing tensor.
pub(super) const ARGS: &[ArgInfo] =
    &[ArgInfo::in_out("y", "any shape, rows may be padded; all of it is written, none is read")];

/// Queues `K` over all of `y`, with the arguments that `args` makes of pointer, rows, columns and stride.
pub(super) fn generate_into<T: Float, K: Kernel>(
    info: &OpInfo,
    stream: &Stream,
    mut y: ViewMut<'_, T>,
    args: impl FnOnce(DevicePtrMut<T>, u64, u64, u64) -> K::Args,
) -> Result<()> {
    y.require_device(info.name, "y", stream)?;
    let Some(plan) = Plan::new::<K>(info, size_of::<T>(), [Operand::written("y", &y)])? else { return Ok(()) };
    let args = args(y.ptr_mut(stream)?, plan.rows, plan.d, plan.strides[0]);
    // SAFETY: the tensor is live, has these rows at this stride, and is borrowed mutably.
    unsafe { stream.launch::<K>(plan.grid, args) }
}

/// An operator that writes a tensor and reads none.
pub struct Generator {
    /// The static description.
    pub info: &'static OpInfo,
    /// Launches it.
    pub launch: fn(&Stream, &mut Arguments<'_>, &Params) -> Result<()>,
    /// The elements with these indices.
    pub reference: fn(&Params, &mut dyn Iterator<Item = usize>) -> Result<Vec<f64>>,
    /// The tolerance, in addition to the rounding to storage.
    pub tolerance: fn(&Case) -> Result<Tolerance>,
    /// Parameter values other than the defaults, for further cases.
    pub params: &'static [(&'static str, ParamValue)],
}

impl Operator for Generator {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let info = self.info;
        let mut cases = Vec::new();
        for &dtype in info.dtypes {
            let block = longest_block(dtype, 0);
            let name = format!("n=2^28 {}", dtype.name());
            cases.extend([
                Case::production(info, name, dtype, dims(1, 1 << 28)),
                Case::odd(info, dtype, dims(1, block + 1003)),
                Case::odd(info, dtype, dims(1, 1003)).offset(1),
                // Packs that begin at every residue modulo four.
                Case::odd(info, dtype, dims(5, 203)).row_pad(5),
                Case::odd(info, dtype, dims(7, 37)).row_pad(2),
                Case::tiny(info, dtype, dims(1, 1)),
                Case::tiny(info, dtype, dims(3, 5)),
                Case::empty(info, dtype, dims(0, 8)),
                Case::empty(info, dtype, dims(8, 0)),
                Case::boundary(info, dtype, dims(1, block)),
            ]);
            let others = self.params.iter().map(|(name, value)| {
                let case = Case::boundary(info, dtype, dims(3, 100));
                case.param(name, *value)
            });
            cases.extend(others);
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(vec![InputSpec::normal("y", case.dtype, pointwise_shape(case)?).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        inputs.get("y").map(|_| Vec::new())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        (self.launch)(stream, args, params)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let len = reference::row_len(inputs.get("y")?.shape());
        (self.reference)(params, &mut rows.iter().flat_map(|row| row * len..(row + 1) * len))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        (self.tolerance)(case)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((rows * d * case.dtype.size()) as u64))
    }
}
