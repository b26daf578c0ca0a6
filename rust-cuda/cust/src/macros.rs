//! Macros that most modules use: driver calls, sets of flags, launches.

/// Calls a function of the driver; its result code becomes a `CudaResult<()>`.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match $crate::sys::driver() {
            Ok(driver) => match driver.$function {
                Some(function) => $crate::error::check(stringify!($function), function($($argument),*)),
                None => Err($crate::error::CudaError::function_not_found(stringify!($function))),
            },
            Err(_) => Err($crate::error::CudaError::driver_not_found(stringify!($function))),
        }
    };
}

/// A set of flags.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bits:expr;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self($bits);)*

            /// No flag.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// The set with these bits, known or not.
            pub const fn from_bits_retain(bits: u32) -> Self {
                Self(bits)
            }

            /// The driver's number.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Whether all of `other` are in the set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

/// Queues a kernel: `launch!(function<<<grid, block, shared_bytes, stream>>>(arguments…))`, or `module.function` to look it up first.
///
/// Grid and block are numbers, pairs or triples. The result is a [`CudaResult`](crate::error::CudaResult); a kernel that fails
/// is reported by a later call. It takes one driver call and no allocation.
///
/// # Safety
/// As for [`Stream::launch`](crate::stream::Stream::launch); the macro must be used in an `unsafe` block.
#[macro_export]
macro_rules! launch {
    ($module:ident.$function:ident<<<$grid:expr, $block:expr, $shared:expr, $stream:ident>>>($($argument:expr),* $(,)?)) => {
        match $module.get_function(stringify!($function)) {
            Ok(function) => $crate::launch!(function<<<$grid, $block, $shared, $stream>>>($($argument),*)),
            Err(error) => Err(error),
        }
    };
    ($function:ident<<<$grid:expr, $block:expr, $shared:expr, $stream:ident>>>($($argument:expr),* $(,)?)) => {
        $stream.launch(&$function, $grid, $block, $shared, &[$($crate::function::argument(&$argument)),*])
    };
}
