//! Elementwise activations, each with its backward. Each file holds one formula and its derivative.

mod gated;
pub mod geglu;
pub mod geglu_erf;
pub mod gelu;
pub mod relu;
pub mod sigmoid;
pub mod sigmoid3;
pub mod silu;
pub mod swiglu;
pub mod tanh;

pub use gated::{GatedGradients, GatedGradientsMut};
pub use geglu::{geglu, geglu_backward, geglu_backward_into, geglu_into};
pub use geglu_erf::{geglu_erf, geglu_erf_backward, geglu_erf_backward_into, geglu_erf_into};
pub use gelu::{gelu, gelu_backward, gelu_backward_into, gelu_into};
pub use relu::{relu, relu_backward, relu_backward_into, relu_into};
pub use sigmoid::{sigmoid, sigmoid_backward, sigmoid_backward_into, sigmoid_into};
pub use sigmoid3::{
    Sigmoid3, sigmoid3, sigmoid3_backward, sigmoid3_backward_into, sigmoid3_into, sigmoid3_saved,
    sigmoid3_saved_backward, sigmoid3_saved_backward_into, sigmoid3_saved_into,
};
pub use silu::{silu, silu_backward, silu_backward_into, silu_into};
pub use swiglu::{swiglu, swiglu_backward, swiglu_backward_into, swiglu_into};
pub use tanh::{tanh, tanh_backward, tanh_backward_into, tanh_into};

