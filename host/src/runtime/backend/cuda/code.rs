//! The driver's errors as the library's.

use cust::error::{CudaError, ErrorCode};

use crate::runtime::backend::Failure;
use crate::runtime::error::Error;

/// Codes after which the process cannot use the device: memory errors the hardware reports, and every way a kernel can die.
fn is_fault(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ECC_UNCORRECTABLE
            | ErrorCode::NVLINK_UNCORRECTABLE
            | ErrorCode::CONTAINED
            | ErrorCode::ILLEGAL_ADDRESS
            | ErrorCode::LAUNCH_TIMEOUT
            | ErrorCode::ASSERT
            | ErrorCode::HARDWARE_STACK_ERROR
            | ErrorCode::ILLEGAL_INSTRUCTION
            | ErrorCode::MISALIGNED_ADDRESS
            | ErrorCode::INVALID_ADDRESS_SPACE
            | ErrorCode::INVALID_PC
            | ErrorCode::LAUNCH_FAILED
            | ErrorCode::TENSOR_MEMORY_LEAK
    )
}

impl From<CudaError> for Failure {
    #[cold]
    fn from(error: CudaError) -> Self {
        match is_fault(error.code()) {
            true => Self::Fault { code: error.code().as_raw(), name: error.code().name().into_owned() },
            false => Self::Other(driver(error)),
        }
    }
}

/// An error of opening a device, where a fault is that of another user of the driver in this process.
pub(super) fn opening(error: CudaError) -> Error {
    let code = error.code();
    match is_fault(code) {
        true => Error::KernelFault { kernels: Vec::new(), code: code.as_raw(), name: code.name().into_owned() },
        false => driver(error),
    }
}

fn driver(error: CudaError) -> Error {
    let code = error.code();
    Error::Driver { call: error.function(), code: code.as_raw(), name: code.name().into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_mistakes() {
        let is_fault = |code| is_fault(ErrorCode::from_raw(code));
        assert!([214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721].into_iter().all(is_fault));
        assert!(![1, 2, 201, 209, 400, 600, 701, 720, 801].into_iter().any(is_fault));
    }
}
