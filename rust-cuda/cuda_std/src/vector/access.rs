//! Single accesses of each width, by cache policy.

#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Words2(pub(super) [u32; 2]);

#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Words4(pub(super) [u32; 4]);

/// How to load: one function a width.
pub(super) trait Load {
    unsafe fn bytes2(pointer: *const u16) -> u16;
    unsafe fn bytes4(pointer: *const u32) -> u32;
    unsafe fn bytes8(pointer: *const Words2) -> Words2;
    unsafe fn bytes16(pointer: *const Words4) -> Words4;
}

/// How to store: one function a width.
pub(super) trait Store {
    unsafe fn bytes2(pointer: *mut u16, value: u16);
    unsafe fn bytes4(pointer: *mut u32, value: u32);
    unsafe fn bytes8(pointer: *mut Words2, value: Words2);
    unsafe fn bytes16(pointer: *mut Words4, value: Words4);
}

/// Left to LLVM, which adds the state space it knows.
pub(super) struct Plain;

impl Load for Plain {
    #[inline(always)]
    unsafe fn bytes2(pointer: *const u16) -> u16 {
        // SAFETY: the caller's promise.
        unsafe { pointer.read() }
    }

    #[inline(always)]
    unsafe fn bytes4(pointer: *const u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { pointer.read() }
    }

    #[inline(always)]
    unsafe fn bytes8(pointer: *const Words2) -> Words2 {
        // SAFETY: the caller's promise.
        unsafe { pointer.read() }
    }

    #[inline(always)]
    unsafe fn bytes16(pointer: *const Words4) -> Words4 {
        // SAFETY: the caller's promise.
        unsafe { pointer.read() }
    }
}

impl Store for Plain {
    #[inline(always)]
    unsafe fn bytes2(pointer: *mut u16, value: u16) {
        // SAFETY: the caller's promise.
        unsafe { pointer.write(value) }
    }

    #[inline(always)]
    unsafe fn bytes4(pointer: *mut u32, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { pointer.write(value) }
    }

    #[inline(always)]
    unsafe fn bytes8(pointer: *mut Words2, value: Words2) {
        // SAFETY: the caller's promise.
        unsafe { pointer.write(value) }
    }

    #[inline(always)]
    unsafe fn bytes16(pointer: *mut Words4, value: Words4) {
        // SAFETY: the caller's promise.
        unsafe { pointer.write(value) }
    }
}

macro_rules! load {
    ($name:ident, $instruction:literal, $($option:ident),*) => {
        pub(super) struct $name;

        impl Load for $name {
            #[inline(always)]
            unsafe fn bytes2(pointer: *const u16) -> u16 {
                let value: u16;
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".b16 {}, [{}];"),
                        out(reg16) value, in(reg64) pointer,
                        options($($option),*),
                    );
                }
                value
            }

            #[inline(always)]
            unsafe fn bytes4(pointer: *const u32) -> u32 {
                let value: u32;
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".b32 {}, [{}];"),
                        out(reg32) value, in(reg64) pointer,
                        options($($option),*),
                    );
                }
                value
            }

            #[inline(always)]
            unsafe fn bytes8(pointer: *const Words2) -> Words2 {
                let (a, b): (u32, u32);
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".v2.b32 {{{}, {}}}, [{}];"),
                        out(reg32) a, out(reg32) b, in(reg64) pointer,
                        options($($option),*),
                    );
                }
                Words2([a, b])
            }

            #[inline(always)]
            unsafe fn bytes16(pointer: *const Words4) -> Words4 {
                let (a, b, c, d): (u32, u32, u32, u32);
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".v4.b32 {{{}, {}, {}, {}}}, [{}];"),
                        out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) pointer,
                        options($($option),*),
                    );
                }
                Words4([a, b, c, d])
            }
        }
    };
}

macro_rules! store {
    ($name:ident, $instruction:literal) => {
        pub(super) struct $name;

        impl Store for $name {
            #[inline(always)]
            unsafe fn bytes2(pointer: *mut u16, value: u16) {
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".b16 [{}], {};"),
                        in(reg64) pointer, in(reg16) value,
                        options(nostack),
                    );
                }
            }

            #[inline(always)]
            unsafe fn bytes4(pointer: *mut u32, value: u32) {
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".b32 [{}], {};"),
                        in(reg64) pointer, in(reg32) value,
                        options(nostack),
                    );
                }
            }

            #[inline(always)]
            unsafe fn bytes8(pointer: *mut Words2, value: Words2) {
                let Words2([a, b]) = value;
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".v2.b32 [{}], {{{}, {}}};"),
                        in(reg64) pointer, in(reg32) a, in(reg32) b,
                        options(nostack),
                    );
                }
            }

            #[inline(always)]
            unsafe fn bytes16(pointer: *mut Words4, value: Words4) {
                let Words4([a, b, c, d]) = value;
                // SAFETY: the caller's promise.
                unsafe {
                    ptx!(
                        concat!($instruction, ".v4.b32 [{}], {{{}, {}, {}, {}}};"),
                        in(reg64) pointer, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
                        options(nostack),
                    );
                }
            }
        }
    };
}

// Loads of data at rest are pure: LLVM may reorder and combine them. What other blocks write is read each time, in order.
load!(ReadOnly, "ld.global.nc", pure, readonly, nostack);
load!(ReadOnlyOnce, "ld.global.nc.L1::no_allocate", pure, readonly, nostack);
load!(ReadOnlyOnceAhead, "ld.global.nc.L1::no_allocate.L2::256B", pure, readonly, nostack);
load!(ReadOnlyKept, "ld.global.nc.L1::evict_last", pure, readonly, nostack);
load!(Streaming, "ld.global.cs", pure, readonly, nostack);
load!(Global, "ld.global", pure, readonly, nostack);
load!(L2Only, "ld.global.cg", nostack);
store!(StoreStreaming, "st.global.cs");
store!(StoreGlobal, "st.global");
store!(StoreThrough, "st.global.wt");
