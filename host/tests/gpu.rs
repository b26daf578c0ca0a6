//! The CUDA backend on a real GPU, with kernels written by hand so that nothing else can be at fault. Skipped without a GPU.

mod common;

use std::process::Command;
use std::time::Instant;

use common::{TILE, TRAP, Tile, Trap, image, kernel, load_tile};
use gpu_kernels::diagnostics::TrapNow;
use warpsmith::kernels::KernelImage;
use warpsmith::launch::{DevicePtrMut, Dim3, Kernel};
use warpsmith::{Arch, BackendKind, Device, Error, Stream, Tensor, bf16};

const CHILD: &str = "WARPSMITH_GPU_CHILD";

const ADD: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry gpu_add(.param .u64 x, .param .u32 n, .param .f32 step) {
    .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<3>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n]; ld.param.f32 %f1, [step];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;
    ld.global.f32 %f2, [%rd1]; add.f32 %f2, %f2, %f1; st.global.f32 [%rd1], %f2;
    ret;
}";

/// Spins on the clock, then adds one: slow enough to catch memory that is freed or read too early.
const SLOW: &str = "
.version 7.8
.target sm_80
.address_size 64
.visible .entry gpu_slow(.param .u64 x, .param .u64 cycles) {
    .reg .pred %p; .reg .f32 %f; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [cycles];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u64 %rd3, %clock64;
wait:
    mov.u64 %rd4, %clock64; sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p, %rd5, %rd2;
    @%p bra wait;
    ld.global.f32 %f, [%rd1]; add.f32 %f, %f, 0f3F800000; st.global.f32 [%rd1], %f;
    ret;
}";

/// Writes its dynamic shared memory's last word back: launches only if the limit was raised.
const SHARED: &str = "
.version 7.8
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 memory[];
.visible .entry gpu_shared(.param .u64 x) {
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x]; cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %dynamic_smem_size; mov.u32 %r2, memory; add.u32 %r2, %r2, %r1;
    st.shared.u32 [%r2+-4], %r1; ld.shared.u32 %r1, [%r2+-4];
    st.global.u32 [%rd1], %r1;
    ret;
}";

kernel!(Add, "gpu_add", (DevicePtrMut<f32>, u32, f32), 256, 0);
kernel!(Slow, "gpu_slow", (DevicePtrMut<f32>, u64), 1, 0);
kernel!(Shared, "gpu_shared", (DevicePtrMut<u32>,), 1, 163_840);

static IMAGES: &[KernelImage] = &[
    image::<Add>(Arch::Sm80, ADD),
    image::<Shared>(Arch::Sm80, SHARED),
    image::<Slow>(Arch::Sm80, SLOW),
    image::<Tile>(Arch::Sm90a, TILE),
    image::<Trap>(Arch::Sm80, TRAP),
];

