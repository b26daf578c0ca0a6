//! Device memory: named allocations in a 64-bit address space that never reuses an address.
//!
//! Simulated threads run on several host threads, so every access is a relaxed atomic one: a racy kernel is a
//! finding, not undefined behaviour of the simulator.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::ir::MemSpace;

/// First byte of the generic window of a space; 0 for global memory.
pub fn window(s: MemSpace) -> u64 {
    match s {
        MemSpace::Shared => 0x7f << 40,
        MemSpace::Local => 0x7e << 40,
        MemSpace::Param => 0x7d << 40,
        MemSpace::Global | MemSpace::Generic => 0,
    }
}

/// The space a generic address falls in.
pub fn space_of(addr: u64) -> MemSpace {
    match addr >> 32 {
        0x7f00 => MemSpace::Shared,
        0x7e00 => MemSpace::Local,
        0x7d00 => MemSpace::Param,
        _ => MemSpace::Global,
    }
}

const FIRST: u64 = 0x10_0000_0000;
const GAP: u64 = 4096;
const ALIGN: u64 = 256;

/// One allocation. A freed one keeps its range and name for messages.
pub struct Alloc {
    pub base: u64,
    pub size: u64,
    pub name: String,
    pub live: bool,
    words: Box<[AtomicU64]>,
    /// One bit a byte: written by the host or a kernel.
    init: Box<[AtomicU64]>,
}

/// Why an address cannot be accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    /// No allocation holds all of these bytes.
    OutOfBounds,
    /// The allocation was freed.
    Freed,
}

macro_rules! typed {
    ($load:ident $store:ident $atomic:ident $int:ty) => {
        /// Reads at a byte offset that the caller has checked and aligned.
        #[inline(always)]
        pub fn $load(&self, off: usize) -> $int {
            self.at::<$atomic>(off).load(Relaxed)
        }
        #[inline(always)]
        pub fn $store(&self, off: usize, v: $int) {
            self.at::<$atomic>(off).store(v, Relaxed)
        }
    };
}

impl Alloc {
    fn new(base: u64, size: u64, name: &str) -> Self {
        let zeros = |n: u64| (0..n).map(|_| AtomicU64::new(0)).collect();
        Alloc {
            base,
            size,
            name: name.to_string(),
            live: true,
            words: zeros(size.div_ceil(8)),
            init: zeros(size.div_ceil(64)),
        }
    }

    /// The atomic of type `T` at `off`. Panics when it would leave the allocation or is not aligned.
    #[inline(always)]
    pub fn at<T>(&self, off: usize) -> &T {
        let n = size_of::<T>();
        assert!(off.is_multiple_of(n) && off + n <= self.words.len() * 8, "unchecked offset");
        // SAFETY: in bounds and aligned (checked above; the buffer is 8-byte aligned), and every access to the
        // buffer is atomic. `T` is one of the atomic integers in all uses.
        unsafe { &*self.words.as_ptr().cast::<u8>().add(off).cast::<T>() }
    }

    typed!(load8 store8 AtomicU8 u8);
    typed!(load16 store16 AtomicU16 u16);
    typed!(load32 store32 AtomicU32 u32);
    typed!(load64 store64 AtomicU64 u64);

    /// Marks bytes as written.
    #[inline(always)]
    pub fn mark(&self, off: usize, n: usize) {
        for (word, bits) in words(off, n) {
            let w = &self.init[word];
            if w.load(Relaxed) & bits != bits {
                w.fetch_or(bits, Relaxed);
            }
        }
    }

    /// Counts bytes, by words of 64, as never written.
    pub fn unmark(&self, off: usize, n: usize) {
        for w in &self.init[off / 64..(off + n) / 64] {
            w.store(0, Relaxed);
        }
    }

    /// True when all of these bytes were written.
    #[inline(always)]
    pub fn marked(&self, off: usize, n: usize) -> bool {
        words(off, n).all(|(word, bits)| self.init[word].load(Relaxed) & bits == bits)
    }

    #[inline(always)]
    pub fn contains(&self, addr: u64, n: u64) -> bool {
        addr >= self.base && addr.wrapping_sub(self.base).saturating_add(n) <= self.size
    }
}

/// A range of bits as words and masks.
#[inline(always)]
fn words(off: usize, n: usize) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (off, off + n);
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let take = (64 - at % 64).min(end - at);
            let bits = if take == 64 { !0 } else { ((1u64 << take) - 1) << (at % 64) };
            let word = at / 64;
            at += take;
            (word, bits)
        })
    })
}

