//! Correctly rounded operations that `core` does not have.

macro_rules! correctly_rounded {
    ($($(#[$doc:meta])* $name:ident($($argument:ident),*) = $function:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($($argument: f32),*) -> f32 {
            #[cfg(target_arch = "nvptx64")]
            return core::f32::math::$function($($argument),*);
            #[cfg(not(target_arch = "nvptx64"))]
            f32::$function($($argument),*)
        }
    )* };
}

correctly_rounded! {
    /// a b + c, rounded once. PTX `fma.rn.f32`.
    fma(a, b, c) = mul_add;
    /// √x, correctly rounded unless the builder's `fast_sqrt` is on. PTX `sqrt.rn.f32`.
    sqrt(x) = sqrt;
    /// The greatest integer not above x. PTX `cvt.rmi.f32.f32`.
    floor(x) = floor;
    /// The least integer not below x. PTX `cvt.rpi.f32.f32`.
    ceil(x) = ceil;
    /// x without its fraction. PTX `cvt.rzi.f32.f32`.
    trunc(x) = trunc;
    /// The nearest integer, ties to even. PTX `cvt.rni.f32.f32`.
    round_ties_even(x) = round_ties_even;
}

/// [`fma`] of `f64`. PTX `fma.rn.f64`.
#[inline(always)]
pub fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    #[cfg(target_arch = "nvptx64")]
    return core::f64::math::mul_add(a, b, c);
    #[cfg(not(target_arch = "nvptx64"))]
    a.mul_add(b, c)
}

/// [`sqrt`] of `f64`. PTX `sqrt.rn.f64`.
#[inline(always)]
pub fn sqrt_f64(x: f64) -> f64 {
    #[cfg(target_arch = "nvptx64")]
    return core::f64::math::sqrt(x);
    #[cfg(not(target_arch = "nvptx64"))]
    x.sqrt()
}
