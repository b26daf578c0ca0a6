//! Compiles each lane function twice: for any CPU, and for CPUs with AVX2 and FMA.

/// True when the wide versions may be called.
pub fn simd() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::sync::OnceLock;
        static WIDE: OnceLock<bool> = OnceLock::new();
        *WIDE.get_or_init(|| {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// `lane! { name = |regs, inst, mask| body; … }`: each name becomes a function that picks the version.
macro_rules! lane {
    ($($(#[$doc:meta])* $name:ident = |$r:ident, $i:ident, $m:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name() -> $crate::ir::LaneFn {
            #[inline(always)]
            fn body($r: &mut $crate::exec::regs::Regs, $i: &$crate::ir::Inst, $m: u32) {
                $body
            }
            unsafe fn base(r: &mut $crate::exec::regs::Regs, i: &$crate::ir::Inst, m: u32) {
                body(r, i, m)
            }
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn wide(r: &mut $crate::exec::regs::Regs, i: &$crate::ir::Inst, m: u32) {
                    body(r, i, m)
                }
                if $crate::exec::lane::simd() {
                    return wide;
                }
            }
            base
        }
    )*};
}
pub(crate) use lane;
