//! Modules, functions, launches, tensor maps.

use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering::SeqCst;

use crate::memory::access;
use crate::state::*;
use crate::stream::enqueue;

/// `cuda.h`'s `CUlaunchConfig` and `CUlaunchAttribute`.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: *const Attribute,
    count: u32,
}

#[repr(C, align(8))]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

/// Reads the arguments and queues what the kernel does.
unsafe fn launch(function: Handle, config: &Config, params: *const Handle) -> u32 {
    let code = state_with(&[function, config.stream]);
    if code != 0 {
        return code;
    }
    let symbol = name(function);
    if self::config("FAKE_QUIET", 0) == 0 {
        let dots = |x: [u32; 3]| format!("{}.{}.{}", x[0], x[1], x[2]);
        let attributes = match config.count {
            0 => &[],
            count => unsafe { std::slice::from_raw_parts(config.attributes, count as usize) },
        };
        let mut line = format!("{symbol} <<<{}, {}, {}>>>", dots(config.grid), dots(config.block), config.shared);
        line += &format!(" on {}", name(config.stream));
        for attribute in attributes {
            line += &format!(", {} = {:?}", attribute.id, &attribute.value[..3]);
        }
        log(line);
    }
    match symbol.as_str() {
        "fake_add_one" => {
            let (address, count, step) = unsafe {
                let address = (*params).cast::<u64>().read();
                let count = (*params.add(1)).cast::<u32>().read() as usize;
                (address, count, (*params.add(2)).cast::<f32>().read())
            };
            enqueue(config.stream, move || {
                if access(address, 4 * count) == 0 {
                    let values = unsafe { std::slice::from_raw_parts_mut(address as *mut f32, count) };
                    values.iter_mut().for_each(|x| *x += step);
                }
                0
            })
        }
        // A kernel's failure shows at a later call.
        "fake_trap" => enqueue(config.stream, || {
            FAULT.store(LAUNCH_FAILED, SeqCst);
            0
        }),
        _ => enqueue(config.stream, || 0),
    }
}

/// Loads PTX as a module or a library, which is what `what` says to the log.
unsafe fn load(
    what: &str, loaded: *mut Handle, image: *const c_char, count: u32, options: *const i32, values: *const Handle
) -> u32 {
    unsafe {
        let ptx = CStr::from_ptr(image).to_string_lossy().into_owned();
        let mut options = (0..count as usize).map(|i| (*options.add(i), *values.add(i)));
        let plain: Vec<_> = options.clone().filter(|(key, _)| ![5, 6].contains(key)).collect();
        log(if plain.is_empty() { what.into() } else { format!("{what} {plain:?}") });
        if ptx.contains(".version 99") { return UNSUPPORTED_PTX_VERSION; }
        if ptx.contains(".code 4242") { return 4242; }
        if ptx.contains(".code 4343") { return 4343; }
        if !ptx.contains(".entry") {
            if let Some((_, log)) = options.find(|(key, _)| *key == 5) {
                let text = b"ptxas fatal: no entry\0";
                log.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            }
            return INVALID_PTX;
        }
        let code = state();
        if code == 0 { *loaded = handle(&ptx); }
        code
    }
}

/// What drivers have from CUDA 12 on.
#[cfg(libraries)]
api! {
    fn cuLibraryLoadData(
        library: *mut Handle, code: *const c_char, options: *const i32, values: *const Handle, count: u32,
        _library_options: *const i32, _library_values: *const Handle, _library_count: u32
    ) {
        load("load library", library, code, count, options, values)
    }
    fn cuLibraryGetModule(module: *mut Handle, library: Handle) {
        let ptx = name(library);
        log("module of library");
        if ptx.contains(".code lazy") { return INVALID_PTX; }
        let code = state_with(&[library]);
        if code == 0 { *module = handle_in(&ptx, library); }
        code
    }
    fn cuLibraryUnload(library: Handle) {
        log("unload library");
        forget(library)
    }
}

api! {
    fn cuModuleLoadDataEx(
        module: *mut Handle, image: *const c_char, count: u32, options: *const i32, values: *const Handle
    ) {
        load("load", module, image, count, options, values)
    }
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, symbol: *const c_char) {
        let symbol = CStr::from_ptr(symbol).to_str().unwrap();
        if !name(module).contains(symbol) { return NOT_FOUND; }
        let code = state_with(&[module]);
        if code == 0 { *function = handle_in(symbol, module); }
        code
    }
    fn cuModuleUnload(module: Handle) {
        log("unload");
        forget(module)
    }
    fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: Handle) {
        *value = attribute * 10;
        state_with(&[function])
    }
    fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) {
        log(format!("{} attribute {attribute} = {value}", name(function)));
        state_with(&[function])
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(count: *mut i32, function: Handle, threads: i32, _shared: usize) {
        *count = 2048 / threads;
        state_with(&[function])
    }

    fn cuLaunchKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
        shared: u32, stream: Handle, params: *const Handle, _extra: *const Handle
    ) {
        let config = Config {
            grid: [gx, gy, gz], block: [bx, by, bz], shared, stream, attributes: std::ptr::null(), count: 0
        };
        launch(function, &config, params)
    }
    fn cuLaunchKernelEx(config: *const Config, function: Handle, params: *const Handle, _extra: *const Handle) {
        launch(function, &*config, params)
    }

    fn cuTensorMapEncodeTiled(
        map: *mut u64, data_type: u32, rank: u32, address: u64, dims: *const u64, strides: *const u64, box_dims: *const u32,
        element_strides: *const u32, interleave: u32, swizzle: u32, l2_promotion: u32, oob_fill: u32
    ) {
        if !(map as usize).is_multiple_of(64) { return INVALID_VALUE; }
        let slice = |p: *const u64, n: u32| match n {
            0 => &[],
            n => std::slice::from_raw_parts(p, n as usize),
        };
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
