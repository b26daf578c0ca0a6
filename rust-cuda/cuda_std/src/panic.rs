//! What a panic does on the device: a trap, behind a symbol that `cuda_builder` can find in a finished kernel.

/// Ends the kernel with an error.
#[cfg(target_arch = "nvptx64")]
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn __cuda_std_panic() -> ! {
    crate::trap::trap()
}

#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    __cuda_std_panic()
}
