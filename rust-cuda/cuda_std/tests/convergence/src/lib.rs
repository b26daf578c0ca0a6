//! A kernel for each instruction that lanes execute together, in places where a compiler that did not know would copy it
//! into both sides of a branch, or sink it into one.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
#![allow(clippy::missing_safety_doc)]

use cuda_std::{
    bf16, cluster, kernel, matrix,
    mbarrier::Barrier,
    mma, regs,
    shared::{self, SharedPtr},
    thread,
    warp::{self, masked},
    wgmma::{self, Descriptor, K_MAJOR, Swizzle},
};

/// Threads of a block: a warpgroup.
const BLOCK: usize = 128;

/// Calls `primitive` in six places that all lanes reach. Where it stands no lane knows a condition that the others do
/// not share; right before and after it they do.
#[inline(always)]
unsafe fn places(x: *const u32, y: *mut u32, n: u32, primitive: impl Fn(u32) -> u32) {
    unsafe {
        let thread = thread::thread_idx_x() as usize;
        let row = |index: usize| y.add(index * BLOCK + thread);
        let value = *x.add(thread);

        // The same condition before and after: two copies would save a branch.
        if value & 1 != 0 {
            row(0).write(value);
        }
        let result = primitive(value);
        if value & 1 != 0 {
            row(1).write(result);
        }

        // A result for one branch alone: sunk into it, it would be computed less often.
        let result = primitive(value ^ 1);
        if value & 2 != 0 {
            row(2).write(result);
        }

        // An operand that either branch knows, and a condition on it: with copies, all would be constant.
        let operand = if value & 4 != 0 { 1 } else { 2 };
        let result = primitive(operand);
        if operand == 1 {
            row(3).write(result);
        }

        // A common tail of two branches that do something each.
        if value & 8 != 0 {
            row(4).write(1);
        } else {
            row(5).write(value);
        }
        row(6).write(primitive(value));

        // A loop with two exits that lanes leave in different turns, and the question which of them it was.
        let mut i = 0;
        let found = loop {
            if i == n {
                break false;
            }
            if *x.add(BLOCK + i as usize) == value & 7 {
                break true;
            }
            i += 1;
        };
        let result = primitive(i);
        if found {
            row(7).write(result);
        }

        // A condition that the loop around it does not change: two loops would ask it once.
        for i in 0..n {
            if value & 16 != 0 {
                row(8).write(i);
            }
            let result = primitive(i);
            if value & 16 != 0 {
                row(9).write(result);
            }
        }
    }
}

macro_rules! kernels {
    ($($name:ident: |$value:pat_param| $result:expr;)*) => { $(
        /// The places, with this.
        #[kernel(block = 128, shared = { 8192 }, arch = "sm_90a")]
        pub unsafe fn $name(x: *const u32, y: *mut u32, n: u32) {
            unsafe { places(x, y, n, |$value: u32| -> u32 { $result }) }
        }
    )* };
}

