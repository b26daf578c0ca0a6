//! Global-memory races: a shadow of the last writer and reader of every granule, shared by all host threads.
//!
//! Within a block the warps' clocks decide. Between blocks only fences and atomics order accesses: a block that
//! fences after its access has published it; a block that reads an atomic or acquires has seen all that was
//! published before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Accesses since the last kernel boundary.
pub struct GlobalShadow {
    pub shift: u32,
    /// By allocation: write and read words, interleaved.
    allocs: Vec<Box<[AtomicU64]>>,
    /// Counts publications of the whole grid.
    pub time: AtomicU64,
}

/// block 20 bits, warp 5, lane 5, time 16, pc 18.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GStamp(pub u64);

impl GStamp {
    #[inline(always)]
    pub fn new(block: u64, warp: usize, lane: u32, time: u32, pc: u32) -> Self {
        GStamp(
            ((block + 1) & 0xf_ffff) << 44
                | (warp as u64 & 31) << 39
                | u64::from(lane & 31) << 34
                | u64::from(time & 0xffff) << 18
                | u64::from(pc & 0x3_ffff),
        )
    }
    pub fn block(self) -> u64 {
        (self.0 >> 44).wrapping_sub(1) & 0xf_ffff
    }
    pub fn warp(self) -> usize {
        (self.0 >> 39 & 31) as usize
    }
    pub fn lane(self) -> u32 {
        (self.0 >> 34 & 31) as u32
    }
    pub fn time(self) -> u32 {
        (self.0 >> 18 & 0xffff) as u32
    }
    pub fn pc(self) -> u32 {
        (self.0 & 0x3_ffff) as u32
    }
}

impl GlobalShadow {
    pub fn new(sizes: &[u64], grain: u32) -> Self {
        let shift = grain.trailing_zeros();
        let allocs = sizes.iter().map(|s| (0..((s >> shift) + 1) * 2).map(|_| AtomicU64::new(0)).collect()).collect();
        GlobalShadow { shift, allocs, time: AtomicU64::new(1) }
    }

    /// Records an access; returns the earlier writer and (for a write) reader.
    #[inline(always)]
    pub fn touch(&self, alloc: usize, granule: usize, me: GStamp, write: bool) -> (GStamp, GStamp) {
        let Some(cells) = self.allocs.get(alloc) else { return (GStamp(0), GStamp(0)) };
        let (Some(w), Some(r)) = (cells.get(granule * 2), cells.get(granule * 2 + 1)) else {
            return (GStamp(0), GStamp(0));
        };
        let old = GStamp(w.load(Relaxed));
        if write {
            let reader = GStamp(r.load(Relaxed));
            w.store(me.0, Relaxed);
            (old, reader)
        } else {
            r.store(me.0, Relaxed);
            (old, GStamp(0))
        }
    }
}
