//! The crate on a stand-in for the driver.

#[path = "fake_driver/harness.rs"]
mod harness;

use cust::context::CurrentContext;
use cust::function::{ClusterSize, FunctionAttribute, LaunchAttribute};
use cust::memory::{MemoryPool, cuda_free_async};
use cust::module::{ModuleJitOption, OptLevel};
use cust::prelude::*;
use cust::stream::{StreamCaptureMode, StreamWaitEventFlags};
use cust::tensor_map::{
    TensorMap, TensorMapDataType, TensorMapFloatOobFill, TensorMapL2Promotion, TensorMapSwizzle, Tiled,
};
use harness::*;

const FAKE_DRIVER: &str = "tests/fake_driver/libcuda.rs";
const ADD_ONE: &str = ".version 7.8 .entry fake_add_one";

fn stream() -> Stream {
    Stream::new(StreamFlags::NON_BLOCKING, None).unwrap()
}

fn add_one() -> Function {
    Module::from_ptx(ADD_ONE, &[]).unwrap().get_function("fake_add_one").unwrap()
}

#[test]
fn not_a_driver() {
    with_driver("not_a_driver", &[("WARPSMITH_LIBCUDA", "libc.so.6")], || {
        let error = cust::quick_init().unwrap_err().to_string();
        assert_eq!(error, "cuInit: no CUDA driver found (libc.so.6: has no cuInit: not a CUDA driver)");
    });
}

