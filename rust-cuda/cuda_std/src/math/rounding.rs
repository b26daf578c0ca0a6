//! Correctly rounded operations that `core` does not have.

macro_rules! correctly_rounded {
    ($($(#[$doc:meta])* $name:ident($($argument:ident),*): $ty:ident = $function:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($($argument: $ty),*) -> $ty {
            #[cfg(target_arch = "nvptx64")]
            return core::$ty::math::$function($($argument),*);
            #[cfg(not(target_arch = "nvptx64"))]
            $ty::$function($($argument),*)
        }
    )* };
}

correctly_rounded! {
    /// a b + c, rounded once. PTX `fma.rn.f32`.
    fma(a, b, c): f32 = mul_add;
    /// √x, correctly rounded unless the builder's `fast_sqrt` is on. PTX `sqrt.rn.f32`.
    sqrt(x): f32 = sqrt;
    /// The greatest integer not above x. PTX `cvt.rmi.f32.f32`.
    floor(x): f32 = floor;
    /// The least integer not below x. PTX `cvt.rpi.f32.f32`.
    ceil(x): f32 = ceil;
    /// x without its fraction. PTX `cvt.rzi.f32.f32`.
    trunc(x): f32 = trunc;
    /// The nearest integer, ties to even. PTX `cvt.rni.f32.f32`.
    round_ties_even(x): f32 = round_ties_even;
    /// [`fma`] of `f64`. PTX `fma.rn.f64`.
    fma_f64(a, b, c): f64 = mul_add;
    /// [`sqrt`] of `f64`. PTX `sqrt.rn.f64`.
    sqrt_f64(x): f64 = sqrt;
    /// [`floor`] of `f64`. PTX `cvt.rmi.f64.f64`.
    floor_f64(x): f64 = floor;
    /// [`ceil`] of `f64`. PTX `cvt.rpi.f64.f64`.
    ceil_f64(x): f64 = ceil;
    /// [`trunc`] of `f64`. PTX `cvt.rzi.f64.f64`.
    trunc_f64(x): f64 = trunc;
    /// [`round_ties_even`] of `f64`. PTX `cvt.rni.f64.f64`.
    round_ties_even_f64(x): f64 = round_ties_even;
}
