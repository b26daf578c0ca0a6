//! The functions that `cust_raw` declares: each jumps to where its slot points.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::{CUresult, driver};
use crate::symbols::for_each_symbol;

const SUCCESS: CUresult = 0;
const INVALID_VALUE: CUresult = 1;
const NOT_INITIALIZED: CUresult = 3;
const NO_DEVICE: CUresult = 100;
const NOT_SUPPORTED: CUresult = 801;

/// What every slot holds until the driver is loaded. The C calling convention lets it ignore its arguments.
extern "C" fn not_initialized() -> CUresult {
    NOT_INITIALIZED
}

/// What stands in for functions that the loaded driver does not have.
pub(crate) extern "C" fn not_supported() -> CUresult {
    NOT_SUPPORTED
}

/// A function's name, where its trampoline jumps, and the trampoline.
///
/// The last is there for the linker: whoever reaches the table, reaches every trampoline, in whatever order libraries are linked.
pub(crate) struct Slot {
    name: &'static CStr,
    target: &'static AtomicPtr<()>,
    _trampoline: unsafe extern "C" fn(),
}

impl Slot {
    pub(crate) fn name(&self) -> &'static CStr {
        self.name
    }

    pub(crate) fn point_to(&self, function: *mut ()) {
        self.target.store(function, Ordering::Release);
    }
}

macro_rules! define {
    ($($name:ident)*) => {
        #[allow(non_upper_case_globals)]
        mod targets {
            use super::*;

            $(pub(super) static $name: AtomicPtr<()> = AtomicPtr::new(not_initialized as *mut ());)*
        }

        #[allow(non_snake_case, reason = "the driver's names")]
        mod trampolines {
            use super::targets;

            $(
                // SAFETY: the name is the driver's own; the arguments are left where the caller put them.
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                pub(super) unsafe extern "C" fn $name() {
                    #[cfg(target_arch = "x86_64")]
                    std::arch::naked_asm!("jmp qword ptr [rip + {target}]", target = sym targets::$name);
                    #[cfg(target_arch = "aarch64")]
                    std::arch::naked_asm!(
                        "adrp x16, {target}",
                        "ldr x16, [x16, :lo12:{target}]",
                        "br x16",
                        target = sym targets::$name
                    );
                }
            )*
        }

        pub(crate) static SLOTS: &[Slot] = &[$(
            Slot {
                name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("identifiers contain no NUL"),
                },
                target: &targets::$name,
                _trampoline: trampolines::$name,
            },
        )*];
    };
}
for_each_symbol!(define);

// The four functions that work before initialisation, and so have to load the driver themselves.

/// As [`Slot`]'s last field, for these four.
pub(crate) fn keep_entry_points() {
    static ENTRY_POINTS: [AtomicPtr<()>; 4] = [
        AtomicPtr::new(cuInit as *mut ()),
        AtomicPtr::new(cuDriverGetVersion as *mut ()),
        AtomicPtr::new(cuGetErrorName as *mut ()),
        AtomicPtr::new(cuGetErrorString as *mut ()),
    ];
    std::hint::black_box(&ENTRY_POINTS);
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> CUresult {
    match driver() {
        // SAFETY: any flags may be passed; the driver checks them.
        Ok(driver) => unsafe { (driver.cuInit)(flags) },
        Err(_) => NO_DEVICE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    match driver() {
        // SAFETY: the caller's pointer is passed on.
        Ok(driver) => unsafe { (driver.cuDriverGetVersion)(version) },
        Err(_) => NO_DEVICE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: CUresult, name: *mut *const c_char) -> CUresult {
    if let Ok(driver) = driver() {
        // SAFETY: the caller's pointer is passed on.
        return unsafe { (driver.cuGetErrorName)(error, name) };
    }
    // SAFETY: the caller's pointer is valid or null.
    unsafe { without_driver(error, name, c"CUDA_ERROR_NO_DEVICE") }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult {
    if let Ok(driver) = driver() {
        // SAFETY: the caller's pointer is passed on.
        return unsafe { (driver.cuGetErrorString)(error, text) };
    }
    // SAFETY: the caller's pointer is valid or null.
    unsafe { without_driver(error, text, c"no CUDA driver could be loaded") }
}

/// Without a driver there is one error; still every code gets a text, because `cust` cannot print an error that has none.
unsafe fn without_driver(error: CUresult, out: *mut *const c_char, no_device: &'static CStr) -> CUresult {
    if out.is_null() {
        return INVALID_VALUE;
    }
    let text = match error {
        SUCCESS => c"CUDA_SUCCESS",
        NO_DEVICE => no_device,
        _ => c"unknown error",
    };
    // SAFETY: checked above; the caller's promise is that it is valid otherwise.
    unsafe { out.write(text.as_ptr()) };
    SUCCESS
}
