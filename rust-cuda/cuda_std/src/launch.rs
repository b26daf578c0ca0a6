//! What the host needs to launch a kernel with checked types: [`Kernel`], its arguments, and grid dimensions.

use core::{fmt, marker::PhantomData};

mod sealed {
    pub trait Sealed {}
}

/// Extents of a grid, a block or a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// Along x, the fastest.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl Dim3 {
    /// One in every direction.
    pub const ONE: Self = Self::new(1, 1, 1);

    /// The three extents.
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        Self { x, y, z }
    }

    /// Their product.
    pub const fn count(self) -> u64 {
        // Saturating: no valid launch comes near.
        (self.x as u64).saturating_mul(self.y as u64).saturating_mul(self.z as u64)
    }
}

impl fmt::Display for Dim3 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}x{}x{}", self.x, self.y, self.z)
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self::new(x, 1, 1)
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self::new(x, y, 1)
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self::new(x, y, z)
    }
}

macro_rules! device_pointer {
    ($name:ident, $pointer:ty, $doc:literal) => {
        #[doc = $doc]
        ///
        /// An address only: it owns nothing and keeps nothing alive.
        #[repr(transparent)]
        pub struct $name<T>(u64, PhantomData<$pointer>);

        // SAFETY: an address that only device code dereferences.
        unsafe impl<T> Send for $name<T> {}
        // SAFETY: as above.
        unsafe impl<T> Sync for $name<T> {}

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl<T> $name<T> {
            /// The null pointer, for an optional argument.
            pub const fn null() -> Self {
                Self::from_raw(0)
            }

            /// The pointer with this device address.
            pub const fn from_raw(address: u64) -> Self {
                Self(address, PhantomData)
            }

            /// The device address.
            pub const fn addr(self) -> u64 {
                self.0
            }

            /// The pointer `bytes` further.
            #[must_use]
            pub const fn byte_add(self, bytes: u64) -> Self {
                Self::from_raw(self.0.wrapping_add(bytes))
            }

            /// The pointer `count` elements further.
            #[must_use]
            #[allow(clippy::should_implement_trait, reason = "named as on the primitive pointers")]
            pub const fn add(self, count: u64) -> Self {
                self.byte_add(count.wrapping_mul(size_of::<T>() as u64))
            }

            /// The same address, pointing to another type.
            pub const fn cast<U>(self) -> $name<U> {
                $name::from_raw(self.0)
            }
        }
    };
}

device_pointer!(DevicePtr, *const T, "A kernel's `*const T` argument.");
device_pointer!(DevicePtrMut, *mut T, "A kernel's `*mut T` argument.");

impl<T> From<DevicePtrMut<T>> for DevicePtr<T> {
    fn from(pointer: DevicePtrMut<T>) -> Self {
        Self::from_raw(pointer.addr())
    }
}

/// A TMA descriptor: 128 bytes that the driver encodes and the device's copy engine reads.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u64; 16]);

impl fmt::Debug for TensorMap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TensorMap(..)")
    }
}

/// A value that can be passed to a kernel: a number of fixed width, a device pointer, a [`TensorMap`] or a struct of
/// [`Fields`].
pub trait Param: sealed::Sealed + Copy {
    /// The bytes the kernel receives.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the implementors are plain data without padding.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

macro_rules! param {
    ($($ty:ty),*) => { $(
        impl sealed::Sealed for $ty {}
        impl Param for $ty {}
    )* };
}

param!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, TensorMap);

/// A struct of numbers that a kernel takes by value: sizes and strides, which would otherwise be many parameters.
///
/// # Safety
/// The struct is `#[repr(C)]`, without padding, aligned to at most 8 bytes, and holds numbers, structs and arrays of them. Not
/// pointers: accesses through a pointer inside a struct are generic.
pub unsafe trait Fields: Copy {}

impl<T: Fields> sealed::Sealed for T {}
impl<T: Fields> Param for T {}

impl<T> sealed::Sealed for DevicePtr<T> {}
impl<T> Param for DevicePtr<T> {}
impl<T> sealed::Sealed for DevicePtrMut<T> {}
impl<T> Param for DevicePtrMut<T> {}

/// A kernel's arguments: a tuple of up to 20 [`Param`]s.
pub trait Args: sealed::Sealed {
    /// The size of each argument in bytes.
    const SIZES: &'static [usize];

    /// Calls `f` with the bytes of every argument, without allocating.
    fn with<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R;
}

