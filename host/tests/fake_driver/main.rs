//! The error paths of opening, allocating and launching, on a stand-in for the CUDA driver.
//!
//! A process loads one driver, so every test runs its body in a child process with the fake's settings.

#[path = "../../../rust-cuda/cust/tests/fake_driver/harness.rs"]
mod fake;
mod harness;
mod opening;
mod order;
mod profile;

use fake::*;
use harness::*;
use warpsmith::{
    AnyTensor, DType, Device, Error, HostTensor, L2Promotion, OobFill, Swizzle, Tensor, TensorMapDesc, bf16,
};

const FAKE_DRIVER: &str = "../rust-cuda/cust/tests/fake_driver/libcuda.rs";

#[test]
fn tensors_round_trip() {
    with_driver("tensors_round_trip", &[], round_trip);
}

#[test]
fn tensors_round_trip_without_pinned_memory() {
    let name = "tensors_round_trip_without_pinned_memory";
    with_driver(name, &[("FAKE_PINNED", "0"), ("FAKE_POOLS", "0")], round_trip);
}

fn round_trip() {
    let (device, stream) = open().unwrap();
    // Longer than two staging buffers, and not a multiple of one.
    let long: Vec<i32> = (0..2_500_001).collect();
    let x = Tensor::from_slice(&stream, [2_500_001], &long).unwrap();
    assert_eq!(x.to_vec(&stream).unwrap(), long);
    assert_eq!(x.slice(5..8).unwrap().to_vec(&stream).unwrap(), [5, 6, 7]);
    assert!(x.slice(5..2_500_002).is_err());

    let matrix = x.slice(0..12).unwrap().reshape([3, 4]).unwrap();
    assert_eq!((matrix.rows(), matrix.cols(), matrix.alignment()), (3, 4, 256));
    assert_eq!(matrix.slice(1..2).unwrap().alignment(), 16);
    let padded = matrix.strided(1, [2, 3], &[5, 1]).unwrap();
    assert_eq!(padded.to_vec(&stream).unwrap(), [1, 2, 3, 6, 7, 8]);
    assert!(!padded.rows_aligned(16) && matrix.rows_aligned(16));
    assert_eq!(
        padded.require_contiguous("gelu", "x").unwrap_err().to_string(),
        "gelu: `x` has strides [5, 1] for shape [2, 3]: it has to be contiguous"
    );

    let mut y = Tensor::<i32>::zeros(&stream, [3, 4]).unwrap();
    y.view_mut().copy_from(&stream, matrix).unwrap();
    y.slice_mut(1..2).unwrap().fill(&stream, -7).unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [0, 1, 2, 3, -7, -7, -7, -7, 8, 9, 10, 11]);
    let (head, mut tail) = y.view_mut().split_at(1).unwrap();
    assert_eq!(head.shape(), &[1, 4]);
    tail.write(&stream, &[1; 8]).unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [0, 1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1]);

    for value in [0i64, -1, 0x0123_4567_89AB_CDEF] {
        let filled = Tensor::filled(&stream, [7], value).unwrap();
        assert_eq!(filled.to_vec(&stream).unwrap(), [value; 7]);
    }
    let half = Tensor::filled(&stream, [3], bf16::from_f32(1.5)).unwrap();
    assert_eq!(half.to_vec(&stream).unwrap(), [bf16::from_f32(1.5); 3]);

    let empty = Tensor::<f32>::zeros(&stream, [4, 0]).unwrap();
    assert!(empty.to_vec(&stream).unwrap().is_empty());
    assert_eq!((empty.view().rows(), empty.view().cols()), (4, 0));

    let host = HostTensor::from_f64(DType::F16, [2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let mut any = AnyTensor::from_host(&stream, &host).unwrap();
    assert_eq!(any.to_host(&stream).unwrap(), host);
    assert_eq!(any.view().typed::<f32>("gelu", "x").unwrap_err().to_string(), "gelu: `x` is float16, expected float32");
    let mut view = any.view_mut();
    view.write(&stream, &host).unwrap();
    assert!(view.typed::<warpsmith::f16>("gelu", "y").is_ok());

    let error = Tensor::from_slice(&stream, [2, 2], &[1.0f32]).unwrap_err();
    assert_eq!(error.to_string(), "from_slice: `data` has shape [1], expected 4 elements for shape [2, 2]");
    let error = Tensor::<f32>::uninit(&stream, [1 << 62]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");

    let (start, end) = (stream.record().unwrap(), stream.record().unwrap());
    assert!(end.is_done().unwrap());
    assert_eq!(start.elapsed_ms(&end).unwrap(), 0.25);

    // Any thread may use any handle.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                let mut z = Tensor::zeros(&stream, [9]).unwrap();
                add_one(&stream, &mut z).unwrap();
                assert_eq!(z.to_vec(&stream).unwrap(), [1.0; 9]);
                assert_eq!(x.to_vec(&stream).unwrap().len(), long.len());
            });
        }
    });
    drop((x, y, half, empty, any));
    assert_eq!(allocations(), 0);
}