/// A device and a stream; `None`, with a line, where there is no GPU.
fn open() -> Option<(Device, Stream)> {
    match Device::open_backend(BackendKind::Cuda) {
        Ok(device) => {
            device.add_images(IMAGES).unwrap();
            let stream = device.stream().expect("a stream");
            Some((device, stream))
        }
        Err(error) if error.is_environment() => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn add(stream: &Stream, x: &mut Tensor<f32>, step: f32) {
    let n = x.len() as u32;
    let x = x.view_mut().ptr_mut(stream).unwrap();
    // SAFETY: the kernel adds to the first `n` elements.
    unsafe { stream.launch::<Add>(n.div_ceil(256), (x, n, step)) }.expect("a launch");
}

fn slow(stream: &Stream, x: &mut Tensor<f32>, cycles: u64) {
    let x = x.view_mut().ptr_mut(stream).unwrap();
    // SAFETY: the kernel adds to the first element.
    unsafe { stream.launch::<Slow>(1, (x, cycles)) }.expect("a launch");
}

/// Runs the calling test's body in a process of its own: after a fault, no other test could use the device.
fn in_child(name: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let output = Command::new(std::env::current_exe().expect("the test has a path"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, name)
        .output()
        .expect("the child starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed in its child process:\n{text}");
    eprintln!("{text}");
}

#[test]
fn data_round_trips() {
    let Some((_device, stream)) = open() else { return };
    let data: Vec<f32> = (0..5_000_003).map(|i| i as f32).collect();
    let mut x = Tensor::from_slice(&stream, [data.len()], &data).unwrap();
    add(&stream, &mut x, 0.5);
    let back = x.to_vec(&stream).unwrap();
    assert!(back.iter().zip(&data).all(|(b, d)| *b == d + 0.5));

    let mut y = Tensor::<f32>::zeros(&stream, [data.len()]).unwrap();
    y.view_mut().copy_from(&stream, x.view()).unwrap();
    y.slice_mut(1..4).unwrap().fill(&stream, -1.0).unwrap();
    assert_eq!(y.slice(0..5).unwrap().to_vec(&stream).unwrap(), [0.5, -1.0, -1.0, -1.0, 4.5]);
    for value in [0i64, 7] {
        let filled = Tensor::filled(&stream, [33], value).unwrap();
        assert_eq!(filled.to_vec(&stream).unwrap(), [value; 33]);
    }
    // Many small uploads before the device gets to any of them.
    slow(&stream, &mut x, 20_000_000);
    let small: Vec<_> = (0..500).map(|i| Tensor::from_slice(&stream, [3], &[i, i + 1, i + 2]).unwrap()).collect();
    for (i, tensor) in small.iter().enumerate() {
        let i = i as i32;
        assert_eq!(tensor.to_vec(&stream).unwrap(), [i, i + 1, i + 2]);
    }
}

#[test]
fn events_measure_device_time() {
    let Some((device, stream)) = open() else { return };
    let mut x = Tensor::zeros(&stream, [1]).unwrap();
    slow(&stream, &mut x, 1);
    let start = stream.record().unwrap();
    slow(&stream, &mut x, 10_000_000);
    let end = stream.record().unwrap();
    assert!(!end.is_done().unwrap());
    end.synchronize().unwrap();
    let expected = 10_000_000.0 / f64::from(device.info().clock_khz.max(1));
    let ms = f64::from(start.elapsed_ms(&end).unwrap());
    // Other tests share the device, so only the lower bound is a promise; the upper one catches a wrong unit.
    assert!(ms > 0.5 * expected && ms < 1000.0 * expected, "{ms} ms, expected about {expected}");
    eprintln!("{:?}", device.info());
}

#[test]
fn streams_wait_where_they_have_to() {
    let Some((device, home)) = open() else { return };
    let other = device.stream().unwrap();
    for round in 0..20 {
        let mut x = Tensor::zeros(&home, [1]).unwrap();
        slow(&home, &mut x, 2_000_000);
        // A use elsewhere waits for the write.
        slow(&other, &mut x, 2_000_000);
        assert_eq!(x.to_vec(&other).unwrap(), [2.0]);
        // Freed while the other stream still works on it: the memory must not come back before that.
        slow(&other, &mut x, 2_000_000);
        drop(x);
        let y = Tensor::filled(&home, [1], round as f32).unwrap();
        other.synchronize().unwrap();
        assert_eq!(y.to_vec(&home).unwrap(), [round as f32]);
    }
    let mut x = Tensor::zeros(&home, [1]).unwrap();
    slow(&other, &mut x, 2_000_000);
    slow(&home, &mut x, 1);
    assert_eq!(x.to_vec(&home).unwrap(), [2.0]);
    // A write waits for those who still read: each copy has the value from before it.
    let mut y = Tensor::zeros(&other, [1]).unwrap();
    slow(&other, &mut y, 2_000_000);
    y.view_mut().copy_from(&other, x.view()).unwrap();
    x.view_mut().fill(&home, -1.0).unwrap();
    assert_eq!((y.to_vec(&other).unwrap(), x.to_vec(&home).unwrap()), (vec![2.0], vec![-1.0]));
}

#[test]
fn any_thread_may_use_the_device() {
    let Some((device, _stream)) = open() else { return };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                for n in [1usize, 1000, 1_000_000] {
                    let mut x = Tensor::zeros(&stream, [n]).unwrap();
                    add(&stream, &mut x, 2.0);
                    assert!(x.to_vec(&stream).unwrap().iter().all(|v| *v == 2.0));
                }
            });
        }
    });
}

#[test]
fn large_shared_memory() {
    let Some((_device, stream)) = open() else { return };
    if stream.device().info().shared_bytes_per_block < Shared::SHARED_BYTES as u32 {
        return eprintln!("skipped: this GPU has less shared memory");
    }
    let mut x = Tensor::zeros(&stream, [1]).unwrap();
    // SAFETY: the kernel writes one word.
    unsafe { stream.launch::<Shared>(1, (x.view_mut().ptr_mut(&stream).unwrap(),)) }.unwrap();
    assert_eq!(x.to_vec(&stream).unwrap(), [Shared::SHARED_BYTES as u32]);
}

#[test]
fn tensor_maps_load_tiles() {
    let Some((device, stream)) = open() else { return };
    if !device.supports_hopper() {
        return eprintln!("skipped: this GPU has no TMA");
    }
    let (rows, cols) = (32, 128);
    let data: Vec<bf16> = (0..rows * cols).map(|i| bf16::from_bits(i as u16)).collect();
    let x = Tensor::from_slice(&stream, [rows, cols], &data).unwrap();
    let expected: Vec<bf16> = (16..24).flat_map(|r| &data[r * cols + 64..][..64]).copied().collect();
    assert_eq!(load_tile(&stream, &x, 16, 64), expected);
}

