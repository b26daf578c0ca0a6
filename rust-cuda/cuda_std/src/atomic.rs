//! Atomic operations on global or shared memory, relaxed; and the acquire, release pair that publishes data.
//!
//! The functions of this module are atomic among the threads of the device, those of [`block`] and [`system`] among the
//! threads of the block, or of all devices and the host. Where a result is not used prefer the `red_` forms.
//!
//! Pointers are generic: the hardware finds the state space. They are aligned to the value.

macro_rules! operations {
    ($scope:literal: $(
        $(#[$doc:meta])*
        $name:ident, $red:ident: $ty:ty, $class:ident, $operation:literal, $arch:literal;
    )*) => { $(
        $(#[$doc])*
        #[doc = concat!(" Returns the value before.\n\nPTX `atom.relaxed.", $scope, ".", $operation, "`, ", $arch, ".\n\n# Safety\n`pointer` is valid and aligned; other threads access it atomically only.")]
        #[inline(always)]
        pub unsafe fn $name(pointer: *mut $ty, value: $ty) -> $ty {
            let before: $ty;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!("atom.relaxed.", $scope, ".", $operation, " {}, [{}], {};"),
                    out($class) before, in(reg64) pointer, in($class) value,
                    options(nostack),
                );
            }
            before
        }

        #[doc = concat!("[`", stringify!($name), "`] without a result.\n\nPTX `red.relaxed.", $scope, ".", $operation, "`, ", $arch, ".\n\n# Safety\nAs for [`", stringify!($name), "`].")]
        #[inline(always)]
        pub unsafe fn $red(pointer: *mut $ty, value: $ty) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!("red.relaxed.", $scope, ".", $operation, " [{}], {};"),
                    in(reg64) pointer, in($class) value,
                    options(nostack),
                );
            }
        }
    )* };
}

macro_rules! exchanges {
    ($scope:literal: $($exchange:ident, $compare:ident: $ty:ty, $class:ident, $width:literal;)*) => { $(
        /// Replaces the value; returns the one before.
        #[doc = concat!("\n\nPTX `atom.relaxed.", $scope, ".exch.", $width, "`.\n\n# Safety\n`pointer` is valid and aligned; other threads access it atomically only.")]
        #[inline(always)]
        pub unsafe fn $exchange(pointer: *mut $ty, value: $ty) -> $ty {
            let before: $ty;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!("atom.relaxed.", $scope, ".exch.", $width, " {}, [{}], {};"),
                    out($class) before, in(reg64) pointer, in($class) value,
                    options(nostack),
                );
            }
            before
        }

        /// Replaces the value if it equals `expected`; returns the one before. Acquires and releases.
        #[doc = concat!("\n\nPTX `atom.acq_rel.", $scope, ".cas.", $width, "`.\n\n# Safety\n`pointer` is valid and aligned; other threads access it atomically only.")]
        #[inline(always)]
        pub unsafe fn $compare(pointer: *mut $ty, expected: $ty, value: $ty) -> $ty {
            let before: $ty;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!("atom.acq_rel.", $scope, ".cas.", $width, " {}, [{}], {}, {};"),
                    out($class) before, in(reg64) pointer, in($class) expected, in($class) value,
                    options(nostack),
                );
            }
            before
        }
    )* };
}

macro_rules! publication {
    ($scope:literal: $($load:ident, $store:ident, $add:ident: $ty:ty, $class:ident, $unsigned:literal;)*) => { $(
        /// Loads a value; what its writer released is visible after.
        #[doc = concat!("\n\nPTX `ld.acquire.", $scope, ".", $unsigned, "`, sm_70.\n\n# Safety\n`pointer` is valid and aligned; other threads access it atomically only.")]
        #[inline(always)]
        pub unsafe fn $load(pointer: *const $ty) -> $ty {
            let value: $ty;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!("ld.acquire.", $scope, ".", $unsigned, " {}, [{}];"),
                    out($class) value, in(reg64) pointer,
                    options(nostack),
                );
            }
            value
        }

        /// Stores a value, releasing this thread's earlier accesses.
        #[doc = concat!("\n\nPTX `st.release.", $scope, ".", $unsigned, "`, sm_70.\n\n# Safety\n`pointer` is valid and aligned; other threads access it atomically only.")]
        #[inline(always)]
        pub unsafe fn $store(pointer: *mut $ty, value: $ty) {
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!("st.release.", $scope, ".", $unsigned, " [{}], {};"),
                    in(reg64) pointer, in($class) value,
                    options(nostack),
                );
            }
        }

        /// Adds, wrapping, acquiring and releasing; returns the value before. Counts arrivals of blocks.
        #[doc = concat!("\n\nPTX `atom.acq_rel.", $scope, ".add.", $unsigned, "`, sm_70.\n\n# Safety\n`pointer` is valid and aligned; other threads access it atomically only.")]
        #[inline(always)]
        pub unsafe fn $add(pointer: *mut $ty, value: $ty) -> $ty {
            let before: $ty;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!("atom.acq_rel.", $scope, ".add.", $unsigned, " {}, [{}], {};"),
                    out($class) before, in(reg64) pointer, in($class) value,
                    options(nostack),
                );
            }
            before
        }
    )* };
}

