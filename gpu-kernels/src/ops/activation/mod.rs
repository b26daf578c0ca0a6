//! Activations, elementwise, each with its backward kernel: their memory traffic is that of [`map`](mod@crate::map),
//! and each file is a formula and its derivative.

pub mod geglu;
pub mod geglu_erf;
pub mod gelu;
pub mod relu;
pub mod sigmoid;
pub mod sigmoid3;
pub mod silu;
pub mod swiglu;
pub mod tanh;

/// The kernels of an activation: `forward`, y = value(x), and `backward`, dx = dy · slope(x), where the file's
/// functions `value` and `slope` compute on one f32. `LIGHT` or `HEAVY` of [`map`](mod@crate::map) behind each kernel's
/// name states how much it computes. An optional closure of `[x, dy]` behind both gives dx where dx is not such a
/// product.
macro_rules! activation {
    ($forward:ident: $short:ident, $backward:ident: $backward_short:ident) => {
        $crate::ops::activation::activation!($forward: $short, $backward: $backward_short, |[x, dy]| dy * slope(x));
    };
    ($forward:ident: $short:ident, $backward:ident: $backward_short:ident, $gradient:expr) => {
        /// y = value(x), for `rows` rows of `d` elements.
        ///
        /// # Safety
        /// `x` is valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
        #[cuda_std::kernel(
            dtypes(T: float),
            block = crate::map::block(size_of::<T>(), crate::map::$short),
            min_blocks = crate::map::min_blocks(size_of::<T>(), crate::map::$short, 4),
            no_spills
        )]
        pub unsafe fn $forward<T: cuda_std::float::Element>(
            x: *const T,
            y: *mut T,
            rows: u64,
            d: u64,
            x_stride: u64,
            y_stride: u64,
        ) {
            crate::map::zip::<T, T, 1, 0, { crate::map::$short }>([(x, x_stride)], (y, y_stride), rows, d, |[x]| value(x));
        }

        /// dx = dy · slope(x), for `rows` rows of `d` elements.
        ///
        /// # Safety
        /// As forward, with `dy` read like `x` and `dx` written.
        #[cuda_std::kernel(
            dtypes(T: float), block = crate::map::block(size_of::<T>(), crate::map::$backward_short), min_blocks = 3, no_spills
        )]
        #[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
        pub unsafe fn $backward<T: cuda_std::float::Element>(
            x: *const T,
            dy: *const T,
            dx: *mut T,
            rows: u64,
            d: u64,
            x_stride: u64,
            dy_stride: u64,
            dx_stride: u64,
        ) {
            let inputs = [(x, x_stride), (dy, dy_stride)];
            crate::map::zip::<T, T, 2, 0, { crate::map::$backward_short }>(inputs, (dx, dx_stride), rows, d, $gradient);
        }
    };
}
pub(crate) use activation;

/// The kernels of a gated activation: `forward`, y = value(gate) · up, and `backward`, dgate = dy · up · slope(gate)
/// and dup = dy · value(gate), where `value` and `value_and_slope`, functions in scope, compute on one f32, and `LIGHT`
/// or `HEAVY` states how much they compute. At least `min_blocks` blocks of `backward` are resident on a
/// multiprocessor: while some compute for long, others load.
macro_rules! gated {
    ($forward:ident: $short:ident, $backward:ident: $backward_short:ident, min_blocks = $blocks:literal) => {
        /// y = value(gate) · up, for `rows` rows of `d` elements.
        ///
        /// # Safety
        /// `gate` and `up` are valid for reads and `y` for writes of those rows at their strides; d and rows are at least 1.
        #[cuda_std::kernel(
            dtypes(T: float), block = crate::map::block(size_of::<T>(), crate::map::$short), min_blocks = 3, no_spills
        )]
        #[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
        pub unsafe fn $forward<T: cuda_std::float::Element>(
            gate: *const T,
            up: *const T,
            y: *mut T,
            rows: u64,
            d: u64,
            gate_stride: u64,
            up_stride: u64,
            y_stride: u64,
        ) {
            let inputs = [(gate, gate_stride), (up, up_stride)];
            crate::map::zip::<T, T, 2, 0, { crate::map::$short }>(inputs, (y, y_stride), rows, d, |[gate, up]| {
                value(gate) * up
            });
        }

        /// dgate = dy · up · slope(gate) and dup = dy · value(gate), for `rows` rows of `d` elements.
        ///
        /// # Safety
        /// As forward, with `dy` read like `gate`, and `dgate` and `dup` written.
        #[cuda_std::kernel(
            dtypes(T: float), block = crate::map::block(size_of::<T>(), crate::map::$backward_short), min_blocks = $blocks, no_spills
        )]
        #[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
        pub unsafe fn $backward<T: cuda_std::float::Element>(
            gate: *const T,
            up: *const T,
            dy: *const T,
            dgate: *mut T,
            dup: *mut T,
            rows: u64,
            d: u64,
            gate_stride: u64,
            up_stride: u64,
            dy_stride: u64,
            dgate_stride: u64,
            dup_stride: u64,
        ) {
            let inputs = [(gate, gate_stride), (up, up_stride), (dy, dy_stride)];
            let outputs = [(dgate, dgate_stride), (dup, dup_stride)];
            crate::map::zip_to_many::<T, T, 3, 0, 2, { crate::map::$backward_short }>(inputs, outputs, rows, d, |[gate, up, dy]| {
                let (value, slope) = value_and_slope(gate);
                [dy * up * slope, dy * value]
            });
        }
    };
}
pub(crate) use gated;

/// e^(−|x|) and 1 / (1 + e^(−|x|)): a sigmoid from its larger side, where nothing overflows or cancels.
#[inline(always)]
fn logistic(x: f32) -> (f32, f32) {
    let t = cuda_std::math::ex2_approx(-core::f32::consts::LOG2_E * x.abs());
    // The sum is between 1 and 2, so that its reciprocal is not subnormal.
    (t, cuda_std::math::rcp_approx_ftz(1.0 + t))
}

/// x·σ(z) where −z·log₂e = x·(a + b·x²): SiLU, and GELU in its tanh form. NaN gives NaN, −∞ too, +∞ itself.
#[inline(always)]
pub(crate) fn times_sigmoid(x: f32, [a, b]: [f32; 2]) -> f32 {
    // x² may be infinite, and its product with b = 0 would be NaN.
    let slope = if b == 0.0 { a } else { a + b * (x * x) };
    // Added to 1, a subnormal power is lost, as 0 would be.
    x * cuda_std::math::rcp_approx(1.0 + cuda_std::math::ex2_approx_ftz(x * slope))
}

/// σ(x) and σ'(x) = σ(x)·σ(−x), 2⁻²¹ relative each. NaN gives NaN.
#[inline(always)]
fn sigmoid_and_slope(x: f32) -> (f32, f32) {
    let (t, r) = logistic(x);
    (if x < 0.0 { t * r } else { r }, t * r * r)
}
