//! mma.sync and the loads of its fragments.

use cuda_std::{bf16, f16, float::Half, kernel, matrix, mma, shared, warp};

/// Every product that sm_80 has.
#[kernel(dtypes(T: f16, bf16), block = 32, shared = { 4096 })]
pub unsafe fn products<T: Half>(y: *mut f32) {
    unsafe {
        let row = shared::dynamic::<T>().add(warp::lane_id() * 8);
        let (a, b) = (matrix::load_x4(row), matrix::load_x2(row));
        let (c, d) = (matrix::load_x4_transposed(row), matrix::load_x2_transposed(row));
        let (e, f) = (matrix::load_x1(row), matrix::load_x1_transposed(row));
        let mut sum = [0.0; 4];
        mma::m16n8k16::<T>(&mut sum, a, b);
        mma::m16n8k16::<T>(&mut sum, c, d);
        mma::m16n8k8::<T>(&mut sum, b, e);
        mma::m16n8k8::<T>(&mut sum, d, f);
        mma::m16n8k8_tf32(&mut sum, a, b);
        let mut integers = [0; 4];
        mma::m16n8k32_s8(&mut integers, a, b);
        mma::m16n8k32_u8_s8(&mut integers, c, d);
        mma::m16n8k16_s8(&mut integers, b, e);
        for i in 0..4 {
            *y.add(i) = sum[i] + integers[i] as f32;
        }
    }
}

/// The products of 8-bit floats.
#[kernel(block = 32, shared = { 4096 }, arch = "sm_89")]
pub unsafe fn products_of_8_bits(y: *mut f32) {
    unsafe {
        let row = shared::dynamic::<u16>().add(warp::lane_id() * 8);
        let (a, b) = (matrix::load_x4(row), matrix::load_x2(row));
        let mut sum = [0.0; 4];
        mma::m16n8k32_e4m3(&mut sum, a, b);
        mma::m16n8k32_e5m2(&mut sum, a, b);
        for (i, value) in sum.into_iter().enumerate() {
            *y.add(i) = value;
        }
    }
}

/// The stores of fragments.
#[kernel(block = 32, shared = { 4096 }, arch = "sm_90a")]
pub unsafe fn fragment_stores() {
    unsafe {
        let row = shared::dynamic::<u16>().add(warp::lane_id() * 8);
        let (a, b) = (matrix::load_x4(row), matrix::load_x2(row));
        matrix::store_x4(row, a);
        matrix::store_x2(row, b);
        matrix::store_x1(row, [a[0]]);
        matrix::store_x4_transposed(row, a);
        matrix::store_x2_transposed(row, b);
        matrix::store_x1_transposed(row, [a[0]]);
    }
}
