//! What the driver has loaded: what a module and its functions hold on to.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::context::Context;
use crate::error::CudaResult;
use crate::sys::{CUlibrary, CUmodule, Handle, driver};

/// A module that is loaded. Unloaded when dropped.
#[derive(Debug)]
pub(crate) struct Loaded {
    raw: Handle,
    /// The library that the module is of, with drivers that have libraries.
    library: Option<Handle>,
    context: Context,
}

impl Loaded {
    /// Loads an image into the current context.
    ///
    /// # Safety
    /// The image is complete, in one of the formats that the driver takes; there are `count` keys and values, and what the
    /// values point to lives past the call.
    pub(crate) unsafe fn new(
        image: *const c_void,
        keys: *mut u32,
        values: *mut *mut c_void,
        count: u32,
    ) -> CudaResult<Self> {
        let context = Context::current()?;
        // SAFETY: the caller's promise.
        let (library, raw) = unsafe {
            if has_libraries() {
                let (library, raw) = load_library(image, keys, values, count)?;
                (Some(Handle(library)), raw)
            } else {
                let mut raw = null_mut();
                call!(cuModuleLoadDataEx(&mut raw, image, count, keys, values))?;
                (None, raw)
            }
        };
        Ok(Self { raw: Handle(raw), library, context })
    }

    pub(crate) fn as_raw(&self) -> CUmodule {
        self.raw.0
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the handles are ours, and are not used again; neither are its functions, which held on to them.
        self.context.end(|| unsafe {
            match &self.library {
                Some(library) => call!(cuLibraryUnload(library.0)),
                None => call!(cuModuleUnload(self.as_raw())),
            }
        });
    }
}

/// Whether the driver has libraries, as from CUDA 12 on: these are compiled without the lock of the context.
fn has_libraries() -> bool {
    driver().is_ok_and(|driver| driver.cuLibraryLoadData.is_some() && driver.cuLibraryGetModule.is_some())
}

/// Loads a library, and its module for the current context, which may be what compiles it.
///
/// # Safety
/// As for `cuLibraryLoadData`; what the options point to lives past the call.
unsafe fn load_library(
    image: *const c_void,
    keys: *mut u32,
    values: *mut *mut c_void,
    count: u32,
) -> CudaResult<(CUlibrary, CUmodule)> {
    let (mut library, mut module) = (null_mut(), null_mut());
    // SAFETY: the caller's promise; there are no options of libraries.
    unsafe {
        call!(cuLibraryLoadData(&mut library, image, keys, values, count, null_mut(), null_mut(), 0))?;
        let found = call!(cuLibraryGetModule(&mut module, library));
        if found.is_err() {
            // What it says of a library that has just been loaded would hide the error.
            let _ = call!(cuLibraryUnload(library));
        }
        found.map(|()| (library, module))
    }
}

/// The driver's function that loads and compiles.
pub(crate) fn loader() -> &'static str {
    if has_libraries() { "cuLibraryLoadData" } else { "cuModuleLoadDataEx" }
}
