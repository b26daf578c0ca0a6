//! A launch is one call of the driver and no allocation.

#[path = "fake_driver/harness.rs"]
mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cust::prelude::*;
use harness::*;

const FAKE_DRIVER: &str = "tests/fake_driver/libcuda.rs";

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls of the driver, and this thread's allocations.
fn spent(work: impl FnOnce()) -> (usize, usize) {
    let before = (driver_calls(), ALLOCATIONS.get());
    work();
    (driver_calls() - before.0, ALLOCATIONS.get() - before.1)
}

#[test]
fn a_launch_is_one_call() {
    with_driver("a_launch_is_one_call", &[("FAKE_QUIET", "1")], || {
        let _context = cust::quick_init().unwrap();
        let module = Module::from_ptx(".version 7.8 .entry fake_add_one", &[]).unwrap();
        let function = module.get_function("fake_add_one").unwrap();
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
        let x = DeviceBuffer::from_slice(&[0.0f32; 4]).unwrap();
        // SAFETY: the fake's kernel takes an address, a count and a step, and adds to as many values.
        let launch = || unsafe {
            launch!(function<<<1, 128, 0, stream>>>(x.as_device_ptr(), 4u32, 1.0f32)).unwrap();
        };
        assert_eq!(spent(launch), (1, 0));
        assert_eq!(spent(|| (0..100).for_each(|_| launch())), (100, 0));
        assert_eq!(x.as_host_vec().unwrap(), [101.0; 4]);
        // What looks the function up first is seen to do more.
        // SAFETY: as above.
        let look_up = || unsafe {
            launch!(module.fake_add_one<<<1, 128, 0, stream>>>(x.as_device_ptr(), 4u32, 1.0f32)).unwrap();
        };
        assert_eq!(spent(look_up), (2, 1));
    });
}