macro_rules! args {
    ($($name:ident)*) => {
        impl<$($name: Param),*> sealed::Sealed for ($($name,)*) {}

        impl<$($name: Param),*> Args for ($($name,)*) {
            const SIZES: &'static [usize] = &[$(size_of::<$name>()),*];

            #[allow(non_snake_case)]
            fn with<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
                let ($($name,)*) = self;
                f(&[$($name.bytes()),*])
            }
        }
    };
}

macro_rules! args_up_to {
    ($first:ident $($rest:ident)*) => {
        args!($first $($rest)*);
        args_up_to!($($rest)*);
    };
    () => {
        args!();
    };
}

args_up_to!(A B C D E F G H I J K L M N O P Q S T U);

/// A kernel as the host sees it; `#[kernel]` writes the implementation.
pub trait Kernel {
    /// The entry point's name.
    const SYMBOL: &'static str;
    /// The most threads a block may have, which is what the kernel expects.
    const BLOCK: Dim3;
    /// Blocks in a cluster; [`Dim3::ONE`] without clusters.
    const CLUSTER: Dim3;
    /// Shared memory a block, in bytes.
    const SHARED_BYTES: usize;
    /// The Rust module that defines the kernel.
    const MODULE: &'static str;
    /// The file that it is written in, as the compiler was told of it; empty if that is not known.
    const FILE: &'static str = "";
    /// The first and the last line there.
    const LINES: [u32; 2] = [0; 2];
    /// The arguments, a tuple in the order of the kernel's parameters.
    type Args: Args;
}

/// What the host knows of one instance of a kernel, without its type. `#[kernel]` lists all of a kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The entry point's name.
    pub symbol: &'static str,
    /// The Rust module that defines the kernel.
    pub module: &'static str,
    /// The most threads of a block.
    pub block: Dim3,
    /// Blocks in a cluster.
    pub cluster: Dim3,
    /// Shared memory a block, in bytes.
    pub shared_bytes: usize,
    /// The size of each argument in bytes.
    pub param_sizes: &'static [usize],
    /// The file that it is written in, as the compiler was told of it; empty if that is not known.
    pub file: &'static str,
    /// The first and the last line there.
    pub lines: [u32; 2],
}

impl Instance {
    /// The instance that is kernel type `K`.
    pub const fn of<K: Kernel>() -> Self {
        Self {
            symbol: K::SYMBOL,
            module: K::MODULE,
            block: K::BLOCK,
            cluster: K::CLUSTER,
            shared_bytes: K::SHARED_BYTES,
            param_sizes: <K::Args as Args>::SIZES,
            file: K::FILE,
            lines: K::LINES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn arguments_are_packed_in_order() {
        let args = (DevicePtr::<f32>::from_raw(0x1122_3344_5566_7788), 7u32, 1.5f32, 9u64);
        assert_eq!(size_list(&args), [8, 4, 4, 8]);
        let bytes: Vec<Vec<u8>> = args.with(|list| list.iter().map(|bytes| bytes.to_vec()).collect());
        assert_eq!(bytes[0], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(bytes[1], 7u32.to_le_bytes());
        assert_eq!(bytes[2], 1.5f32.to_le_bytes());
        assert_eq!(bytes[3], 9u64.to_le_bytes());
    }

    fn size_list<A: Args>(_: &A) -> &'static [usize] {
        A::SIZES
    }

    #[test]
    fn no_arguments() {
        assert_eq!(().with(|list| list.len()), 0);
    }

    #[test]
    fn tensor_map_is_128_aligned_bytes() {
        let map = TensorMap([3; 16]);
        assert_eq!(map.bytes().len(), 128);
        assert_eq!(map.bytes().as_ptr() as usize % 64, 0);
    }

    #[test]
    fn pointers_step_by_elements() {
        let pointer = DevicePtrMut::<u16>::from_raw(256);
        assert_eq!(pointer.add(3).addr(), 262);
        assert_eq!(DevicePtr::from(pointer).byte_add(1).addr(), 257);
    }

    #[test]
    fn dimensions_convert_and_count() {
        assert_eq!(Dim3::from(7), Dim3::new(7, 1, 1));
        assert_eq!(Dim3::from((2, 3, 4)).count(), 24);
        assert_eq!(Dim3::new(u32::MAX, u32::MAX, u32::MAX).count(), u64::MAX);
    }
}
