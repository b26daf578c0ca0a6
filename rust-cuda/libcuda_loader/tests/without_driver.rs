//! What programs on top of `cust_raw` see on a machine without a driver. One test: a process loads a driver once.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use cust_raw::cudaError_enum::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_INITIALIZED, CUDA_SUCCESS,
};

#[test]
fn every_call_fails_cleanly() {
    // SAFETY: no other thread of this process reads or writes the environment.
    unsafe { std::env::set_var(libcuda_loader::LIBRARY_VARIABLE, "/nowhere/libcuda.so.1") };

    // SAFETY: the pointers are to live values, or null where that is what is tested.
    unsafe {
        let mut free = 0;
        assert_eq!(cust_raw::cuMemGetInfo_v2(&mut free, &mut 0), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cust_raw::cuInit(0), CUDA_ERROR_NO_DEVICE);
        assert_eq!(cust_raw::cuDriverGetVersion(&mut 0), CUDA_ERROR_NO_DEVICE);
        assert_eq!(cust_raw::cuDeviceGetCount(&mut 0), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cust_raw::cuProfilerStop(), CUDA_ERROR_NOT_INITIALIZED);

        let mut text = null();
        assert_eq!(cust_raw::cuGetErrorName(CUDA_ERROR_NO_DEVICE, &mut text), CUDA_SUCCESS);
        assert_eq!(CStr::from_ptr(text), c"CUDA_ERROR_NO_DEVICE");
        assert_eq!(cust_raw::cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &mut text), CUDA_SUCCESS);
        assert!(!CStr::from_ptr(text).is_empty());
        let code = cust_raw::cuGetErrorString(CUDA_ERROR_NO_DEVICE, null_mut());
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    }

    let error = libcuda_loader::driver().unwrap_err();
    assert_eq!(error.tried().len(), 1);
    assert!(error.to_string().starts_with("/nowhere/libcuda.so.1: cannot open"), "{error}");
}