/// An activation and its backward: the four functions and their registry entries. `slope` is the derivative that dy is
/// multiplied by; where the gradient is not such a product, `gradient`, a function of x and dy, takes its place.
macro_rules! activation {
    (
        $(#[$doc:meta])*
        $forward:ident, $forward_into:ident, $backward:ident, $backward_into:ident;
        kernels: $kernel:ident $kernels:ident, $backward_kernel:ident $backward_kernels:ident;
        bench_name: $bench_name:literal, $backward_bench_name:literal;
        summary: $summary:literal;
        math: $math:literal, $backward_math:literal;
        value: $value:expr, $tolerance:expr;
        $(slope: $slope:expr, $slope_tolerance:expr;)?
        $(gradient: $gradient:expr, $gradient_tolerance:expr;)?
    ) => {
        $(#[$doc])*
        ///
        /// `x` has any shape; its rows may be padded. The result is a new dense tensor. The work is queued on `stream`.
        ///
        /// # Errors
        /// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
        /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        ///
        /// # Example
        /// ```
        /// # use warpsmith::{Device, Tensor, ops};
        /// # fn main() -> warpsmith::Result<()> {
        /// let stream = Device::open()?.stream()?;
        /// let x = Tensor::from_slice(&stream, [2, 2], &[-1.0f32, 0.0, 0.5, 2.0])?;
        #[doc = concat!("let y = ops::", stringify!($forward), "(&stream, &x)?;")]
        /// assert_eq!(y.shape(), x.shape());
        /// # Ok(())
        /// # }
        /// ```
        pub fn $forward<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
        ) -> crate::Result<crate::Tensor<T>> {
            let x = x.into();
            let mut y = crate::Tensor::result(stream, x.shape())?;
            $forward_into(stream, x, &mut y)?;
            Ok(y)
        }

        #[doc = concat!("[`", stringify!($forward), "`] into `y`, which has the shape of `x`; its rows may be padded.")]
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
        /// contiguous and equally far apart.
        pub fn $forward_into<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
            y: impl Into<crate::ViewMut<'a, T>>,
        ) -> crate::Result<()> {
            crate::ops::elementwise::launch_map::<T, gk::$kernel<T>>(&FORWARD, stream, x.into(), y.into())
        }

        #[doc = concat!("The gradient of [`", stringify!($forward), "`]: ", $backward_math, ", elementwise.")]
        ///
        /// `x` is the input of the forward, `dy` the gradient of its result. The result is a new dense tensor.
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
        /// contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        pub fn $backward<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
            dy: impl Into<crate::View<'a, T>>,
        ) -> crate::Result<crate::Tensor<T>> {
            let x = x.into();
            let mut dx = crate::Tensor::result(stream, x.shape())?;
            $backward_into(stream, x, dy.into(), &mut dx)?;
            Ok(dx)
        }

        #[doc = concat!("[`", stringify!($backward), "`] into `dx`, which has the shape of `x`; its rows may be padded.")]
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
        /// contiguous and equally far apart.
        pub fn $backward_into<'a, T: crate::Float>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
            dy: impl Into<crate::View<'a, T>>,
            dx: impl Into<crate::ViewMut<'a, T>>,
        ) -> crate::Result<()> {
            use crate::ops::elementwise::launch_zip;
            launch_zip::<T, gk::$backward_kernel<T>>(&BACKWARD, stream, [x.into(), dy.into()], dx.into())
        }

        static FORWARD: OpInfo = OpInfo {
            name: stringify!($forward),
            bench_name: $bench_name,
            summary: $summary,
            math: $math,
            args: &[
                ArgInfo::input("x", "any shape, rows may be padded"),
                ArgInfo::output("y", "the shape of x, rows may be padded"),
            ],
            params: &[],
            dtypes: DType::FLOATS,
            kernels: &[gk::$kernels],
            variants: &[],
        };

        static BACKWARD: OpInfo = OpInfo {
            name: stringify!($backward),
            bench_name: $backward_bench_name,
            summary: concat!("gradient of ", stringify!($forward)),
            math: $backward_math,
            args: &[
                ArgInfo::input("x", "any shape, rows may be padded"),
                ArgInfo::input("dy", "the shape of x, rows may be padded"),
                ArgInfo::output("dx", "the shape of x, rows may be padded"),
            ],
            params: &[],
            dtypes: DType::FLOATS,
            kernels: &[gk::$backward_kernels],
            variants: &[],
        };

        /// The formula, in f64.
        pub(in crate::ops) const VALUE: fn(f64) -> f64 = $value;
        $(
            /// Its derivative.
            pub(super) const SLOPE: fn(f64) -> f64 = $slope;
            const GRADIENT: (Formula, Accuracy) = (|x| x[1] * SLOPE(x[0]), $slope_tolerance);
        )?
        $(
            const GRADIENT: (Formula, Accuracy) = {
                const OF: fn(f64, f64) -> f64 = $gradient;
                (|x| OF(x[0], x[1]), $gradient_tolerance)
            };
        )?

        #[doc = concat!("[`", stringify!($forward), "`] in the registry.")]
        pub static $kernels: Pointwise = Pointwise {
            info: &FORWARD,
            launch: |stream, args, _| {
                dispatch!(FORWARD, args.dtype("x")?, float => |T| {
                    $forward_into::<T>(stream, args.input("x")?, args.output("y")?)
                })
            },
            reference: |x| VALUE(x[0]),
            accuracy: $tolerance,
            gradient: None,
        };

        #[doc = concat!("[`", stringify!($backward), "`] in the registry.")]
        pub static $backward_kernels: Pointwise = Pointwise {
            info: &BACKWARD,
            launch: |stream, args, _| {
                dispatch!(BACKWARD, args.dtype("x")?, float => |T| {
                    $backward_into::<T>(stream, args.input("x")?, args.input("dy")?, args.output("dx")?)
                })
            },
            reference: GRADIENT.0,
            accuracy: GRADIENT.1,
            gradient: Some(Gradient { forward: &$kernels, of_outputs: &[("dy", "y")], of_inputs: &[("dx", "x")] }),
        };
    };
}
pub(crate) use activation;

/// What the formulas in the files are built from, for `use super::prelude::*`.
mod prelude {
    pub(super) use super::{activation, sigmoid_f64};
    pub(super) use crate::dispatch;
    pub(super) use crate::ops::elementwise::{Accuracy, Formula, Pointwise};
    pub(super) use crate::ops::model::{ArgInfo, Gradient, OpInfo};
    pub(super) use crate::runtime::dtype::DType;
}

/// 1 / (1 + e^(−x)) in f64.
pub(super) fn sigmoid_f64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error of a slope's two approximations, 2⁻²¹ relative of terms of order one, times gradients of up to six.
const SLOPE: super::elementwise::Accuracy = super::elementwise::Accuracy {
    abs: 3e-6,
    rel: 1e-6,
    why: "storage rounding; 2⁻²¹ of the slope's terms, which may cancel, times gradients of order 6",
};
