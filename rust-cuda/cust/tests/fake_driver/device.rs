//! Devices and contexts.

use std::ffi::c_char;
use std::sync::atomic::Ordering::SeqCst;

use crate::memory::total;
use crate::state::*;

api! {
    fn cuInit(_flags: u32) {
        match config("FAKE_DEVICES", 1) { 0 => NO_DEVICE, _ => 0 }
    }
    fn cuDriverGetVersion(version: *mut i32) {
        *version = config("FAKE_DRIVER_VERSION", 13_000) as i32;
        0
    }
    fn cuGetErrorName(code: u32, name: *mut *const c_char) {
        // Those that programs know, and one that only a driver of the future does.
        let text = match code {
            INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
            4242 => c"CUDA_ERROR_OF_THE_FUTURE",
            _ => return INVALID_VALUE,
        };
        *name = text.as_ptr();
        0
    }

    fn cuDeviceGetCount(count: *mut i32) {
        *count = config("FAKE_DEVICES", 1) as i32;
        0
    }
    fn cuDeviceGet(device: *mut i32, ordinal: i32) {
        if ordinal as u64 >= config("FAKE_DEVICES", 1) { return INVALID_DEVICE; }
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

    fn cuDevicePrimaryCtxRetain(out: *mut Handle, device: i32) {
        log("retain");
        let fault = FAULT.load(SeqCst);
        if fault == 0 {
            RETAINED[device as usize].fetch_add(1, SeqCst);
            *out = context(device as usize);
        }
        fault
    }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        RETAINED[device as usize].fetch_sub(1, SeqCst);
        log("release");
        0
    }
    fn cuDevicePrimaryCtxSetFlags_v2(_device: i32, _flags: u32) { 0 }
    fn cuCtxGetCurrent(out: *mut Handle) {
        *out = CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or_default()) as Handle;
        0
    }
    fn cuCtxSetCurrent(new: Handle) {
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.push(new as usize);
        });
        0
    }
    fn cuCtxPushCurrent_v2(new: Handle) {
        CURRENT.with_borrow_mut(|stack| stack.push(new as usize));
        0
    }
    fn cuCtxPopCurrent_v2(old: *mut Handle) {
        match CURRENT.with_borrow_mut(Vec::pop) {
            Some(context) => {
                *old = context as Handle;
                0
            }
            None => INVALID_CONTEXT,
        }
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        (*least, *greatest) = (0, -5);
        state()
    }
    fn cuCtxSynchronize() { state() }
}
