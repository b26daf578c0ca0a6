//! What gated activations share: their functions, their registry entries, and the two results of the gradient.

use crate::runtime::tensor::Tensor;
use crate::runtime::view::ViewMut;

/// The gradients of a gated activation with respect to its inputs.
#[derive(Debug)]
pub struct GatedGradients<T> {
    /// The gradient with respect to `gate`, of its shape.
    pub dgate: Tensor<T>,
    /// The gradient with respect to `up`, of the same shape.
    pub dup: Tensor<T>,
}

/// Where to write [`GatedGradients`].
#[derive(Debug)]
pub struct GatedGradientsMut<'a, T> {
    /// The gradient with respect to `gate`, of its shape; rows may be padded.
    pub dgate: ViewMut<'a, T>,
    /// The gradient with respect to `up`, of the same shape; rows may be padded.
    pub dup: ViewMut<'a, T>,
}

/// A gated activation and its backward: the four functions, and their entries in the registry.
macro_rules! gated {
    (
        $(#[$doc:meta])*
        $forward:ident, $forward_into:ident, $backward:ident, $backward_into:ident;
        kernels: $kernel:ident $kernels:ident, $backward_kernel:ident $backward_kernels:ident;
        summary: $summary:literal;
        math: $math:literal, $backward_math:literal;
        value: $value:expr, slope: $slope:expr, $accuracy:expr;
    ) => {
        $(#[$doc])*
        ///
        /// `gate` and `up` have the same shape, of any rank. Rows may be padded, so both may be [views](crate::View::strided)
        /// of the two halves of one tensor's rows. The result is a new dense tensor. The work is queued on `stream`.
        ///
        /// Shazeer, "GLU Variants Improve Transformer" (arXiv:2002.05202).
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
        /// contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        ///
        /// # Example
        /// ```
        /// # use warpsmith::{Device, Tensor, ops};
        /// # fn main() -> warpsmith::Result<()> {
        /// let stream = Device::open()?.stream()?;
        /// let both = Tensor::from_slice(&stream, [2, 4], &[0.0f32; 8])?;
        /// let (gate, up) = (both.view().strided(0, [2, 2], &[4, 1])?, both.view().strided(2, [2, 2], &[4, 1])?);
        #[doc = concat!("let y = ops::", stringify!($forward), "(&stream, gate, up)?;")]
        /// assert_eq!(y.to_vec(&stream)?, [0.0; 4]);
        /// # Ok(())
        /// # }
        /// ```
        pub fn $forward<'a, T: crate::Float>(
            stream: &crate::Stream,
            gate: impl Into<crate::View<'a, T>>,
            up: impl Into<crate::View<'a, T>>,
        ) -> crate::Result<crate::Tensor<T>> {
            let gate = gate.into();
            let mut y = crate::Tensor::result(stream, gate.shape())?;
            $forward_into(stream, gate, up.into(), &mut y)?;
            Ok(y)
        }

        #[doc = concat!("[`", stringify!($forward), "`] into `y`, which has the shape of `gate`; its rows may be padded.")]
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
        /// contiguous and equally far apart.
        pub fn $forward_into<'a, T: crate::Float>(
            stream: &crate::Stream,
            gate: impl Into<crate::View<'a, T>>,
            up: impl Into<crate::View<'a, T>>,
            y: impl Into<crate::ViewMut<'a, T>>,
        ) -> crate::Result<()> {
            use crate::ops::elementwise::launch_zip;
            launch_zip::<T, gk::$kernel<T>>(&FORWARD, stream, [gate.into(), up.into()], y.into())
        }

        #[doc = concat!("The gradients of [`", stringify!($forward), "`]: ", $backward_math, ".")]
        ///
        /// `gate` and `up` are the inputs of the forward, `dy` is the gradient of its result. The results are new dense tensors.
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
        /// contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        pub fn $backward<'a, T: crate::Float>(
            stream: &crate::Stream,
            gate: impl Into<crate::View<'a, T>>,
            up: impl Into<crate::View<'a, T>>,
            dy: impl Into<crate::View<'a, T>>,
        ) -> crate::Result<crate::ops::GatedGradients<T>> {
            let gate = gate.into();
            let mut dgate = crate::Tensor::result(stream, gate.shape())?;
            let mut dup = crate::Tensor::result(stream, gate.shape())?;
            let gradients = crate::ops::GatedGradientsMut { dgate: dgate.view_mut(), dup: dup.view_mut() };
            $backward_into(stream, gate, up.into(), dy.into(), gradients)?;
            Ok(crate::ops::GatedGradients { dgate, dup })
        }

        #[doc = concat!("[`", stringify!($backward), "`] into `gradients`.")]
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes differ, [`Error::Layout`](crate::Error::Layout) if rows are not
        /// contiguous and equally far apart.
        pub fn $backward_into<'a, T: crate::Float>(
            stream: &crate::Stream,
            gate: impl Into<crate::View<'a, T>>,
            up: impl Into<crate::View<'a, T>>,
            dy: impl Into<crate::View<'a, T>>,
            gradients: crate::ops::GatedGradientsMut<'a, T>,
        ) -> crate::Result<()> {
            use crate::ops::elementwise::launch_zip3;
            let inputs = [gate.into(), up.into(), dy.into()];
            let outputs = [gradients.dgate, gradients.dup];
            launch_zip3::<T, gk::$backward_kernel<T>>(&BACKWARD, stream, inputs, outputs)
        }

        static FORWARD: OpInfo = OpInfo {
            name: stringify!($forward),
            bench_name: concat!("ew.", stringify!($forward)),
            summary: $summary,
            math: $math,
            args: &[
                ArgInfo::input("gate", "any shape, rows may be padded"),
                ArgInfo::input("up", "the shape of gate, rows may be padded"),
                ArgInfo::output("y", "the shape of gate, rows may be padded"),
            ],
            params: &[],
            dtypes: DType::FLOATS,
            kernels: &[gk::$kernels],
            variants: &[],
        };

        static BACKWARD: OpInfo = OpInfo {
            name: stringify!($backward),
            bench_name: concat!("ew.", stringify!($backward)),
            summary: concat!("gradient of ", stringify!($forward)),
            math: $backward_math,
            args: &[
                ArgInfo::input("gate", "any shape, rows may be padded"),
                ArgInfo::input("up", "the shape of gate, rows may be padded"),
                ArgInfo::input("dy", "the shape of gate, rows may be padded"),
                ArgInfo::output("dgate", "the shape of gate, rows may be padded"),
                ArgInfo::output("dup", "the shape of gate, rows may be padded"),
            ],
            params: &[],
            dtypes: DType::FLOATS,
            kernels: &[gk::$backward_kernels],
            variants: &[],
        };

        const VALUE: fn(f64) -> f64 = $value;
        const SLOPE: fn(f64) -> f64 = $slope;

        #[doc = concat!("[`", stringify!($forward), "`] in the registry.")]
        pub static $kernels: Pointwise = Pointwise {
            info: &FORWARD,
            launch: |stream, args, _| {
                dispatch!(FORWARD, args.dtype("gate")?, float => |T| {
                    $forward_into::<T>(stream, args.input("gate")?, args.input("up")?, args.output("y")?)
                })
            },
            reference: |x| VALUE(x[0]) * x[1],
            accuracy: $accuracy,
            gradient: None,
        };

        #[doc = concat!("[`", stringify!($backward), "`] in the registry.")]
        pub static $backward_kernels: PointwiseMany = PointwiseMany {
            first: Pointwise {
                info: &BACKWARD,
                launch: |stream, args, _| {
                    dispatch!(BACKWARD, args.dtype("gate")?, float => |T| {
                        let (gate, up, dy) = (args.input::<T>("gate")?, args.input("up")?, args.input("dy")?);
                        let (dgate, dup) = (args.output("dgate")?, args.output("dup")?);
                        $backward_into(stream, gate, up, dy, crate::ops::GatedGradientsMut { dgate, dup })
                    })
                },
                reference: |x| x[2] * x[1] * SLOPE(x[0]),
                accuracy: $accuracy,
                gradient: Some(Gradient {
                    forward: &$kernels,
                    of_outputs: &[("dy", "y")],
                    of_inputs: &[("dgate", "gate"), ("dup", "up")],
                }),
            },
            others: &[("dup", |x| x[2] * VALUE(x[0]))],
        };
    };
}
pub(super) use gated;

/// The error of values and slopes: 2⁻²¹ of terms of order ten, which may cancel, times gradients and factors whose product is
/// of order 20.
pub(super) const ACCURACY: crate::ops::elementwise::Accuracy = crate::ops::elementwise::Accuracy {
    abs: 2e-5,
    rel: 3e-6,
    why: "storage rounding; 2⁻²¹ of the terms of value and slope, which may cancel, times factors of order 20",
};