macro_rules! scope {
    ($scope:literal) => {
        operations! { $scope:
            /// Adds.
            add_f32, red_add_f32: f32, reg32, "add.f32", "sm_60";
            /// Adds.
            add_f64, red_add_f64: f64, reg64, "add.f64", "sm_60";
            /// Adds two `f16` packed in a register.
            add_f16x2, red_add_f16x2: u32, reg32, "add.noftz.f16x2", "sm_60";
            /// Adds two `bf16` packed in a register.
            add_bf16x2, red_add_bf16x2: u32, reg32, "add.noftz.bf16x2", "sm_90";
            /// Adds, wrapping.
            add_u32, red_add_u32: u32, reg32, "add.u32", "sm_60";
            /// Adds, wrapping.
            add_i32, red_add_i32: i32, reg32, "add.s32", "sm_60";
            /// Adds, wrapping.
            add_u64, red_add_u64: u64, reg64, "add.u64", "sm_60";
            /// Keeps the smaller value.
            min_u32, red_min_u32: u32, reg32, "min.u32", "sm_60";
            /// Keeps the greater value.
            max_u32, red_max_u32: u32, reg32, "max.u32", "sm_60";
            /// Keeps the smaller value.
            min_i32, red_min_i32: i32, reg32, "min.s32", "sm_60";
            /// Keeps the greater value.
            max_i32, red_max_i32: i32, reg32, "max.s32", "sm_60";
            /// Keeps the smaller value.
            min_u64, red_min_u64: u64, reg64, "min.u64", "sm_60";
            /// Keeps the greater value.
            max_u64, red_max_u64: u64, reg64, "max.u64", "sm_60";
            /// Keeps the smaller value.
            min_i64, red_min_i64: i64, reg64, "min.s64", "sm_60";
            /// Keeps the greater value.
            max_i64, red_max_i64: i64, reg64, "max.s64", "sm_60";
            /// Bitwise and.
            and_u32, red_and_u32: u32, reg32, "and.b32", "sm_60";
            /// Bitwise or.
            or_u32, red_or_u32: u32, reg32, "or.b32", "sm_60";
            /// Bitwise exclusive or.
            xor_u32, red_xor_u32: u32, reg32, "xor.b32", "sm_60";
            /// Bitwise and.
            and_u64, red_and_u64: u64, reg64, "and.b64", "sm_60";
            /// Bitwise or.
            or_u64, red_or_u64: u64, reg64, "or.b64", "sm_60";
            /// Bitwise exclusive or.
            xor_u64, red_xor_u64: u64, reg64, "xor.b64", "sm_60";
            /// Adds one, or resets to zero once the value has reached the operand: a ring of `value + 1` counts.
            increment_u32, red_increment_u32: u32, reg32, "inc.u32", "sm_60";
            /// Subtracts one, or sets the operand where the value is zero or above it: [`increment_u32`]'s ring, backwards.
            decrement_u32, red_decrement_u32: u32, reg32, "dec.u32", "sm_60";
        }

        exchanges! { $scope:
            exchange_u32, compare_exchange_u32: u32, reg32, "b32";
            exchange_u64, compare_exchange_u64: u64, reg64, "b64";
        }

        publication! { $scope:
            load_acquire_u32, store_release_u32, add_acq_rel_u32: u32, reg32, "u32";
            load_acquire_u64, store_release_u64, add_acq_rel_u64: u64, reg64, "u64";
        }

        /// Keeps the greater of two values, of which NaN without a sign is the greatest. See [`max_u32`] for the contract.
        ///
        /// # Safety
        /// `pointer` is valid and aligned; other threads access it atomically only.
        #[inline(always)]
        pub unsafe fn red_max_f32(pointer: *mut f32, value: f32) {
            // Floats of equal sign order like integers, negative ones in reverse; any negative is above any positive as unsigned.
            // SAFETY: the caller's promise.
            unsafe {
                if value.is_sign_positive() {
                    red_max_i32(pointer.cast(), value.to_bits() as i32);
                } else {
                    red_min_u32(pointer.cast(), value.to_bits());
                }
            }
        }

        /// Keeps the smaller of two values that are not NaN. See [`min_u32`] for the contract.
        ///
        /// # Safety
        /// `pointer` is valid and aligned; other threads access it atomically only.
        #[inline(always)]
        pub unsafe fn red_min_f32(pointer: *mut f32, value: f32) {
            // SAFETY: the caller's promise.
            unsafe {
                if value.is_sign_positive() {
                    red_min_i32(pointer.cast(), value.to_bits() as i32);
                } else {
                    red_max_u32(pointer.cast(), value.to_bits());
                }
            }
        }
    };
}

scope!("gpu");

/// Adds to a value that is in global memory, without asking which space the pointer is of, as [`red_add_f32`] does.
///
/// PTX `red.relaxed.gpu.global.add.f32`, sm_60.
///
/// # Safety
/// `pointer` is valid and aligned; other threads access it atomically only.
#[inline(always)]
pub unsafe fn red_add_f32_global(pointer: *mut f32, value: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .b64 g;", "cvta.to.global.u64 g, {};", "red.relaxed.gpu.global.add.f32 [g], {};", "}}",
            in(reg64) pointer, in(reg32) value,
            options(nostack),
        );
    }
}

/// Adds four values to four that lie together in global memory, each atomically by itself.
///
/// PTX `red.relaxed.gpu.global.add.v4.f32`, sm_90.
///
/// # Safety
/// `pointer` is valid and aligned to 16 bytes; other threads access what is there atomically only.
#[inline(always)]
pub unsafe fn red_add_f32x4(pointer: *mut f32, [a, b, c, d]: [f32; 4]) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .b64 g;", "cvta.to.global.u64 g, {};",
            "red.relaxed.gpu.global.add.v4.f32 [g], {{{}, {}, {}, {}}};", "}}",
            in(reg64) pointer, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
            options(nostack),
        );
    }
}

/// Atomic among the threads of the block.
pub mod block {
    scope!("cta");
}

/// Atomic among all devices and the host.
pub mod system {
    scope!("sys");
}
