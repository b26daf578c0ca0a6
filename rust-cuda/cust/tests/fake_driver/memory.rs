//! Memory: allocations, pools, copies, fills.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::state::*;
use crate::stream::enqueue;

/// Live allocations: address to bytes. The memory itself is never given back.
static MEMORY: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
static THRESHOLD: AtomicU64 = AtomicU64::new(0);
/// The most bytes there were.
static HIGH: AtomicU64 = AtomicU64::new(0);

/// Whether a range is inside one live allocation; if not, the context faults.
pub fn access(address: u64, bytes: usize) -> u32 {
    let memory = MEMORY.lock().unwrap();
    let inside =
        memory.range(..=address).next_back().is_some_and(|(start, size)| address + bytes as u64 <= start + size);
    if !inside {
        FAULT.store(ILLEGAL_ADDRESS, SeqCst);
        return ILLEGAL_ADDRESS;
    }
    state()
}

fn used() -> u64 {
    MEMORY.lock().unwrap().values().sum()
}

pub fn total() -> u64 {
    config("FAKE_MEMORY", 1 << 30)
}

/// Live allocations.
#[unsafe(no_mangle)]
extern "C" fn fake_allocations() -> usize {
    MEMORY.lock().unwrap().len()
}

fn upload(dst: u64, src: usize, bytes: usize) -> u32 {
    let code = access(dst, bytes);
    if code == 0 {
        unsafe { (dst as *mut u8).copy_from_nonoverlapping(src as *const u8, bytes) };
    }
    code
}

fn download(dst: usize, src: u64, bytes: usize) -> u32 {
    let code = access(src, bytes);
    if code == 0 {
        unsafe { (dst as *mut u8).copy_from_nonoverlapping(src as *const u8, bytes) };
    }
    code
}

fn copy(dst: u64, src: u64, bytes: usize) -> u32 {
    let code = access(src, bytes).max(access(dst, bytes));
    if code == 0 {
        unsafe { (dst as *mut u8).copy_from(src as *const u8, bytes) };
    }
    code
}

fn fill<T: Copy>(dst: u64, value: T, count: usize) -> u32 {
    let code = access(dst, size_of::<T>() * count);
    if code == 0 {
        unsafe { std::slice::from_raw_parts_mut(dst as *mut T, count) }.fill(value);
    }
    code
}

api! {
    fn cuMemGetInfo_v2(free: *mut usize, all: *mut usize) {
        *free = (total() - used()) as usize;
        *all = total() as usize;
        state()
    }
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        let code = state();
        if code != 0 { return code; }
        if bytes == 0 { return INVALID_VALUE; }
        if bytes as u64 > total() - used() { return OUT_OF_MEMORY; }
        // Room to align the address as a real driver does.
        let words = Vec::<u64>::with_capacity(bytes.div_ceil(8) + 32).leak();
        *address = (words.as_ptr() as u64).next_multiple_of(256);
        MEMORY.lock().unwrap().insert(*address, bytes as u64);
        HIGH.fetch_max(used(), SeqCst);
        0
    }
    fn cuMemFree_v2(address: u64) {
        let code = state();
        if code != 0 { return code; }
        if MEMORY.lock().unwrap().remove(&address).is_some() { 0 } else { INVALID_VALUE }
    }
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) {
        let code = state_with(&[stream]);
        if code != 0 { return code; }
        let code = cuMemAlloc_v2(address, bytes);
        if code == 0 { log(format!("alloc {:#x} on {}", *address, name(stream))); }
        code
    }
    fn cuMemFreeAsync(address: u64, stream: Handle) {
        log(format!("free {address:#x} on {}", name(stream)));
        cuMemFree_v2(address)
    }
    fn cuMemHostAlloc(out: *mut Handle, bytes: usize, _flags: u32) {
        if config("FAKE_PINNED", 1) == 0 { return OUT_OF_MEMORY; }
        log(format!("pin {bytes}"));
        *out = Vec::<u64>::with_capacity(bytes.div_ceil(8)).leak().as_mut_ptr().cast();
        state()
    }
    fn cuMemFreeHost(_memory: Handle) {
        log("unpin");
        state()
    }

    fn cuDeviceGetDefaultMemPool(pool: *mut Handle, _device: i32) {
        *pool = 0x900 as Handle;
        0
    }
    fn cuMemPoolCreate(pool: *mut Handle, properties: *const u32) {
        // Pinned memory of a device.
        if [*properties, *properties.add(2)] != [1, 1] { return INVALID_VALUE; }
        *pool = handle("pool");
        0
    }
    fn cuMemPoolDestroy(pool: Handle) { forget(pool) }
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: Handle, stream: Handle) {
        let code = state_with(&[pool, stream]);
        if code == 0 { cuMemAllocAsync(address, bytes, stream) } else { code }
    }
    fn cuMemPoolSetAttribute(_pool: Handle, attribute: i32, value: *mut u64) {
        match (attribute, *value) {
            (4, bytes) => THRESHOLD.store(bytes, SeqCst),
            (8, 0) => HIGH.store(used(), SeqCst),
            _ => return INVALID_VALUE,
        }
        state()
    }
    fn cuMemPoolGetAttribute(_pool: Handle, attribute: i32, value: *mut u64) {
        *value = match attribute {
            4 => THRESHOLD.load(SeqCst),
            5 | 7 => used(),
            8 => HIGH.load(SeqCst),
            _ => return INVALID_VALUE,
        };
        state()
    }
    fn cuMemPoolTrimTo(_pool: Handle, _keep: usize) {
        log("trim");
        state()
    }

    fn cuMemcpyHtoD_v2(dst: u64, src: usize, bytes: usize) { upload(dst, src, bytes) }
    fn cuMemcpyDtoH_v2(dst: usize, src: u64, bytes: usize) { download(dst, src, bytes) }
    fn cuMemcpyDtoD_v2(dst: u64, src: u64, bytes: usize) { copy(dst, src, bytes) }
    fn cuMemcpyHtoDAsync_v2(dst: u64, src: usize, bytes: usize, stream: Handle) {
        enqueue(stream, move || upload(dst, src, bytes))
    }
    fn cuMemcpyDtoHAsync_v2(dst: usize, src: u64, bytes: usize, stream: Handle) {
        enqueue(stream, move || download(dst, src, bytes))
    }
    fn cuMemcpyDtoDAsync_v2(dst: u64, src: u64, bytes: usize, stream: Handle) {
        enqueue(stream, move || copy(dst, src, bytes))
    }
    fn cuMemsetD8_v2(dst: u64, value: u8, count: usize) { fill(dst, value, count) }
    fn cuMemsetD16_v2(dst: u64, value: u16, count: usize) { fill(dst, value, count) }
    fn cuMemsetD32_v2(dst: u64, value: u32, count: usize) { fill(dst, value, count) }
    fn cuMemsetD8Async(dst: u64, value: u8, count: usize, stream: Handle) {
        enqueue(stream, move || fill(dst, value, count))
    }
    fn cuMemsetD16Async(dst: u64, value: u16, count: usize, stream: Handle) {
        enqueue(stream, move || fill(dst, value, count))
    }
    fn cuMemsetD32Async(dst: u64, value: u32, count: usize, stream: Handle) {
        enqueue(stream, move || fill(dst, value, count))
    }
}
