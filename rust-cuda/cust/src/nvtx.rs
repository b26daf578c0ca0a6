//! Named ranges for profilers, through NVIDIA's tools extension (NVTX): Nsight shows them above the kernels of a range.
//!
//! NVTX has no library of its own. A profiler names its library in `NVTX_INJECTION64_PATH` before it starts a program; this
//! library is loaded at the first range, and receives a table of slots for the functions that it wants called. Without a
//! profiler the variable is not set, and [`range`] only checks one pointer.
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

/// The variable that names the profiler's library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const ENTRY: &[u8] = b"InitializeInjectionNvtx2\0";

/// The number of function slots of each module, the first of which is unused: ranges and marks (1), names for CUDA's driver
/// (2), for OpenCL (3) and for CUDA's runtime (4), ranges and marks with domains (5), locks (6). Profilers reject a program
/// that lacks one of them, whatever it calls.
const FUNCTIONS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE: usize = 1;
const MOST: usize = 16;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;
/// The tables that a profiler asks for: a table of modules, and one with the extension's version.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
const VERSION: u32 = 3;

static PLACES: [[AtomicPtr<c_void>; MOST]; FUNCTIONS.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; MOST] }; FUNCTIONS.len()];

/// The address of each function's slot, ended by null.
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
/// Both pointers must be valid or null.
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
    /// The functions of the library that the environment names, which is loaded once.
    fn get() -> Option<&'static Self> {
        static RANGES: OnceLock<Option<Ranges>> = OnceLock::new();
        RANGES.get_or_init(|| Self::load(&env::var_os(VARIABLE)?)).as_ref()
    }

    fn load(path: &OsStr) -> Option<Self> {
        // SAFETY: loading the library runs its initialisers, which is what whoever set the variable asks for.
        let library = unsafe { Library::new(path) }.ok()?;
        // SAFETY: the function of that name has that type.
        let initialize = *unsafe { library.get::<Initialize>(ENTRY) }.ok()?;
        // Its functions are called until the program ends, so it is never unloaded.
        mem::forget(library);
        Self::from(initialize)
    }

    /// The functions that a profiler writes to the slots; `None` if it does not want ranges.
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

/// A range on this thread, which ends when it is dropped.
#[derive(Debug)]
pub struct Range {
    pop: unsafe extern "C" fn() -> c_int,
    /// Ranges belong to a thread, and end in reverse order.
    thread: PhantomData<*const ()>,
}

/// Begins a range with this name, if a profiler is active. Ranges nest.
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
