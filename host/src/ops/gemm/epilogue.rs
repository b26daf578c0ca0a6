//! The epilogue of a linear layer: the operations that follow its product.

use gpu_kernels::ops::gemm::linear as gk;

use crate::ops::activation::{gelu, relu, silu};
use crate::runtime::view::View;

/// The activation that is applied to the sums of a linear layer, elementwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// No activation.
    #[default]
    None,
    /// max(x, 0), as in [`relu`](fn@crate::ops::relu).
    Relu,
    /// GELU in its tanh form, as in [`gelu`](fn@crate::ops::gelu).
    Gelu,
    /// x · σ(x), as in [`silu`](fn@crate::ops::silu).
    Silu,
}

impl Activation {
    pub(super) const NAMES: &'static [&'static str] = &["none", "relu", "gelu", "silu"];

    /// The activation with this name, one of [`NAMES`](Self::NAMES).
    pub(super) fn named(name: &str) -> Self {
        match name {
            "relu" => Self::Relu,
            "gelu" => Self::Gelu,
            "silu" => Self::Silu,
            _ => Self::None,
        }
    }

    /// The number that stands for the activation in the kernels.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::None => gk::NONE,
            Self::Relu => gk::RELU,
            Self::Gelu => gk::GELU,
            Self::Silu => gk::SILU,
        }
    }

    /// The activation in f64.
    pub(super) fn value(self) -> fn(f64) -> f64 {
        match self {
            Self::None => |x| x,
            Self::Relu => relu::VALUE,
            Self::Gelu => gelu::VALUE,
            Self::Silu => silu::VALUE,
        }
    }
}

/// The operations that follow the product of a linear layer, in this order: bias, activation, residual. None by default.
///
/// ```
/// # use warpsmith::ops::{Activation, Epilogue};
/// # use warpsmith::bf16;
/// let hidden = Epilogue::<bf16>::new().activation(Activation::Gelu);
/// # let _ = hidden;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a, T> {
    pub(super) bias: Option<View<'a, T>>,
    pub(super) activation: Activation,
    pub(super) residual: Option<View<'a, T>>,
}

impl<T> Default for Epilogue<'_, T> {
    fn default() -> Self {
        Self { bias: None, activation: Activation::None, residual: None }
    }
}

impl<'a, T> Epilogue<'a, T> {
    /// No operation follows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `bias`, `[out]`, contiguous, to every row.
    pub fn bias(self, bias: impl Into<View<'a, T>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// Applies an activation.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Adds `residual`, `[rows, out]`, whose rows may be padded.
    pub fn residual(self, residual: impl Into<View<'a, T>>) -> Self {
        Self { residual: Some(residual.into()), ..self }
    }
}
