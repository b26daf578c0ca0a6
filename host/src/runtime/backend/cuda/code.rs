//! The driver's result codes.

use libcuda_loader::Driver;

use crate::runtime::backend::Failure;
use crate::runtime::error::Error;

pub(super) const INVALID_VALUE: u32 = 1;
pub(super) const OUT_OF_MEMORY: u32 = 2;
pub(super) const STUB_LIBRARY: u32 = 34;
pub(super) const NO_DEVICE: u32 = 100;
pub(super) const UNSUPPORTED_PTX_VERSION: u32 = 222;

/// Codes after which the process cannot use the device: memory errors the hardware reports, and every way a kernel can die.
pub(super) fn is_fault(code: u32) -> bool {
    matches!(
        code,
        214 // ECC_UNCORRECTABLE
        | 220 // NVLINK_UNCORRECTABLE
        | 226 // CONTAINED
        | 700 // ILLEGAL_ADDRESS
        | 702 // LAUNCH_TIMEOUT
        | 710 // ASSERT
        | 714
            ..=719 // hardware stack, illegal instruction, misaligned, address space, program counter, launch failed
        | 721 // TENSOR_MEMORY_LEAK
    )
}

#[cold]
pub(super) fn failure(driver: &Driver, call: &'static str, code: u32) -> Failure {
    let name = driver.error_name(code);
    if is_fault(code) { Failure::Fault { code, name } } else { Failure::Other(Error::Driver { call, code, name }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_mistakes() {
        assert!([700, 715, 716, 719].into_iter().all(is_fault));
        assert!(![1, 2, 201, 209, 400, 600, 701, 720, 801].into_iter().any(is_fault));
    }
}
