//! Exchange, votes and reductions among some lanes of a warp: the functions of [`warp`](super) with a mask in front, one bit a lane.
//!
//! They are for branches that only a part of the warp takes. Which part is asked before the branch, while all lanes are there:
//!
//! ```ignore
//! let takes = warp::ballot(x < limit);
//! if x < limit {
//!     let sum = warp::masked::redux_add_u32(takes, x);
//! }
//! ```
//!
//! [`active_mask`](super::active_mask) inside the branch is no such question: a warp may have come apart further.
//!
//! # Safety
//! Exactly the lanes of `mask` execute the call, each with that mask, which has this lane in it: they wait for each other, and other lanes may be
//! anywhere. A lane that is not among them has no value to give: what is read from it is undefined.

use super::{Lane, SIZE, lane_id};

macro_rules! shuffle {
    ($($name:ident, $wide:ident, $instruction:literal, $operand:ident, $clamp:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`.\n\n# Safety\nAs the [module](self) has it.")]
        #[inline(always)]
        pub unsafe fn $name<T: Lane>(mask: u32, value: T, $operand: u32) -> T {
            let result: u32;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!($instruction, " {}, {}, {}, ", $clamp, ", {};"),
                    out(reg32) result, in(reg32) value.to_bits(), in(reg32) $operand, in(reg32) mask,
                    options(nomem, nostack),
                );
            }
            T::from_bits(result)
        }

        #[doc = concat!("[`", stringify!($name), "`] of 64 bits, by two shuffles. A `f64` goes by its bits.")]
        #[doc = "\n\n# Safety\nAs the [module](self) has it."]
        #[inline(always)]
        pub unsafe fn $wide(mask: u32, value: u64, $operand: u32) -> u64 {
            // SAFETY: the caller's promise.
            let [low, high] = unsafe { [$name(mask, value as u32, $operand), $name(mask, (value >> 32) as u32, $operand)] };
            u64::from(low) | u64::from(high) << 32
        }
    )* };
}

shuffle! {
    shuffle_xor, shuffle_xor_u64, "shfl.sync.bfly.b32", flipped, "0x1f", "The value of lane `lane_id() ^ flipped`.";
    shuffle_idx, shuffle_idx_u64, "shfl.sync.idx.b32", lane, "0x1f", "The value of lane `lane % 32`.";
    shuffle_up, shuffle_up_u64, "shfl.sync.up.b32", delta, "0x0", "The value of lane `lane_id() - delta`, or the lane's own below lane 0.";
    shuffle_down, shuffle_down_u64, "shfl.sync.down.b32", delta, "0x1f", "The value of lane `lane_id() + delta`, or the lane's own above lane 31.";
}

macro_rules! vote {
    ($($name:ident, $instruction:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[doc = concat!("\n\nPTX `", $instruction, "`.\n\n# Safety\nAs the [module](self) has it.")]
        #[inline(always)]
        pub unsafe fn $name(mask: u32, predicate: bool) -> bool {
            let result: u32;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    "{{", ".reg .pred p, q;",
                    "setp.ne.u32 p, {predicate}, 0;",
                    concat!($instruction, " q, p, {mask};"),
                    "selp.u32 {result}, 1, 0, q;", "}}",
                    result = out(reg32) result, predicate = in(reg32) u32::from(predicate), mask = in(reg32) mask,
                    options(nomem, nostack),
                );
            }
            result != 0
        }
    )* };
}

vote! {
    all, "vote.sync.all.pred", "Whether `predicate` holds in every lane of `mask`.";
    any, "vote.sync.any.pred", "Whether `predicate` holds in some lane of `mask`.";
}

/// One bit a lane of `mask`: where `predicate` holds. PTX `vote.sync.ballot.b32`.
///
/// # Safety
/// As the [module](self) has it.
#[inline(always)]
pub unsafe fn ballot(mask: u32, predicate: bool) -> u32 {
    let result: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .pred p;",
            "setp.ne.u32 p, {predicate}, 0;",
            "vote.sync.ballot.b32 {result}, p, {mask};", "}}",
            result = out(reg32) result, predicate = in(reg32) u32::from(predicate), mask = in(reg32) mask,
            options(nomem, nostack),
        );
    }
    result
}

/// The lanes of `mask` that hold the same value as this one. PTX `match.any.sync.b32`, sm_70.
///
/// # Safety
/// As the [module](self) has it.
#[inline(always)]
pub unsafe fn match_any<T: Lane>(mask: u32, value: T) -> u32 {
    let result: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "match.any.sync.b32 {}, {}, {};",
            out(reg32) result, in(reg32) value.to_bits(), in(reg32) mask,
            options(nomem, nostack),
        );
    }
    result
}

/// Whether all lanes of `mask` hold the same value. PTX `match.all.sync.b32`, sm_70.
///
/// # Safety
/// As the [module](self) has it.
#[inline(always)]
pub unsafe fn match_all<T: Lane>(mask: u32, value: T) -> bool {
    let result: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .pred p;", ".reg .b32 same;",
            "match.all.sync.b32 same|p, {}, {};",
            "selp.u32 {}, 1, 0, p;", "}}",
            in(reg32) value.to_bits(), in(reg32) mask, out(reg32) result,
            options(nomem, nostack),
        );
    }
    result != 0
}

macro_rules! redux {
    ($($name:ident: $ty:ty, $instruction:literal, $doc:literal;)*) => { $(
        #[doc = concat!($doc, " the lanes of `mask`, in every one of them.")]
        #[doc = concat!("\n\nPTX `", $instruction, "`, sm_80.\n\n# Safety\nAs the [module](self) has it.")]
        #[inline(always)]
        pub unsafe fn $name(mask: u32, value: $ty) -> $ty {
            let result: $ty;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    concat!($instruction, " {}, {}, {};"),
                    out(reg32) result, in(reg32) value, in(reg32) mask,
                    options(nomem, nostack),
                );
            }
            result
        }
    )* };
}

redux! {
    redux_add_u32: u32, "redux.sync.add.u32", "The wrapping sum over";
    redux_min_u32: u32, "redux.sync.min.u32", "The least value in";
    redux_max_u32: u32, "redux.sync.max.u32", "The greatest value in";
    redux_add_i32: i32, "redux.sync.add.s32", "The wrapping sum over";
    redux_min_i32: i32, "redux.sync.min.s32", "The least value in";
    redux_max_i32: i32, "redux.sync.max.s32", "The greatest value in";
    redux_and: u32, "redux.sync.and.b32", "The bitwise and over";
    redux_or: u32, "redux.sync.or.b32", "The bitwise or over";
    redux_xor: u32, "redux.sync.xor.b32", "The bitwise exclusive or over";
}

/// How many lanes of `mask` come before this one: its place among them.
#[inline(always)]
pub fn rank(mask: u32) -> u32 {
    (mask & ((1 << lane_id()) - 1)).count_ones()
}

/// Combines the values of the lanes of `mask` up to and with this one, in their order; `combine` is to be associative.
///
/// Two shuffles each time that the number of lanes doubles: ten for 32, two for 2.
///
/// # Safety
/// As the [module](self) has it.
#[inline(always)]
pub unsafe fn inclusive_scan<T: Lane>(mask: u32, value: T, combine: impl Fn(T, T) -> T) -> T {
    let lane = lane_id();
    let before = mask & ((1 << lane) - 1);
    // The lane that ends what `value` does not yet hold; none where it holds all.
    let mut source = if before == 0 { SIZE } else { before.ilog2() };
    let (mut value, mut held, count) = (value, 1, mask.count_ones());
    while held < count {
        let from = if source == SIZE { lane } else { source };
        // SAFETY: the caller's promise; `count` is the same in all lanes of the mask, and `from` one of them.
        let (other, next) = unsafe { (shuffle_idx(mask, value, from), shuffle_idx(mask, source, from)) };
        if source != SIZE {
            value = combine(other, value);
        }
        source = next;
        held *= 2;
    }
    value
}

/// Combines the values of the lanes of `mask`, in their order; every one of them gets the result. `combine` is to be associative.
///
/// A shuffle more than [`inclusive_scan`]. Sums and extremes of integers are one instruction: [`redux_add_u32`] and those beside it.
///
/// # Safety
/// As the [module](self) has it.
#[inline(always)]
pub unsafe fn reduce<T: Lane>(mask: u32, value: T, combine: impl Fn(T, T) -> T) -> T {
    // SAFETY: the caller's promise; the last lane of the mask is one of them.
    unsafe { shuffle_idx(mask, inclusive_scan(mask, value, combine), 31 - mask.leading_zeros()) }
}
