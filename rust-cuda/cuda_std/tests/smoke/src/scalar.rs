//! Arithmetic: one thread applies every function of `math`, `fp8`, `float` and `random`.

use cuda_std::{
    bf16, f16,
    float::{self, Half},
    fp8::{self, f8e4m3},
    kernel, math,
    pair::{Mask, Pair},
    random, thread, warp,
};

/// Every function of one argument.
#[kernel(block = 32)]
pub unsafe fn unary(x: *const f32, y: *mut f32) {
    type Function = fn(f32) -> f32;
    unsafe {
        let i = thread::thread_idx_x() as usize;
        macro_rules! apply {
            ($($name:ident)*) => {{
                let mut row = 0;
                $(
                    let function: Function = math::$name;
                    *y.add(32 * row + i) = function(*x.add(i));
                    row += 1;
                )*
                row
            }};
        }
        let mut row = apply! {
            exp exp2 expm1 log log2 log1p sigmoid softplus tanh erf sin cos
            sqrt floor ceil trunc round_ties_even
            exp10 log10 cbrt tan atan asin acos sinh cosh asinh acosh atanh erfc normal_cdf
            ex2_approx lg2_approx tanh_approx rcp_approx rsqrt_approx sqrt_approx sin_approx cos_approx
        };
        let mut put = |value: f32| {
            *y.add(32 * row + i) = value;
            row += 1;
        };
        let (a, b) = (*x.add(i), *x.add(i + 32));
        put(math::fma(a, b, a));
        put(math::polynomial(a, [b, 1.0, a]));
        put(math::fma_f64(f64::from(a), f64::from(b), 1.0) as f32);
        put(math::sqrt_f64(f64::from(a)) as f32);
        put((math::floor_f64(f64::from(a)) - math::ceil_f64(f64::from(a))) as f32);
        put((math::trunc_f64(f64::from(a)) - math::round_ties_even_f64(f64::from(a))) as f32);
        put(math::pow(a, b));
        put(math::powi(a, b.to_bits() as i32));
        put(math::atan2(a, b));
        put(math::hypot(a, b));
        put(math::rem(a, b));
        put(math::mul_rn(a, b));
        let (sine, cosine) = math::sin_cos(a);
        put(sine * cosine);
        let (sine, cosine) = math::sin_cos_approx_near(a);
        put(sine * cosine);
        put(math::div_full(a, b));
        put(math::div_approx(a, b));
        put(math::max_nan(a, b));
        put(math::max_magnitude(a, b));
        put(math::min_nan(a, b));
        put(float::to_f32(float::from_f32::<f16>(a)));
        put(float::to_f32(float::from_f32::<bf16>(a)));
        let [low, high] = f16::unpack(f16::fma_of_registers(f16::pack(a, b), f16::pack(b, a), f16::pack(a, a)));
        put(low + high);
        let [low, high] = bf16::unpack(bf16::fma_of_registers(bf16::pack(a, b), bf16::pack(b, a), bf16::pack(a, a)));
        put(low + high);
        put(float::to_f32(float::from_f32::<f32>(a)));
    }
}

/// Row `r` of `results` is the `r`-th function of x and y, in the order of the list in `simulated.rs`.
#[kernel(block = 32)]
pub unsafe fn host_math(x: *const f32, y: *const f32, results: *mut f32, n: u32) {
    unsafe {
        let i = thread::index_1d();
        let (a, b) = (*x.add(i), *y.add(i));
        let mut at = results.add(i);
        let mut put = |value: f32| {
            *at = value;
            at = at.add(n as usize);
        };
        macro_rules! apply {
            ($($name:ident)*) => { $( put(math::$name(a)); )* };
        }
        apply! { exp10 log10 cbrt sin tan atan asin acos sinh cosh asinh acosh atanh erfc normal_cdf }
        put(math::pow(a, b));
        put(math::powi(a, b.to_bits() as i32 >> 20));
        put(math::atan2(a, b));
        put(math::hypot(a, b));
        put(math::rem(a, b));
        put(math::mul_rn(a, b));
    }
}

