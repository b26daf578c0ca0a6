//! Device memory: named allocations in a 64-bit address space that never reuses an address.
//!
//! Simulated threads run on several host threads, so every access is a relaxed atomic access: a race in a kernel is a finding, not undefined
//! behaviour of the simulator.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::heap::Heap;
use crate::ir::MemSpace;
use crate::zeroed::{OutOfMemory, zeroed};

/// First address of a space's window in the generic address space; 0 for global memory.
pub fn window(s: MemSpace) -> u64 {
    match s {
        MemSpace::Shared => 0x7f << 40,
        MemSpace::Local => 0x7e << 40,
        MemSpace::Param => 0x7d << 40,
        MemSpace::Global | MemSpace::Generic => 0,
    }
}

/// The space that a generic address belongs to.
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
/// Bytes to copy at a time.
const PIECE: usize = 1 << 16;
/// Number of freed allocations that messages can still name.
const REMEMBERED: usize = 4096;

/// One allocation. A freed allocation keeps its range and name for messages.
pub struct Alloc {
    pub base: u64,
    pub size: u64,
    pub name: String,
    pub live: bool,
    /// Whether it is the device's heap, in which only chunks may be accessed.
    pub heap: bool,
    /// Whether it is a `.const` variable, which kernels cannot write.
    pub constant: bool,
    words: Box<[AtomicU64]>,
    /// One bit per byte: whether the host or a kernel has written it.
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
        /// Reads at a byte offset, whose bounds and alignment the caller has checked.
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
    fn new(base: u64, size: u64, name: &str) -> Result<Self, OutOfMemory> {
        let (words, init) = (zeroed(size.div_ceil(8))?, zeroed(size.div_ceil(64))?);
        Ok(Alloc { base, size, name: name.to_string(), live: true, heap: false, constant: false, words, init })
    }

    /// The atomic of type `T` at `off`. Panics if it is misaligned or extends past the allocation.
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

    /// The word at `off`.
    ///
    /// # Safety
    ///
    /// `off` is a multiple of four below the allocation's size.
    #[inline(always)]
    pub unsafe fn word(&self, off: usize) -> &AtomicU32 {
        // SAFETY: guaranteed by the caller; every access to the buffer is atomic.
        unsafe { &*self.words.as_ptr().cast::<u8>().add(off).cast::<AtomicU32>() }
    }

    /// Whether the `n` bytes at the address of each lane of `m` lie in this allocation.
    #[inline(always)]
    pub fn holds(&self, addr: &[u64; 32], m: u32, n: u64) -> bool {
        let Some(last) = self.size.checked_sub(n) else { return false };
        // An address before the allocation or past its end gives a number with the top bit set: sizes are far below 2⁶³.
        let outside = |addr: u64| {
            let off = addr.wrapping_sub(self.base);
            off | last.wrapping_sub(off)
        };
        let bits = if m == !0 {
            addr.iter().fold(0, |bits, addr| bits | outside(*addr))
        } else {
            (0..32).filter(|l| m >> l & 1 == 1).fold(0, |bits, l| bits | outside(addr[l]))
        };
        bits >> 63 == 0
    }

    /// Marks bytes as written.
    #[inline(always)]
    pub fn mark(&self, off: usize, n: usize) {
        all_words(off, n, |word, bits| {
            let w = &self.init[word];
            if w.load(Relaxed) & bits != bits {
                w.fetch_or(bits, Relaxed);
            }
            true
        });
    }

    /// Marks bytes as never written.
    pub fn unmark(&self, off: usize, n: usize) {
        all_words(off, n, |word, bits| {
            self.init[word].fetch_and(!bits, Relaxed);
            true
        });
    }

    /// Whether all of these bytes were written.
    #[inline(always)]
    pub fn marked(&self, off: usize, n: usize) -> bool {
        all_words(off, n, |word, bits| self.init[word].load(Relaxed) & bits == bits)
    }

    #[inline(always)]
    pub fn contains(&self, addr: u64, n: u64) -> bool {
        addr >= self.base && addr.wrapping_sub(self.base).saturating_add(n) <= self.size
    }
}

/// Whether `f` holds for every word of a range of bits. `f` gets the word's index and the mask of its bits in the range, and is not called
/// again after it has returned false.
#[inline(always)]
pub(crate) fn all_words(off: usize, n: usize, mut f: impl FnMut(usize, u64) -> bool) -> bool {
    // The common case: all bits are in one word.
    if (1..64).contains(&n) && off % 64 + n <= 64 {
        return f(off / 64, ((1 << n) - 1) << (off % 64));
    }
    let (mut at, end) = (off, off + n);
    while at < end {
        let take = (64 - at % 64).min(end - at);
        let bits = if take == 64 { !0 } else { ((1u64 << take) - 1) << (at % 64) };
        if !f(at / 64, bits) {
            return false;
        }
        at += take;
    }
    true
}

/// All allocations.
#[derive(Default)]
pub struct Memory {
    allocs: Vec<Alloc>,
    freed: usize,
    next: u64,
    heap: Option<Heap>,
}

impl Memory {
    pub fn alloc(&mut self, bytes: u64, name: &str) -> Result<u64, OutOfMemory> {
        let base = if self.next == 0 { FIRST } else { self.next };
        // The end of the global address range.
        let end = window(MemSpace::Param) - GAP - ALIGN;
        if bytes >= end - base {
            return Err(OutOfMemory { bytes });
        }
        self.allocs.push(Alloc::new(base, bytes, name)?);
        self.next = (base + bytes.max(1) + GAP).next_multiple_of(ALIGN);
        Ok(base)
    }