kernels! {
    block_barrier: |value| { thread::sync_threads(); value };
    block_or: |value| u32::from(thread::sync_threads_or(value == 0));
    block_and: |value| u32::from(thread::sync_threads_and(value == 0));
    block_count: |value| thread::sync_threads_count(value == 0);
    named_barrier: |value| { thread::named_barrier::sync(1, 128); value };
    named_barrier_arrive: |value| {
        if warp::warp_id_uniform() < 2 {
            thread::named_barrier::arrive(1, 128);
        } else {
            thread::named_barrier::sync(1, 128);
        }
        thread::sync_threads();
        value
    };
    warp_barrier: |value| { warp::sync(warp::FULL_MASK); value };
    cluster_barrier: |value| { cluster::arrive(); cluster::wait(); value };
    cluster_barrier_relaxed: |value| { cluster::arrive_relaxed(); cluster::wait(); value };
    shuffle_xor: |value| warp::shuffle_xor(value, 1);
    shuffle_idx: |value| warp::shuffle_idx(value, 3);
    shuffle_up: |value| warp::shuffle_up(value, 1);
    shuffle_down: |value| warp::shuffle_down(value, 1);
    vote_all: |value| u32::from(warp::all(value & 32 != 0));
    vote_any: |value| u32::from(warp::any(value & 32 != 0));
    vote_ballot: |value| warp::ballot(value & 32 != 0);
    match_any: |value| warp::match_any(value);
    match_all: |value| u32::from(warp::match_all(value));
    redux: |value| warp::redux_add_u32(value);
    masked_shuffle_xor: |value| masked::shuffle_xor(!0, value, 1);
    masked_shuffle_idx: |value| masked::shuffle_idx(!0, value, 3);
    masked_shuffle_up: |value| masked::shuffle_up(!0, value, 1);
    masked_shuffle_down: |value| masked::shuffle_down(!0, value, 1);
    masked_vote_any: |value| u32::from(masked::any(!0, value & 32 != 0));
    masked_vote_ballot: |value| masked::ballot(!0, value & 32 != 0);
    masked_match_any: |value| masked::match_any(!0, value);
    masked_match_all: |value| u32::from(masked::match_all(!0, value));
    masked_redux: |value| masked::redux_add_u32(!0, value);
    active_mask: |_| warp::active_mask();
    elect: |value| if warp::elect_one() { value } else { 0 };
    product: |value| {
        let mut d = [0.0; 4];
        mma::m16n8k16_bf16(&mut d, [value; 4], [value; 2]);
        d[0].to_bits()
    };
    fragment_load: |value| matrix::load_x1(rows().add(value % 8))[0];
    fragment_store: |value| { matrix::store_x1(rows().add(value % 8), [value]); value };
    group_product: |value| {
        let mut d = [0.0; 4];
        let tile = Descriptor::new(shared::dynamic::<u8>(), 128, 256, Swizzle::None);
        wgmma::fence_for(&mut d);
        wgmma::m64n8k16::<bf16, K_MAJOR, K_MAJOR>(&mut d, tile, tile, value != 1 << 31);
        wgmma::commit();
        wgmma::wait_for::<0>(&mut d);
        d[0].to_bits()
    };
    registers: |value| { regs::decrease::<128>(); value };
    helper: |value| exchanged(value);
    generic_helper: |value| <Neighbour as Exchange>::exchange(value);
    pointer: |value| {
        let function = if thread::block_dim_y() == 1 { exchanged } else { <Neighbour as Exchange>::exchange };
        function(value)
    };
}

/// The rows of a fragment, 16 bytes each.
#[inline(always)]
fn rows() -> SharedPtr<[u32; 4]> {
    shared::dynamic::<[u32; 4]>().add(warp::lane_id() / 8)
}

/// A function that is called, not inlined, is executed together when something in it is.
#[inline(never)]
unsafe fn exchanged(value: u32) -> u32 {
    unsafe { warp::shuffle_xor(value, 1) + warp::shuffle_xor(value, 2) }
}

/// A function that is not known until types are.
trait Exchange {
    unsafe fn exchange(value: u32) -> u32;
}

struct Neighbour;

impl Exchange for Neighbour {
    #[inline(never)]
    unsafe fn exchange(value: u32) -> u32 {
        unsafe { warp::shuffle_down(value, 1) ^ warp::shuffle_up(value, 1) }
    }
}

/// The places, with the wait for an mbarrier: each warp has its own, whose phase before the first is over.
#[kernel(block = 128, shared = { 8192 }, arch = "sm_90a")]
pub unsafe fn mbarrier_wait(x: *const u32, y: *mut u32, n: u32) {
    unsafe {
        let barrier = shared::dynamic::<Barrier>().add(warp::warp_id());
        if warp::lane_id() == 0 {
            barrier.init(1);
        }
        warp::sync(warp::FULL_MASK);
        places(x, y, n, |value| {
            barrier.wait_parity(1);
            value
        });
    }
}

/// The other way round: two calls on two sides of a branch must not become one in front of it.
#[kernel(block = 128)]
pub unsafe fn two_sides(x: *const u32, y: *mut u32, _n: u32) {
    unsafe {
        let thread = thread::thread_idx_x() as usize;
        let lanes = if *x.add(thread) & 1 != 0 { warp::active_mask() } else { warp::active_mask() };
        y.add(thread).write(lanes);
    }
}
