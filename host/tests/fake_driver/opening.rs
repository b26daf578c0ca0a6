//! Finding a driver and GPUs.

use std::io;

use warpsmith::{Arch, BackendKind, Device, Error, Tensor};

use crate::fake::{allocations, calls, handles, with_driver};
use crate::harness::{IMAGES, add_one, open, open_error};

#[test]
fn a_named_driver_is_not_there() {
    let settings = [("WARPSMITH_LIBCUDA", "/nowhere/libcuda.so.1"), ("WARPSMITH_BACKEND", "")];
    with_driver("opening::a_named_driver_is_not_there", &settings, || {
        // With and without a backend that was asked for: the simulator does not stand in for it.
        let cuda = || Device::open_backend(BackendKind::Cuda).unwrap_err();
        for error in [Device::open().unwrap_err(), Device::open_all().unwrap_err(), cuda()] {
            assert!(matches!(error, Error::NamedDriver { .. }) && error.is_environment(), "{error:?}");
            assert!(format!("{error:?}").contains("WARPSMITH_LIBCUDA"), "as main shows it: {error:?}");
            let text = error.to_string();
            assert!(
                text.starts_with("WARPSMITH_LIBCUDA names no CUDA driver (/nowhere/libcuda.so.1: cannot"),
                "{text}"
            );
        }
        assert!(Device::count(BackendKind::Cuda).is_err());
        for verb in ["doctor", "verify"] {
            let said = command(verb);
            assert!(said.contains("WARPSMITH_LIBCUDA names no CUDA driver (/nowhere/"), "{verb}: {said}");
        }
        assert_eq!(Device::open_backend(BackendKind::Sim).unwrap().info().backend, BackendKind::Sim);
    });
}

/// Runs the command, to which the machine lacks something, and returns what it says.
fn command(verb: &str) -> String {
    let (said, saying) = io::pipe().unwrap();
    let errors = saying.try_clone().unwrap();
    // It says less than a pipe holds.
    assert_eq!(warpsmith::cli::run(["warpsmith", verb], io::empty(), saying, errors), 3);
    io::read_to_string(said).unwrap()
}

#[test]
fn not_a_driver() {
    let settings = [("WARPSMITH_LIBCUDA", "libc.so.6")];
    with_driver("opening::not_a_driver", &settings, || {
        assert!(open_error().contains("libc.so.6: has no cuInit: not a CUDA driver"), "{}", open_error());
    });
}

#[test]
fn driver_too_old() {
    with_driver("opening::driver_too_old", &[("FAKE_DRIVER_VERSION", "11040")], || {
        assert_eq!(
            open_error(),
            "the CUDA driver is too old: it supports CUDA 11.4, the kernels need 12.0; update the NVIDIA driver"
        );
    });
}

#[test]
fn no_gpu() {
    let settings = [("FAKE_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "7")];
    with_driver("opening::no_gpu", &settings, || {
        assert_eq!(open_error(), "the CUDA driver 13.0 finds no GPU (CUDA_VISIBLE_DEVICES is 7)");
    });
}

#[test]
fn gpu_too_old() {
    with_driver("opening::gpu_too_old", &[("FAKE_CC", "75")], || {
        assert_eq!(open_error(), "Fake GPU has compute capability 7.5: the kernels need 8.0 (Ampere) or newer");
        assert_eq!(calls(), [""; 0], "no context is made for it");
    });
}

#[test]
fn backends_by_name() {
    with_driver("opening::backends_by_name", &[("WARPSMITH_BACKEND", "sim")], || {
        assert_eq!(Device::open().unwrap().info().backend, BackendKind::Sim);
    });
    let settings = [("WARPSMITH_BACKEND", ""), ("FAKE_DEVICES", "0")];
    with_driver("opening::backends_by_name", &settings, || {
        assert_eq!(Device::open().unwrap().info().backend, BackendKind::Sim, "where there is no GPU");
    });
}

#[test]
fn device_is_described() {
    with_driver("opening::device_is_described", &[], || {
        let (device, _stream) = open().unwrap();
        let info = device.info();
        assert_eq!(info.name, "Fake GPU");
        assert_eq!((info.compute_capability, info.multiprocessors), ((9, 0), 132));
        assert_eq!(info.shared_bytes_per_block, 232_448);
        assert_eq!(info.driver_version.to_string(), "13.0");
        assert_eq!(device.archs()[..2], [Arch::Sm90a, Arch::Sm90]);
        assert!(device.supports_hopper());
        assert_eq!(device, Device::open().unwrap(), "opened once");
    });
}

#[test]
fn several_gpus() {
    with_driver("opening::several_gpus", &[("FAKE_DEVICES", "2")], || {
        let devices = Device::open_all().unwrap();
        let streams: Vec<_> = devices.iter().map(|device| device.stream().unwrap()).collect();
        let zeros = |stream| Tensor::<f32>::zeros(stream, [4]).unwrap();
        let mut tensors: Vec<_> = streams.iter().map(zeros).collect();
        devices.iter().for_each(|device| device.add_images(IMAGES).unwrap());
        // In turns: each call finds the other GPU's context current.
        for _ in 0..3 {
            for (stream, x) in streams.iter().zip(&mut tensors) {
                add_one(stream, x).unwrap();
            }
        }
        for (stream, x) in streams.iter().zip(&tensors) {
            assert_eq!(x.to_vec(stream).unwrap(), [3.0; 4]);
        }
        assert_eq!(
            Device::open_nth(2).unwrap_err().to_string(),
            "device: parameter `ordinal` = 2: expected below 2, the number of cuda devices"
        );
        calls();
        drop((streams, devices, tensors));
        assert_eq!(calls().iter().filter(|call| *call == "release").count(), 2);
        assert_eq!((allocations(), handles()), (0, 0));
    });
}