#[test]
fn devices_by_ordinal() {
    with_driver("devices_by_ordinal", &[("FAKE_DEVICES", "3")], || {
        cust::init(CudaFlags::empty()).unwrap();
        let devices: Vec<Device> = Device::devices().unwrap().map(Result::unwrap).collect();
        assert_eq!(devices.iter().map(|device| device.as_raw()).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(devices[2].name().unwrap(), "Fake GPU");
        assert_eq!(devices[1].get_attribute(DeviceAttribute::MultiprocessorCount), Ok(132));
        for ordinal in [3, u32::MAX] {
            let error = Device::get_device(ordinal).unwrap_err();
            assert_eq!(error.to_string(), "cuDeviceGet: CUDA_ERROR_INVALID_DEVICE (101)");
        }
        let version = cust::CudaApiVersion::get().unwrap();
        assert_eq!((version.major(), version.minor(), version.as_raw()), (13, 0, 13_000));
    });
}

#[test]
fn objects_keep_their_context() {
    with_driver("objects_keep_their_context", &[], || {
        let error = Event::new(EventFlags::DEFAULT).unwrap_err();
        assert_eq!(error.code(), ErrorCode::INVALID_CONTEXT, "there is none yet");
        let context = cust::quick_init().unwrap();
        let again = Context::new(context.device()).unwrap();
        assert_eq!(calls(), ["retain", "retain"]);
        let objects = (stream(), Event::new(EventFlags::DEFAULT).unwrap(), add_one());
        let memory = (DeviceBuffer::from_slice(&[1u8]).unwrap(), LockedBuffer::new(&1u8, 1).unwrap());
        drop((context, again));
        assert_eq!(calls(), ["load", "pin 1", "release"]);
        objects.0.synchronize().unwrap();
        // On a thread that never had a context.
        std::thread::spawn(|| drop((objects, memory))).join().unwrap();
        assert_eq!(calls(), ["unload", "unpin", "release"]);
        assert_eq!((handles(), allocations()), (0, 0));
        assert_eq!(CurrentContext::get_device().unwrap_err().code(), ErrorCode::INVALID_CONTEXT);
    });
}

#[test]
fn two_devices() {
    with_driver("two_devices", &[("FAKE_DEVICES", "2")], || {
        let first = cust::quick_init().unwrap();
        let function = add_one();
        let on_first = stream();
        let second = Context::new(Device::get_device(1).unwrap()).unwrap();
        assert_eq!(CurrentContext::get_device(), Ok(second.device()));
        let on_second = stream();
        // What belongs to a device works while that is current.
        on_second.synchronize().unwrap();
        assert_eq!(on_first.synchronize().unwrap_err().code(), ErrorCode::INVALID_HANDLE);
        // SAFETY: it has no parameters, and is not run.
        let mixed = unsafe { on_second.launch(&function, 1, 1, 0, &[]) };
        assert_eq!(mixed.unwrap_err().to_string(), "cuLaunchKernel: CUDA_ERROR_INVALID_HANDLE (400)");
        // It ends whatever is current, and leaves that as it was.
        let before = handles();
        drop((on_first, function));
        assert_eq!(handles(), before - 3, "a stream, a module and a function");
        assert_eq!(CurrentContext::get_device(), Ok(second.device()));
        CurrentContext::set_current(&first).unwrap();
        drop(on_second);
        assert_eq!(CurrentContext::get_device(), Ok(first.device()));
        assert_eq!(handles(), 0);
    });
}

#[test]
fn buffers() {
    with_driver("buffers", &[("FAKE_MEMORY", "1048576")], || {
        let _context = cust::quick_init().unwrap();
        let mut x = DeviceBuffer::from_slice(&[1.0f32, 2.0, 3.0]).unwrap();
        let mut y = DeviceBuffer::zeroed(3).unwrap();
        assert_eq!(y.as_host_vec().unwrap(), [0.0; 3]);
        y.copy_from(&x).unwrap();
        x.set_zero().unwrap();
        let mut values = [0.0; 3];
        y.copy_to(&mut values).unwrap();
        assert_eq!((values, x.as_host_vec().unwrap()), ([1.0, 2.0, 3.0], vec![0.0; 3]));
        assert_eq!(y.as_device_ptr().wrapping_add(2).as_raw(), y.as_device_ptr().as_raw() + 8);

        let error = y.copy_to(&mut [0.0; 2]).unwrap_err();
        assert_eq!(error.to_string(), "cuMemcpyDtoH: CUDA_ERROR_INVALID_VALUE (1)");
        let other = DeviceBuffer::<f32>::zeroed(2).unwrap();
        assert_eq!(y.copy_from(&other).unwrap_err().code(), ErrorCode::INVALID_VALUE);

        // SAFETY: there is nothing to write.
        let empty = unsafe { DeviceBuffer::<u64>::uninitialized(0) }.unwrap();
        assert!(empty.is_empty() && empty.as_device_ptr().is_null() && empty.as_host_vec().unwrap().is_empty());
        assert_eq!(DeviceBuffer::<u64>::zeroed(1 << 62).unwrap_err().code(), ErrorCode::INVALID_VALUE);
        assert_eq!(DeviceBuffer::<u64>::zeroed(1 << 20).unwrap_err().code(), ErrorCode::OUT_OF_MEMORY);

        let mut one = DeviceBox::new(&7u64).unwrap();
        assert_eq!(one.as_host_value(), Ok(7));
        one.set(&8).unwrap();
        assert_eq!(one.as_host_value(), Ok(8));
        assert_eq!(allocations(), 4);
        drop((x, y, other, one));
        assert_eq!(allocations(), 0);
    });
}

#[test]
fn work_in_the_order_of_a_stream() {
    with_driver("work_in_the_order_of_a_stream", &[], || {
        let context = cust::quick_init().unwrap();
        let stream = stream();
        let mut pinned = LockedBuffer::from_slice(&[1u16, 2, 3]).unwrap();
        // SAFETY: everything is queued on one stream, which is waited for.
        unsafe {
            let x = DeviceBuffer::from_slice_async(&pinned, &stream).unwrap();
            let mut y = DeviceBuffer::zeroed_async(3, &stream).unwrap();
            y.async_copy_from(&x, &stream).unwrap();
            pinned.fill(0);
            y.async_copy_to(&mut pinned, &stream).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(*pinned, [1, 2, 3]);
            x.drop_async(&stream).unwrap();
            y.drop_async(&stream).unwrap();
        }
        assert_eq!(allocations(), 0);

        let default = MemoryPool::default_of(context.device()).unwrap();
        default.set_release_threshold(u64::MAX).unwrap();
        assert_eq!(default.release_threshold(), Ok(u64::MAX));
        let pool = MemoryPool::new(context.device()).unwrap();
        // SAFETY: nobody uses the memory.
        unsafe {
            let address = pool.alloc_async::<f64>(&stream, 100).unwrap();
            assert_eq!((pool.used(), pool.reserved()), (Ok(800), Ok(800)));
            assert_eq!(pool.used_high(), Ok(800));
            cuda_free_async(&stream, address).unwrap();
            assert_eq!(pool.used_high(), Ok(800));
            pool.reset_used_high().unwrap();
            assert_eq!(pool.used_high(), Ok(0));
            assert_eq!(pool.alloc_async::<f64>(&stream, 1 << 61).unwrap_err().function(), "cuMemAllocFromPoolAsync");
        }
        pool.trim_to(0).unwrap();

        let (start, end) = (Event::new(EventFlags::DEFAULT).unwrap(), Event::new(EventFlags::DEFAULT).unwrap());
        start.record(&stream).unwrap();
        end.record(&stream).unwrap();
        let other = Stream::new(StreamFlags::DEFAULT, Some(-1)).unwrap();
        calls();
        other.wait_event(&end, StreamWaitEventFlags::DEFAULT).unwrap();
        assert_eq!(calls(), ["s1 waits for s0"]);
        assert_eq!((end.query(), other.query()), (Ok(EventStatus::Ready), Ok(true)));
        end.synchronize().unwrap();
        assert_eq!(end.elapsed(&start).unwrap().as_micros(), 250);
    });
}

#[test]
fn modules() {
    with_driver("modules", &[], || {
        let _context = cust::quick_init().unwrap();
        calls();
        let options = [ModuleJitOption::MaxRegisters(64), ModuleJitOption::OptLevel(OptLevel::O2)];
        let module = Module::from_ptx(ADD_ONE, &options).unwrap();
        assert_eq!(calls(), ["load [(0, 0x40), (7, 0x2)]"]);
        let function = module.get_function("fake_add_one").unwrap();
        assert_eq!(function.get_attribute(FunctionAttribute::NumRegisters), Ok(40));
        function.set_attribute(FunctionAttribute::NonPortableClusterSizeAllowed, 1).unwrap();
        assert_eq!(calls(), ["fake_add_one attribute 14 = 1"]);
        assert_eq!(function.max_active_blocks_per_multiprocessor((32, 4).into(), 0), Ok(16));
        let huge = function.max_active_blocks_per_multiprocessor((u32::MAX, 2).into(), 0);
        assert_eq!(huge.unwrap_err().code(), ErrorCode::INVALID_VALUE);
        for name in ["missing", "fake\0"] {
            let error = module.get_function(name).unwrap_err();
            assert_eq!(error.to_string(), "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)");
        }

        let error = Module::from_ptx(".version 7.8 nothing", &[]).unwrap_err();
        assert_eq!((error.error().code(), error.log()), (ErrorCode::INVALID_PTX, "ptxas fatal: no entry"));
        assert_eq!(error.to_string(), "cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218): ptxas fatal: no entry");
        assert_eq!(Module::from_ptx("\0", &[]).unwrap_err().error().code(), ErrorCode::INVALID_PTX);
    });
}

#[test]
fn a_driver_with_libraries() {
    with_driver("a_driver_with_libraries", &[LIBRARIES], || {
        let context = cust::quick_init().unwrap();
        calls();
        let module = Module::from_ptx(ADD_ONE, &[ModuleJitOption::OptLevel(OptLevel::O2)]).unwrap();
        assert_eq!(calls(), ["load library [(7, 0x2)]", "module of library"]);
        let function = module.get_function("fake_add_one").unwrap();
        assert_eq!(function.get_attribute(FunctionAttribute::NumRegisters), Ok(40));
        drop((module, function));
        assert_eq!(calls(), ["unload library"]);

        let error = Module::from_ptx(".version 7.8 nothing", &[]).unwrap_err();
        assert_eq!(error.to_string(), "cuLibraryLoadData: CUDA_ERROR_INVALID_PTX (218): ptxas fatal: no entry");
        assert_eq!(
            Module::from_ptx("\0", &[]).unwrap_err().error().to_string(),
            "cuLibraryLoadData: CUDA_ERROR_INVALID_PTX (218)"
        );
        calls();
        // Compiled only for a context.
        let error = Module::from_ptx(".entry .code lazy", &[]).unwrap_err();
        assert_eq!(error.to_string(), "cuLibraryGetModule: CUDA_ERROR_INVALID_PTX (218)");
        assert_eq!(calls(), ["load library", "module of library", "unload library"]);
        drop(context);
        assert_eq!(handles(), 0);
    });
}

#[test]
fn a_newer_and_an_older_driver() {
    with_driver("a_newer_and_an_older_driver", &[], || {
        let _context = cust::quick_init().unwrap();
        // Codes that this crate has no name for: one that the driver names, one that it does not.
        let error = Module::from_ptx(".code 4242", &[]).unwrap_err().error();
        assert_eq!(error.code(), ErrorCode::from_raw(4242));
        assert_eq!(error.to_string(), "cuModuleLoadDataEx: CUDA_ERROR_OF_THE_FUTURE (4242)");
        let error = Module::from_ptx(".code 4343", &[]).unwrap_err().error();
        assert_eq!(error.to_string(), "cuModuleLoadDataEx: CUDA error 4343 (4343)");
        // A function that the fake lacks.
        let error = add_one().max_active_clusters(ClusterSize::x(2), 128.into(), 0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::FUNCTION_NOT_FOUND);
        let text = error.to_string();
        let (start, end) = ("cuOccupancyMaxActiveClusters: /", " has no such function: the driver is too old");
        assert!(text.starts_with(start) && text.ends_with(end), "{text}");
    });
}

#[test]
fn launches() {
    with_driver("launches", &[], || {
        let _context = cust::quick_init().unwrap();
        let stream = stream();
        let module = Module::from_ptx(ADD_ONE, &[]).unwrap();
        let x = DeviceBuffer::from_slice(&[1.0f32, 2.0, 3.0]).unwrap();
        calls();
        // SAFETY: the fake's kernel takes an address, a count and a step, and adds to as many values.
        unsafe {
            launch!(module.fake_add_one<<<2, (128, 2), 16, stream>>>(x.as_device_ptr(), 3u32, 1.0f32)).unwrap();
            let function = module.get_function("fake_add_one").unwrap();
            // The function keeps its module.
            drop(module);
            launch!(function<<<(1, 2, 3), [4, 5, 6], 0, stream>>>(x.as_device_ptr(), 2u32, 10.0f32)).unwrap();
            assert_eq!(x.as_host_vec().unwrap(), [12.0, 13.0, 4.0]);
            assert_eq!(
                calls(),
                ["fake_add_one <<<2.1.1, 128.2.1, 16>>> on s0", "fake_add_one <<<1.2.3, 4.5.6, 0>>> on s0"]
            );

            let (pointer, count, step) = (x.as_device_ptr(), 1u32, 0.5f32);
            let arguments = [(&raw const pointer).cast(), (&raw const count).cast(), (&raw const step).cast()];
            let arguments = arguments.map(<*const std::ffi::c_void>::cast_mut);
            let attributes = [
                LaunchAttribute::ClusterDimension(ClusterSize::xy(2, 4)),
                LaunchAttribute::Cooperative,
                LaunchAttribute::ProgrammaticStreamSerialization,
                LaunchAttribute::Priority(-2),
            ];
            stream.launch_with(&function, (2, 4), 32, 0, &attributes, &arguments).unwrap();
            stream.launch_with(&function, 1, 32, 0, &[], &arguments).unwrap();
            let error = stream.launch_with(&function, 1, 32, 0, &[attributes[1]; 5], &arguments).unwrap_err();
            assert_eq!(error.to_string(), "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (1)");
            assert_eq!(x.as_host_vec().unwrap(), [13.0, 13.0, 4.0]);
            let attributes = "4 = [2, 4, 1], 2 = [1, 0, 0], 6 = [1, 0, 0], 8 = [4294967294, 0, 0]";
            let first = format!("fake_add_one <<<2.4.1, 32.1.1, 0>>> on s0, {attributes}");
            assert_eq!(calls(), [first, "fake_add_one <<<1.1.1, 32.1.1, 0>>> on s0".into()]);
        }
    });
}

#[test]
fn graphs() {
    with_driver("graphs", &[], || {
        let _context = cust::quick_init().unwrap();
        let (stream, function) = (stream(), add_one());
        let mut x = DeviceBuffer::from_slice(&[1.0f32, 2.0]).unwrap();
        assert_eq!(stream.end_capture().unwrap_err().code(), ErrorCode::STREAM_CAPTURE_UNMATCHED);
        stream.begin_capture(StreamCaptureMode::ThreadLocal).unwrap();
        assert_eq!(stream.is_capturing(), Ok(true));
        // SAFETY: the fake's kernel takes an address, a count and a step; the buffer outlives the graph's runs.
        unsafe {
            x.set_zero_async(&stream).unwrap();
            launch!(function<<<1, 32, 0, stream>>>(x.as_device_ptr(), 2u32, 5.0f32)).unwrap();
        }
        let graph = stream.end_capture().unwrap();
        assert_eq!((stream.is_capturing(), graph.num_nodes()), (Ok(false), Ok(2)));
        assert_eq!(x.as_host_vec().unwrap(), [1.0, 2.0], "recorded, not run");
        let exec = graph.instantiate().unwrap();
        drop(graph);
        exec.upload(&stream).unwrap();
        calls();
        for _ in 0..2 {
            // SAFETY: the buffer and the function are there.
            unsafe { exec.launch(&stream) }.unwrap();
            assert_eq!(x.as_host_vec().unwrap(), [5.0, 5.0]);
        }
        assert_eq!(calls(), ["graph on s0", "graph on s0"]);
        drop((exec, stream, function));
        assert_eq!(handles(), 0);
    });
}

#[test]
fn tensor_maps() {
    with_driver("tensor_maps", &[], || {
        let _context = cust::quick_init().unwrap();
        let tensor = Tiled {
            data_type: TensorMapDataType::Bfloat16,
            address: DevicePointer::from_raw(0x7000),
            dims: &[256, 128],
            strides_bytes: &[512],
            box_dims: &[64, 128],
            swizzle: TensorMapSwizzle::B128,
            l2_promotion: TensorMapL2Promotion::B256,
            oob_fill: TensorMapFloatOobFill::Nan,
        };
        calls();
        assert_eq!(TensorMap::encode_tiled(&tensor).unwrap().to_raw()[0], 0x7000);
        let flat = Tiled { dims: &[64], strides_bytes: &[], box_dims: &[8], ..tensor };
        TensorMap::encode_tiled(&flat).unwrap();
        let tail = "interleave 0 swizzle 3 l2 3 oob 1";
        assert_eq!(
            calls(),
            [
                format!("encode type 9 at 0x7000 dims [256, 128] strides [512] box [64, 128] elements [1, 1] {tail}"),
                format!("encode type 9 at 0x7000 dims [64] strides [] box [8] elements [1] {tail}"),
            ]
        );
        for wrong in [
            Tiled { dims: &[], strides_bytes: &[], box_dims: &[], ..tensor },
            Tiled { dims: &[8; 6], strides_bytes: &[16; 5], box_dims: &[8; 6], ..tensor },
            Tiled { strides_bytes: &[], ..tensor },
            Tiled { box_dims: &[64], ..tensor },
        ] {
            let error = TensorMap::encode_tiled(&wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::INVALID_VALUE, "{wrong:?}");
        }
        assert_eq!(calls(), [""; 0], "the driver never saw them");
    });
}
