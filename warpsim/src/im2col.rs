//! Tensor maps of the im2col kind, which copy the pixels of a convolution's input one after another.
//!
//! An H200 refuses the following with an illegal-instruction error, and so does the simulator:
//!
//! | | loads, prefetches | stores, reductions |
//! | --- | --- | --- |
//! | a map of the other kind, or of another number of dimensions | refused | refused |
//! | a start outside the box (the batch coordinate may be anything) | refused | refused |
//! | a first channel that is not at a multiple of 16 bytes | refused | refused |
//! | a box that extends beyond the tensor (a corner of padding) | accepted | refused |
//! | a start that is not a multiple of the steps | accepted | accepted |
//!
//! The rules for loads and prefetches were observed on hardware, and so was the rule for stores with boxes that extend beyond the
//! tensor. The other rules for stores are assumed to equal those for loads, and so are all rules for reductions.
//!
//! Offsets have 16, 8 or 5 bits with one, two or three spatial dimensions. Hardware takes only the low bits of a larger offset,
//! and so copies the wrong pixels: here that is a fault.

use crate::ir::Way;
use crate::tensor_map::{DataType, Swizzle, TensorMap};

/// The pixels that the filter's first element visits.
///
/// All lists are of the spatial dimensions, innermost first: width, height, depth, which lie between the channels and the batch.
/// A copy takes pixels from its start along the width, then along the height and so on, inside a box, and continues in the next
/// image. Every pixel is read at a displacement given by the copy's offsets, which select a position in the filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Im2col {
    /// First pixel of the box, relative to the tensor's first: minus the padding.
    pub lower: Vec<i32>,
    /// Last pixel of the box, relative to the tensor's last: the padding minus the filter's size, plus one.
    pub upper: Vec<i32>,
    /// Strides of the convolution; all 1 if empty.
    pub steps: Vec<u32>,
    /// Channels per pixel that a copy takes.
    pub channels: u32,
    /// Number of pixels that a copy takes.
    pub pixels: u32,
}

impl Im2col {
    /// Number of bits of corners, or of offsets, with this many spatial dimensions.
    fn bits(spatial: usize) -> u32 {
        [16, 8, 5][spatial.clamp(1, 3) - 1]
    }

    /// Returns what is wrong with it for a tensor of these sizes.
    fn check(&self, dims: &[u64]) -> Result<(), String> {
        let spatial = dims.len().saturating_sub(2);
        if !(1..=3).contains(&spatial) {
            return Err(format!("an im2col map of {} dimensions: 3 to 5 are possible", dims.len()));
        }
        let Im2col { lower, upper, steps, channels, pixels } = self;
        if lower.len() != spatial || upper.len() != spatial || !(steps.is_empty() || steps.len() == spatial) {
            return Err(format!("a tensor of {} dimensions needs corners of {spatial}", dims.len()));
        }
        let half = 1 << (Im2col::bits(spatial) - 1);
        if let Some(c) = lower.iter().chain(upper).find(|c| !(-half..half).contains(*c)) {
            return Err(format!("a corner at {c}: {} to {} are possible", -half, half - 1));
        }
        if let Some(d) = (0..spatial).find(|d| self.last(dims, *d) < i64::from(lower[*d])) {
            return Err(format!("a box from {} to {} in dimension {}", lower[d], self.last(dims, d), d + 1));
        }
        if let Some(s) = steps.iter().find(|s| !(1..=8).contains(*s)) {
            return Err(format!("steps of {s}: 1 to 8 are possible"));
        }
        if !(1..=256).contains(channels) || !(1..=1024).contains(pixels) {
            return Err(format!("{pixels} pixels of {channels} channels: up to 1024 of up to 256 are possible"));
        }
        Ok(())
    }

    /// The last coordinate inside the box.
    fn last(&self, dims: &[u64], d: usize) -> i64 {
        dims[d + 1] as i64 - 1 + i64::from(self.upper[d])
    }

    fn step(&self, d: usize) -> i64 {
        self.steps.get(d).map_or(1, |s| i64::from(*s))
    }
}

impl TensorMap {
    /// Describes a tensor of channels, one to three spatial dimensions and a batch, to be copied pixel by pixel.
    pub fn im2col(
        data_type: DataType,
        address: u64,
        dims: &[u64],
        strides: &[u64],
        pixels: Im2col,
        swizzle: Swizzle,
    ) -> Result<Self, String> {
        pixels.check(dims)?;
        let mut tile = vec![1; dims.len()];
        tile[0] = pixels.channels;
        let mut map = TensorMap::tiled(data_type, address, dims, strides, &tile, swizzle)?;
        map.tile[1] = pixels.pixels;
        map.im2col = Some(pixels);
        Ok(map)
    }

    /// Returns what is wrong with a copy of this kind from this start with these offsets.
    pub(crate) fn im2col_wrong(&self, at: &[i64; 5], off: &[i64; 3], way: Way) -> Option<String> {
        let i = self.im2col.as_ref()?;
        let spatial = self.dims.len() - 2;
        let most = (1i64 << Im2col::bits(spatial)) - 1;
        if let Some(o) = off.iter().find(|o| **o > most) {
            let rank = self.dims.len();
            let taken = o & most;
            return Some(format!(
                "an im2col offset of {o}: {most} are possible with {rank} dimensions, and hardware would take {taken}"
            ));
        }
        let outside = |d: &usize| i.lower[*d] < 0 || i.upper[*d] > 0;
        if let Some(d) = (0..spatial).find(outside).filter(|_| way == Way::Store) {
            return Some(format!(
                "an im2col store by a map whose box, from {} to {} in dimension {}, reaches out of the tensor's {} elements",
                i.lower[d],
                i.last(&self.dims, d),
                d + 1,
                self.dims[d + 1]
            ));
        }
        let d = (0..spatial).find(|d| !(i64::from(i.lower[*d])..=i.last(&self.dims, *d)).contains(&at[d + 1]))?;
        Some(format!(
            "an im2col copy that starts at {} in dimension {}, outside of the map's box from {} to {}",
            at[d + 1],
            d + 1,
            i.lower[d],
            i.last(&self.dims, d)
        ))
    }

    /// Calls `f(index, address of its first channel)` for each pixel of a copy that lies inside the tensor.
    pub(crate) fn pixels(&self, i: &Im2col, at: &[i64; 5], off: &[i64; 3], mut f: impl FnMut(usize, i64)) {
        let spatial = self.dims.len() - 2;
        let mut now = *at;
        for p in 0..i.pixels as usize {
            let moved = |d: usize| now[d] + if d <= spatial { off[d - 1] } else { 0 };
            if (1..=spatial + 1).all(|d| (0..self.dims[d] as i64).contains(&moved(d))) {
                let far: i64 = (1..=spatial + 1).map(|d| moved(d) * self.strides[d - 1] as i64).sum();
                f(p, self.address as i64 + far);
            }
            // The next pixel, with a carry into the next outer dimension.
            for d in 0..=spatial {
                now[d + 1] += if d < spatial { i.step(d) } else { 1 };
                if d == spatial || now[d + 1] <= i.last(&self.dims, d) {
                    break;
                }
                now[d + 1] = i64::from(i.lower[d]);
            }
        }
    }
}
