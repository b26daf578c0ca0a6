//! Threads with each other: warps, barriers, fences, atomics, clocks, printing.

use cuda_std::{
    arch, atomic, fence, gpu_printf, grid, kernel, thread, time, trap,
    warp::{self, masked},
};

/// Every warp-wide function.
#[kernel(block = 128)]
pub unsafe fn warps(x: *const u32, y: *mut u32) {
    unsafe {
        let lane = warp::lane_id();
        let value = *x.add(thread::thread_idx_x() as usize);
        let mut sum = warp::warp_id() ^ warp::warp_id_uniform();
        sum ^= warp::shuffle_xor(value, 1);
        sum ^= warp::shuffle_idx(value as i32, 3) as u32;
        sum ^= warp::shuffle_up(f32::from_bits(value), lane).to_bits();
        sum ^= warp::shuffle_down(value, 2);
        let wide = u64::from(value);
        sum ^= (warp::shuffle_xor_u64(wide, 16) ^ warp::shuffle_idx_u64(wide, 5)) as u32;
        sum ^= (warp::shuffle_up_u64(wide, 1) ^ warp::shuffle_down_u64(wide, 1)) as u32;
        sum ^= u32::from(warp::all(value > 1)) + u32::from(warp::any(value > 2));
        sum ^= warp::ballot(value > 3) ^ warp::match_any(value) ^ warp::active_mask();
        sum ^= u32::from(warp::match_all(value));
        sum ^= warp::redux_add_u32(value) ^ warp::redux_min_u32(value) ^ warp::redux_max_u32(value);
        let signed = value as i32;
        sum ^= (warp::redux_add_i32(signed) ^ warp::redux_min_i32(signed)) as u32;
        sum ^= warp::redux_max_i32(signed) as u32;
        sum ^= warp::redux_and(value) ^ warp::redux_or(value) ^ warp::redux_xor(value);
        sum ^= warp::reduce(value, |a, b| a.wrapping_mul(b));
        sum ^= warp::inclusive_scan(value, |a, b| a.wrapping_mul(b));
        sum ^= warp::reduce_width::<8, u32>(value, u32::max);
        let float = f32::from_bits(value);
        sum ^= (warp::reduce_sum(float) + warp::reduce_max(float)).to_bits();
        warp::sync(warp::FULL_MASK);
        *y.add(thread::thread_idx_x() as usize) = sum;
    }
}

/// One linear map after another, x · m + c of 16 bits each: associative, and not commutative.
#[inline(always)]
fn after(a: u32, b: u32) -> u32 {
    let (factor, term) = ((a >> 16) * (b >> 16), (a & 0xffff) * (b >> 16) + (b & 0xffff));
    factor << 16 | term & 0xffff
}

/// Rows of 32: what the lanes of `mask` get from each other in a branch that they alone take; the others keep what is there.
#[kernel(block = 32)]
pub unsafe fn parts(y: *mut u32, mask: u32) {
    unsafe {
        let lane = warp::lane_id();
        let mut at = y.add(lane as usize);
        let mut put = |value: u32| {
            *at = value;
            at = at.add(32);
        };
        let map = (2 * lane + 3) << 16 | lane;
        put(warp::inclusive_scan(map, after));
        if mask >> lane & 1 == 0 {
            return;
        }
        put(masked::rank(mask));
        put(masked::shuffle_xor(mask, lane, 2));
        put(masked::shuffle_idx(mask, lane, mask.trailing_zeros()));
        put(masked::shuffle_up(mask, lane, 31));
        put(masked::shuffle_down(mask, lane, 31));
        let wide = u64::from(lane) << 32;
        put((masked::shuffle_xor_u64(mask, wide, 2) >> 32) as u32);
        put((masked::shuffle_idx_u64(mask, wide, mask.trailing_zeros()) >> 32) as u32);
        put((masked::shuffle_up_u64(mask, wide, 31) >> 32) as u32);
        put((masked::shuffle_down_u64(mask, wide, 31) >> 32) as u32);
        put(u32::from(masked::all(mask, mask >> lane & 1 == 1)) + 2 * u32::from(masked::all(mask, lane < 17)));
        put(u32::from(masked::any(mask, mask >> lane & 1 == 0)) + 2 * u32::from(masked::any(mask, lane > 16)));
        put(masked::ballot(mask, lane.is_multiple_of(3)));
        put(masked::match_any(mask, lane / 8));
        put(u32::from(masked::match_all(mask, lane / 32)) + 2 * u32::from(masked::match_all(mask, lane)));
        put(masked::redux_add_u32(mask, lane));
        put(masked::redux_min_u32(mask, lane) + (masked::redux_max_u32(mask, lane) << 8));
        let signed = lane as i32 - 16;
        put(masked::redux_add_i32(mask, signed) as u32);
        put((masked::redux_min_i32(mask, signed) + (masked::redux_max_i32(mask, signed) << 8)) as u32);
        put(masked::redux_and(mask, !lane) ^ masked::redux_or(mask, lane) ^ masked::redux_xor(mask, lane * lane));
        put(masked::inclusive_scan(mask, map, after));
        put(masked::reduce(mask, map, after));
    }
}

