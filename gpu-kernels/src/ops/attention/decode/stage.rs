//! A warp's stages of keys and values in shared memory, and the loads into them.

use cuda_std::shared::SharedPtr;
use cuda_std::{cp_async, warp};

use super::piece::WARPS;
use super::stored::Stored;
use super::{Positions, Rows, TILE};
use crate::ops::attention::fragments;

/// Keys of a warp in a tile: the inner dimension of a product.
pub(super) const KEYS: u32 = TILE / WARPS;

/// Bytes of a stage: keys and values, and the scales of each where there are any.
pub(super) const fn stage_bytes(d: u32, bytes: u32) -> u32 {
    2 * KEYS * (d * bytes + if bytes == 1 { size_of::<f32>() as u32 } else { 0 })
}

/// Keys and values, and the scales that this lane loads: the first half of a warp loads those of keys, the second those
/// of values.
pub(super) struct Tokens<C> {
    pub(super) positions: Positions,
    pub(super) keys: Rows<C>,
    pub(super) values: Rows<C>,
    pub(super) scales: Rows<f32>,
}

impl<C: Stored> Tokens<C> {
    /// Starts copying 16 keys from `position` on, a multiple of 16, and then their values and all their scales, to
    /// `stage`; missing ones become zeros. Returns a bit for each key that exists.
    #[inline(always)]
    pub(super) unsafe fn load<T, const CH: usize>(&self, stage: SharedPtr<T>, position: u32, d: u32, lane: u32) -> u32 {
        let (below, chunk) = (lane % 32 / CH as u32, lane % CH as u32);
        let elements = (16 / size_of::<C>()) as u32;
        // The usual case: locating one token locates all.
        if let Some((page, place)) = self.positions.find_together(position, KEYS) {
            let bytes = if chunk * elements >= d { 0 } else { 16 };
            let at = |rows: &Rows<C>| rows.at(page, place + below).wrapping_add((chunk * elements) as usize);
            copy::<T, C, CH>(stage, at(&self.keys), self.keys.place_stride, [below, chunk], bytes);
            copy::<T, C, CH>(stage, at(&self.values), self.values.place_stride, [KEYS + below, chunk], bytes);
            if C::SCALED {
                let scale = self.scales.at(page, place + lane % KEYS);
                cp_async::copy_4_zero_fill(scales::<T, CH>(stage).add(lane), scale.cast_const(), 4);
            }
            return (1 << KEYS) - 1;
        }
        // Each lane locates one row for all lanes.
        let position = position + lane % KEYS;
        // A cache with scales has no new tokens here.
        let [key, value] = if C::SCALED {
            self.positions.places([&self.keys, &self.values], position).map(|place| place.cast_const())
        } else {
            self.positions.rows([&self.keys, &self.values], position)
        };
        let row = if lane < KEYS { key } else { value } as u64;
        for i in 0..CH as u32 {
            let of = i * (32 / CH as u32) + below;
            let (low, high) = (warp::shuffle_idx(row as u32, of), warp::shuffle_idx((row >> 32) as u32, of));
            let from = (u64::from(low) | u64::from(high) << 32) as *const C;
            let bytes = if from.is_null() || chunk * elements >= d { 0 } else { 16 };
            let to = stage.add(fragments::place::<CH>(of, chunk));
            cp_async::copy_16_zero_fill(to, from.wrapping_add((chunk * elements) as usize), bytes);
        }
        if C::SCALED {
            let [scale] = self.positions.places([&self.scales], position);
            let bytes = if row == 0 { 0 } else { size_of::<f32>() as u32 };
            cp_async::copy_4_zero_fill(scales::<T, CH>(stage).add(lane), scale.cast_const(), bytes);
        }
        warp::ballot(row != 0) & ((1 << KEYS) - 1)
    }
}

/// Starts copying one chunk of every so many-th of 16 rows, `stride` apart, to a stage.
#[inline(always)]
unsafe fn copy<T, C, const CH: usize>(
    stage: SharedPtr<T>,
    mut from: *mut C,
    stride: u64,
    [row, chunk]: [u32; 2],
    bytes: u32,
) {
    let step = 32 / CH as u32;
    let mut done = 0;
    while done < KEYS {
        let to = stage.add(fragments::place::<CH>(row + done, chunk));
        cp_async::copy_16_zero_fill(to, from.cast_const(), bytes);
        from = from.wrapping_add((u64::from(step) * stride) as usize);
        done += step;
    }
}

/// The scales of a stage: those of 16 keys, then of their values.
#[inline(always)]
pub(super) fn scales<T, const CH: usize>(stage: SharedPtr<T>) -> SharedPtr<f32> {
    stage.add(2 * KEYS * CH as u32 * 8).cast()
}
