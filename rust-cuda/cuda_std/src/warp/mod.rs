//! Exchange, votes and reductions among the 32 lanes of a warp.
//!
//! All functions here expect the whole warp: every lane executes the call, convergently. [`masked`] has those for a part of it.

use half::{bf16, f16};

use crate::{float::Half, pair::Pair};

pub mod masked;

/// Lanes in a warp.
pub const SIZE: u32 = 32;

/// The mask of a whole warp.
pub const FULL_MASK: u32 = u32::MAX;

mod sealed {
    pub trait Sealed {}
}

/// A value of up to 32 bits that lanes can exchange.
pub trait Lane: sealed::Sealed + Copy {
    /// The value's bits.
    fn to_bits(self) -> u32;
    /// The value with these bits.
    fn from_bits(bits: u32) -> Self;
}

macro_rules! lane {
    ($($ty:ty: |$value:ident| $to:expr, |$bits:ident| $from:expr;)*) => { $(
        impl sealed::Sealed for $ty {}
        impl Lane for $ty {
            #[inline(always)]
            fn to_bits(self) -> u32 {
                let $value = self;
                $to
            }
            #[inline(always)]
            fn from_bits($bits: u32) -> Self {
                $from
            }
        }
    )* };
}

lane! {
    u32: |value| value, |bits| bits;
    i32: |value| value as u32, |bits| bits as i32;
    f32: |value| value.to_bits(), |bits| f32::from_bits(bits);
    f16: |value| u32::from(value.to_bits()), |bits| f16::from_bits(bits as u16);
    bf16: |value| u32::from(value.to_bits()), |bits| bf16::from_bits(bits as u16);
}

impl<T: Half> sealed::Sealed for Pair<T> {}
impl<T: Half> Lane for Pair<T> {
    #[inline(always)]
    fn to_bits(self) -> u32 {
        Pair::to_bits(self)
    }
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Pair::from_bits(bits)
    }
}

/// This thread's lane, 0 to 31. PTX `%laneid`.
#[inline(always)]
pub fn lane_id() -> u32 {
    let lane: u32;
    // SAFETY: reads a special register, constant in a thread.
    unsafe {
        ptx!("mov.u32 {}, %laneid;", out(reg32) lane, options(pure, nomem, nostack));
    }
    lane
}

/// The index of this thread's warp in a one-dimensional block.
#[inline(always)]
pub fn warp_id() -> u32 {
    crate::thread::thread_idx_x() / SIZE
}

/// [`warp_id`], in a form the compiler knows to be the same in all lanes: branches on it need no divergence handling.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn warp_id_uniform() -> u32 {
    // SAFETY: the caller's promise.
    unsafe { shuffle_idx(warp_id(), 0) }
}

macro_rules! shuffle {
    ($name:ident, $instruction:literal, $operand:ident, $clamp:literal, $doc:literal) => {
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`.\n\n# Safety\nWarp-wide.")]
        #[inline(always)]
        pub unsafe fn $name<T: Lane>(value: T, $operand: u32) -> T {
            let result: u32;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!($instruction, " {}, {}, {}, ", $clamp, ", 0xffffffff;"),
                    out(reg32) result, in(reg32) value.to_bits(), in(reg32) $operand,
                    options(nomem, nostack),
                );
            }
            T::from_bits(result)
        }
    };
}

shuffle!(shuffle_xor, "shfl.sync.bfly.b32", mask, "0x1f", "The value of lane `lane_id() ^ mask`.");
shuffle!(shuffle_idx, "shfl.sync.idx.b32", lane, "0x1f", "The value of lane `lane % 32`.");
shuffle!(
    shuffle_up,
    "shfl.sync.up.b32",
    delta,
    "0x0",
    "The value of lane `lane_id() - delta`, or the lane's own where there is none."
);
shuffle!(
    shuffle_down,
    "shfl.sync.down.b32",
    delta,
    "0x1f",
    "The value of lane `lane_id() + delta`, or the lane's own where there is none."
);

macro_rules! shuffle_u64 {
    ($($name:ident, $half:ident, $operand:ident;)*) => { $(
        #[doc = concat!("[`", stringify!($half), "`] of 64 bits, by two shuffles. A `f64` goes by its bits.\n\n# Safety\nWarp-wide.")]
        #[inline(always)]
        pub unsafe fn $name(value: u64, $operand: u32) -> u64 {
            // SAFETY: the caller's promise.
            let (low, high) = unsafe { ($half(value as u32, $operand), $half((value >> 32) as u32, $operand)) };
            u64::from(low) | u64::from(high) << 32
        }
    )* };
}

shuffle_u64! {
    shuffle_xor_u64, shuffle_xor, mask;
    shuffle_idx_u64, shuffle_idx, lane;
    shuffle_up_u64, shuffle_up, delta;
    shuffle_down_u64, shuffle_down, delta;
}

macro_rules! vote {
    ($name:ident, $instruction:literal, $doc:literal) => {
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`.\n\n# Safety\nWarp-wide.")]
        #[inline(always)]
        pub unsafe fn $name(predicate: bool) -> bool {
            let result: u32;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    "{{", ".reg .pred p, q;",
                    "setp.ne.u32 p, {predicate}, 0;",
                    concat!($instruction, " q, p, 0xffffffff;"),
                    "selp.u32 {result}, 1, 0, q;", "}}",
                    result = out(reg32) result, predicate = in(reg32) u32::from(predicate),
                    options(nomem, nostack),
                );
            }
            result != 0
        }
    };
}

vote!(all, "vote.sync.all.pred", "Whether `predicate` holds in every lane.");
vote!(any, "vote.sync.any.pred", "Whether `predicate` holds in some lane.");

