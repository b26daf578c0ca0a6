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

/// Functions of a module: one place for each, of which the first is none.
const FUNCTIONS: usize = 16;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;
/// Modules that there are places for: ranges and marks, and the same with domains, which are not called here.
const CORE: c_int = 1;
const CORE_2: c_int = 5;
/// The table that the profiler asks for.
const CALLBACKS: u32 = 1;

type Places = [AtomicPtr<c_void>; FUNCTIONS];
static CORE_PLACES: Places = [const { AtomicPtr::new(null_mut()) }; FUNCTIONS];
static CORE_2_PLACES: Places = [const { AtomicPtr::new(null_mut()) }; FUNCTIONS];

/// Where each function's place is, and nothing behind the last.
struct Table([*const AtomicPtr<c_void>; FUNCTIONS + 1]);

// SAFETY: the pointers are to statics that may be shared.
unsafe impl Sync for Table {}

const fn table(places: &'static Places) -> Table {
    let mut table = [null(); FUNCTIONS + 1];
    let mut i = 1;
    while i < FUNCTIONS {
        table[i] = ptr::from_ref(&places[i]);
        i += 1;
    }
    Table(table)
}

static CORE_TABLE: Table = table(&CORE_PLACES);
static CORE_2_TABLE: Table = table(&CORE_2_PLACES);

/// What the profiler asks for tables.
#[repr(C)]
struct Callbacks {
    size: usize,
    module: unsafe extern "C" fn(c_int, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

static EXPORTED: Callbacks = Callbacks { size: size_of::<Callbacks>(), module };

/// # Safety
/// Both pointers are to what they say, or null.
unsafe extern "C" fn module(module: c_int, table: *mut *const *const AtomicPtr<c_void>, count: *mut c_uint) -> c_int {
    let found = match module {
        CORE => &CORE_TABLE,
        CORE_2 => &CORE_2_TABLE,
        _ => return 0,
    };
    // SAFETY: the caller's promise.
    unsafe {
        if !table.is_null() {
            *table = found.0.as_ptr();
        }
        if !count.is_null() {
            *count = FUNCTIONS as c_uint;
        }
    }
    1
}

unsafe extern "C" fn export(number: u32) -> *const c_void {
    if number == CALLBACKS { ptr::from_ref(&EXPORTED).cast() } else { null() }
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
        let place = |number: usize| Some(CORE_PLACES[number].load(Ordering::Acquire)).filter(|place| !place.is_null());
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
            let callbacks = &*export(CALLBACKS).cast::<Callbacks>();
            assert!(callbacks.size >= size_of::<Callbacks>());
            let (mut table, mut count) = (null(), 0);
            assert_eq!((callbacks.module)(2, &mut table, &mut count), 0);
            assert_eq!((callbacks.module)(CORE_2, null_mut(), null_mut()), 1);
            assert_eq!((callbacks.module)(CORE, &mut table, &mut count), 1);
            let places = std::slice::from_raw_parts(table, FUNCTIONS + 1);
            assert!(count as usize == FUNCTIONS && places[0].is_null() && places[FUNCTIONS].is_null());
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