#[test]
fn out_of_memory() {
    with_driver("out_of_memory", &[("FAKE_MEMORY", "1048576")], || {
        let (_device, stream) = open().unwrap();
        let held = Tensor::<u8>::zeros(&stream, [512 << 10]).unwrap();
        calls();
        let error = Tensor::<u8>::zeros(&stream, [768 << 10]).unwrap_err();
        assert_eq!(error.to_string(), "out of device memory: 768.0 KiB requested, 512.0 KiB of 1.0 MiB free");
        assert_eq!(calls(), ["trim"], "it tries again with what the pool kept");
        let error = Tensor::<u8>::zeros(&stream, [1 << 62]).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == 1 << 62), "{error}");
        assert_eq!(calls(), [""; 0], "there is no point in waiting for that much");
        drop(held);
        assert!(Tensor::<u8>::zeros(&stream, [768 << 10]).is_ok(), "the device goes on working");
    });
}

#[test]
fn faults_are_final() {
    with_driver("faults_are_final", &[], || {
        let (device, stream) = open().unwrap();
        let (other, event) = (device.stream().unwrap(), stream.record().unwrap());
        let mut x = Tensor::<f32>::zeros(&stream, [4]).unwrap();
        add_one(&stream, &mut x).unwrap();
        add_one(&other, &mut x).unwrap();
        trap(&stream);
        let fault = stream.synchronize().unwrap_err();
        assert_eq!(
            fault.to_string(),
            "a kernel failed on the device: CUDA_ERROR_LAUNCH_FAILED (719); last launched, newest first: fake_trap, fake_add_one. \
             A process cannot use the device again after this: restart it"
        );
        assert!(!fault.is_environment());
        calls();
        assert_eq!(x.to_vec(&stream), Err(fault.clone()));
        assert_eq!(add_one(&other, &mut x), Err(fault.clone()));
        assert_eq!(Tensor::<f32>::zeros(&stream, [4]).unwrap_err(), fault);
        assert_eq!(event.synchronize(), Err(fault.clone()));
        assert_eq!(device.stream().unwrap_err(), fault);
        assert_eq!(device.memory(), Err(fault.clone()));
        assert_eq!(Device::open().unwrap_err(), fault);
        // From any thread, in any order.
        std::thread::scope(|scope| {
            scope.spawn(move || drop((device, x)));
            scope.spawn(move || drop((event, other)));
            scope.spawn(move || drop(stream));
        });
        assert_eq!(Device::open().unwrap_err(), fault);
        assert_eq!(calls(), [""; 0], "the driver is left alone");
    });
}

#[test]
fn faults_that_only_drops_see() {
    with_driver("faults_that_only_drops_see", &[], || {
        let (device, stream) = open().unwrap();
        let x = Tensor::<f32>::zeros(&stream, [4]).unwrap();
        trap(&stream);
        drop(x);
        calls();
        let fault = stream.synchronize().unwrap_err();
        assert!(
            matches!(&fault, Error::KernelFault { kernels, code: 719, .. } if kernels == &["fake_trap"]),
            "{fault}"
        );
        drop((device, stream));
        assert_eq!(Device::open().unwrap_err(), fault);
        assert_eq!(calls(), [""; 0]);
    });
}

#[test]
fn faults_that_only_closing_sees() {
    with_driver("faults_that_only_closing_sees", &[], || {
        let (device, stream) = open().unwrap();
        drop((device, stream));
        let (device, stream) = open().unwrap();
        trap(&stream);
        calls();
        drop((device, stream));
        assert_eq!(calls(), ["refused"]);
        let fault = Device::open().unwrap_err();
        assert!(
            matches!(&fault, Error::KernelFault { kernels, code: 719, .. } if kernels == &["fake_trap"]),
            "{fault}"
        );
        assert_eq!(calls(), [""; 0]);
    });
}

