use std::fmt;

use super::Operator;

/// Ties a backward operator to its forward, so that its reference is checked against finite differences of the forward's
/// reference.
///
/// Inputs of the backward operator that are neither named here nor inputs of the forward are saved outputs of the forward;
/// equal names mean equal tensors.
#[derive(Clone, Copy)]
pub struct Gradient {
    /// The forward operator.
    pub forward: &'static dyn Operator,
    /// Inputs of the backward operator that are gradients of the forward's outputs: `("dy", "y")`; if the backward gives the
    /// derivative of an output itself, the first name is empty.
    pub of_outputs: &'static [(&'static str, &'static str)],
    /// Outputs of the backward operator that are gradients of the forward's inputs: `("dx", "x")`.
    pub of_inputs: &'static [(&'static str, &'static str)],
}

impl fmt::Debug for Gradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { forward, of_outputs, of_inputs } = self;
        f.debug_tuple("Gradient").field(&forward.info().name).field(of_outputs).field(of_inputs).finish()
    }
}
