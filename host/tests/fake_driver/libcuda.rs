//! A stand-in for `libcuda.so.1`: "device" memory is host memory, work is done when it is queued, and every call that matters is
//! logged. Compiled by the tests, configured by `FAKE_*` variables.

#![crate_type = "cdylib"]
#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NO_DEVICE: u32 = 100;
const INVALID_CONTEXT: u32 = 201;
const INVALID_PTX: u32 = 218;
const UNSUPPORTED_PTX_VERSION: u32 = 222;
const NOT_FOUND: u32 = 500;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_FAILED: u32 = 719;

/// Sticky error of the process: nothing clears it, as with the real driver.
static FAULT: AtomicU32 = AtomicU32::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
static RETAINED: AtomicUsize = AtomicUsize::new(0);
static LOG: Mutex<String> = Mutex::new(String::new());
/// Live allocations: address to bytes. The memory itself is never given back.
static MEMORY: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
static NAMES: Mutex<BTreeMap<usize, String>> = Mutex::new(BTreeMap::new());

thread_local! {
    static CURRENT: AtomicPtr<c_void> = const { AtomicPtr::new(std::ptr::null_mut()) };
}

fn config(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn log(text: impl AsRef<str>) {
    let mut log = LOG.lock().unwrap();
    log.push_str(text.as_ref());
    log.push('\n');
}

fn handle(name: &str) -> *mut c_void {
    let id = NEXT.fetch_add(1, SeqCst);
    NAMES.lock().unwrap().insert(id, name.to_string());
    id as *mut c_void
}

fn context() -> *mut c_void {
    0xC0DE as *mut c_void
}

/// What every call that needs a context returns first.
fn state() -> u32 {
    match FAULT.load(SeqCst) {
        0 if CURRENT.with(|c| c.load(SeqCst)) != context() => INVALID_CONTEXT,
        0 if RETAINED.load(SeqCst) == 0 => INVALID_CONTEXT,
        0 => 0,
        fault => {
            log("refused");
            fault
        }
    }
}

/// Whether a range is inside one live allocation; if not, the context faults.
fn access(address: u64, bytes: usize) -> u32 {
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

fn total() -> u64 {
    config("FAKE_MEMORY", 1 << 30)
}

/// Takes the log.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_log(out: *mut u8, room: usize) -> usize {
    let text = std::mem::take(&mut *LOG.lock().unwrap());
    let bytes = text.len().min(room);
    unsafe { out.copy_from_nonoverlapping(text.as_ptr(), bytes) };
    bytes
}

/// Fails as if another library's kernel had trapped.
#[unsafe(no_mangle)]
extern "C" fn fake_fault() {
    FAULT.store(LAUNCH_FAILED, SeqCst);
}

/// Live allocations.
#[unsafe(no_mangle)]
extern "C" fn fake_allocations() -> usize {
    MEMORY.lock().unwrap().len()
}

macro_rules! api {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {
        $(#[unsafe(no_mangle)] unsafe extern "C" fn $name($($arg: $ty),*) -> u32 { unsafe { $body } })*
    };
}

type Handle = *mut c_void;

api! {
    fn cuInit(_flags: u32) {
        match config("FAKE_DEVICES", 1) { 0 => NO_DEVICE, _ => 0 }
    }
    fn cuDriverGetVersion(version: *mut i32) {
        *version = config("FAKE_DRIVER_VERSION", 13_000) as i32;
        0
    }
    fn cuGetErrorName(code: u32, name: *mut *const c_char) {
        let text = match code {
            INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
            OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
            INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
            INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
            ILLEGAL_ADDRESS => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
            _ => return INVALID_VALUE,
        };
        *name = text.as_ptr();
        0
    }
    fn cuGetErrorString(code: u32, text: *mut *const c_char) { cuGetErrorName(code, text) }

    fn cuDeviceGetCount(count: *mut i32) {
        *count = config("FAKE_DEVICES", 1) as i32;
        0
    }
    fn cuDeviceGet(device: *mut i32, ordinal: i32) {
        *device = ordinal;
        0
    }
    fn cuDeviceGetName(name: *mut c_char, room: i32, _device: i32) {
        let text = b"Fake GPU\0";
        name.copy_from_nonoverlapping(text.as_ptr().cast(), text.len().min(room as usize));
        0
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: i32) {
        *bytes = total() as usize;
        0
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, _device: i32) {
        let cc = config("FAKE_CC", 90) as i32;
        *value = match attribute {
            13 => 1_980_000,
            16 => 132,
            36 => 2_619_000,
            37 => 5120,
            38 => 50 << 20,
            75 => cc / 10,
            76 => cc % 10,
            97 => 227 << 10,
            115 => config("FAKE_POOLS", 1) as i32,
            _ => return INVALID_VALUE,
        };
        0
    }
    fn cuDevicePrimaryCtxRetain(out: *mut Handle, _device: i32) {
        log("retain");
        let fault = FAULT.load(SeqCst);
        if fault == 0 {
            RETAINED.fetch_add(1, SeqCst);
            *out = context();
        }
        fault
    }
    fn cuDevicePrimaryCtxRelease_v2(_device: i32) {
        RETAINED.fetch_sub(1, SeqCst);
        log("release");
        0
    }
    fn cuCtxGetCurrent(out: *mut Handle) {
        *out = CURRENT.with(|c| c.load(SeqCst));
        0
    }
    fn cuCtxSetCurrent(new: Handle) {
        CURRENT.with(|c| c.store(new, SeqCst));
        0
    }
    fn cuCtxSynchronize() { state() }

    fn cuMemGetInfo_v2(free: *mut usize, all: *mut usize) {
        *free = (total() - used()) as usize;
        *all = total() as usize;
        state()
    }
    fn cuDeviceGetDefaultMemPool(pool: *mut Handle, _device: i32) {
        *pool = 0x900 as Handle;
        0
    }
    fn cuMemPoolSetAttribute(_pool: Handle, attribute: i32, value: *mut u64) {
        if attribute != 4 || *value != u64::MAX { return INVALID_VALUE; }
        state()
    }
    fn cuMemPoolTrimTo(_pool: Handle, _keep: usize) {
        log("trim");
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
        0
    }
    fn cuMemFree_v2(address: u64) {
        let code = state();
        if code != 0 { return code; }
        if MEMORY.lock().unwrap().remove(&address).is_some() { 0 } else { INVALID_VALUE }
    }
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) {
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
    fn cuMemcpyHtoDAsync_v2(dst: u64, src: *const u8, bytes: usize, _stream: Handle) {
        let code = access(dst, bytes);
        if code == 0 { (dst as *mut u8).copy_from_nonoverlapping(src, bytes); }
        code
    }
    fn cuMemcpyDtoHAsync_v2(dst: *mut u8, src: u64, bytes: usize, _stream: Handle) {
        let code = access(src, bytes);
        if code == 0 { dst.copy_from_nonoverlapping(src as *const u8, bytes); }
        code
    }
    fn cuMemcpyDtoDAsync_v2(dst: u64, src: u64, bytes: usize, _stream: Handle) {
        let code = access(src, bytes).max(access(dst, bytes));
        if code == 0 { (dst as *mut u8).copy_from(src as *const u8, bytes); }
        code
    }
    fn cuMemsetD8Async(dst: u64, value: u8, count: usize, _stream: Handle) {
        let code = access(dst, count);
        if code == 0 { (dst as *mut u8).write_bytes(value, count); }
        code
    }
    fn cuMemsetD16Async(dst: u64, value: u16, count: usize, _stream: Handle) {
        let code = access(dst, 2 * count);
        if code == 0 { std::slice::from_raw_parts_mut(dst as *mut u16, count).fill(value); }
        code
    }
    fn cuMemsetD32Async(dst: u64, value: u32, count: usize, _stream: Handle) {
        let code = access(dst, 4 * count);
        if code == 0 { std::slice::from_raw_parts_mut(dst as *mut u32, count).fill(value); }
        code
    }

    fn cuStreamCreate(out: *mut Handle, flags: u32) {
        if flags != 1 { return INVALID_VALUE; }
        static STREAMS: AtomicUsize = AtomicUsize::new(0);
        *out = handle(&format!("s{}", STREAMS.fetch_add(1, SeqCst)));
        state()
    }
    fn cuStreamDestroy_v2(_stream: Handle) { state() }
    fn cuStreamSynchronize(_stream: Handle) { state() }
    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) {
        log(format!("{} waits for {}", name(stream), name(event)));
        state()
    }
    fn cuEventCreate(out: *mut Handle, _flags: u32) {
        *out = handle("unrecorded");
        state()
    }
    fn cuEventDestroy_v2(event: Handle) {
        NAMES.lock().unwrap().remove(&(event as usize));
        state()
    }
    fn cuEventRecord(event: Handle, stream: Handle) {
        let text = name(stream);
        NAMES.lock().unwrap().insert(event as usize, text);
        state()
    }
    fn cuEventQuery(_event: Handle) { state() }
    fn cuEventSynchronize(_event: Handle) { state() }
    fn cuEventElapsedTime(milliseconds: *mut f32, _start: Handle, _end: Handle) {
        *milliseconds = 0.25;
        state()
    }

    fn cuModuleLoadDataEx(module: *mut Handle, image: *const c_char, count: u32, options: *const i32, values: *const Handle) {
        let ptx = CStr::from_ptr(image).to_string_lossy().into_owned();
        log("load");
        if ptx.contains(".version 99") { return UNSUPPORTED_PTX_VERSION; }
        if !ptx.contains(".entry") {
            for i in 0..count as usize {
                if *options.add(i) == 5 {
                    let text = b"ptxas fatal: no entry\0";
                    (*values.add(i)).cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
                }
            }
            return INVALID_PTX;
        }
        *module = handle(&ptx);
        state()
    }
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, symbol: *const c_char) {
        let symbol = CStr::from_ptr(symbol).to_str().unwrap();
        if !name(module).contains(symbol) { return NOT_FOUND; }
        *function = handle(symbol);
        state()
    }
    fn cuModuleUnload(_module: Handle) { state() }
    fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) {
        log(format!("{} attribute {attribute} = {value}", name(function)));
        state()
    }
    fn cuLaunchKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
        shared: u32, stream: Handle, params: *const Handle, _extra: *const Handle
    ) {
        let code = state();
        if code != 0 { return code; }
        match name(function).as_str() {
            "fake_add_one" => {
                let address = (*params).cast::<u64>().read();
                let count = (*params.add(1)).cast::<u32>().read() as usize;
                let step = (*params.add(2)).cast::<f32>().read();
                let code = access(address, 4 * count);
                if code != 0 { return 0; }
                for x in std::slice::from_raw_parts_mut(address as *mut f32, count) { *x += step; }
            }
            // A kernel's failure shows at a later call.
            "fake_trap" => FAULT.store(LAUNCH_FAILED, SeqCst),
            _ => {}
        }
        if config("FAKE_QUIET", 0) == 0 {
            log(format!("{} <<<{gx}.{gy}.{gz}, {bx}.{by}.{bz}, {shared}>>> on {}", name(function), name(stream)));
        }
        0
    }
    fn cuTensorMapEncodeTiled(
        map: *mut u64, data_type: u32, rank: u32, address: u64, dims: *const u64, strides: *const u64, box_dims: *const u32,
        element_strides: *const u32, interleave: u32, swizzle: u32, l2_promotion: u32, oob_fill: u32
    ) {
        if !(map as usize).is_multiple_of(64) { return INVALID_VALUE; }
        let slice = |p: *const u64, n: u32| std::slice::from_raw_parts(p, n as usize);
        log(format!(
            "encode type {data_type} at {address:#x} dims {:?} strides {:?} box {:?} elements {:?} interleave {interleave} \
             swizzle {swizzle} l2 {l2_promotion} oob {oob_fill}",
            slice(dims, rank), slice(strides, rank - 1),
            std::slice::from_raw_parts(box_dims, rank as usize),
            std::slice::from_raw_parts(element_strides, rank as usize),
        ));
        map.write(address);
        0
    }
}

fn name(handle: Handle) -> String {
    NAMES.lock().unwrap().get(&(handle as usize)).cloned().unwrap_or_else(|| "dead".into())
}
