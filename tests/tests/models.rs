//! Simulated devices pick the kernels and size the grids of the GPU they stand for.

use warpsmith::sim::{self, GpuModel};
use warpsmith::{BackendKind, Device, Float8, Tensor, bf16, f8e4m3, f8e5m2, kernels, ops};

/// The kernel of a product with 8 x 8 tiles and next to no depth, and its blocks.
fn launched(device: &Device) -> (String, u32) {
    let stream = device.stream().unwrap();
    let a = Tensor::<bf16>::zeros(&stream, [2048, 8]).unwrap();
    let simulator = device.simulator().unwrap();
    let (result, profiles) = simulator.profile(|| ops::gemm_bf16(&stream, &a, &a));
    result.unwrap();
    let [profile] = &profiles[..] else { panic!("{profiles:?}") };
    assert_eq!(profile.grid[1..], [1, 1]);
    (profile.kernel.clone(), profile.grid[0])
}

#[test]
fn kernels_and_grids_are_those_of_the_model() {
    if kernels::not_built().is_some() {
        return;
    }
    let hopper = "gemm_hopper_bf16_bf16_a_mn0_b_mn0";
    let mma = "gemm_mma_bf16_bf16_a_mn0_b_mn0_v8";
    for (key, kernel, blocks) in [("h100", hopper, 128), ("h100-pcie", hopper, 114), ("l4", mma, 256)] {
        let model: GpuModel = key.parse().unwrap();
        let device = sim::open(&model).unwrap();
        assert_eq!(device.info().multiprocessors, model.multiprocessors);
        assert_eq!(launched(&device), (kernel.to_owned(), blocks), "{key}");
    }
    let shared = Device::open_backend(BackendKind::Sim).unwrap();
    assert_eq!(launched(&shared), (hopper.to_owned(), 8));
    assert_ne!(sim::open(&GpuModel::H100).unwrap(), shared);
    assert_eq!(Device::open_backend(BackendKind::Sim).unwrap(), shared);
}

/// Every value of an 8-bit float, every middle between two and the nearest f32 to either side of it, in blocks whose scale is 1.
fn values<Q: Float8>(code: fn(u8) -> Q) -> Vec<f32> {
    let mut positive: Vec<_> = (0..128).map(|bits| code(bits).to_f64() as f32).filter(|x| x.is_finite()).collect();
    let ties: Vec<_> = positive.windows(2).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
    positive.extend(ties.iter().flat_map(|tie| [tie.next_down(), *tie, tie.next_up()]));
    let all: Vec<_> = positive.iter().flat_map(|x| [*x, -x]).collect();
    let largest = positive.iter().copied().fold(0.0, f32::max);
    all.chunks(127).flat_map(|chunk| [&[largest][..], chunk, &vec![0.0; 127 - chunk.len()]].concat()).collect()
}

/// Ampere's kernels round by integer arithmetic, Hopper's by an instruction.
fn check_rounding<Q: Float8>(code: fn(u8) -> Q) {
    let x = values(code);
    let codes: Vec<Q> = (0..=255).map(code).collect();
    for key in ["l4", "h100"] {
        let stream = sim::open(&key.parse().unwrap()).unwrap().stream().unwrap();
        let tensor = Tensor::from_slice(&stream, [x.len() / 128, 128], &x).unwrap();
        let (q, scales) = ops::quantize_fp8_1x128::<f32, Q>(&stream, &tensor).unwrap();
        assert!(scales.to_vec(&stream).unwrap().iter().all(|scale| *scale == 1.0));
        for (q, x) in q.to_vec(&stream).unwrap().into_iter().zip(&x) {
            assert_eq!(q.to_f64(), Q::from_f64(f64::from(*x)).to_f64(), "{x:e} on {key}");
        }
        let q = Tensor::from_slice(&stream, [2, 128], &codes).unwrap();
        let ones = Tensor::from_slice(&stream, [2, 1], &[1.0f32; 2]).unwrap();
        let widened = ops::dequantize_fp8::<f32, Q>(&stream, &q, &ones).unwrap().to_vec(&stream).unwrap();
        for (q, y) in codes.iter().zip(widened) {
            let (want, y) = (q.to_f64(), f64::from(y));
            assert!(y == want || (y.is_nan() && want.is_nan()), "{y} for {want} on {key}");
        }
    }
}

#[test]
fn models_agree_on_eight_bit_floats() {
    if kernels::not_built().is_none() {
        check_rounding(f8e4m3::from_bits);
        check_rounding(f8e5m2::from_bits);
    }
}
