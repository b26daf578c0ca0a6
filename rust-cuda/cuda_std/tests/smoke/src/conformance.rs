//! Kernels whose results `../../device.rs` compares with a computation on the CPU.

use cuda_std::{
    atomic, bf16, cluster, f16, fence,
    float::{self, Half},
    fp8, kernel, math, matrix,
    mbarrier::Barrier,
    mma, shared,
    shared::SharedPtr,
    shared_field, thread, tma, warp,
    wgmma::{self, Descriptor, K_MAJOR, MN_MAJOR},
};

/// Row `r` of `y` is the `r`-th function of `x`, in the order of the list in `device.rs`.
#[kernel(block = 256)]
pub unsafe fn math_functions(x: *const f32, y: *mut f32, n: u32) {
    type Function = fn(f32) -> f32;
    unsafe {
        let i = thread::index_1d();
        if i >= n as usize {
            return;
        }
        let mut at = y.add(i);
        macro_rules! apply {
            ($($name:ident)*) => { $(
                let function: Function = math::$name;
                *at = function(*x.add(i));
                at = at.add(n as usize);
            )* };
        }
        apply! {
            exp exp2 expm1 log log2 log1p sigmoid softplus tanh erf sin cos
            sqrt floor ceil trunc round_ties_even
            ex2_approx lg2_approx rcp_approx rsqrt_approx sqrt_approx sqrt_approx_ftz tanh_approx log_of_normal
            exp10 log10 cbrt tan atan asin acos sinh cosh asinh acosh atanh erfc normal_cdf
        }
        let value = *x.add(i);
        for result in [
            math::pow(value, 2.7),
            math::pow(value, -0.3),
            math::pow(1.0001, value),
            math::powi(value, 7),
            math::atan2(value, -3.0),
            math::hypot(value, 1.0e-3),
        ] {
            *at = result;
            at = at.add(n as usize);
        }
        let (sine, cosine) = math::sin_cos_near(*x.add(i));
        *at = sine;
        at = at.add(n as usize);
        *at = cosine;
        at = at.add(n as usize);
        *at = float::to_f32(float::from_f32::<f16>(*x.add(i)));
        at = at.add(n as usize);
        *at = float::to_f32(float::from_f32::<bf16>(*x.add(i)));
        at = at.add(n as usize);
        *at = f16::unpack(f16::pack(*x.add(i), 1.0))[0] * f16::unpack(f16::pack(2.0, 1.0))[1];
        at = at.add(n as usize);
        *at = bf16::unpack(bf16::pack(*x.add(i), 1.0))[0] * bf16::unpack(bf16::pack(2.0, 1.0))[1];
        at = at.add(n as usize);
        *at = math::round_to_i32(*x.add(i)) as f32;
        at = at.add(n as usize);
        *at = f32::from(math::saturate_to_i8([math::round_to_i32(*x.add(i))])[0]);
        at = at.add(n as usize);
        *at = math::truncate_to_u32(*x.add(i)) as f32;
        at = at.add(n as usize);
        *at = math::rem(*x.add(i), 0.7);
    }
}

/// Rows of 32: what every lane gets from each exchange of its lane number.
#[kernel(block = 32)]
pub unsafe fn exchanges(y: *mut u32) {
    unsafe {
        let lane = warp::lane_id();
        let mut at = y.add(lane as usize);
        let mut put = |value: u32| {
            *at = value;
            at = at.add(32);
        };
        put(warp::shuffle_xor(lane, 5));
        put(warp::shuffle_idx(lane, lane + 3));
        put(warp::shuffle_up(lane, 4));
        put(warp::shuffle_down(lane, 4));
        put(warp::ballot(lane.is_multiple_of(3)));
        put(u32::from(warp::all(lane < 32)) + 2 * u32::from(warp::any(lane > 40)));
        put(warp::match_any(lane / 8));
        put(warp::redux_add_u32(lane));
        put(warp::redux_max_i32(lane as i32 - 40) as u32);
        put(warp::reduce_width::<8, u32>(lane, |a, b| a + b));
        put(warp::reduce_sum(lane as f32) as u32);
        put(u32::from(warp::shuffle_xor_u64(u64::from(lane) << 32, 1) == u64::from(lane ^ 1) << 32));
        put(math::permute_bytes(0x4433_2211, 0x8877_6655, 0x7531));
        put(math::dp4a(0x0102_0304, 0xff01_01ff, 10) as u32);
        let [low, high] = math::mul_wide(lane * 0x0808_0809, 0xd251_1f53);
        put(low ^ high.rotate_left(7));
        put(math::logic3::<0xea>(0b1100, 0b1010, 0b0001));
        let wide = u64::from(lane) << 40 | u64::from(lane);
        put((warp::shuffle_idx_u64(wide, lane + 3) >> 40) as u32);
        put((warp::shuffle_up_u64(wide, 4) >> 40) as u32);
        put((warp::shuffle_down_u64(wide, 4) >> 40) as u32);
        put(u32::from(warp::match_all(lane / 32)) + 2 * u32::from(warp::match_all(lane / 31)));
        let all = u32::from(thread::sync_threads_and(lane < 32)) + 2 * u32::from(thread::sync_threads_and(lane < 31));
        put(all + 4 * thread::sync_threads_count(lane.is_multiple_of(3)));
    }
}