#[test]
fn faults_of_others() {
    with_driver("faults_of_others", &[], || {
        drop(open().unwrap());
        fault();
        assert_eq!(
            open_error(),
            "a kernel failed on the device: CUDA_ERROR_LAUNCH_FAILED (719); last launched, newest first: none of Warpsmith's. \
             A process cannot use the device again after this: restart it"
        );
    });
}

#[test]
fn memory_outlives_every_stream_that_uses_it() {
    with_driver("memory_outlives_every_stream_that_uses_it", &[], || {
        let (device, home) = open().unwrap();
        let other = device.stream().unwrap();
        let mut x = Tensor::<f32>::zeros(&home, [4]).unwrap();
        calls();
        add_one(&other, &mut x).unwrap();
        add_one(&other, &mut x).unwrap();
        let first = calls();
        assert_eq!(first[0], "s1 waits for s0", "allocated and zeroed before its use elsewhere");
        assert_eq!(first.iter().filter(|call| call.contains("waits")).count(), 1);
        // The stream's handle may go before the tensor does.
        drop(other);
        drop(x);
        let last = calls();
        assert_eq!(last[0], "s0 waits for s1");
        assert!(last[1].starts_with("free") && last[1].ends_with("on s0"), "{last:?}");

        let mut y = Tensor::<f32>::zeros(&home, [4]).unwrap();
        add_one(&home, &mut y).unwrap();
        calls();
        drop(y);
        assert_eq!(calls().len(), 1, "one stream needs no events");
    });
}

#[test]
fn what_waits_by_itself_is_launched_early_if_the_driver_can() {
    for version in ["13000", "12020"] {
        with_driver(
            "what_waits_by_itself_is_launched_early_if_the_driver_can",
            &[("FAKE_DRIVER_VERSION", version)],
            || {
                let (_device, stream) = open().unwrap();
                calls();
                // SAFETY: a stand-in for a kernel.
                unsafe { stream.launch::<Early>(1, (0,)) }.unwrap();
                let launch = calls().pop().unwrap();
                assert!(launch.starts_with("fake_early <<<1.1.1, 128.1.1, 0>>>"), "{launch}");
                let version = std::env::var("FAKE_DRIVER_VERSION").unwrap();
                assert_eq!(launch.ends_with(", 6 = [1, 0, 0]"), version == "13000", "{launch}");
            },
        );
    }
}

#[test]
fn blocks_that_wait_for_each_other_are_launched_together() {
    with_driver("blocks_that_wait_for_each_other_are_launched_together", &[], || {
        let (device, stream) = open().unwrap();
        // 16 of 128 threads on each of 132 multiprocessors.
        assert_eq!(device.blocks_at_once::<Together>().unwrap(), 16 * 132);
        calls();
        // SAFETY: a stand-in for a kernel.
        unsafe {
            stream.launch::<Together>((16, 132), (0,)).unwrap();
            let launch = calls().pop().unwrap();
            assert!(launch.starts_with("fake_together <<<16.132.1, 128.1.1, 0>>>"), "{launch}");
            assert!(launch.ends_with(", 2 = [1, 0, 0]"), "{launch}");
            let error = stream.launch::<Together>((16, 133), (0,)).unwrap_err().to_string();
            assert_eq!(
                error,
                "kernel fake_together cannot be launched: its blocks wait for each other, and of grid [16, 133, 1] with blocks [128, 1, 1], \
                 which are 2128, the device holds 2112 at once: `Device::blocks_at_once` is the most"
            );
            stream.launch_with::<Together>((16, 133), 64, (0,)).unwrap();
        }
    });
}