/// All allocations.
#[derive(Default)]
pub struct Memory {
    allocs: Vec<Alloc>,
    next: u64,
}

impl Memory {
    pub fn alloc(&mut self, bytes: u64, name: &str) -> u64 {
        let base = if self.next == 0 { FIRST } else { self.next };
        self.next = (base + bytes.max(1) + GAP).next_multiple_of(ALIGN);
        self.allocs.push(Alloc::new(base, bytes, name));
        base
    }

    pub fn free(&mut self, addr: u64) -> Result<(), AccessError> {
        let k = self.allocs.binary_search_by_key(&addr, |a| a.base).map_err(|_| AccessError::OutOfBounds)?;
        let a = &mut self.allocs[k];
        if !a.live {
            return Err(AccessError::Freed);
        }
        a.live = false;
        a.words = Box::new([]);
        a.init = Box::new([]);
        Ok(())
    }

    /// Gives the allocation that starts at `addr` another name.
    pub fn rename(&mut self, addr: u64, name: &str) -> Result<(), AccessError> {
        let k = self.allocs.binary_search_by_key(&addr, |a| a.base).map_err(|_| AccessError::OutOfBounds)?;
        self.allocs[k].name = name.to_string();
        Ok(())
    }

    /// Counts bytes as never written.
    pub fn forget(&mut self, addr: u64, n: u64) -> Result<(), AccessError> {
        let k = self.find(addr, n)?;
        let a = &mut self.allocs[k];
        let mut at = (addr - a.base) as usize;
        let end = at + n as usize;
        while at < end {
            let take = (64 - at % 64).min(end - at);
            let bits = if take == 64 { !0 } else { ((1u64 << take) - 1) << (at % 64) };
            *a.init[at / 64].get_mut() &= !bits;
            at += take;
        }
        Ok(())
    }

    /// Index of the live allocation that holds `n` bytes at `addr`.
    pub fn find(&self, addr: u64, n: u64) -> Result<usize, AccessError> {
        let k = self.allocs.partition_point(|a| a.base <= addr);
        let Some(k) = k.checked_sub(1) else { return Err(AccessError::OutOfBounds) };
        let a = &self.allocs[k];
        match (a.contains(addr, n), a.live) {
            (true, true) => Ok(k),
            (true, false) => Err(AccessError::Freed),
            _ => Err(AccessError::OutOfBounds),
        }
    }

    #[inline(always)]
    pub fn get(&self, k: usize) -> &Alloc {
        &self.allocs[k]
    }

    pub fn count(&self) -> usize {
        self.allocs.len()
    }

    /// Says where `addr` lies, in words.
    pub fn describe(&self, addr: u64) -> String {
        let k = self.allocs.partition_point(|a| a.base <= addr);
        let Some(a) = k.checked_sub(1).map(|k| &self.allocs[k]) else {
            return match addr {
                0..4096 => "a null pointer".into(),
                _ => "before every allocation".into(),
            };
        };
        let off = addr - a.base;
        let state = if a.live { "" } else { "freed " };
        if off < a.size {
            format!("byte {off} of {state}`{}` ({} bytes)", a.name, a.size)
        } else {
            format!("{} bytes past the end of {state}`{}` ({} bytes)", off - a.size, a.name, a.size)
        }
    }

    pub fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), AccessError> {
        let a = self.get(self.find(addr, out.len() as u64)?);
        let off = (addr - a.base) as usize;
        for (k, b) in out.iter_mut().enumerate() {
            *b = a.load8(off + k);
        }
        Ok(())
    }

    pub fn write(&self, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        let a = self.get(self.find(addr, data.len() as u64)?);
        let off = (addr - a.base) as usize;
        let head = (8 - off % 8) % 8;
        let (first, rest) = data.split_at(head.min(data.len()));
        for (k, b) in first.iter().enumerate() {
            a.store8(off + k, *b);
        }
        let mut at = off + first.len();
        let mut words = rest.chunks_exact(8);
        for w in &mut words {
            a.store64(at, u64::from_le_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]));
            at += 8;
        }
        for (k, b) in words.remainder().iter().enumerate() {
            a.store8(at + k, *b);
        }
        a.mark(off, data.len());
        Ok(())
    }
}