/// One bit a lane: where `predicate` holds. PTX `vote.sync.ballot.b32`.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn ballot(predicate: bool) -> u32 {
    let result: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .pred p;",
            "setp.ne.u32 p, {predicate}, 0;",
            "vote.sync.ballot.b32 {result}, p, 0xffffffff;", "}}",
            result = out(reg32) result, predicate = in(reg32) u32::from(predicate),
            options(nomem, nostack),
        );
    }
    result
}

/// The lanes that hold the same value as this one. PTX `match.any.sync.b32`, sm_70.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn match_any<T: Lane>(value: T) -> u32 {
    let result: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "match.any.sync.b32 {}, {}, 0xffffffff;",
            out(reg32) result, in(reg32) value.to_bits(),
            options(nomem, nostack),
        );
    }
    result
}

/// Whether all lanes hold the same value. PTX `match.all.sync.b32`, sm_70.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn match_all<T: Lane>(value: T) -> bool {
    let result: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .pred p;", ".reg .b32 mask;",
            "match.all.sync.b32 mask|p, {}, 0xffffffff;",
            "selp.u32 {}, 1, 0, p;", "}}",
            in(reg32) value.to_bits(), out(reg32) result,
            options(nomem, nostack),
        );
    }
    result != 0
}

macro_rules! redux {
    ($($name:ident: $ty:ty, $instruction:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`, sm_80.\n\n# Safety\nWarp-wide.")]
        #[inline(always)]
        pub unsafe fn $name(value: $ty) -> $ty {
            let result: $ty;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!($instruction, " {}, {}, 0xffffffff;"),
                    out(reg32) result, in(reg32) value,
                    options(nomem, nostack),
                );
            }
            result
        }
    )* };
}

redux! {
    redux_add_u32: u32, "redux.sync.add.u32", "The wrapping sum over the warp, in every lane.";
    redux_min_u32: u32, "redux.sync.min.u32", "The least value in the warp, in every lane.";
    redux_max_u32: u32, "redux.sync.max.u32", "The greatest value in the warp, in every lane.";
    redux_add_i32: i32, "redux.sync.add.s32", "The wrapping sum over the warp, in every lane.";
    redux_min_i32: i32, "redux.sync.min.s32", "The least value in the warp, in every lane.";
    redux_max_i32: i32, "redux.sync.max.s32", "The greatest value in the warp, in every lane.";
    redux_and: u32, "redux.sync.and.b32", "The bitwise and over the warp, in every lane.";
    redux_or: u32, "redux.sync.or.b32", "The bitwise or over the warp, in every lane.";
    redux_xor: u32, "redux.sync.xor.b32", "The bitwise exclusive or over the warp, in every lane.";
}

/// The lanes executing this instruction right now; says nothing of the next. PTX `activemask.b32`.
#[inline(always)]
pub fn active_mask() -> u32 {
    let mask: u32;
    // SAFETY: no effect on memory.
    unsafe {
        ptx!("activemask.b32 {};", out(reg32) mask, options(nomem, nostack));
    }
    mask
}

/// Converges the lanes of `mask` and makes their earlier memory accesses visible to each other. PTX `bar.warp.sync`.
///
/// # Safety
/// Exactly the lanes of `mask` execute this.
#[inline(always)]
pub unsafe fn sync(mask: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        ptx!("bar.warp.sync {};", in(reg32) mask, options(nostack));
    }
}

/// True in exactly one lane, always the same one; cheaper than comparing lane ids. PTX `elect.sync`, sm_90.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn elect_one() -> bool {
    let elected: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .pred p;",
            "elect.sync _|p, 0xffffffff;",
            "selp.u32 {}, 1, 0, p;", "}}",
            out(reg32) elected,
            options(nomem, nostack),
        );
    }
    elected != 0
}

/// Combines the values of groups of `WIDTH` neighbouring lanes by a butterfly; every lane gets its group's result.
///
/// `combine` is to be commutative; lanes then agree bit for bit.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn reduce_width<const WIDTH: u32, T: Lane>(value: T, combine: impl Fn(T, T) -> T) -> T {
    const { assert!(WIDTH.is_power_of_two() && WIDTH <= SIZE) };
    let mut value = value;
    let mut mask = WIDTH / 2;
    while mask > 0 {
        // SAFETY: the caller's promise.
        value = combine(value, unsafe { shuffle_xor(value, mask) });
        mask /= 2;
    }
    value
}

/// Combines the values of all lanes; every lane gets the result. See [`reduce_width`].
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn reduce<T: Lane>(value: T, combine: impl Fn(T, T) -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { reduce_width::<SIZE, T>(value, combine) }
}

/// The sum over the warp, in every lane.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn reduce_sum(value: f32) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { reduce(value, |a, b| a + b) }
}

/// The maximum over the warp, in every lane; NaN only if all lanes hold NaN.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn reduce_max(value: f32) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { reduce(value, f32::max) }
}

/// Combines the values of the lanes up to and with this one, in their order; `combine` is to be associative. Five shuffles.
///
/// # Safety
/// Warp-wide.
#[inline(always)]
pub unsafe fn inclusive_scan<T: Lane>(value: T, combine: impl Fn(T, T) -> T) -> T {
    let lane = lane_id();
    let mut value = value;
    let mut delta = 1;
    while delta < SIZE {
        // SAFETY: the caller's promise.
        let before = unsafe { shuffle_up(value, delta) };
        if lane >= delta {
            value = combine(before, value);
        }
        delta *= 2;
    }
    value
}
