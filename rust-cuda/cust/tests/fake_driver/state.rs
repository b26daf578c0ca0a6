//! What the driver remembers, and how the tests look at it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NO_DEVICE: u32 = 100;
pub const INVALID_DEVICE: u32 = 101;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_PTX: u32 = 218;
pub const UNSUPPORTED_PTX_VERSION: u32 = 222;
pub const INVALID_HANDLE: u32 = 400;
pub const ILLEGAL_STATE: u32 = 401;
pub const NOT_FOUND: u32 = 500;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const LAUNCH_FAILED: u32 = 719;
pub const CAPTURE_UNMATCHED: u32 = 903;

pub type Handle = *mut c_void;

/// A handle's name, its device, and for a function its module.
pub struct Named {
    pub name: String,
    pub device: usize,
    pub module: Handle,
}

// SAFETY: nobody follows the handle.
unsafe impl Send for Named {}

/// Sticky error of the process: nothing clears it, as with the real driver.
pub static FAULT: AtomicU32 = AtomicU32::new(0);
/// How often each device's primary context is retained.
pub static RETAINED: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
/// Calls of the driver's own functions.
pub static CALLS: AtomicUsize = AtomicUsize::new(0);

pub static NAMES: Mutex<BTreeMap<usize, Named>> = Mutex::new(BTreeMap::new());

static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
static LOG: Mutex<String> = Mutex::new(String::new());

thread_local! {
    /// The stack of current contexts; the last counts.
    pub static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(vec![]) };
}

const FIRST_CONTEXT: usize = 0xC0DE;

pub fn config(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

pub fn log(text: impl AsRef<str>) {
    let mut log = LOG.lock().unwrap();
    log.push_str(text.as_ref());
    log.push('\n');
}

/// A primary context.
pub fn context(device: usize) -> Handle {
    (FIRST_CONTEXT + device) as Handle
}

/// The device of the current context, if that is retained.
pub fn current_device() -> Option<usize> {
    let context = CURRENT.with_borrow(|stack| stack.last().copied())?;
    let device = context.checked_sub(FIRST_CONTEXT)?;
    (RETAINED.get(device)?.load(SeqCst) != 0).then_some(device)
}

/// What every call that needs a context returns first.
pub fn state() -> u32 {
    match FAULT.load(SeqCst) {
        0 if current_device().is_none() => INVALID_CONTEXT,
        0 => 0,
        fault => {
            log("refused");
            fault
        }
    }
}

/// `state`, for calls with handles: they have to be alive, and of the current context.
pub fn state_with(handles: &[Handle]) -> u32 {
    let names = NAMES.lock().unwrap();
    let fits = |handle: &Handle| names.get(&(*handle as usize)).is_some_and(|n| Some(n.device) == current_device());
    match state() {
        0 if !handles.iter().all(fits) => INVALID_HANDLE,
        code => code,
    }
}

/// A new handle of the current context.
pub fn handle(name: &str) -> Handle {
    handle_in(name, null_mut())
}

/// A new handle that ends with its module.
pub fn handle_in(name: &str, module: Handle) -> Handle {
    let id = NEXT.fetch_add(1, SeqCst);
    let device = current_device().unwrap_or_default();
    NAMES.lock().unwrap().insert(id, Named { name: name.to_string(), device, module });
    id as Handle
}

pub fn name(handle: Handle) -> String {
    NAMES.lock().unwrap().get(&(handle as usize)).map_or_else(|| "dead".into(), |named| named.name.clone())
}

pub fn rename(handle: Handle, name: String) {
    if let Some(named) = NAMES.lock().unwrap().get_mut(&(handle as usize)) {
        named.name = name;
    }
}

/// Ends a handle, and what it is the module of.
pub fn forget(handle: Handle) -> u32 {
    let mut names = NAMES.lock().unwrap();
    let ended: Vec<_> = names.iter().filter(|(_, named)| named.module == handle).map(|(id, _)| *id as Handle).collect();
    // A library's module has functions in turn.
    names.retain(|id, named| named.module != handle && !ended.contains(&named.module));
    match (state(), names.remove(&(handle as usize))) {
        (0, None) => INVALID_HANDLE,
        (code, _) => code,
    }
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

/// Live handles: streams, events, modules, functions, graphs.
#[unsafe(no_mangle)]
extern "C" fn fake_handles() -> usize {
    NAMES.lock().unwrap().len()
}

/// Calls of the driver's own functions so far.
#[unsafe(no_mangle)]
extern "C" fn fake_calls() -> usize {
    CALLS.load(SeqCst)
}