/// A launch that is begun early, waits once more by hand, and lets the next begin.
#[kernel(block = 32, programmatic)]
pub unsafe fn early(y: *mut u32) {
    unsafe {
        grid::launch_dependents();
        grid::wait_for_launch_ahead();
        *y.add(thread::thread_idx_x() as usize) = thread::thread_idx_x();
    }
}

/// The sum of x in every place of y, once the sums of all blocks are there; then twice the sum of the next block, which has to be there.
#[kernel(block = 32, cooperative)]
pub unsafe fn grid_sum(x: *const u32, parts: *mut u32, y: *mut u32, n: u32) {
    unsafe {
        let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
        let mut i = thread::index_1d() as u32;
        let mut part = 0u32;
        while i < n {
            part = part.wrapping_add(*x.add(i as usize));
            i += 32 * blocks;
        }
        *parts.add(block as usize) = warp::redux_add_u32(part);
        grid::sync();
        let mut sum = 0u32;
        for i in 0..blocks {
            sum = sum.wrapping_add(*parts.add(i as usize));
        }
        *y.add(block as usize) = sum;
        grid::sync();
        let next = if block + 1 == blocks { 0 } else { block + 1 };
        *parts.add(block as usize) = *y.add(next as usize) * 2;
    }
}

/// A barrier of one's own, which needs all blocks at once, in a launch that does not.
#[kernel(block = 32)]
pub unsafe fn own_barrier(count: *mut u32) {
    unsafe {
        if thread::thread_idx_x() == 0 {
            atomic::add_acq_rel_u32(count, 1);
            while atomic::load_acquire_u32(count) < thread::grid_dim_x() {}
        }
    }
}

/// Indices, barriers, clocks.
#[kernel(block = (32, 2, 2))]
pub unsafe fn blocks(y: *mut u64) {
    unsafe {
        let mut sum = thread::thread_idx_x() + thread::thread_idx_y() + thread::thread_idx_z();
        sum ^= thread::block_idx_x() + thread::block_idx_y() + thread::block_idx_z();
        sum ^= thread::block_dim_x() + thread::block_dim_y() + thread::block_dim_z();
        sum ^= thread::grid_dim_x() + thread::grid_dim_y() + thread::grid_dim_z();
        sum ^= (thread::index_2d()[1] ^ thread::index_3d()[2]) as u32;
        thread::sync_threads();
        sum ^= u32::from(thread::sync_threads_or(sum == 7));
        sum ^= u32::from(thread::sync_threads_and(sum == 7)) + thread::sync_threads_count(sum == 7);
        if warp::warp_id_uniform() == 0 {
            thread::named_barrier::arrive(2, 128);
        } else {
            thread::named_barrier::sync(2, 128);
        }
        fence::threadfence_block();
        fence::threadfence();
        fence::threadfence_system();
        fence::acq_rel_block();
        fence::acq_rel();
        fence::acq_rel_system();
        time::nanosleep(100);
        atomic::red_add_f32_global(y.cast(), 1.0);
        sum ^= arch::number();
        *y.add(thread::index_1d()) = u64::from(sum) ^ time::clock64() ^ time::global_timer_ns();
        if sum == 1 {
            trap::breakpoint();
            trap::exit();
        }
        if sum == 2 {
            trap::trap();
        }
    }
}

