//! User-defined formulas, each fused into one kernel: [`map!`](crate::map!) and [`zip!`](crate::zip!), and over rows
//! [`row!`](crate::row!).
//!
//! A crate of kernels names a formula, and the macro turns it into a value that the host's `ops::map` and `ops::zip`
//! take. The crate depends on this one without default features, so that only the code that operators share is compiled
//! with it:
//!
//! ```
//! gpu_kernels::map! {
//!     /// y = max(x, 0)².
//!     pub fn relu_squared(x: f32) -> f32 {
//!         let r = x.max(0.0);
//!         r * r
//!     }
//! }
//!
//! gpu_kernels::zip! {
//!     /// y = x + weight · (target − x).
//!     pub fn approach([x, target]: [f32; 2], weight: f32) -> f32 {
//!         x + weight * (target - x)
//!     }
//! }
//!
//! // What a formula says is plain Rust, on the host as well.
//! assert_eq!(relu_squared.value(3.0), 9.0);
//! assert_eq!(approach(0.25).value(1.0, 5.0), 2.0);
//! ```
//!
//! The kernels have instances for f32, f16 and bf16, which compute in f32 and round once; their memory traffic is that
//! of [`map`](mod@crate::map). A formula is safe Rust: it sees values, never their addresses.

pub mod row;

use cuda_std::float::Element;
use cuda_std::launch::{DevicePtr, DevicePtrMut, Fields, Instance, Kernel};

/// The greatest number of inputs of a formula.
pub const MAX_INPUTS: usize = 4;

/// Row strides, in elements, of `K` inputs and of the output.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Strides<const K: usize> {
    /// Strides of the inputs.
    pub inputs: [u64; K],
    /// Stride of the output.
    pub output: u64,
}

// SAFETY: all fields are 8-byte numbers in C's order.
unsafe impl<const K: usize> Fields for Strides<K> {}

/// A formula of `K` inputs for which there are kernels: the result of [`map!`](crate::map!) and [`zip!`](crate::zip!).
///
/// # Safety
/// Take a launch of `Kernel<T>` with [`args`](Self::args), blocks of [`map::block`](crate::map::block) threads, and a
/// grid that covers [`map::per_block`](crate::map::per_block) elements of a row per block along x and one row per block
/// along y and z. Such a launch reads `rows` rows of `d` elements of each input at its stride, writes as many of the
/// output at its own, and does nothing else.
pub unsafe trait Formula<const K: usize>: Copy {
    /// The name that errors give.
    const NAME: &'static str;
    /// The names of the inputs.
    const INPUTS: [&'static str; K];
    /// Every instance of the kernel.
    const KERNELS: &'static [Instance];
    /// The kernel for elements of type `T`.
    type Kernel<T: Element>: Kernel;

    /// The kernel's arguments.
    fn args<T: Element>(
        self,
        inputs: [DevicePtr<T>; K],
        output: DevicePtrMut<T>,
        rows: u64,
        d: u64,
        strides: Strides<K>,
    ) -> <Self::Kernel<T> as Kernel>::Args;
}

/// A formula of one input, fused into a kernel: y = f(x), elementwise. See [`fuse`](crate::fuse).
///
/// A definition written as a function becomes a value of that name, for the host's `ops::map`. Further parameters are
/// numbers that all elements share; with them the definition becomes a function of these numbers that returns the
/// value. Its method `value` is the formula. The function's body is safe code over `f32`; `cuda_std::math` has what
/// `core` lacks.
#[macro_export]
macro_rules! map {
    ($(
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident($x:ident: f32 $(, $param:ident: f32)* $(,)?) -> f32 $body:block
    )+) => { $(
        $crate::zip! {
            $(#[$meta])*
            $visibility fn $name([$x]: [f32; 1] $(, $param: f32)*) -> f32 $body
        }
    )+ };
}

/// A formula of two to four inputs, fused into a kernel: y = f(x₀, x₁, …), elementwise. See [`fuse`](crate::fuse) and
/// [`map!`](crate::map!).
#[macro_export]
macro_rules! zip {
    ($(
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident(
            [$($x:ident),+ $(,)?]: [f32; $count:literal] $(, $param:ident: f32)* $(,)?
        ) -> f32 $body:block
    )+) => { $(
        $crate::formula_type! { $(#[$meta])* $visibility $name($($param)*) }

        impl $name {
            /// The formula.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            $visibility fn value(self, $($x: f32),+) -> f32 {
                let Self { $($param),* } = self;
                $body
            }
        }

        // Variables end in `_`: where a formula without parameters has a name, there is no variable of that name.
        #[allow(missing_docs, unreachable_pub, unsafe_code, unsafe_op_in_unsafe_fn, clippy::too_many_arguments)]
        const _: () = {
            #[::cuda_std::kernel(
                dtypes(T: float), symbol = $name,
                block = $crate::map::block(size_of::<T>(), $crate::map::LIGHT), min_blocks = 2
            )]
            pub unsafe fn fused<T: ::cuda_std::float::Element>(
                $($x: *const T,)+
                output_: *mut T,
                rows_: u64,
                d_: u64,
                strides_: $crate::fuse::Strides<$count>,
                $($param: f32,)*
            ) {
                let formula_ = $name { $($param),* };
                let inputs_: [*const T; $count] = [$($x),+];
                let inputs_ = ::core::array::from_fn(|i_| (inputs_[i_], strides_.inputs[i_]));
                let output_ = (output_, strides_.output);
                $crate::map::zip::<T, T, $count, 0, { $crate::map::LIGHT }>(inputs_, output_, rows_, d_, |[$($x),+]| {
                    formula_.value($($x),+)
                });
            }

            #[cfg(not(target_arch = "nvptx64"))]
            // SAFETY: the kernel is `map::zip` over these operands.
            unsafe impl $crate::fuse::Formula<$count> for $name {
                const NAME: &'static str = stringify!($name);
                const INPUTS: [&'static str; $count] = [$(stringify!($x)),+];
                const KERNELS: &'static [::cuda_std::launch::Instance] = FUSED;
                type Kernel<T: ::cuda_std::float::Element> = Fused<T>;

                fn args<T: ::cuda_std::float::Element>(
                    self,
                    inputs_: [::cuda_std::launch::DevicePtr<T>; $count],
                    output_: ::cuda_std::launch::DevicePtrMut<T>,
                    rows_: u64,
                    d_: u64,
                    strides_: $crate::fuse::Strides<$count>,
                ) -> <Self::Kernel<T> as ::cuda_std::launch::Kernel>::Args {
                    let [$($x),+] = inputs_;
                    ($($x,)+ output_, rows_, d_, strides_, $(self.$param,)*)
                }
            }
        };
    )+ };
}

/// The type of a formula, and the construction of its value.
#[doc(hidden)]
#[macro_export]
macro_rules! formula_type {
    ($(#[$meta:meta])* $visibility:vis $name:ident()) => {
        $(#[$meta])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        $visibility struct $name;
    };
    ($(#[$meta:meta])* $visibility:vis $name:ident($($param:ident)+)) => {
        $(#[$meta])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        $visibility struct $name {
            $(
                #[doc = concat!("The parameter `", stringify!($param), "`.")]
                $visibility $param: f32,
            )+
        }

        $(#[$meta])*
        #[inline(always)]
        $visibility const fn $name($($param: f32),+) -> $name {
            $name { $($param),+ }
        }
    };
}
