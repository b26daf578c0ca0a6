//! Loading kernels: the driver compiles one PTX module a kernel.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use super::{CudaBackend, Handle, code, other};
use crate::runtime::backend::{Failure, Outcome, RawFunction};
use crate::runtime::error::CudaVersion;
use crate::runtime::error::Error;
use crate::runtime::kernels::KernelImage;

const JIT_ERROR_LOG_BUFFER: c_int = 5;
const JIT_ERROR_LOG_BUFFER_BYTES: c_int = 6;
const FUNCTION_MAX_DYNAMIC_SHARED_BYTES: c_int = 8;
const FUNCTION_PREFERRED_SHARED_CARVEOUT: c_int = 9;
const FUNCTION_NON_PORTABLE_CLUSTER_SIZE: c_int = 14;

/// What a block gets without asking.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;
/// What the system takes of shared memory for each block.
const RESERVED_SHARED_BYTES: u32 = 1 << 10;
/// The most blocks that a multiprocessor holds.
const MAX_BLOCKS: u32 = 32;
/// The largest cluster that every GPU with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;

/// `part` of `whole` in percent, rounded up, 100 at most.
fn percent(part: u64, whole: u64) -> u32 {
    part.saturating_mul(100).div_ceil(whole).min(100) as u32
}

impl CudaBackend {
    pub(super) fn load_image(&self, image: &KernelImage) -> Outcome<RawFunction> {
        let d = self.driver;
        let (Ok(ptx), Ok(symbol)) = (CString::new(image.ptx), CString::new(image.symbol)) else {
            return other(Error::KernelMismatch { symbol: image.symbol, reason: "it contains a NUL byte".into() });
        };
        let mut log = vec![0u8; 8 << 10];
        let mut options = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_BYTES];
        // Sizes are passed in the pointer itself.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut module = null_mut();
        // SAFETY: the image is a C string; each option's value is of the documented kind, the log lives past the call.
        let code = unsafe {
            (d.cuModuleLoadDataEx)(
                &mut module,
                ptx.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code != 0 {
            return Err(self.load_failure(image, code, &log));
        }
        let mut function = null_mut();
        // SAFETY: the module was just loaded; the name is a C string.
        let code = unsafe { (d.cuModuleGetFunction)(&mut function, module, symbol.as_ptr()) };
        let ready = match code {
            0 => self.prepare(function, image),
            code => Err(self.load_failure(image, code, b"the PTX has no such entry")),
        };
        if let Err(failure) = ready {
            // SAFETY: nobody else has the module.
            unsafe { (d.cuModuleUnload)(module) };
            return Err(failure);
        }
        if let Ok(mut modules) = self.modules.lock() {
            modules.push(Handle(module));
        }
        Ok(RawFunction(function as usize))
    }

    fn prepare(&self, function: *mut c_void, image: &KernelImage) -> Outcome<()> {
        let set = |attribute, value: u32| {
            let set = self.driver.cuFuncSetAttribute;
            // SAFETY: the function was just loaded; the driver checks the value.
            let code = unsafe { set(function, attribute, value as c_int) };
            self.check("cuFuncSetAttribute", code)
        };
        if image.shared_bytes > DEFAULT_SHARED_BYTES {
            set(FUNCTION_MAX_DYNAMIC_SHARED_BYTES, image.shared_bytes)?;
        }
        if image.shared_bytes > 0 {
            // Left to itself the driver sizes shared memory for the first launch, and short blocks start late: room for as
            // many blocks as there can be costs a little L1 and made row reductions 0.6% faster on an H100.
            let wanted = MAX_BLOCKS.saturating_mul(image.shared_bytes.saturating_add(RESERVED_SHARED_BYTES));
            let available = self.info.shared_bytes_per_block.max(1);
            set(FUNCTION_PREFERRED_SHARED_CARVEOUT, percent(wanted.into(), available.into()))?;
        }
        if image.cluster.iter().product::<u32>() > PORTABLE_CLUSTER {
            set(FUNCTION_NON_PORTABLE_CLUSTER_SIZE, 1)?;
        }
        Ok(())
    }

    fn load_failure(&self, image: &KernelImage, code: u32, log: &[u8]) -> Failure {
        if code == code::UNSUPPORTED_PTX_VERSION {
            return Failure::Other(Error::DriverTooOld {
                found: self.info.driver_version,
                needed: ptx_version(image.ptx).map_or(CudaVersion(0), cuda_version),
            });
        }
        match code::failure(self.driver, "cuModuleLoadDataEx", code) {
            Failure::Other(Error::Driver { code, name, .. }) => {
                let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
                let log = String::from_utf8_lossy(&log[..end]);
                let log = match log.trim() {
                    "" => String::new(),
                    log => format!(": {log}"),
                };
                Failure::Other(Error::KernelLoad { symbol: image.symbol, code, name, log })
            }
            failure => failure,
        }
    }
}

/// The `8.0` of `.version 8.0`.
fn ptx_version(ptx: &str) -> Option<(u32, u32)> {
    let line = ptx.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = line.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The CUDA version that introduced a PTX version.
fn cuda_version((major, minor): (u32, u32)) -> CudaVersion {
    CudaVersion(match (major, minor) {
        (..=6, _) => 10_000,
        (7, minor) => 11_000 + 10 * minor,
        // 12.7 was skipped: 8.6 came with 12.8's predecessor, 8.7 with 12.8, 8.8 with 12.9.
        (8, minor @ ..=5) => 12_000 + 10 * minor,
        (8, 6) => 12_070,
        (8, minor) => 12_010 + 10 * minor,
        (9, minor) => 13_000 + 10 * minor,
        (major, minor) => (major + 4) * 1_000 + 10 * minor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_versions_map_to_cuda_versions() {
        let needed = |ptx| ptx_version(ptx).map(|v| cuda_version(v).to_string());
        assert_eq!(needed("//\n.version 8.0\n.target sm_80\n").unwrap(), "12.0");
        assert_eq!(needed(".version\t7.8\n").unwrap(), "11.8");
        assert_eq!(needed(".version 8.8").unwrap(), "12.9");
        assert_eq!(needed(".version 9.0").unwrap(), "13.0");
        assert_eq!(needed("nothing"), None);
    }
}
