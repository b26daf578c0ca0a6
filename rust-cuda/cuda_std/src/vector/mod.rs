//! Values moved together: `N` neighbouring elements in one access of up to 16 bytes.
//!
//! **Hints and L2.** On Hopper, loads that take no place in L1 or leave it first, and streaming stores, also mark their lines as the first to leave L2. A
//! kernel without any other access does not displace what earlier kernels have left there: it has the rest of L2 to pass through. A copy in that
//! form took 2.5% longer on an H200 behind a kernel with ordinary accesses than behind one like itself, row normalizations 5%; with ordinary accesses
//! both take the lesser time always. So kernels that read and write as much should use [`Pack::load_nc`] and [`Pack::store_global`]; hints are for data that
//! passes by other data which is to stay.

mod access;

use core::mem::{MaybeUninit, transmute_copy};

use access::{Load, Plain, Store, Words4};

use crate::float::Element;

/// `N` elements that are loaded and stored by one instruction of 2, 4, 8 or 16 bytes, or several of 16 when larger.
///
/// Addresses passed to its functions are to be aligned to the access: the pack's size, 16 bytes at most.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub struct Pack<T, const N: usize>(pub [T; N]);

macro_rules! hinted_load {
    ($(#[$doc:meta])* $name:ident, $policy:ident, $instruction:literal) => {
        $(#[$doc])*
        #[doc = concat!("\n\nPTX `", $instruction, ".v4.b32` and narrower.")]
        ///
        /// # Safety
        /// `pointer` is valid for reads of the pack in global memory, and aligned to it.
        #[inline(always)]
        pub unsafe fn $name(pointer: *const T) -> Self {
            // SAFETY: the caller's promise.
            unsafe { Self::load_by::<access::$policy>(pointer) }
        }
    };
}

macro_rules! hinted_store {
    ($(#[$doc:meta])* $name:ident, $policy:ident, $instruction:literal) => {
        $(#[$doc])*
        #[doc = concat!("\n\nPTX `", $instruction, ".v4.b32` and narrower.")]
        ///
        /// # Safety
        /// `pointer` is valid for writes of the pack in global memory, and aligned to it.
        #[inline(always)]
        pub unsafe fn $name(self, pointer: *mut T) {
            // SAFETY: the caller's promise.
            unsafe { self.store_by::<access::$policy>(pointer) }
        }
    };
}

impl<T: Copy, const N: usize> Pack<T, N> {
    /// Bytes in the pack.
    pub const BYTES: usize = size_of::<Self>();

    /// A pack of equal elements.
    #[inline(always)]
    pub const fn splat(value: T) -> Self {
        Self([value; N])
    }

    /// The same pack, of which the compiler forgets what it has computed from it.
    ///
    /// A kernel that converts a pack, waits, and converts it again keeps the pack in registers meanwhile: without this the
    /// compiler would keep the results of the first conversion, which for 16-bit elements are twice as large. Emits nothing.
    /// For packs of 16 bytes; others come back as they are.
    #[inline(always)]
    #[must_use]
    pub fn forget(self) -> Self {
        if Self::BYTES != 16 {
            return self;
        }
        // SAFETY: the assembly is a comment, and the copied values have the pack's size.
        unsafe {
            let [mut a, mut b, mut c, mut d]: [u32; 4] = transmute_copy(&self);
            ptx!("// {} {} {} {}", inout(reg32) a, inout(reg32) b, inout(reg32) c, inout(reg32) d, options(nomem, nostack));
            transmute_copy(&[a, b, c, d])
        }
    }

    /// Applies `f` to every element.
    #[inline(always)]
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Pack<U, N> {
        Pack(self.0.map(f))
    }

    /// Loads a pack from any state space. PTX `ld.v4.b32` and narrower.
    ///
    /// # Safety
    /// `pointer` is valid for reads of the pack and aligned to it.
    #[inline(always)]
    pub unsafe fn load(pointer: *const T) -> Self {
        // SAFETY: the caller's promise.
        unsafe { if Self::BYTES == 1 { transmute_copy(&pointer.read()) } else { Self::load_by::<Plain>(pointer) } }
    }

    /// Stores the pack to any state space. PTX `st.v4.b32` and narrower.
    ///
    /// # Safety
    /// `pointer` is valid for writes of the pack and aligned to it.
    #[inline(always)]
    pub unsafe fn store(self, pointer: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { if Self::BYTES == 1 { pointer.write(self.0[0]) } else { self.store_by::<Plain>(pointer) } }
    }

    hinted_load! {
        /// Loads data that no thread writes while the kernel runs, through the read-only path.
        load_nc, ReadOnly, "ld.global.nc"
    }

    hinted_load! {
        /// Loads data in global memory that this thread writes later, if anyone does. In one access, where LLVM splits a [`load`](Self::load) at times.
        load_global, Global, "ld.global"
    }

    hinted_load! {
        /// [`load_nc`](Self::load_nc) for data read once, beside other data that should stay: it takes no place in L1, and leaves L2 first.
        load_nc_no_allocate, ReadOnlyOnce, "ld.global.nc.L1::no_allocate"
    }

    hinted_load! {
        /// [`load_nc`](Self::load_nc) for data that every block reads: it leaves L1 last.
        load_nc_evict_last, ReadOnlyKept, "ld.global.nc.L1::evict_last"
    }

    hinted_load! {
        /// Loads data read once, which this thread may write later; it leaves L1 and L2 first.
        load_evict_first, Streaming, "ld.global.cs"
    }

    hinted_load! {
        /// Loads from L2, past an L1 that may be stale: for data that other blocks write.
        load_cg, L2Only, "ld.global.cg"
    }

    hinted_store! {
        /// Stores to global memory in one access, where LLVM splits a [`store`](Self::store) at times.
        store_global, StoreGlobal, "st.global"
    }

    hinted_store! {
        /// Stores data that is not read again soon; it leaves the caches first.
        store_streaming, StoreStreaming, "st.global.cs"
    }

    hinted_store! {
        /// Stores through the caches to memory.
        store_write_through, StoreThrough, "st.global.wt"
    }

    const CHECK: () = assert!(
        matches!(Self::BYTES, 1 | 2 | 4 | 8) || (Self::BYTES > 0 && Self::BYTES.is_multiple_of(16)),
        "a pack has 1 (without cache hints), 2, 4, 8 or a multiple of 16 bytes"
    );

    #[inline(always)]
    unsafe fn load_by<P: Load>(pointer: *const T) -> Self {
        const { Self::CHECK };
        // SAFETY: the caller's promise; what is copied has the pack's size.
        unsafe {
            match Self::BYTES {
                2 => transmute_copy(&P::bytes2(pointer.cast())),
                4 => transmute_copy(&P::bytes4(pointer.cast())),
                8 => transmute_copy(&P::bytes8(pointer.cast())),
                16 => transmute_copy(&P::bytes16(pointer.cast())),
                _ => {
                    let mut pack = MaybeUninit::<Self>::uninit();
                    let chunks = pack.as_mut_ptr().cast::<[u32; 4]>();
                    for chunk in 0..Self::BYTES / 16 {
                        let words = P::bytes16(pointer.cast::<Words4>().add(chunk));
                        chunks.add(chunk).write_unaligned(words.0);
                    }
                    pack.assume_init()
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn store_by<P: Store>(self, pointer: *mut T) {
        const { Self::CHECK };
        // SAFETY: the caller's promise; what is copied has the pack's size.
        unsafe {
            match Self::BYTES {
                2 => P::bytes2(pointer.cast(), transmute_copy(&self)),
                4 => P::bytes4(pointer.cast(), transmute_copy(&self)),
                8 => P::bytes8(pointer.cast(), transmute_copy(&self)),
                16 => P::bytes16(pointer.cast(), transmute_copy(&self)),
                _ => {
                    let chunks = (&raw const self).cast::<[u32; 4]>();
                    for chunk in 0..Self::BYTES / 16 {
                        let words = Words4(chunks.add(chunk).read_unaligned());
                        P::bytes16(pointer.cast::<Words4>().add(chunk), words);
                    }
                }
            }
        }
    }
}

impl<T: Element, const N: usize> Pack<T, N> {
    /// All elements as `f32`, exactly.
    #[inline(always)]
    pub fn to_f32(self) -> [f32; N] {
        T::array_to_f32(self.0)
    }

    /// Rounds to the element type, two elements an instruction where the hardware can.
    #[inline(always)]
    pub fn from_f32(values: [f32; N]) -> Self {
        Self(T::array_from_f32(values))
    }
}

impl<T: Copy, const N: usize> Pack<T, N> {
    hinted_load! {
        /// [`load_nc_no_allocate`](Self::load_nc_no_allocate) for data whose neighbours are read soon, here or by others: L2 fetches
        /// the 256 bytes around it.
        load_nc_no_allocate_ahead, ReadOnlyOnceAhead, "ld.global.nc.L1::no_allocate.L2::256B"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[repr(align(16))]
    struct Aligned<T>(T);

    #[test]
    fn plain_accesses_of_every_size() {
        fn round_trip<T: Copy + PartialEq + core::fmt::Debug, const N: usize>(element: impl Fn(usize) -> T) {
            let source = Aligned(core::array::from_fn::<T, N, _>(&element));
            let mut target = Aligned([element(99); N]);
            // SAFETY: both are arrays of the pack's size, aligned to 16.
            unsafe { Pack::<T, N>::load(source.0.as_ptr()).store(target.0.as_mut_ptr()) };
            assert_eq!(source.0.to_vec(), Vec::from(target.0));
        }
        round_trip::<u8, 1>(|i| i as u8);
        round_trip::<u8, 2>(|i| i as u8);
        round_trip::<u16, 2>(|i| i as u16);
        round_trip::<f32, 2>(|i| i as f32);
        round_trip::<u16, 8>(|i| i as u16);
        round_trip::<u64, 6>(|i| i as u64);
    }

    #[test]
    fn map_keeps_the_order() {
        assert_eq!(Pack([1, 2, 3]).map(|x| x * 10), Pack([10, 20, 30]));
        assert_eq!(Pack::<_, 2>::splat(7), Pack([7, 7]));
    }
}
