//! A stand-in for CUPTI: every mark that is set while kernels are recorded becomes the record of a kernel of one block, which took as many
//! microseconds as the mark's place in the order; one kernel more is under no mark.
#![crate_type = "cdylib"]

use std::ffi::c_char;
use std::sync::Mutex;

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut (), u32, *mut u8, usize, usize);

struct State {
    callbacks: Option<(Requested, Completed)>,
    enabled: Vec<u32>,
    /// Kinds and ids of marks that were set.
    marks: Vec<(u32, u64)>,
    now: u64,
}

static STATE: Mutex<State> = Mutex::new(State { callbacks: None, enabled: Vec::new(), marks: Vec::new(), now: 1_000_000 });

/// Records of both kinds take as much room.
const RECORD: usize = 160;
const MARK: u32 = 39;
const KERNEL: u32 = 10;
/// What the driver says where another profiler is at work.
const TAKEN: u32 = 39;

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityRegisterCallbacks(requested: Requested, completed: Completed) -> u32 {
    STATE.lock().unwrap().callbacks = Some((requested, completed));
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityEnable(kind: u32) -> u32 {
    if std::env::var_os("FAKE_CUPTI_TAKEN").is_some() {
        return TAKEN;
    }
    STATE.lock().unwrap().enabled.push(kind);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityDisable(kind: u32) -> u32 {
    STATE.lock().unwrap().enabled.retain(|one| *one != kind);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> u32 {
    let mut state = STATE.lock().unwrap();
    // As the library has it, marks need the records of calls.
    if [4, KERNEL, MARK].iter().all(|kind| state.enabled.contains(kind)) {
        state.marks.push((kind, id));
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityPopExternalCorrelationId(_: u32, last: *mut u64) -> u32 {
    unsafe { *last = 0 };
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetTimestamp(now: *mut u64) -> u32 {
    unsafe { *now = STATE.lock().unwrap().now };
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetResultString(_: u32, text: *mut *const c_char) -> u32 {
    unsafe { *text = c"CUPTI_ERROR_FAKE".as_ptr() };
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityFlushAll(_: u32) -> u32 {
    let (marks, callbacks, start) = {
        let mut state = STATE.lock().unwrap();
        (std::mem::take(&mut state.marks), state.callbacks, state.now)
    };
    let Some((requested, completed)) = callbacks else { return 1 };
    let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
    unsafe { requested(&mut buffer, &mut size, &mut most) };
    let mut at = 0;
    let mut put = |words: &[(usize, u64, usize)]| unsafe {
        assert!(at + RECORD <= size && buffer.is_aligned_to_8());
        std::ptr::write_bytes(buffer.add(at), 0, RECORD);
        for (offset, value, bytes) in words {
            std::ptr::copy_nonoverlapping(value.to_ne_bytes().as_ptr(), buffer.add(at + offset), *bytes);
        }
        at += RECORD;
    };
    let grid = [(52, 1, 4), (56, 1, 4), (60, 1, 4)];
    for (i, (kind, id)) in (1..).zip(&marks) {
        put(&[(0, u64::from(MARK), 4), (4, u64::from(*kind), 4), (8, *id, 8), (16, i, 4)]);
        // Of another profiler.
        put(&[(0, u64::from(MARK), 4), (4, 3, 4), (8, 1 << 40, 8), (16, i, 4)]);
        let times = [(0, u64::from(KERNEL), 4), (16, start + 10_000 * i, 8), (24, start + 11_000 * i, 8), (92, i, 4)];
        put(&[&times[..], &grid].concat());
    }
    put(&[&[(0, u64::from(KERNEL), 4), (16, start, 8), (24, start + 1, 8), (92, 1 << 20, 4)][..], &grid].concat());
    unsafe { completed(std::ptr::null_mut(), 0, buffer, size, at) };
    0
}

trait Aligned {
    fn is_aligned_to_8(self) -> bool;
}

impl Aligned for *mut u8 {
    fn is_aligned_to_8(self) -> bool {
        (self as usize).is_multiple_of(8)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *const u8) -> u32 {
    unsafe {
        let next = if (*record).is_null() { buffer.cast_const() } else { (*record).add(RECORD) };
        if next >= buffer.add(valid).cast_const() {
            return 12;
        }
        *record = next;
    }
    0
}
