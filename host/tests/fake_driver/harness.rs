//! The fake driver, child processes, and kernels that the fake knows.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use warpsmith::kernels::{Code, KernelImage};
use warpsmith::launch::{DevicePtrMut, Dim3, Kernel};
use warpsmith::{Arch, Device, Result, Stream, Tensor};

const CHILD: &str = "WARPSMITH_FAKE_CHILD";

/// Compiles the fake driver once; `None`, with a line, where there is no compiler.
fn fake_driver() -> Option<PathBuf> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    PATH.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver/libcuda.rs");
        let library = folder.join("libcuda-fake.so");
        // Another test run may be doing the same: both write their own file, then put it in place.
        let fresh = folder.join(format!("libcuda-fake-{}.so", std::process::id()));
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let output = Command::new(rustc)
            .args(["--edition", "2024", "-O", "-A", "warnings", "-o"])
            .args([&fresh, &source])
            .output()
            .inspect_err(|error| eprintln!("skipped: rustc cannot be run: {error}"))
            .ok()?;
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the fake driver does not compile:\n{message}");
        std::fs::rename(&fresh, &library).expect("both are in the same folder");
        Some(library)
    })
    .clone()
}

/// Runs `body` in a process of its own. `name` is the calling test's.
pub(crate) fn with_driver(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let library = match settings.iter().find(|(key, _)| *key == "WARPSMITH_LIBCUDA") {
        Some((_, path)) => PathBuf::from(path),
        None => match fake_driver() {
            Some(path) => path,
            None => return,
        },
    };
    let output = Command::new(std::env::current_exe().expect("the test has a path"))
        .args(["--exact", name, "--nocapture"])
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env(CHILD, name)
        .env("WARPSMITH_BACKEND", "cuda")
        .envs(settings.iter().copied())
        .env("WARPSMITH_LIBCUDA", library)
        .output()
        .expect("the child starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed in its child process:\n{text}");
    assert!(text.contains("1 passed"), "{name} did not run:\n{text}");
}

pub(crate) fn open_error() -> String {
    Device::open().expect_err("there is nothing to open").to_string()
}

fn symbol(name: &std::ffi::CStr) -> *mut () {
    libcuda_loader::driver().expect("the fake is loaded").symbol(name)
}

/// What the fake has been asked to do since the last call.
pub(crate) fn calls() -> Vec<String> {
    // SAFETY: the fake's signature.
    let log: extern "C" fn(*mut u8, usize) -> usize = unsafe { std::mem::transmute(symbol(c"fake_log")) };
    let mut text = vec![0; 1 << 16];
    let bytes = log(text.as_mut_ptr(), text.len());
    String::from_utf8_lossy(&text[..bytes]).lines().map(String::from).collect()
}

pub(crate) fn allocations() -> usize {
    // SAFETY: the fake's signature.
    let count: extern "C" fn() -> usize = unsafe { std::mem::transmute(symbol(c"fake_allocations")) };
    count()
}

/// A kernel that is none of Warpsmith's traps.
pub(crate) fn fault() {
    // SAFETY: the fake's signature.
    let fault: extern "C" fn() = unsafe { std::mem::transmute(symbol(c"fake_fault")) };
    fault();
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
kernel!(Future, "fake_future", (u32,), 0, 1);
kernel!(Greedy, "fake_greedy", (u32,), 300_000, 1);
kernel!(Hopper, "fake_hopper", (u32,), 0, 1);
kernel!(Missing, "fake_missing", (u32,), 0, 1);
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
        param_sizes,
    }
}

pub(crate) static IMAGES: &[KernelImage] = &[
    image("fake_add_one", Arch::Sm80, ".version 7.8 .entry fake_add_one", &[8, 4, 4]),
    KernelImage {
        shared_bytes: 100_000,
        cluster: [16, 1, 1],
        ..image("fake_big", Arch::Sm80, ".version 7.8 .entry fake_big", &[4])
    },
    image("fake_broken", Arch::Sm80, ".version 7.8 nothing", &[4]),
    image("fake_future", Arch::Sm80, "//\n.version 99.1\n.entry fake_future", &[4]),
    KernelImage { shared_bytes: 300_000, ..image("fake_greedy", Arch::Sm80, ".version 7.8 .entry fake_greedy", &[4]) },
    image("fake_hopper", Arch::Sm90a, ".version 8.0 .entry fake_hopper", &[4]),
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
