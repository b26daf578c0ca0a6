//! Which architecture a kernel is compiled for.

#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    // Provided by cuda_builder, one for each architecture.
    safe fn __cuda_arch() -> u32;
}

/// The number in the name of the architecture that the kernel is compiled for: 80 for `sm_80`, 90 for `sm_90` and `sm_90a`.
///
/// LLVM knows it, and nothing is left of a branch for another architecture. rustc does not: both arms have to compile.
#[inline(always)]
pub fn number() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        __cuda_arch()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::device_only()
    }
}
