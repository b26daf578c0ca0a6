//! cp.async, and barriers as sm_80 has them.

use cuda_std::{
    cp_async, kernel,
    mbarrier::Barrier,
    shared::{self, SharedPtr},
    shared_field, thread,
};

/// Shared memory of [`copy`].
#[repr(C, align(16))]
pub struct Buffer {
    data: [[u32; 4]; 256],
    barrier: Barrier,
}

/// Every cp.async.
#[kernel(block = 256, shared = Buffer)]
pub unsafe fn copy(x: *const u32, y: *mut u32, bytes: u32) {
    unsafe {
        let memory = shared::dynamic::<Buffer>();
        let data = shared_field!(memory.data);
        let slot = data.at(thread::thread_idx_x());
        let source = x.add(thread::thread_idx_x() as usize * 4);
        cp_async::copy_16(slot, source);
        cp_async::copy_16_zero_fill(slot, source, bytes);
        cp_async::commit();
        cp_async::copy_16_l1(slot, source);
        cp_async::copy_16_l1_zero_fill(slot, source, bytes);
        cp_async::copy_8(slot, source);
        cp_async::copy_8_zero_fill(slot, source, bytes);
        cp_async::copy_4(slot, source);
        cp_async::copy_4_zero_fill(slot, source, bytes);
        cp_async::commit();
        cp_async::wait_group::<1>();
        cp_async::wait_all();

        let barrier = shared_field!(memory.barrier);
        if thread::thread_idx_x() == 0 {
            barrier.init(256);
        }
        thread::sync_threads();
        barrier.arrive_on_cp_async();
        barrier.arrive();
        while !barrier.test_wait_parity(0) {}
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            barrier.invalidate();
        }

        let neighbour = SharedPtr::from_ptr(slot.as_ptr()).byte_add(16).cast::<u32>();
        let word = neighbour.add(1).read();
        slot.cast::<u32>().write(word ^ slot.addr() ^ shared::addr(slot.as_ptr()));
        *y.add(thread::index_1d()) = *shared::dynamic_ptr::<u32>().add(3) ^ shared::dynamic_u32();
    }
}
