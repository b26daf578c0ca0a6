//! What programs see on a machine without a driver. One test: a process loads a driver once.

use cust::CudaApiVersion;
use cust::context::CurrentContext;
use cust::module::JitError;
use cust::prelude::*;

#[test]
fn every_call_is_an_error_that_names_the_files() {
    // SAFETY: no other thread of this process reads or writes the environment.
    unsafe { std::env::set_var(cust::sys::LIBRARY_VARIABLE, "/nowhere/libcuda.so.1") };

    let error = cust::quick_init().unwrap_err();
    assert_eq!((error.code(), error.function()), (ErrorCode::DRIVER_NOT_FOUND, "cuInit"));
    let text = error.to_string();
    assert!(text.starts_with("cuInit: no CUDA driver found (/nowhere/libcuda.so.1: cannot open"), "{text}");

    let code = |error: CudaError| error.code();
    let failed = [
        CudaApiVersion::get().map_err(code).err(),
        Device::num_devices().map_err(code).err(),
        Device::get_device(0).map_err(code).err(),
        CurrentContext::synchronize().map_err(code).err(),
        Stream::new(StreamFlags::NON_BLOCKING, None).map_err(code).err(),
        Event::new(EventFlags::DEFAULT).map_err(code).err(),
        DeviceBuffer::from_slice(&[1u32]).map_err(code).err(),
        LockedBuffer::new(&0u8, 1).map_err(code).err(),
        Module::from_ptx(".version 8.0", &[]).as_ref().map_err(JitError::error).map_err(code).err(),
    ];
    assert_eq!(failed, [Some(ErrorCode::DRIVER_NOT_FOUND); 9]);

    let error = cust::sys::driver().unwrap_err();
    assert_eq!(error.tried().len(), 1);
    // Codes have names all the same.
    assert_eq!(ErrorCode::LAUNCH_FAILED.to_string(), "CUDA_ERROR_LAUNCH_FAILED (719)");
    assert_eq!(ErrorCode::from_raw(12_345).to_string(), "CUDA error 12345 (12345)");
}
