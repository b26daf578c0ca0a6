//! Sequences that follow each other in one long tensor of tokens, as the losses over log-probabilities take them.
//!
//! # Math
//! Sequence s is tokens offsets\[s\] to offsets\[s + 1\]. A token counts unless its target is the ignored number or no class. In a mean over
//! sequences of means over their tokens, a token of a sequence with n that count weighs 1 / (sequences · n).
//!
//! # Layout
//! `offsets` is an i32 a sequence and one more, from 0 to the number of tokens; `targets` an i32 a token.
//!
//! # Mapping
//! One block for the offsets, one block per sequence for the weights, one thread per token for the loss, which finds
//! its sequence by bisection.
//!
//! # Shared memory
//! One value per warp.
//!
//! # Numerics
//! Integers, and one division. A sequence in which no token counts has weight zero.
//!
//! # Cost
//! One read of the targets, some microseconds.
//!
//! # Limits
//! 2³¹ − 1 tokens and sequences.
//!
//! # Sources
//! None.

use cuda_std::{kernel, thread};

use crate::ops::loss::cross_entropy::targets::FINE;
use crate::rows::{BlockThreads, Threads};

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// The first invalid offset, with its index; [`FINE`] if all rise from 0 to the number of tokens.
///
/// # Safety
/// `offsets` is valid for reads of sequences + 1 elements, `bad` for writes of two.
#[kernel(block = BLOCK, shared = <BlockThreads as Threads>::Partials<1>, no_spills)]
pub unsafe fn check_offsets(offsets: *const i32, bad: *mut u32, sequences: u32, tokens: u32) {
    let mut first = FINE;
    let mut at = thread::thread_idx_x();
    while at <= sequences {
        let least = if at == 0 { 0 } else { *offsets.add(at as usize - 1) };
        let most = if at == 0 { 0 } else { tokens as i32 };
        let offset = *offsets.add(at as usize);
        if offset < least || offset > most || (at == sequences && offset != tokens as i32) {
            first = first.min(at);
        }
        at += BLOCK;
    }
    let [first] = BlockThreads::reduce([first], [FINE], 0, |[a], [b]| [a.min(b)]);
    if thread::thread_idx_x() == 0 {
        *bad = first;
        *bad.add(1) = if first == FINE { 0 } else { *offsets.add(first as usize) as u32 };
    }
}

/// The tokens of a sequence, clamped to the tensor whatever the offsets are.
///
/// # Safety
/// `offsets` is valid for reads of `sequence` + 2 elements.
#[inline(always)]
pub(in crate::ops::loss) unsafe fn bounds(offsets: *const i32, sequence: u32, tokens: u32) -> (u32, u32) {
    let start = (*offsets.add(sequence as usize)).max(0).min(tokens as i32);
    let end = (*offsets.add(sequence as usize + 1)).max(start).min(tokens as i32);
    (start as u32, end as u32)
}

/// The weight of each sequence's tokens in a mean over sequences of means over their tokens.
///
/// # Safety
/// `offsets` is valid for reads of sequences + 1 elements, `targets` of `tokens`, `weights` for a write a block, which there are as many of as
/// sequences.
#[kernel(block = BLOCK, shared = <BlockThreads as Threads>::Partials<1>, no_spills)]
pub unsafe fn weigh_sequences(
    offsets: *const i32,
    targets: *const i32,
    weights: *mut f32,
    tokens: u32,
    classes: u32,
    ignored: i32,
) {
    let sequence = thread::block_idx_x();
    let (start, end) = bounds(offsets, sequence, tokens);
    let (mut count, mut token) = (0u32, start + thread::thread_idx_x());
    while token < end {
        let target = *targets.add(token as usize);
        if target != ignored && target >= 0 && (target as u32) < classes {
            count += 1;
        }
        token += BLOCK;
    }
    let [count] = BlockThreads::reduce([count], [0], 0, |[a], [b]| [a + b]);
    if thread::thread_idx_x() == 0 {
        let of_all = thread::grid_dim_x() as f32;
        *weights.add(sequence as usize) = if count > 0 { 1.0 / (of_all * count as f32) } else { 0.0 };
    }
}

/// The sequence of a token: the one that starts at the last offset up to it. If the offsets are invalid, an arbitrary
/// sequence.
///
/// # Safety
/// `offsets` is valid for reads of sequences + 1 elements, and there is a sequence.
#[inline(always)]
pub(super) unsafe fn sequence_of(offsets: *const i32, sequences: u32, token: u32) -> u32 {
    let (mut low, mut high) = (0, sequences);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if *offsets.add(middle as usize) <= token as i32 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