    /// Allocates a `.const` variable.
    pub fn alloc_constant(&mut self, bytes: u64, name: &str) -> Result<u64, OutOfMemory> {
        let base = self.alloc(bytes, name)?;
        self.allocs.iter_mut().filter(|a| a.base == base).for_each(|a| a.constant = true);
        Ok(base)
    }

    /// Creates the heap that threads allocate from, if it does not exist yet.
    pub fn start_heap(&mut self, limit: u64) -> Result<(), OutOfMemory> {
        if self.heap.is_none() {
            let base = self.alloc(Heap::room(limit), "the heap")?;
            self.allocs.iter_mut().filter(|a| a.base == base).for_each(|a| a.heap = true);
            self.heap = Some(Heap::new(base, limit));
        }
        Ok(())
    }

    pub fn heap(&self) -> Option<&Heap> {
        self.heap.as_ref()
    }

    /// Index of the allocation that holds the heap.
    pub fn heap_index(&self) -> Option<usize> {
        let base = self.heap.as_ref()?.base;
        self.allocs.binary_search_by_key(&base, |a| a.base).ok()
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
        self.freed += 1;
        if self.freed == 2 * REMEMBERED {
            self.forget_freed();
        }
        Ok(())
    }

    /// Forgets freed allocations, except for those that were allocated last.
    fn forget_freed(&mut self) {
        let mut excess = self.freed - REMEMBERED;
        self.allocs.retain(|a| {
            let forgotten = !a.live && excess > 0;
            excess -= usize::from(forgotten);
            !forgotten
        });
        self.freed = REMEMBERED;
    }

    /// Renames the allocation that starts at `addr`.
    pub fn rename(&mut self, addr: u64, name: &str) -> Result<(), AccessError> {
        let k = self.allocs.binary_search_by_key(&addr, |a| a.base).map_err(|_| AccessError::OutOfBounds)?;
        self.allocs[k].name = name.to_string();
        Ok(())
    }

    /// Marks bytes as never written.
    pub fn forget(&mut self, addr: u64, n: u64) -> Result<(), AccessError> {
        let k = self.find(addr, n)?;
        let a = &mut self.allocs[k];
        all_words((addr - a.base) as usize, n as usize, |word, bits| {
            *a.init[word].get_mut() &= !bits;
            true
        });
        Ok(())
    }

    /// Index of the live allocation that holds `n` bytes at `addr`.
    pub fn find(&self, addr: u64, n: u64) -> Result<usize, AccessError> {
        let k = self.allocs.partition_point(|a| a.base <= addr);
        let Some(k) = k.checked_sub(1) else { return Err(AccessError::OutOfBounds) };
        let a = &self.allocs[k];
        match (a.contains(addr, n), a.live) {
            (true, true) => match &self.heap {
                Some(heap) if a.heap => heap.find(addr, n).map(|()| k),
                _ => Ok(k),
            },
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

    /// Describes where `addr` lies.
    pub fn describe(&self, addr: u64) -> String {
        if let space @ (MemSpace::Shared | MemSpace::Local | MemSpace::Param) = space_of(addr) {
            let space = match space {
                MemSpace::Shared => "shared memory",
                MemSpace::Local => "local memory",
                _ => "parameters",
            };
            return format!("{addr:#x}, a generic address of {space}, which is not global memory");
        }
        let k = self.allocs.partition_point(|a| a.base <= addr);
        let Some(a) = k.checked_sub(1).map(|k| &self.allocs[k]) else {
            return match addr {
                0..4096 => {
                    let refused = self.heap.as_ref().and_then(Heap::refused);
                    format!("a null pointer{}", refused.unwrap_or_default())
                }
                _ => format!("address {addr:#x}, before every allocation"),
            };
        };
        let off = addr - a.base;
        if let Some(heap) = self.heap.as_ref().filter(|_| a.heap) {
            return heap.describe(addr);
        }
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
        let head = (8 - off % 8) % 8;
        let (first, rest) = out.split_at_mut(head.min(out.len()));
        for (k, b) in first.iter_mut().enumerate() {
            *b = a.load8(off + k);
        }
        let mut at = off + first.len();
        let (words, last) = rest.as_chunks_mut();
        for w in words {
            *w = a.load64(at).to_le_bytes();
            at += 8;
        }
        for (k, b) in last.iter_mut().enumerate() {
            *b = a.load8(at + k);
        }
        Ok(())
    }

    /// Copies between two ranges that do not overlap.
    pub fn copy(&self, dst: u64, src: u64, n: u64) -> Result<(), AccessError> {
        self.find(dst, n).and(self.find(src, n))?;
        let mut piece = [0; PIECE];
        for at in (0..n).step_by(PIECE) {
            let piece = &mut piece[..(n - at).min(PIECE as u64) as usize];
            self.read(src + at, piece)?;
            self.write(dst + at, piece)?;
        }
        Ok(())
    }

    /// Writes `pattern` repeatedly.
    pub fn fill(&self, addr: u64, pattern: &[u8], count: u64) -> Result<(), AccessError> {
        let size = pattern.len() as u64;
        self.find(addr, size.checked_mul(count).ok_or(AccessError::OutOfBounds)?)?;
        let several = (PIECE as u64 / size.max(1)).clamp(1, count.max(1));
        let piece = pattern.repeat(several as usize);
        for at in (0..count).step_by(several as usize) {
            let times = several.min(count - at);
            self.write(addr + at * size, &piece[..(times * size) as usize])?;
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
        let (words, last) = rest.as_chunks();
        for w in words {
            let value = u64::from_le_bytes(*w);
            // Writing zeroes over untouched zeroes would commit host memory.
            if value != 0 || a.load64(at) != 0 {
                a.store64(at, value);
            }
            at += 8;
        }
        for (k, b) in last.iter().enumerate() {
            a.store8(at + k, *b);
        }
        a.mark(off, data.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
