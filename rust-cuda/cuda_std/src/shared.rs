//! Shared memory.
//!
//! A kernel has one block of shared memory, whose size `#[kernel(shared = Layout)]` declares. Write the layout as a
//! `#[repr(C)]` struct and name its parts with [`shared_field!`](crate::shared_field):
//!
//! ```
//! use cuda_std::{bf16, mbarrier::Barrier, shared, shared_field};
//!
//! #[repr(C, align(1024))]
//! struct Layout {
//!     tiles: [[bf16; 64 * 64]; 4],
//!     full: [Barrier; 4],
//! }
//!
//! unsafe fn wait(stage: u32, parity: u32) {
//!     let memory = shared::dynamic::<Layout>();
//!     let full = shared_field!(memory.full);
//!     unsafe { full.at(stage).wait_parity(parity) };
//! }
//! ```

use core::marker::PhantomData;

use cuda_std_macros::ptx_registers;

#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    // Provided by cuda_builder's prelude.
    safe fn __cuda_dyn_smem() -> *mut u8;
    safe fn __cuda_dyn_smem_u32() -> u32;
}

/// A pointer into this block's shared memory, as the 32-bit address that instructions take.
///
/// Address arithmetic on it stays in 32 bits; [`read`](Self::read) and [`write`](Self::write) compile to `ld.shared` and
/// `st.shared`.
#[repr(transparent)]
pub struct SharedPtr<T> {
    address: u32,
    pointee: PhantomData<*mut T>,
}

impl<T> Clone for SharedPtr<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedPtr<T> {}

/// The start of the block's shared memory, aligned to 1024 bytes.
#[inline(always)]
pub fn dynamic<T>() -> SharedPtr<T> {
    const { assert!(align_of::<T>() <= 1024) };
    SharedPtr::from_addr(dynamic_u32())
}

/// The start of the block's shared memory as a generic pointer.
#[inline(always)]
pub fn dynamic_ptr<T>() -> *mut T {
    #[cfg(target_arch = "nvptx64")]
    {
        __cuda_dyn_smem().cast()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::device_only()
}

/// The start of the block's shared memory as an address of the shared window.
#[inline(always)]
pub fn dynamic_u32() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        __cuda_dyn_smem_u32()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::device_only()
}

/// The shared-window address of a generic pointer into shared memory.
#[inline(always)]
pub fn addr<T>(pointer: *const T) -> u32 {
    // Relative to the start, which LLVM folds away; a conversion instruction would hide the address from it.
    dynamic_u32().wrapping_add((pointer as usize).wrapping_sub(dynamic_ptr::<u8>() as usize) as u32)
}

impl<T> SharedPtr<T> {
    /// The pointer with this address of the shared window.
    #[inline(always)]
    pub const fn from_addr(address: u32) -> Self {
        Self { address, pointee: PhantomData }
    }

    /// The shared pointer for a generic pointer into shared memory.
    #[inline(always)]
    pub fn from_ptr(pointer: *const T) -> Self {
        Self::from_addr(addr(pointer))
    }

    /// The address in the shared window.
    #[inline(always)]
    pub const fn addr(self) -> u32 {
        self.address
    }

    /// As a generic pointer that LLVM knows to point into shared memory.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        let offset = self.address.wrapping_sub(dynamic_u32());
        dynamic_ptr::<u8>().wrapping_add(offset as usize).cast()
    }

    /// The pointer `count` elements further.
    #[inline(always)]
    pub const fn add(self, count: u32) -> Self {
        self.byte_add(count.wrapping_mul(size_of::<T>() as u32))
    }

    /// The pointer `bytes` further.
    #[inline(always)]
    pub const fn byte_add(self, bytes: u32) -> Self {
        Self::from_addr(self.address.wrapping_add(bytes))
    }

    /// The same address, pointing to another type.
    #[inline(always)]
    pub const fn cast<U>(self) -> SharedPtr<U> {
        SharedPtr::from_addr(self.address)
    }

    /// Loads the value. PTX `ld.shared`.
    ///
    /// # Safety
    /// The address is valid for reads of an initialized `T`, aligned, and no other thread writes it meanwhile.
    #[inline(always)]
    pub unsafe fn read(self) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.as_ptr().read() }
    }

    /// Stores the value. PTX `st.shared`.
    ///
    /// # Safety
    /// The address is valid for writes, aligned, and no other thread accesses it meanwhile.
    #[inline(always)]
    pub unsafe fn write(self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.as_ptr().write(value) }
    }
}

macro_rules! load {
    ($name:ident, $count:literal, $width:literal) => {
        #[doc = concat!("Loads ", $count, " values at this place of the code: what a loop carries to its next turn, LLVM would load there.")]
        #[doc = concat!("\n\nPTX `ld.shared.", $width, ".f32`.")]
        ///
        /// # Safety
        /// As for [`read`](Self::read), of all of them, and the address is a multiple of their size.
        #[inline(always)]
        pub unsafe fn $name(self) -> [f32; $count] {
            let mut values = [0.0; $count];
            // SAFETY: the caller's promise.
            unsafe {
                ptx_registers!(
                    concat!("ld.shared.", $width, ".f32"), " {{{v*}}}, [{from}];",
                    array v = [$count] out(reg32) values,
                    from = in(reg32) self.address,
                    options(nostack),
                );
            }
            values
        }
    };
}

impl SharedPtr<f32> {
    load!(load_x4, 4, "v4");
}

impl<T, const N: usize> SharedPtr<[T; N]> {
    /// The element `index`, unchecked.
    #[inline(always)]
    pub const fn at(self, index: u32) -> SharedPtr<T> {
        self.cast::<T>().add(index)
    }
}

/// The address of a field: `shared_field!(memory.tiles)` for `memory: SharedPtr<Layout>` is a [`SharedPtr`] to `tiles`.
#[macro_export]
macro_rules! shared_field {
    ($pointer:ident . $($field:ident).+) => {
        $crate::shared::project($pointer, |layout| {
            // SAFETY: no memory is accessed; the pointer comes from `SharedPtr::as_ptr`.
            #[allow(unused_unsafe)]
            unsafe { &raw mut (*layout).$($field).+ }
        })
    };
}

/// What [`shared_field!`](crate::shared_field) expands to; LLVM folds it to the field's offset.
#[doc(hidden)]
#[inline(always)]
pub fn project<T, U>(pointer: SharedPtr<T>, field: impl FnOnce(*mut T) -> *mut U) -> SharedPtr<U> {
    SharedPtr::from_ptr(field(pointer.as_ptr()))
}
