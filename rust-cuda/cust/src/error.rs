//! Errors: the driver's code, and the function that returned it.

use std::borrow::Cow;
use std::ffi::CStr;
use std::{fmt, ptr};

use crate::sys::{self, CUresult};

/// The return type of every fallible function of this crate.
pub type CudaResult<T> = Result<T, CudaError>;

/// A driver function that failed.
///
/// Functions that wait or queue work also return the failures of earlier kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CudaError {
    code: ErrorCode,
    function: &'static str,
}

impl CudaError {
    /// Creates the error of a driver function, for code that rejects a call before the driver does.
    pub const fn new(function: &'static str, code: ErrorCode) -> Self {
        Self { code, function }
    }

    #[cold]
    pub(crate) const fn driver_not_found(function: &'static str) -> Self {
        Self::new(function, ErrorCode::DRIVER_NOT_FOUND)
    }

    #[cold]
    pub(crate) const fn function_not_found(function: &'static str) -> Self {
        Self::new(function, ErrorCode::FUNCTION_NOT_FOUND)
    }

    /// What went wrong.
    pub const fn code(self) -> ErrorCode {
        self.code
    }

    /// The driver function, such as `cuMemAlloc`.
    pub fn function(self) -> &'static str {
        // The revision of the function does not matter to a reader.
        self.function.trim_end_matches("_v2")
    }
}

/// Turns a result code into a result.
#[inline]
pub(crate) fn check(function: &'static str, code: CUresult) -> CudaResult<()> {
    if code == 0 {
        return Ok(());
    }
    Err(CudaError::new(function, ErrorCode(code)))
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function();
        match (self.code, sys::driver()) {
            (ErrorCode::DRIVER_NOT_FOUND, Err(error)) => write!(f, "{function}: no CUDA driver found ({error})"),
            (ErrorCode::FUNCTION_NOT_FOUND, Ok(driver)) => {
                write!(f, "{function}: {} has no such function: the driver is too old", driver.path())
            }
            (code, _) => write!(f, "{function}: {code}"),
        }
    }
}

impl std::error::Error for CudaError {}

/// A result code: those named here, and any other that a driver returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(u32);

macro_rules! codes {
    ($($name:ident = $code:literal)*) => {
        impl ErrorCode {
            $(#[doc = concat!("`CUDA_ERROR_", stringify!($name), "`")] pub const $name: Self = Self($code);)*

            fn known(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(concat!("CUDA_ERROR_", stringify!($name))),)*
                    _ => None,
                }
            }
        }
    };
}

#[rustfmt::skip]
codes! {
    INVALID_VALUE = 1               OUT_OF_MEMORY = 2                   NOT_INITIALIZED = 3
    DEINITIALIZED = 4               STUB_LIBRARY = 34                   CALL_REQUIRES_NEWER_DRIVER = 36
    DEVICE_UNAVAILABLE = 46         NO_DEVICE = 100                     INVALID_DEVICE = 101
    DEVICE_NOT_LICENSED = 102       INVALID_IMAGE = 200                 INVALID_CONTEXT = 201
    NO_BINARY_FOR_GPU = 209         ECC_UNCORRECTABLE = 214             UNSUPPORTED_LIMIT = 215
    PEER_ACCESS_UNSUPPORTED = 217   INVALID_PTX = 218                   NVLINK_UNCORRECTABLE = 220
    JIT_COMPILER_NOT_FOUND = 221    UNSUPPORTED_PTX_VERSION = 222       JIT_COMPILATION_DISABLED = 223
    UNSUPPORTED_EXEC_AFFINITY = 224 UNSUPPORTED_DEVSIDE_SYNC = 225      CONTAINED = 226
    INVALID_SOURCE = 300            FILE_NOT_FOUND = 301                SHARED_OBJECT_SYMBOL_NOT_FOUND = 302
    SHARED_OBJECT_INIT_FAILED = 303 OPERATING_SYSTEM = 304              INVALID_HANDLE = 400
    ILLEGAL_STATE = 401             NOT_FOUND = 500                     NOT_READY = 600
    ILLEGAL_ADDRESS = 700           LAUNCH_OUT_OF_RESOURCES = 701       LAUNCH_TIMEOUT = 702
    PRIMARY_CONTEXT_ACTIVE = 708    CONTEXT_IS_DESTROYED = 709          ASSERT = 710
    HARDWARE_STACK_ERROR = 714      ILLEGAL_INSTRUCTION = 715           MISALIGNED_ADDRESS = 716
    INVALID_ADDRESS_SPACE = 717     INVALID_PC = 718                    LAUNCH_FAILED = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720 TENSOR_MEMORY_LEAK = 721         NOT_PERMITTED = 800
    NOT_SUPPORTED = 801             SYSTEM_NOT_READY = 802              SYSTEM_DRIVER_MISMATCH = 803
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804 STREAM_CAPTURE_UNSUPPORTED = 900 STREAM_CAPTURE_INVALIDATED = 901
    STREAM_CAPTURE_MERGE = 902      STREAM_CAPTURE_UNMATCHED = 903      STREAM_CAPTURE_UNJOINED = 904
    STREAM_CAPTURE_ISOLATION = 905  STREAM_CAPTURE_IMPLICIT = 906       CAPTURED_EVENT = 907
    STREAM_CAPTURE_WRONG_THREAD = 908 TIMEOUT = 909                     GRAPH_EXEC_UPDATE_FAILURE = 910
    INVALID_CLUSTER_SIZE = 912      FUNCTION_NOT_LOADED = 913           UNKNOWN = 999
}

impl ErrorCode {
    /// No driver library could be loaded. Not a code of the driver.
    pub const DRIVER_NOT_FOUND: Self = Self(u32::MAX);
    /// The loaded driver lacks a function. Not a code of the driver.
    pub const FUNCTION_NOT_FOUND: Self = Self(u32::MAX - 1);

    /// The code with this number.
    pub const fn from_raw(code: CUresult) -> Self {
        Self(code)
    }

    /// The driver's number.
    pub const fn as_raw(self) -> CUresult {
        self.0
    }

    /// The name, such as `CUDA_ERROR_INVALID_VALUE`; for codes that are not named here the driver is asked.
    pub fn name(self) -> Cow<'static, str> {
        match (self, self.known()) {
            (_, Some(name)) => name.into(),
            (Self::DRIVER_NOT_FOUND, _) => "no CUDA driver found".into(),
            (Self::FUNCTION_NOT_FOUND, _) => "the CUDA driver is too old for this function".into(),
            _ => driver_name(self.0).unwrap_or_else(|| format!("CUDA error {}", self.0)).into(),
        }
    }
}

fn driver_name(code: CUresult) -> Option<String> {
    let mut name = ptr::null();
    // SAFETY: the pointer is to a live pointer.
    unsafe { call!(cuGetErrorName(code, &mut name)) }.ok()?;
    // SAFETY: what the driver returned is a static C string, unless it is null.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            code @ (Self::DRIVER_NOT_FOUND | Self::FUNCTION_NOT_FOUND) => f.write_str(&code.name()),
            code => write!(f, "{} ({})", code.name(), code.0),
        }
    }
}