#[test]
fn out_of_memory_is_an_error() {
    in_child("out_of_memory_is_an_error", || {
        let Some((device, stream)) = open() else { return };
        let (free, total) = device.memory().unwrap();
        let held = Tensor::<u8>::uninit(&stream, [free as usize / 2]).unwrap();
        let error = Tensor::<u8>::uninit(&stream, [free as usize * 3 / 4]).unwrap_err();
        eprintln!("{error}");
        assert!(matches!(error, Error::OutOfMemory { total: t, .. } if t == total));
        drop(held);
        // What was freed is there again, in another size, without waiting by hand.
        let again = Tensor::<u8>::zeros(&stream, [free as usize * 3 / 4]).unwrap();
        stream.synchronize().unwrap();
        drop(again);
    });
}

#[test]
fn hopeless_allocations_are_refused() {
    let Some((device, stream)) = open() else { return };
    let (_, total) = device.memory().unwrap();
    for bytes in [2 * total as usize, 1 << 44, 1 << 62] {
        let error = Tensor::<u8>::uninit(&stream, [bytes]).unwrap_err();
        eprintln!("{error}");
        assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == bytes as u64));
    }
    let mut x = Tensor::zeros(&stream, [4]).unwrap();
    add(&stream, &mut x, 1.0);
    assert_eq!(x.to_vec(&stream).unwrap(), [1.0; 4], "the device goes on working");
}

/// The device is lost to this process: every call, every drop and opening it again say so and return.
fn assert_lost(device: Device, stream: Stream, x: Tensor<f32>, fault: &Error) {
    eprintln!("{fault}");
    assert_eq!(x.to_vec(&stream).unwrap_err(), *fault);
    assert_eq!(device.memory().unwrap_err(), *fault);
    assert_eq!(Device::open_backend(BackendKind::Cuda).unwrap_err(), *fault);
    drop((x, stream, device));
    assert_eq!(Device::open_backend(BackendKind::Cuda).unwrap_err(), *fault);
}

#[test]
fn traps_are_final() {
    in_child("traps_are_final", || {
        let Some((device, stream)) = open() else { return };
        let mut x = Tensor::zeros(&stream, [4]).unwrap();
        add(&stream, &mut x, 1.0);
        // SAFETY: what is being tested.
        unsafe { stream.launch::<Trap>(1, (0,)) }.unwrap();
        let fault = stream.synchronize().unwrap_err();
        assert!(
            matches!(&fault, Error::KernelFault { kernels, .. } if kernels == &["hand_trap", "gpu_add"]),
            "{fault}"
        );
        assert_lost(device, stream, x, &fault);
    });
}

#[test]
fn traps_of_embedded_kernels_are_named() {
    in_child("traps_of_embedded_kernels_are_named", || {
        let Some((device, stream)) = open() else { return };
        let x = Tensor::zeros(&stream, [4]).unwrap();
        // SAFETY: what is being tested.
        match unsafe { stream.launch::<TrapNow>(4, (1,)) } {
            Err(error @ Error::KernelsNotBuilt { .. }) => return eprintln!("skipped: {error}"),
            launched => launched.unwrap(),
        }
        // A copy finds it as well as a wait does.
        let fault = x.to_vec(&stream).unwrap_err();
        assert!(matches!(&fault, Error::KernelFault { kernels, .. } if kernels == &["trap_now"]), "{fault}");
        assert_lost(device, stream, x, &fault);
    });
}

#[test]
fn traps_that_nobody_waits_for_are_final() {
    in_child("traps_that_nobody_waits_for_are_final", || {
        let Some((device, stream)) = open() else { return };
        let x = Tensor::<f32>::zeros(&stream, [4]).unwrap();
        // SAFETY: what is being tested.
        unsafe { stream.launch::<Trap>(1, (0,)) }.unwrap();
        drop((x, stream, device));
        let fault = Device::open_backend(BackendKind::Cuda).unwrap_err();
        assert!(matches!(&fault, Error::KernelFault { kernels, .. } if kernels == &["hand_trap"]), "{fault}");
    });
}

#[test]
fn opening_and_launching_are_quick() {
    in_child("opening_and_launching_are_quick", || {
        let cold = Instant::now();
        let Some((_device, stream)) = open() else { return };
        let opened = cold.elapsed();
        let mut x = Tensor::zeros(&stream, [1]).unwrap();
        add(&stream, &mut x, 1.0);
        stream.synchronize().unwrap();
        eprintln!("open {opened:?}, open and first launch {:?}", cold.elapsed());

        let pointer = x.view_mut().ptr_mut(&stream).unwrap();
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let start = Instant::now();
            for _ in 0..500 {
                // SAFETY: one element.
                unsafe { stream.launch::<Add>(1, (pointer, 1, 1.0)) }.unwrap();
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e6 / 500.0);
            stream.synchronize().unwrap();
        }
        eprintln!("launch: {best:.2} µs");
    });
}
