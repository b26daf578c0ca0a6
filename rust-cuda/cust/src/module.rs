//! Modules: PTX or machine code that the driver has loaded.

use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::error::{CudaError, CudaResult, ErrorCode};
use crate::function::Function;
use crate::loaded::{Loaded, loader};
use crate::sys::CUmodule;

const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;

/// Room for the compiler's messages about a module that it rejects; the driver truncates the rest.
const LOG_BYTES: usize = 8 << 10;

/// A loaded module. Unloaded when it and all functions looked up in it are dropped.
#[derive(Debug, Clone)]
pub struct Module(Arc<Loaded>);

impl Module {
    /// Compiles PTX for the device of the current context. The driver caches compiled code, also on disk. With drivers from CUDA 12 on,
    /// several threads compile at the same time; older ones let them wait for each other.
    pub fn from_ptx(ptx: impl AsRef<str>, options: &[ModuleJitOption]) -> Result<Self, JitError> {
        let ptx = CString::new(ptx.as_ref()).map_err(|_| CudaError::new(loader(), ErrorCode::INVALID_PTX))?;
        // SAFETY: the image is a C string.
        unsafe { Self::load(ptx.as_ptr().cast(), options) }
    }

    /// Loads machine code: a cubin, or a fatbin for several architectures.
    ///
    /// # Safety
    /// The bytes must be a complete cubin or fatbin: the driver reads their length from their contents.
    pub unsafe fn from_cubin(bytes: impl AsRef<[u8]>, options: &[ModuleJitOption]) -> Result<Self, JitError> {
        // SAFETY: passed on.
        unsafe { Self::load(bytes.as_ref().as_ptr().cast(), options) }
    }

    /// # Safety
    /// The image must be complete, in one of the formats that the driver takes.
    unsafe fn load(image: *const c_void, options: &[ModuleJitOption]) -> Result<Self, JitError> {
        let mut log = vec![0u8; LOG_BYTES];
        // Numbers are passed as the pointer's value.
        let logging =
            [(ERROR_LOG_BUFFER, log.as_mut_ptr().cast()), (ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES as *mut c_void)];
        let all = options.iter().map(|option| option.to_raw()).chain(logging);
        let (mut keys, mut values): (Vec<u32>, Vec<*mut c_void>) = all.unzip();
        let count = keys.len() as u32;
        let (keys, values) = (keys.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: the image is the caller's promise; each option's value is of the documented kind, the log lives past the call.
        let loaded = unsafe { Loaded::new(image, keys, values, count) };
        loaded.map(|loaded| Self(Arc::new(loaded))).map_err(|error| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            JitError { error, log: String::from_utf8_lossy(&log[..end]).trim().to_owned() }
        })
    }

    /// The kernel with this name.
    pub fn get_function(&self, name: impl AsRef<str>) -> CudaResult<Function> {
        let name = CString::new(name.as_ref());
        let name = name.map_err(|_| CudaError::new("cuModuleGetFunction", ErrorCode::NOT_FOUND))?;
        let mut function = null_mut();
        // SAFETY: the handle is alive, the pointer is to a live handle, the name is a C string.
        unsafe { call!(cuModuleGetFunction(&mut function, self.as_raw(), name.as_ptr())) }?;
        Ok(Function::from_raw(function, self.0.clone()))
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUmodule {
        self.0.as_raw()
    }
}

/// Options for the compilation of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleJitOption {
    /// Limits the registers per thread.
    MaxRegisters(u32),
    /// The optimisation level.
    OptLevel(OptLevel),
    /// Whether to emit debug information.
    GenerateDebugInfo(bool),
    /// Whether to emit line information.
    GenerateLineInfo(bool),
}

/// Levels of optimisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "numbers")]
pub enum OptLevel {
    O0 = 0,
    O1 = 1,
    O2 = 2,
    O3 = 3,
    /// The driver's default.
    O4 = 4,
}

impl ModuleJitOption {
    fn to_raw(self) -> (u32, *mut c_void) {
        let (key, value) = match self {
            Self::MaxRegisters(registers) => (0, registers),
            Self::OptLevel(level) => (7, level as u32),
            Self::GenerateDebugInfo(yes) => (11, yes.into()),
            Self::GenerateLineInfo(yes) => (13, yes.into()),
        };
        (key, value as usize as *mut c_void)
    }
}

/// A module that could not be loaded, with the compiler's messages. Converts to a [`CudaError`], which drops the messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitError {
    error: CudaError,
    log: String,
}

impl JitError {
    /// The call that failed.
    pub fn error(&self) -> CudaError {
        self.error
    }

    /// The compiler's messages; often empty.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl fmt::Display for JitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.log.as_str() {
            "" => self.error.fmt(f),
            log => write!(f, "{}: {log}", self.error),
        }
    }
}

impl std::error::Error for JitError {}

impl From<CudaError> for JitError {
    fn from(error: CudaError) -> Self {
        Self { error, log: String::new() }
    }
}

impl From<JitError> for CudaError {
    fn from(error: JitError) -> Self {
        error.error
    }
}
