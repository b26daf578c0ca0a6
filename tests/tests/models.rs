//! Simulated devices pick the kernels and size the grids of the GPU they stand for.

use warpsmith::sim::{self, GpuModel};
use warpsmith::{BackendKind, Device, Tensor, bf16, kernels, ops};

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
    let hopper = "gemm_bf16_hopper";
    for (key, kernel, blocks) in [("h100", hopper, 128), ("h100-pcie", hopper, 114), ("l4", "gemm_bf16_mma_v8", 256)] {
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