/// Printing.
#[kernel(block = 32)]
pub unsafe fn print(x: *const f32, n: u32) {
    unsafe {
        gpu_printf!("hello\n");
        gpu_printf!("%d of %u: %f, %p %llu %d%%\n", -1i32, n, *x, x, u64::from(n), 7i8);
    }
}

macro_rules! all_atomics {
    ($($kernel:ident: $($scope:ident)::+;)*) => { $(
        /// Every atomic of one scope.
        #[kernel(block = 32)]
        pub unsafe fn $kernel(x: *mut u32, wide: *mut u64) {
            use $($scope)::+::*;
            unsafe {
                let mut sum = add_f32(x.cast(), 1.0).to_bits();
                red_add_f32(x.cast(), 1.0);
                sum ^= add_f64(wide.cast(), 1.0).to_bits() as u32;
                red_add_f64(wide.cast(), 1.0);
                sum ^= add_f16x2(x, 1);
                red_add_f16x2(x, 1);
                sum ^= add_i32(x.cast(), -1) as u32;
                red_add_i32(x.cast(), -1);
                sum ^= min_i32(x.cast(), 2) as u32 ^ max_i32(x.cast(), 3) as u32;
                red_min_i32(x.cast(), 2);
                red_max_i32(x.cast(), 3);
                sum ^= add_u32(x, 4) ^ min_u32(x, 5) ^ max_u32(x, 6);
                red_add_u32(x, 4);
                red_min_u32(x, 5);
                red_max_u32(x, 6);
                sum ^= and_u32(x, 7) ^ or_u32(x, 8) ^ xor_u32(x, 9) ^ increment_u32(x, 10);
                red_and_u32(x, 7);
                red_or_u32(x, 8);
                red_xor_u32(x, 9);
                red_increment_u32(x, 10);
                sum ^= decrement_u32(x, 10);
                red_decrement_u32(x, 10);
                let mut long = add_u64(wide, 1) ^ min_u64(wide, 2) ^ max_u64(wide, 3);
                red_add_u64(wide, 1);
                red_min_u64(wide, 2);
                red_max_u64(wide, 3);
                long ^= (min_i64(wide.cast(), -2) ^ max_i64(wide.cast(), 3)) as u64;
                red_min_i64(wide.cast(), -2);
                red_max_i64(wide.cast(), 3);
                long ^= and_u64(wide, 7) ^ or_u64(wide, 8) ^ xor_u64(wide, 9);
                red_and_u64(wide, 7);
                red_or_u64(wide, 8);
                red_xor_u64(wide, 9);
                red_max_f32(x.cast(), f32::from_bits(sum));
                red_min_f32(x.cast(), f32::from_bits(sum));
                sum ^= exchange_u32(x, 1) ^ compare_exchange_u32(x, 1, 2);
                long ^= exchange_u64(wide, 1) ^ compare_exchange_u64(wide, 1, 2);
                sum ^= load_acquire_u32(x) ^ add_acq_rel_u32(x, 1);
                long ^= load_acquire_u64(wide) ^ add_acq_rel_u64(wide, 1);
                store_release_u32(x.add(1), sum);
                store_release_u64(wide.add(1), long);
            }
        }
    )* };
}

all_atomics! {
    atomics: atomic;
    atomics_block: atomic::block;
    atomics_system: atomic::system;
}

/// Atomics of sm_90.
#[kernel(block = 32, arch = "sm_90a")]
pub unsafe fn atomics_hopper(x: *mut u32) {
    unsafe {
        let before = atomic::add_bf16x2(x, 1);
        atomic::red_add_bf16x2(x, before);
        atomic::red_add_f32x4(x.cast(), [1.0, 2.0, 3.0, 4.0]);
    }
}