#[test]
fn impossible_launches() {
    with_driver("impossible_launches", &[], || {
        let (_device, stream) = open().unwrap();
        let mut x = Tensor::<f32>::zeros(&stream, [4]).unwrap();
        let x = x.view_mut().ptr_mut(&stream).unwrap();
        // SAFETY: none of these gets to run, or it does nothing.
        unsafe {
            let error = stream.launch::<AddOne>((1, 0), (x, 4, 1.0)).unwrap_err();
            assert_eq!(
                error.to_string(),
                "kernel fake_add_one cannot be launched: grid [1, 0, 1] of blocks [128, 1, 1] is empty"
            );
            let error = stream.launch_with::<AddOne>(1, 256, (x, 4, 1.0)).unwrap_err();
            assert!(error.to_string().ends_with("block [256, 1, 1] exceeds the declared [128, 1, 1]"));
            stream.launch_with::<AddOne>(1, 64, (x, 4, 1.0)).unwrap();
            let error = stream.launch::<AddOneOtherArgs>(1, (x, 4, 1.0)).unwrap_err();
            assert!(error.to_string().contains("parameters of [8, 4, 4] bytes, declared [8, 8, 4]"), "{error}");
            let error = stream.launch::<Broken>(1, (0,)).unwrap_err();
            assert_eq!(
                error.to_string(),
                "kernel fake_broken does not compile for this GPU: CUDA_ERROR_INVALID_PTX (218): ptxas fatal: no entry"
            );
            let error = stream.launch::<Future>(1, (0,)).unwrap_err();
            assert!(matches!(error, Error::DriverTooOld { .. }), "{error}");
            let error = stream.launch::<Greedy>(1, (0,)).unwrap_err();
            assert!(error.to_string().contains("300000 bytes of shared memory, this GPU has 232448"));
            let error = stream.launch::<Missing>(1, (0,)).unwrap_err().to_string();
            match warpsmith::kernels::not_built() {
                Some(why) => assert_eq!(error, format!("this build carries no kernels: {why}")),
                None => assert!(
                    error.starts_with("there is no kernel fake_driver::harness::fake_missing for sm_90a: what there is of `fake_driver`"),
                    "{error}"
                ),
            }
            stream.launch::<Hopper>(1, (0,)).unwrap();

            calls();
            let error = stream.launch::<Big>(8, (0,)).unwrap_err();
            assert!(error.to_string().contains("clusters of [16, 1, 1]"));
            stream.launch::<Big>(32, (0,)).unwrap();
            stream.launch::<Big>(16, (0,)).unwrap();
            assert_eq!(
                calls(),
                [
                    "load [(7, 0x1)]",
                    "fake_big attribute 8 = 100000",
                    "fake_big attribute 9 = 100",
                    "fake_big attribute 14 = 1",
                    "fake_big <<<32.1.1, 128.1.1, 100000>>> on s0",
                    "fake_big <<<16.1.1, 128.1.1, 100000>>> on s0",
                ],
                "loaded once, at its level of optimisation, prepared once"
            );
        }
    });
}

#[test]
fn launches_are_lean() {
    with_driver("launches_are_lean", &[("FAKE_QUIET", "1")], || {
        let (_device, stream) = open().unwrap();
        let mut x = Tensor::<f32>::zeros(&stream, [4]).unwrap();
        add_one(&stream, &mut x).unwrap();
        let before = driver_calls();
        for _ in 0..10 {
            add_one(&stream, &mut x).unwrap();
        }
        // Which context is current, and the launch.
        assert_eq!(driver_calls() - before, 20);
    });
}

#[test]
fn hopper_kernels_elsewhere() {
    with_driver("hopper_kernels_elsewhere", &[("FAKE_CC", "86")], || {
        let (device, stream) = open().unwrap();
        assert!(!device.supports_hopper());
        // SAFETY: it is not found.
        let error = unsafe { stream.launch::<Hopper>(1, (0,)) }.unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no kernel fake_driver::harness::fake_hopper for sm_86, only for sm_90a"
        );
    });
}

#[test]
fn tensor_maps() {
    with_driver("tensor_maps", &[], || {
        let (device, stream) = open().unwrap();
        let x = Tensor::<bf16>::zeros(&stream, [128, 256]).unwrap();
        let address = x.view().ptr(&stream).unwrap().addr();
        let desc = TensorMapDesc {
            address,
            dtype: DType::BF16,
            dims: &[256, 128],
            strides_bytes: &[512],
            box_dims: &[64, 128],
            swizzle: Swizzle::B128,
            l2_promotion: L2Promotion::B128,
            oob_fill: OobFill::Zero,
        };
        calls();
        assert_eq!(device.tensor_map(&desc).unwrap().0[0], address);
        assert_eq!(
            calls(),
            [format!(
                "encode type 9 at {address:#x} dims [256, 128] strides [512] box [64, 128] elements [1, 1] \
                 interleave 0 swizzle 3 l2 2 oob 0"
            )]
        );
        let wide = TensorMapDesc { box_dims: &[128, 128], ..desc };
        assert_eq!(
            device.tensor_map(&wide).unwrap_err().to_string(),
            "tensor_map: parameter `box_dims` = 256 bytes in a row: expected at most 128 with this swizzle"
        );
    });
}
