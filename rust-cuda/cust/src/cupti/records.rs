//! The records in CUPTI's buffers. Two kinds are read, marks and kernels, which a correlation id links.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::CuptiError;
use super::library::{CONCURRENT_KERNEL, Cupti, EXTERNAL_CORRELATION};

/// The kind of marks that are ours: other profilers use the first.
pub(super) const OURS: u32 = 5;

/// The layout of one buffer: some ten thousand launches.
const BUFFER: Layout = match Layout::from_size_align(4 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("8 is a power of two"),
};

/// When a kernel ran, in nanoseconds of [`Tracing::now`](super::Tracing::now), and its grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they say what they are")]
pub struct KernelTime {
    pub start: u64,
    pub end: u64,
    pub grid: [u32; 3],
}

/// A mark: what precedes the record of a launch. The layout of cupti_activity.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Correlation {
    kind: u32,
    external_kind: u32,
    external_id: u64,
    correlation: u32,
    reserved: u32,
}

/// The beginning of a kernel's record, which has been the same since CUDA 9: later versions add to its end.
#[repr(C)]
#[derive(Clone, Copy)]
struct Kernel {
    kind: u32,
    cache_config: [u8; 2],
    registers: u16,
    partitioned_cache: [u32; 2],
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    context: u32,
    stream: u32,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: [u32; 2],
    local_bytes: [u32; 2],
    correlation: u32,
}

const _: () = assert!(size_of::<Correlation>() == 24 && std::mem::offset_of!(Correlation, correlation) == 16);
const _: () = assert!(std::mem::offset_of!(Kernel, start) == 16 && std::mem::offset_of!(Kernel, grid) == 52);
const _: () = assert!(std::mem::offset_of!(Kernel, correlation) == 92);

/// The records that were read and not requested yet.
struct Read {
    /// Correlation ids, with the marks that they are under.
    marks: BTreeMap<u32, u64>,
    kernels: Vec<(u32, KernelTime)>,
}

static READ: Mutex<Read> = Mutex::new(Read { marks: BTreeMap::new(), kernels: Vec::new() });

fn read() -> MutexGuard<'static, Read> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

static CUPTI: OnceLock<Result<Cupti, CuptiError>> = OnceLock::new();

/// The library that the records come from, loaded at the first call and kept for the life of the process.
pub(super) fn source() -> Result<&'static Cupti, &'static CuptiError> {
    let load = || {
        let cupti = Cupti::load()?;
        // SAFETY: both functions are there for as long as the process, and do what the library asks of them.
        unsafe { cupti.cuptiActivityRegisterCallbacks(requested, completed) }?;
        Ok(cupti)
    };
    CUPTI.get_or_init(load).as_ref()
}

/// Kernels under marks from `first` on.
pub(super) fn since(first: u64) -> BTreeMap<u64, Vec<KernelTime>> {
    let read = read();
    let mut found: BTreeMap<u64, Vec<KernelTime>> = BTreeMap::new();
    for (correlation, kernel) in &read.kernels {
        if let Some(mark) = read.marks.get(correlation).filter(|mark| **mark >= first) {
            found.entry(*mark).or_default().push(*kernel);
        }
    }
    found
}

/// Forgets all.
pub(super) fn clear() {
    let mut read = read();
    read.marks.clear();
    read.kernels = Vec::new();
}

/// Gives the library a buffer to fill.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: the layout is not empty; the library's pointers are to its own variables.
    unsafe {
        let fresh = alloc(BUFFER);
        *buffer = fresh;
        *size = if fresh.is_null() { 0 } else { BUFFER.size() };
        // No limit on the number of records.
        *records = 0;
    }
}

/// Reads a buffer that the library has filled, and frees it.
unsafe extern "C" fn completed(_: *mut (), _: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Some(Ok(cupti)) = CUPTI.get() {
        let mut record = null();
        let mut read = read();
        // SAFETY: the buffer is one of ours, of which the library has filled as much as it says.
        while valid > 0 && unsafe { cupti.cuptiActivityGetNextRecord(buffer, valid, &mut record) }.is_ok() {
            // SAFETY: a record is aligned to 8 bytes, begins with its kind, and is as long as its kind's structure.
            unsafe { read.take(record) };
        }
    }
    // SAFETY: `requested` made it, and the library is done with it.
    unsafe { dealloc(buffer, BUFFER) };
}

impl Read {
    /// # Safety
    /// The record is one of the library's, alive and whole.
    unsafe fn take(&mut self, record: *const u8) {
        // SAFETY: passed on; kinds are what the structures are told apart by.
        unsafe {
            match *record.cast::<u32>() {
                EXTERNAL_CORRELATION => {
                    let mark = *record.cast::<Correlation>();
                    if mark.external_kind == OURS {
                        self.marks.insert(mark.correlation, mark.external_id);
                    }
                }
                CONCURRENT_KERNEL => {
                    let Kernel { start, end, grid, correlation, .. } = *record.cast::<Kernel>();
                    // A record has no end time if the kernel had not ended yet, or if the library missed it.
                    if end != 0 {
                        self.kernels.push((correlation, KernelTime { start, end, grid }));
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_without_times_are_none() {
        let mut read = Read { marks: BTreeMap::new(), kernels: Vec::new() };
        for (correlation, end) in [(1, 0), (2, 70)] {
            let record = Kernel {
                kind: CONCURRENT_KERNEL,
                cache_config: [0; 2],
                registers: 32,
                partitioned_cache: [0; 2],
                start: end / 2,
                end,
                completed: end,
                device: 0,
                context: 1,
                stream: 7,
                grid: [3, 2, 1],
                block: [256, 1, 1],
                shared_bytes: [0; 2],
                local_bytes: [0; 2],
                correlation,
            };
            // SAFETY: a whole record of its kind.
            unsafe { read.take((&raw const record).cast()) };
        }
        assert_eq!(read.kernels, [(2, KernelTime { start: 35, end: 70, grid: [3, 2, 1] })]);
    }
}
