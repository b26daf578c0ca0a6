//! Printing from a kernel.

use core::ffi::c_void;

mod sealed {
    pub trait Sealed {}
}

/// A value `gpu_printf!` can print.
pub trait Argument: sealed::Sealed {
    /// As C's variadic promotion passes it.
    type Promoted;
    /// The promoted value.
    fn promote(self) -> Self::Promoted;
}

macro_rules! argument {
    ($($ty:ty => $promoted:ty;)*) => { $(
        impl sealed::Sealed for $ty {}
        impl Argument for $ty {
            type Promoted = $promoted;
            #[inline(always)]
            fn promote(self) -> $promoted {
                self as $promoted
            }
        }
    )* };
}

argument! {
    u8 => u32; u16 => u32; u32 => u32; u64 => u64; usize => u64;
    i8 => i32; i16 => i32; i32 => i32; i64 => i64; isize => i64;
    f32 => f64; f64 => f64; bool => u32;
}

impl<T> sealed::Sealed for *const T {}
impl<T> Argument for *const T {
    type Promoted = u64;
    #[inline(always)]
    fn promote(self) -> u64 {
        self as u64
    }
}

impl<T> sealed::Sealed for *mut T {}
impl<T> Argument for *mut T {
    type Promoted = u64;
    #[inline(always)]
    fn promote(self) -> u64 {
        self as u64
    }
}

macro_rules! conversions {
    ($($name:ident, $Class:ident: $($ty:ty),*; $message:literal;)*) => { $(
        /// What such a conversion prints, after promotion.
        #[doc(hidden)]
        #[diagnostic::on_unimplemented(
            message = $message,
            label = "a promoted `{Self}`, which another conversion prints"
        )]
        pub trait $Class: sealed::Sealed {}
        $(impl $Class for $ty {})*

        #[doc(hidden)]
        #[inline(always)]
        pub fn $name<A: Argument<Promoted: $Class>>(argument: A) -> A::Promoted {
            argument.promote()
        }
    )* };
}

conversions! {
    bits32, Bits32: u32, i32; "`%d`, `%u`, `%x` and `%c` print integers of up to 32 bits: 64 are `%lld`, `%llu` or `%llx`, and floats `%f`";
    bits64, Bits64: u64, i64; "`%lld`, `%llu`, `%llx` and `%p` print integers of 64 bits and pointers: 32 bits are `%d`, `%u` or `%x`, and floats `%f`";
    double, Double: f64; "`%f`, `%e` and `%g` print floats: integers are `%d`, `%u`, `%lld` or `%llu`";
}

/// Appends to the device's print buffer, which the driver shows when the host next synchronizes.
///
/// Returns the number of arguments printed, or a negative number on an error.
///
/// # Safety
/// `format` ends with NUL, and `arguments` points to the values it names, in C layout.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn print(format: &'static str, arguments: *const u8) -> i32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::nvptx::vprintf(format.as_ptr(), arguments.cast::<c_void>())
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _: *const c_void = arguments.cast();
        crate::device_only()
    }
}
