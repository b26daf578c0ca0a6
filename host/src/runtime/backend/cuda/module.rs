//! Loading kernels: the driver compiles one PTX module a kernel.

use cust::error::{CudaError, ErrorCode};
use cust::function::{Function, FunctionAttribute};
use cust::module::{Module, ModuleJitOption, OptLevel};

use super::CudaBackend;
use crate::runtime::backend::{Failure, Outcome};
use crate::runtime::error::{CudaVersion, Error};
use crate::runtime::kernels::KernelImage;

/// What a block gets without asking.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;
/// What the system takes of shared memory for each block.
const RESERVED_SHARED_BYTES: u32 = 1 << 10;
/// The largest cluster that every GPU with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;

/// Shared memory that a multiprocessor can set apart, in KiB, the rest being L1. The last ones only the larger GPUs have.
const SPLITS: [u32; 9] = [8, 16, 32, 64, 100, 132, 164, 196, 228];

/// How much of a multiprocessor's `total` shared memory, in percent, holds `wanted` bytes. The driver takes the split below what it is told, where
/// a block less may fit, so it is told exactly one.
fn carveout(wanted: u32, total: u32) -> u32 {
    let split = SPLITS.map(|kib| kib << 10).into_iter().find(|split| *split >= wanted).unwrap_or(total);
    (100 * u64::from(split)).div_ceil(u64::from(total.max(1))).min(100) as u32
}

impl CudaBackend {
    pub(super) fn load_image(&self, image: &KernelImage) -> Outcome<Function> {
        let text = image.ptx()?;
        let options = image.opt_level.map(|level| [ModuleJitOption::OptLevel(opt_level(level))]);
        let module = Module::from_ptx(&*text, options.as_ref().map_or(&[], |options| options));
        let module = module.map_err(|error| self.load_failure(image, &text, error.error(), error.log()))?;
        let function = module.get_function(image.symbol);
        let function = function.map_err(|error| self.load_failure(image, &text, error, "the PTX has no such entry"))?;
        self.prepare(&function, image)?;
        Ok(function)
    }

    fn prepare(&self, function: &Function, image: &KernelImage) -> Outcome<()> {
        let set = |attribute, value: u32| -> Outcome<()> { Ok(function.set_attribute(attribute, value as i32)?) };
        if image.shared_bytes > DEFAULT_SHARED_BYTES {
            set(FunctionAttribute::MaxDynamicSharedSizeBytes, image.shared_bytes)?;
        }
        if image.shared_bytes > 0 {
            // Left to itself the driver sizes shared memory for the first launch, and short blocks start late: room for as many blocks as
            // registers and threads leave made row reductions 0.6% faster on an H100, and for one more 2% where blocks are large. All else is
            // better L1, where loads that are under way have their place: without, products with a vector were 5 to 20% slower.
            let blocks =
                function.max_active_blocks_per_multiprocessor(image.block.into(), image.shared_bytes as usize)?;
            let wanted = (blocks + 1).saturating_mul(image.shared_bytes.saturating_add(RESERVED_SHARED_BYTES));
            let total = self.info.shared_bytes_per_block + RESERVED_SHARED_BYTES;
            set(FunctionAttribute::PreferredSharedMemoryCarveout, carveout(wanted, total))?;
        }
        if image.cluster.iter().product::<u32>() > PORTABLE_CLUSTER {
            set(FunctionAttribute::NonPortableClusterSizeAllowed, 1)?;
        }
        Ok(())
    }

    fn load_failure(&self, image: &KernelImage, ptx: &str, error: CudaError, log: &str) -> Failure {
        if error.code() == ErrorCode::UNSUPPORTED_PTX_VERSION {
            return Failure::Other(Error::DriverTooOld {
                found: self.info.driver_version,
                needed: ptx_version(ptx).map_or(CudaVersion(0), CudaVersion::of_ptx),
            });
        }
        match error.into() {
            Failure::Other(Error::Driver { code, name, .. }) => {
                let log = if log.is_empty() { String::new() } else { format!(": {log}") };
                Failure::Other(Error::KernelLoad { symbol: image.symbol, code, name, log })
            }
            failure => failure,
        }
    }
}

/// A kernel's level by the driver's name.
fn opt_level(level: u32) -> OptLevel {
    match level {
        0 => OptLevel::O0,
        1 => OptLevel::O1,
        2 => OptLevel::O2,
        _ => OptLevel::O3,
    }
}

/// The `8.0` of `.version 8.0`.
fn ptx_version(ptx: &str) -> Option<(u32, u32)> {
    let line = ptx.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = line.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_is_the_least_that_holds_what_is_wanted() {
        // What the driver makes of a percentage: the split below.
        let split = |wanted: u32, kib: u32| {
            let told = carveout(wanted, kib << 10) * kib;
            SPLITS.into_iter().filter(|split| split * 100 <= told).max()
        };
        for total in [100, 164, 228] {
            for kib in SPLITS.into_iter().filter(|kib| *kib <= total) {
                assert_eq!(split(kib << 10, total), Some(kib), "of {total} KiB");
                assert_eq!(split((kib << 10) - 1, total), Some(kib), "of {total} KiB");
            }
            assert_eq!((split(1, total), carveout(u32::MAX, total << 10)), (Some(8), 100));
        }
        // Compute capability 7.x and others have splits of their own.
        assert_eq!((carveout(20 << 10, 96 << 10), carveout(1, 0)), (34, 100));
    }

    #[test]
    fn ptx_versions_map_to_cuda_versions() {
        let needed = |ptx| ptx_version(ptx).map(|v| CudaVersion::of_ptx(v).to_string());
        assert_eq!(needed("//\n.version 8.0\n.target sm_80\n").unwrap(), "12.0");
        assert_eq!(needed(".version\t7.8\n").unwrap(), "11.8");
        assert_eq!(needed(".version 8.8").unwrap(), "12.9");
        assert_eq!(needed(".version 9.0").unwrap(), "13.0");
        assert_eq!(needed("nothing"), None);
    }
}
