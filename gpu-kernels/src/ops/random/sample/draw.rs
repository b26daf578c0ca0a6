//! Draws from a row until a drawn token is kept.

use cuda_std::float::Element;
use cuda_std::warp;

use super::super::quad;
use super::weight;
use crate::ops::reduce::key;
use crate::ops::reduce::top_k::candidate;

/// A row of logits, and their weighting.
#[derive(Clone, Copy)]
pub(super) struct Logits<T> {
    pub(super) x: *const T,
    pub(super) d: u32,
    pub(super) max: f32,
    pub(super) scale: f32,
}

/// The source of draws from a row: its implementer knows the tokens' weights.
pub(super) trait Weights {
    /// The total weight of the tokens better than `worst`, and their number; for all tokens, which `worst` = 0 means,
    /// only their weight.
    unsafe fn weigh(&mut self, worst: u64) -> (u64, u32);

    /// Among the tokens better than `worst`, which have been weighed before, the token at which the cumulative weight,
    /// in the order of positions, passes `left`. `left` is less than their total weight.
    unsafe fn find(&mut self, left: u64, worst: u64) -> u32;
}

/// The criteria for keeping tokens, and the random words of their row.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) k: u32,
    /// Of the weight, in units of 2⁻³².
    pub(super) share: u64,
    pub(super) seed: u64,
    pub(super) offset: u64,
    pub(super) row: u64,
}

impl<T: Element> Logits<T> {
    #[inline(always)]
    pub(super) fn weight(&self, x: f32) -> u32 {
        weight(x, self.max, self.scale)
    }

    #[inline(always)]
    pub(super) unsafe fn candidate(&self, place: u32) -> u64 {
        candidate(key((*self.x.add(place as usize)).to_f32()), place)
    }

    /// A kept token.
    #[inline(always)]
    pub(super) unsafe fn draw(&self, weights: &mut impl Weights, rule: Rule) -> u32 {
        let Rule { k, share, seed, offset, row } = rule;
        // Tokens better than this are weighed and drawn from.
        let mut worst = 0;
        let mut drawn = None;
        let mut limit = 0;
        let mut number = row;
        loop {
            let (weight, better) = weights.weigh(worst);
            match drawn {
                Some(token) if better < k && weight < limit => return token,
                Some(_) => {}
                None => limit = (((u128::from(weight) * u128::from(share)) >> 32) as u64).max(1),
            }
            let [low, high, ..] = quad(seed, offset, number);
            let word = u64::from(low) | u64::from(high) << 32;
            let token = weights.find(((u128::from(word) * u128::from(weight)) >> 64) as u64, worst);
            let this = self.candidate(token);
            // Each draw is better than the one before, so the loop ends whatever the tokens weigh.
            if (k >= self.d && share >> 32 != 0) || this <= worst {
                return token;
            }
            drawn = Some(token);
            worst = this;
            number += 1 << 32;
        }
    }
}

/// The sum over the warp, of values below 2⁵¹.
#[inline(always)]
pub(super) unsafe fn warp_sum(value: u64) -> u64 {
    let low = warp::redux_add_u32(value as u32 & 0xff_ffff);
    let high = warp::redux_add_u32((value >> 24) as u32);
    (u64::from(high) << 24) + u64::from(low)
}

/// The lane at which the cumulative weight, in the order of lanes, passes `left`, and the remainder there; past the
/// last lane if there is none.
#[inline(always)]
pub(super) unsafe fn pick(weight: u64, left: u64) -> (u32, u64) {
    let lane = warp::lane_id();
    let mut sum = weight;
    let mut delta = 1;
    while delta < warp::SIZE {
        let (low, high) = (warp::shuffle_up(sum as u32, delta), warp::shuffle_up((sum >> 32) as u32, delta));
        if lane >= delta {
            sum += u64::from(low) | u64::from(high) << 32;
        }
        delta *= 2;
    }
    let found = warp::ballot(sum > left).trailing_zeros();
    let from = |value: u64, lane: u32| {
        let (low, high) = (warp::shuffle_idx(value as u32, lane), warp::shuffle_idx((value >> 32) as u32, lane));
        u64::from(low) | u64::from(high) << 32
    };
    let before = if found < warp::SIZE { from(sum - weight, found) } else { from(sum, warp::SIZE - 1) };
    (found, left - before)
}