/// Row `r` of `results` is the `r`-th function of x and y by the crate `libm`, in the order of the list in `simulated.rs`.
#[kernel(block = 32)]
pub unsafe fn libm_math(x: *const f64, y: *const f64, results: *mut f64, n: u32) {
    unsafe {
        let i = thread::index_1d();
        let (a, b) = (*x.add(i), *y.add(i));
        let mut at = results.add(i);
        for result in [libm::sin(a), libm::exp(a), libm::log(a), libm::pow(a, b), libm::atan2(a, b), libm::erfc(a)] {
            *at = result;
            at = at.add(n as usize);
        }
    }
}

/// Rows of 32: what pairs of x and y make.
#[kernel(dtypes(T: f16, bf16), block = 32)]
pub unsafe fn pairs<T: Half>(x: *const Pair<T>, y: *const Pair<T>, z: *mut Pair<T>) {
    unsafe {
        let i = thread::thread_idx_x() as usize;
        let (x, y) = (*x.add(i), *y.add(i));
        let first = Pair::splat(x.values()[0]);
        let of = |mask: Mask| Pair::from_bits(mask.to_bits());
        let results = [
            x + y,
            x - y,
            x * y,
            -x,
            x.abs(),
            x.fma(y, first),
            x.max(y),
            x.min(y),
            x.max_nan(y),
            x.min_nan(y),
            Pair::new([y.values()[1], x.values()[0]]),
            Pair::from_f32(x.to_f32().map(|value| value * 0.3)),
            Pair::from_bits(y.to_bits().rotate_left(16)),
            warp::shuffle_xor(x, 1),
            x.swap(),
            x.fma_relu(y, first),
            x.gt(y).select(x, y),
            of(x.eq(y)),
            of(x.ne(y)),
            of(x.lt(y)),
            of(x.le(y)),
            of(x.gt(y)),
            of(x.ge(y)),
            of(x.is_nan()),
            of(Mask::new([x.lt(y).all(); 2])),
            of(Mask::new([x.lt(y).any(); 2])),
        ];
        let mut at = z.add(i);
        for result in results {
            *at = result;
            at = at.add(32);
        }
    }
}

/// Functions of integers, and to integers.
#[kernel(block = 32)]
pub unsafe fn integers(x: *const f32, y: *mut u32) {
    unsafe {
        let i = thread::thread_idx_x() as usize;
        let value = *x.add(i);
        let (a, b) = (math::to_tf32(value), math::round_to_i32(value) as u32);
        *y.add(i) = a ^ b;
        *y.add(i + 32) = u32::from_ne_bytes(math::saturate_to_i8([b as i32; 4]).map(|x| x as u8));
        *y.add(i + 64) = math::dp4a(a, b, 3) as u32;
        *y.add(i + 96) = math::permute_bytes(a, b, 0x1234);
        *y.add(i + 128) = math::logic3::<0xea>(a, b, 7);
        *y.add(i + 160) = random::philox4x32([a, b, 1, 2], [3, 4])[0];
    }
}

/// 8-bit floats.
#[kernel(block = 32, arch = "sm_90a")]
pub unsafe fn narrow_floats(x: *const f32, y: *mut u32) {
    unsafe {
        let i = thread::thread_idx_x() as usize;
        let (a, b) = (*x.add(i), *x.add(i + 32));
        *y.add(i) = fp8::unpack_e4m3(fp8::pack_e4m3(a, b));
        *y.add(i + 32) = fp8::unpack_e5m2(fp8::pack_e5m2(a, b));
        let [low, high] = fp8::array_to_f32(fp8::array_from_f32::<f8e4m3, 2>([a, b]));
        *y.add(i + 64) = (low + high).to_bits();
    }
}
