use std::fmt;

use super::Operator;

/// Ties a backward operator to its forward: its reference is then checked against finite differences of the forward's.
///
/// Inputs of the backward operator that are neither named here nor inputs of the forward one are outputs of it that were saved;
/// equal names mean equal tensors.
#[derive(Clone, Copy)]
pub struct Gradient {
    /// The forward operator.
    pub forward: &'static dyn Operator,
    /// Inputs of the backward operator that are gradients of the forward's outputs: `("dy", "y")`; those of an output whose own derivative
    /// it gives have no name.
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
