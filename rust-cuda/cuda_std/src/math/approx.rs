//! Single instructions.

/// On the device an instruction; on the host, what it computes.
macro_rules! instruction {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident),*) = $instruction:literal, $arch:literal, $emulated:expr;
    )*) => { $(
        $(#[$doc])*
        #[doc = concat!("\n\nPTX `", $instruction, "`, ", $arch, ".")]
        #[inline(always)]
        pub fn $name($($argument: f32),*) -> f32 {
            #[cfg(not(target_arch = "nvptx64"))]
            return $emulated;
            #[cfg(target_arch = "nvptx64")]
            {
                let result: f32;
                // SAFETY: arithmetic.
                unsafe {
                    ptx!(
                        concat!($instruction, instruction!(@operands $($argument)*), ";"),
                        out(reg32) result, $(in(reg32) $argument,)*
                        options(pure, nomem, nostack),
                    );
                }
                result
            }
        }
    )* };
    (@operands $a:ident) => { " {}, {}" };
    (@operands $a:ident $b:ident) => { " {}, {}, {}" };
}

instruction! {
    /// 2^x, within 2 ulp.
    ex2_approx(x) = "ex2.approx.f32", "sm_20", f64::from(x).exp2() as f32;
    /// 2^x, within 2 ulp; subnormal arguments and results are zero: one instruction where [`ex2_approx`] is several.
    ex2_approx_ftz(x) = "ex2.approx.ftz.f32", "sm_20", f64::from(x).exp2() as f32;
    /// The base-2 logarithm; absolute error below 2^-22 near 1, relative below 2^-22 elsewhere.
    lg2_approx(x) = "lg2.approx.f32", "sm_20", f64::from(x).log2() as f32;
    /// The hyperbolic tangent, relative error below 2^-11.
    tanh_approx(x) = "tanh.approx.f32", "sm_75", f64::from(x).tanh() as f32;
    /// 1 / x, within 1 ulp.
    rcp_approx(x) = "rcp.approx.f32", "sm_20", 1.0 / x;
    /// 1 / x, within 1 ulp; subnormal arguments and results are zero: one instruction where [`rcp_approx`] is several.
    rcp_approx_ftz(x) = "rcp.approx.ftz.f32", "sm_20", 1.0 / x;
    /// 1 / √x, relative error below 2^-22.
    rsqrt_approx(x) = "rsqrt.approx.f32", "sm_20", (1.0 / f64::from(x).sqrt()) as f32;
    /// √x, relative error below 2^-22.
    sqrt_approx(x) = "sqrt.approx.f32", "sm_20", f64::from(x).sqrt() as f32;
    /// √x, likewise; subnormal arguments are zero: one instruction where [`sqrt_approx`] is several.
    sqrt_approx_ftz(x) = "sqrt.approx.ftz.f32", "sm_20", f64::from(x).sqrt() as f32;
    /// The sine; absolute error about 2^-20 in [-π, π] and growing with |x|.
    sin_approx(x) = "sin.approx.f32", "sm_20", f64::from(x).sin() as f32;
    /// The cosine; absolute error about 2^-20 in [-π, π] and growing with |x|.
    cos_approx(x) = "cos.approx.f32", "sm_20", f64::from(x).cos() as f32;
    /// a / b within 2 ulp, for all b.
    div_full(a, b) = "div.full.f32", "sm_20", a / b;
    /// a / b within 2 ulp, for |b| below 2^126.
    div_approx(a, b) = "div.approx.f32", "sm_20", a / b;
    /// a b, rounded by itself: the compiler may fuse `a * b` and a sum that follows, where the builder's `fma_contraction` is on.
    mul_rn(a, b) = "mul.rn.f32", "sm_20", a * b;
    /// The greater value; NaN if either is.
    max_nan(a, b) = "max.NaN.f32", "sm_80", if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) };
    /// The smaller value; NaN if either is.
    min_nan(a, b) = "min.NaN.f32", "sm_80", if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) };
}

/// The greater of `max` and |x|; NaN if either is. PTX `abs.f32` and `max.NaN.f32`, sm_80: one instruction of the hardware, as long as nobody
/// looks in between.
#[inline(always)]
pub fn max_magnitude(max: f32, x: f32) -> f32 {
    #[cfg(not(target_arch = "nvptx64"))]
    return max_nan(max, x.abs());
    #[cfg(target_arch = "nvptx64")]
    {
        let result: f32;
        // SAFETY: arithmetic.
        unsafe {
            ptx!(
                "{{ .reg .f32 magnitude; abs.f32 magnitude, {}; max.NaN.f32 {}, {}, magnitude; }}",
                in(reg32) x, out(reg32) result, in(reg32) max,
                options(pure, nomem, nostack),
            );
        }
        result
    }
}

/// Keeps what TF32 products read of a float: the sign, the exponent and 10 bits of mantissa, rounded to nearest.
/// PTX `cvt.rna.tf32.f32`, sm_80.
#[inline(always)]
pub fn to_tf32(x: f32) -> u32 {
    let bits: u32;
    // SAFETY: arithmetic.
    unsafe {
        ptx!("cvt.rna.tf32.f32 {}, {};", out(reg32) bits, in(reg32) x, options(pure, nomem, nostack));
    }
    bits
}
