//! Named ranges for profilers, by NVIDIA's tools extension: what Nsight shows above the kernels of a range.
//!
//! The extension has no library. A profiler names its own in `NVTX_INJECTION64_PATH` before it starts a program; that is loaded at the first
//! range, and gets a table of places for the functions that it wants called. Where nobody profiles, the variable is not there, and [`range`] looks
//! at one pointer.
//!
//! # Sources
//! NVIDIA, "NVTX - NVIDIA Tools Extension", and the numbers of its types.

use std::env;
use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::mem;
use std::ptr::{self, null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::Library;

/// Names the profiler's library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const ENTRY: &[u8] = b"InitializeInjectionNvtx2\0";

/// Modules of functions, and how many places each has, of which the first is none: ranges and marks (1), names of CUDA's driver (2), of OpenCL
/// (3) and of CUDA's runtime (4), ranges and marks with domains (5), locks (6). Profilers refuse a program that lacks one, whatever it calls.
const FUNCTIONS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE: usize = 1;
const MOST: usize = 16;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;
/// What a profiler asks for: a table of modules, and one with the extension's version.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
const VERSION: u32 = 3;

static PLACES: [[AtomicPtr<c_void>; MOST]; FUNCTIONS.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; MOST] }; FUNCTIONS.len()];

/// Where each function's place is, and nothing behind the last.
struct Table([*const AtomicPtr<c_void>; MOST + 1]);

// SAFETY: the pointers are to statics that may be shared.
unsafe impl Sync for Table {}

static TABLES: [Table; FUNCTIONS.len()] = {
    let mut tables = [const { Table([null(); MOST + 1]) }; FUNCTIONS.len()];
    let mut module = 0;
    while module < FUNCTIONS.len() {
        let mut i = 1;
        while i < FUNCTIONS[module] {
            tables[module].0[i] = ptr::from_ref(&PLACES[module][i]);
            i += 1;
        }
        module += 1;
    }
    tables
};

#[repr(C)]
struct Callbacks {
    size: usize,
    module: unsafe extern "C" fn(c_int, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

static EXPORTED: Callbacks = Callbacks { size: size_of::<Callbacks>(), module };

/// # Safety
/// Both pointers are to what they say, or null.
unsafe extern "C" fn module(module: c_int, table: *mut *const *const AtomicPtr<c_void>, count: *mut c_uint) -> c_int {
    let module = usize::try_from(module).unwrap_or_default();
    let Some(functions) = FUNCTIONS.get(module).filter(|functions| **functions > 0) else { return 0 };
    // SAFETY: the caller's promise.
    unsafe {
        if !table.is_null() {
            *table = TABLES[module].0.as_ptr();
        }
        if !count.is_null() {
            *count = *functions as c_uint;
        }
    }
    1
}

#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    /// Is told the profiler's.
    set: extern "C" fn(u32),
}

static VERSION_TABLE: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: VERSION, reserved: 0, set: any_version };

extern "C" fn any_version(_: u32) {}

unsafe extern "C" fn export(number: u32) -> *const c_void {
    match number {
        CALLBACKS => ptr::from_ref(&EXPORTED).cast(),
        VERSION_INFO => ptr::from_ref(&VERSION_TABLE).cast(),
        _ => null(),
    }
}

type Initialize = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;

/// The profiler's functions.
#[derive(Clone, Copy, Debug)]
struct Ranges {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

impl Ranges {
    /// Those of the library that the environment names, which is loaded once.
    fn get() -> Option<&'static Self> {
        static RANGES: OnceLock<Option<Ranges>> = OnceLock::new();
        RANGES.get_or_init(|| Self::load(&env::var_os(VARIABLE)?)).as_ref()
    }

    fn load(path: &OsStr) -> Option<Self> {
        // SAFETY: loading the library runs its initialisers, which is what whoever set the variable asks for.
        let library = unsafe { Library::new(path) }.ok()?;
        // SAFETY: the function of that name has that type.
        let initialize = *unsafe { library.get::<Initialize>(ENTRY) }.ok()?;
        // Its functions are called until the program ends.
        mem::forget(library);
        Self::from(initialize)
    }