/// A 16x8 product of a 16x16 `a` and the transpose of an 8x16 `b`, through shared memory and fragments.
#[kernel(dtypes(T: f16, bf16), block = 32, shared = { 4096 })]
pub unsafe fn warp_product<T: Half>(a: *const T, b: *const T, d: *mut f32) {
    unsafe {
        let lane = warp::lane_id();
        let (tile_a, tile_b) = (shared::dynamic::<T>(), shared::dynamic::<T>().add(256));
        for i in 0..8 {
            tile_a.add(i * 32 + lane).write(*a.add((i * 32 + lane) as usize));
        }
        for i in 0..4 {
            tile_b.add(i * 32 + lane).write(*b.add((i * 32 + lane) as usize));
        }
        warp::sync(warp::FULL_MASK);
        let fragment_a = matrix::load_x4(tile_a.add(lane % 16 * 16 + lane / 16 * 8));
        let fragment_b = matrix::load_x2(tile_b.add(lane % 8 * 16 + lane / 8 % 2 * 8));
        let mut sum = [0.0; 4];
        mma::m16n8k16::<T>(&mut sum, fragment_a, fragment_b);
        let (row, column) = (lane / 4, lane % 4 * 2);
        let at = d.add((row * 8 + column) as usize);
        *at = sum[0];
        *at.add(1) = sum[1];
        *at.add(64) = sum[2];
        *at.add(65) = sum[3];
    }
}

/// Copies 64 rows of 128 bytes to shared memory as TMA swizzles them.
#[inline(always)]
unsafe fn swizzled(tile: SharedPtr<u8>, source: *const u8) {
    unsafe {
        let mut chunk = thread::thread_idx_x();
        while chunk < 512 {
            let (row, column) = (chunk / 8, chunk % 8);
            let to = tile.add(row * 128 + (column ^ (row % 8)) * 16).cast::<[u32; 4]>();
            to.write(source.cast::<[u32; 4]>().add(chunk as usize).read());
            chunk += 128;
        }
        fence::proxy_async_shared();
        thread::sync_threads();
    }
}

/// Writes a 64x64 accumulator as rows.
#[inline(always)]
unsafe fn write<T: Copy>(d: *mut T, sum: [T; 32]) {
    unsafe {
        let (warp, lane) = (warp::warp_id(), warp::lane_id());
        let at = d.add(((warp * 16 + lane / 4) * 64 + lane % 4 * 2) as usize);
        for j in 0..8 {
            *at.add(8 * j) = sum[4 * j];
            *at.add(8 * j + 1) = sum[4 * j + 1];
            *at.add(8 * j + 8 * 64) = sum[4 * j + 2];
            *at.add(8 * j + 8 * 64 + 1) = sum[4 * j + 3];
        }
    }
}

/// A 64x64 product, 64 deep; an MN-major operand is given transposed.
#[kernel(dtypes(T: f16, bf16), values(A: 0, 1, B: 0, 1), block = 128, shared = { 16384 }, arch = "sm_90a")]
pub unsafe fn group_product<T: Half, const A: u32, const B: u32>(a: *const T, b: *const T, d: *mut f32) {
    unsafe {
        let (tile_a, tile_b) = (shared::dynamic::<u8>(), shared::dynamic::<u8>().add(8192));
        swizzled(tile_a, a.cast());
        swizzled(tile_b, b.cast());
        let descriptor = |tile, major| {
            if major == MN_MAJOR { Descriptor::mn_major_128b(tile, 8192) } else { Descriptor::k_major_128b(tile) }
        };
        let step = |major| if major == K_MAJOR { 32 } else { 2048 };
        let (a, b) = (descriptor(tile_a, A), descriptor(tile_b, B));
        let mut sum = [f32::NAN; 32];
        wgmma::fence_for(&mut sum);
        for k in 0..4 {
            wgmma::m64n64k16::<T, A, B>(&mut sum, a.advance(k * step(A)), b.advance(k * step(B)), k > 0);
        }
        wgmma::commit();
        wgmma::wait_for::<0>(&mut sum);
        write(d, sum);
    }
}

