//! Kernels that the fake driver knows, and what tests do with them.

use warpsmith::kernels::{Code, KernelImage};
use warpsmith::launch::{DevicePtrMut, Dim3, Kernel};
use warpsmith::{Arch, Device, Result, Stream, Tensor};

pub(crate) fn open_error() -> String {
    Device::open().expect_err("there is nothing to open").to_string()
}

macro_rules! kernel {
    ($name:ident, $symbol:literal, $args:ty, $shared:literal, $cluster:literal) => {
        pub(crate) struct $name;

        impl Kernel for $name {
            const SYMBOL: &'static str = $symbol;
            const BLOCK: Dim3 = Dim3::new(128, 1, 1);
            const CLUSTER: Dim3 = Dim3::new($cluster, 1, 1);
            const SHARED_BYTES: usize = $shared;
            const MODULE: &'static str = module_path!();
            type Args = $args;
        }
    };
}

kernel!(AddOne, "fake_add_one", (DevicePtrMut<f32>, u32, f32), 0, 1);
kernel!(AddOneOtherArgs, "fake_add_one", (DevicePtrMut<f32>, u64, f32), 0, 1);
kernel!(Big, "fake_big", (u32,), 100_000, 16);
kernel!(Broken, "fake_broken", (u32,), 0, 1);
kernel!(Early, "fake_early", (u32,), 0, 1);
kernel!(Future, "fake_future", (u32,), 0, 1);
kernel!(Greedy, "fake_greedy", (u32,), 300_000, 1);
kernel!(Hopper, "fake_hopper", (u32,), 0, 1);
kernel!(Missing, "fake_missing", (u32,), 0, 1);
kernel!(Together, "fake_together", (u32,), 0, 1);
kernel!(Trap, "fake_trap", (u32,), 0, 1);

const fn image(symbol: &'static str, arch: Arch, ptx: &'static str, param_sizes: &'static [usize]) -> KernelImage {
    KernelImage {
        symbol,
        module: module_path!(),
        arch,
        code: Code::Text(ptx),
        block: [128, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        programmatic: false,
        cooperative: false,
        opt_level: None,
        param_sizes,
    }
}

pub(crate) static IMAGES: &[KernelImage] = &[
    image("fake_add_one", Arch::Sm80, ".version 7.8 .entry fake_add_one", &[8, 4, 4]),
    KernelImage {
        shared_bytes: 100_000,
        cluster: [16, 1, 1],
        opt_level: Some(1),
        ..image("fake_big", Arch::Sm80, ".version 7.8 .entry fake_big", &[4])
    },
    image("fake_broken", Arch::Sm80, ".version 7.8 nothing", &[4]),
    KernelImage { programmatic: true, ..image("fake_early", Arch::Sm90a, ".version 8.0 .entry fake_early", &[4]) },
    image("fake_future", Arch::Sm80, "//\n.version 99.1\n.entry fake_future", &[4]),
    KernelImage { shared_bytes: 300_000, ..image("fake_greedy", Arch::Sm80, ".version 7.8 .entry fake_greedy", &[4]) },
    image("fake_hopper", Arch::Sm90a, ".version 8.0 .entry fake_hopper", &[4]),
    KernelImage { cooperative: true, ..image("fake_together", Arch::Sm80, ".version 7.8 .entry fake_together", &[4]) },
    image("fake_trap", Arch::Sm80, ".version 7.8 .entry fake_trap", &[4]),
];

pub(crate) fn open() -> Result<(Device, Stream)> {
    let device = Device::open()?;
    device.add_images(IMAGES)?;
    let stream = device.stream()?;
    Ok((device, stream))
}

pub(crate) fn trap(stream: &Stream) {
    // SAFETY: the fake touches no memory; that it fails is what is being tested.
    unsafe { stream.launch::<Trap>(1, (0,)) }.expect("a failure shows later");
}

pub(crate) fn add_one(stream: &Stream, x: &mut Tensor<f32>) -> Result<()> {
    let count = x.len() as u32;
    // SAFETY: the fake adds to `count` elements.
    unsafe { stream.launch::<AddOne>(1, (x.view_mut().ptr_mut(stream).unwrap(), count, 1.0)) }
}