    /// What a profiler puts into the places; nothing if it does not want ranges.
    fn from(initialize: Initialize) -> Option<Self> {
        // SAFETY: it gets what it is made for.
        if unsafe { initialize(export) } == 0 {
            return None;
        }
        let place = |number: usize| Some(PLACES[CORE][number].load(Ordering::Acquire)).filter(|place| !place.is_null());
        let (push, pop) = (place(RANGE_PUSH_A)?, place(RANGE_POP)?);
        // SAFETY: these places are for functions of these types.
        Some(unsafe {
            Self {
                push: mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(push),
                pop: mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(pop),
            }
        })
    }

    fn range(&'static self, name: &str) -> Range {
        // A name ends at its first zero.
        let name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        // SAFETY: a text that ends with a zero, which the profiler copies.
        unsafe { (self.push)(name.as_ptr()) };
        Range { pop: self.pop, thread: PhantomData }
    }
}

/// A range of this thread, which ends when it is dropped.
#[derive(Debug)]
pub struct Range {
    pop: unsafe extern "C" fn() -> c_int,
    /// Ranges are a thread's, the last that began ends first.
    thread: PhantomData<*const ()>,
}

/// Begins a range of that name, if a profiler wants to know. Ranges nest.
pub fn range(name: &str) -> Option<Range> {
    Ranges::get().map(|ranges| ranges.range(name))
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: it ends what began on this thread.
        unsafe { (self.pop)() };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::Mutex;

    use super::*;

    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    unsafe extern "C" fn push(name: *const c_char) -> c_int {
        // SAFETY: names end with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        SEEN.lock().unwrap().push(name);
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        SEEN.lock().unwrap().push("end".into());
        0
    }

    /// What a profiler does.
    unsafe extern "C" fn initialize(export: unsafe extern "C" fn(u32) -> *const c_void) -> c_int {
        // SAFETY: table 1 is of that type, and its places are of functions.
        unsafe {
            assert!(export(2).is_null());
            let version = &*export(VERSION_INFO).cast::<VersionInfo>();
            assert_eq!((version.size, version.version), (size_of::<VersionInfo>(), 3));
            (version.set)(1);
            let callbacks = &*export(CALLBACKS).cast::<Callbacks>();
            assert!(callbacks.size >= size_of::<Callbacks>());
            let (mut table, mut count) = (null(), 0);
            for none in [-1, 0, 7] {
                assert_eq!((callbacks.module)(none, &mut table, &mut count), 0);
            }
            for (module, functions) in (1..).zip([16, 9, 15, 7, 16, 7]) {
                assert_eq!((callbacks.module)(module, null_mut(), null_mut()), 1);
                assert_eq!((callbacks.module)(module, &mut table, &mut count), 1);
                assert_eq!(count, functions);
                let places = std::slice::from_raw_parts(table, functions as usize + 1);
                let is_place = |(i, place): (usize, &*const AtomicPtr<c_void>)| {
                    place.is_null() == (i == 0 || i == functions as usize)
                };
                assert!(places.iter().enumerate().all(is_place));
            }
            assert_eq!((callbacks.module)(CORE as c_int, &mut table, &mut count), 1);
            let places = std::slice::from_raw_parts(table, MOST);
            *places[RANGE_PUSH_A].cast_mut().cast() = push as unsafe extern "C" fn(*const c_char) -> c_int;
            *places[RANGE_POP].cast_mut().cast() = pop as unsafe extern "C" fn() -> c_int;
        }
        1
    }

    unsafe extern "C" fn refuse(_: unsafe extern "C" fn(u32) -> *const c_void) -> c_int {
        0
    }

    #[test]
    fn a_profiler_hears_of_ranges() {
        assert!(range("nobody").is_none());
        assert!(Ranges::from(refuse).is_none() && Ranges::load(OsStr::new("/no/such.so")).is_none());
        let ranges: &'static Ranges = Box::leak(Box::new(Ranges::from(initialize).unwrap()));
        let outer = ranges.range("layer 1");
        drop(ranges.range("a\0b"));
        drop(outer);
        assert_eq!(*SEEN.lock().unwrap(), ["layer 1", "a", "end", "end"]);
    }
}