macro_rules! narrow_product {
    ($kernel:ident, $accumulator:ty, $product:ident) => {
        /// A 64x64 product of rows of 128 bytes.
        #[kernel(block = 128, shared = { 16384 }, arch = "sm_90a")]
        pub unsafe fn $kernel(a: *const u8, b: *const u8, d: *mut $accumulator) {
            unsafe {
                let (tile_a, tile_b) = (shared::dynamic::<u8>(), shared::dynamic::<u8>().add(8192));
                swizzled(tile_a, a);
                swizzled(tile_b, b);
                let (a, b) = (Descriptor::k_major_128b(tile_a), Descriptor::k_major_128b(tile_b));
                let mut sum = [0 as $accumulator; 32];
                wgmma::fence_for(&mut sum);
                for k in 0..4 {
                    wgmma::$product(&mut sum, a.advance(k * 32), b.advance(k * 32), k > 0);
                }
                wgmma::commit();
                wgmma::wait_for::<0>(&mut sum);
                write(d, sum);
            }
        }
    };
}

narrow_product!(group_product_tf32, f32, m64n64k8_tf32);
narrow_product!(group_product_e4m3, f32, m64n64k32_e4m3);
narrow_product!(group_product_s8, i32, m64n64k32_s8);

/// To 8-bit floats and back, and pairs in order.
#[kernel(block = 256, arch = "sm_90a")]
pub unsafe fn fp8_round_trip(x: *const f32, bytes: *mut u16, y: *mut f32) {
    unsafe {
        let i = thread::thread_idx_x() as usize;
        let pair = fp8::pack_e4m3(*x.add(2 * i), *x.add(2 * i + 1));
        *bytes.add(i) = pair;
        let [low, high] = f16::unpack(fp8::unpack_e4m3(pair));
        *y.add(2 * i) = low;
        *y.add(2 * i + 1) = high;
    }
}

/// Shared memory of [`pass_around`].
#[repr(C, align(128))]
pub struct Mail {
    sent: [u32; 256],
    received: [u32; 256],
    loaded: Barrier,
    arrived: Barrier,
    counted: Barrier,
}

/// Two blocks load a page each by the copy engine, send it to the other, and store what they got.
#[kernel(block = 128, cluster = 2, shared = Mail, arch = "sm_90a")]
pub unsafe fn pass_around(x: *const u32, y: *mut u32, count: *mut u32) {
    unsafe {
        let memory = shared::dynamic::<Mail>();
        let (sent, received) = (shared_field!(memory.sent), shared_field!(memory.received));
        let (loaded, arrived) = (shared_field!(memory.loaded), shared_field!(memory.arrived));
        let counted = shared_field!(memory.counted);
        let (rank, first) = (cluster::rank(), thread::thread_idx_x() == 0);
        if first {
            loaded.init(1);
            arrived.init(1);
            counted.init(256);
            fence::mbarrier_init();
        }
        cluster::sync();
        if first {
            arrived.arrive_expect_tx(1024);
            loaded.arrive_expect_tx(1024);
            tma::load_bytes(sent, x.add(rank as usize * 256), 1024, loaded);
            loaded.wait_parity(0);
            let other = rank ^ 1;
            tma::send_bytes(cluster::map(received, other), sent, 1024, cluster::map(arrived, other));
        }
        // Every thread of both blocks arrives at both barriers.
        counted.arrive();
        counted.arrive_remote(rank ^ 1);
        counted.wait_parity_cluster(0);
        arrived.wait_parity(0);
        if first {
            tma::store_bytes(y.add(rank as usize * 256), received, 1024);
            tma::commit_group();
            tma::wait_group::<0>();
        }
        atomic::red_add_u32(count, 1);
        atomic::red_max_f32(count.add(1).cast(), thread::thread_idx_x() as f32 - 1000.0);
        atomic::red_min_f32(count.add(2).cast(), thread::thread_idx_x() as f32 - 7.0);
        cluster::sync();
    }
}
