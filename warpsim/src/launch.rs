//! The public interface: modules, kernels, memory, launches.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::exec::ahead::Ahead;
use crate::exec::coop::{GridBarrier, WORKSPACE};
use crate::exec::grid;
use crate::heap::{HEAP_BYTES, Heap};
use crate::ir::Program;
use crate::lower;
use crate::memory::{AccessError, Memory};
use crate::occupancy::Device;
use crate::ptx::ast::Ast;
use crate::ptx::{self, ParseError};
use crate::report::{Fault, Finding, Kind, Report};
use crate::zeroed::OutOfMemory;

/// A parsed PTX module.
#[derive(Clone)]
pub struct Module {
    pub(crate) ast: Arc<Ast>,
    pub(crate) id: u64,
}

/// A kernel, ready to be launched.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) prog: Arc<Program>,
    ast: Arc<Ast>,
    module: u64,
}

impl Module {
    /// Parses PTX text. The meaning of a kernel's instructions is checked by [`Module::kernel`].
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Module { ast: Arc::new(ptx::parse(text)?), id: NEXT.fetch_add(1, Relaxed) })
    }

    /// Names of the module's kernels.
    pub fn kernels(&self) -> Vec<&str> {
        self.ast.funcs.iter().filter(|f| f.entry && f.body.is_some()).map(|f| f.name.as_ref()).collect()
    }

    /// Prepares a kernel and all functions that it calls. An error names the line that is not supported.
    pub fn kernel(&self, name: &str) -> Result<Kernel, ParseError> {
        Ok(Kernel { prog: Arc::new(lower::program(&self.ast, name)?), ast: self.ast.clone(), module: self.id })
    }

    /// `.target` as written: `sm_90a`.
    pub fn target(&self) -> &str {
        &self.ast.target
    }
}

impl Kernel {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.prog.kernel
    }
    /// Size of each parameter in bytes.
    pub fn parameters(&self) -> Vec<u32> {
        self.prog.params.iter().map(|p| p.1).collect()
    }
    /// The declared type of each parameter, without its dot: `u64`, `f32`, or `b8` for a structure.
    pub fn parameter_types(&self) -> Vec<&str> {
        let entry = self.ast.funcs.iter().find(|f| f.entry && *f.name == *self.prog.kernel && f.body.is_some());
        entry.map_or(vec![], |f| f.params.iter().map(|p| p.ty.as_ref()).collect())
    }
    /// Bytes of static shared memory that the kernel declares.
    pub fn static_shared(&self) -> u32 {
        self.prog.static_shared
    }
    /// The maximum number of live 32-bit registers in the PTX: an estimate of what ptxas will need.
    pub fn register_pressure(&self) -> u32 {
        self.prog.funcs.iter().map(|f| f.pressure).max().unwrap_or(0)
    }
}

/// The shape and the arguments of a launch.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Number of blocks in each dimension.
    pub grid: [u32; 3],
    /// Number of threads of a block in each dimension.
    pub block: [u32; 3],
    /// Number of blocks of a cluster in each dimension; `.reqnctapercluster` in the PTX fills it in.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// A cooperative launch, whose blocks may wait for each other (`grid.sync()`). It is refused if the device does not hold all
    /// of them at once.
    pub cooperative: bool,
    /// A programmatic launch, which may start before the launch ahead of it has ended
    /// (`cudaLaunchAttributeProgrammaticStreamSerialization`). If both launches run with [`Checks::race`], what this one does
    /// before its `griddepcontrol.wait` is compared with the accesses of the launch ahead. Host operations between the two order
    /// them.
    pub programmatic: bool,
    /// The bytes of each parameter.
    pub args: &'a [&'a [u8]],
}

impl Default for Launch<'_> {
    fn default() -> Self {
        let one = [1; 3];
        Launch {
            grid: one,
            block: one,
            cluster: one,
            shared_bytes: 0,
            cooperative: false,
            programmatic: false,
            args: &[],
        }
    }
}

/// Selects the checkers to run. Out-of-bounds and misaligned accesses always end a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks {
    /// Reads of registers and of local, shared and global memory that were never written.
    pub init: bool,
    /// Unordered accesses to shared and global memory.
    pub race: bool,
    /// Divergent barriers, wrong thread counts, misuse of mbarriers.
    pub sync: bool,
    /// Addresses computed in 32 bits that do not fit in 32 bits.
    pub offsets: bool,
}

impl Checks {
    /// Every checker.
    pub const ALL: Checks = Checks { init: true, race: true, sync: true, offsets: true };
    /// No checker: only faults are reported.
    pub const NONE: Checks = Checks { init: false, race: false, sync: false, offsets: false };
}

/// When asynchronous work is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// As soon as it is issued.
    #[default]
    Earliest,
    /// Only when a wait demands it, so that a missing wait shows as stale data. A thread that tests whether a phase of an
    /// mbarrier is complete, when only copies are outstanding, is told at first that it is not.
    Latest,
}

/// The progress of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Blocks that have ended.
    pub ended: u64,
    /// Blocks in the grid.
    pub blocks: u64,
    /// Warp instructions executed.
    pub instructions: u64,
}

/// Options of a launch.
#[derive(Debug, Clone)]
pub struct Options {
    /// Checkers to run.
    pub checks: Checks,
    /// With 0, blocks run one after another and warps in order. Any other seed determines a random order of the warps, and blocks
    /// run interleaved, so that they see each other's unfinished work.
    pub seed: u64,
    /// When asynchronous work is performed.
    pub async_completion: Completion,
    /// Whether to collect [`crate::Metrics`].
    pub metrics: bool,
    /// Number of host threads; 0: one for each core.
    pub threads: usize,
    /// Warp instructions that one block (or cluster) may execute.
    pub instruction_limit: u64,
    /// Warp instructions that all blocks together may execute; a launch may exceed the limit by up to one scheduling turn. A grid
    /// with more warps than this does not start.
    pub launch_limit: u64,
    /// Registers per thread as ptxas reports them, for the occupancy and for `setmaxnreg`. 0: unknown, but for a kernel that uses
    /// `setmaxnreg` the number is derived from its launch bounds. A block that needs more registers than a multiprocessor has is
    /// refused.
    pub registers: u32,
    /// A callback for progress, called at most a few times a second while a launch runs.
    pub progress: Option<fn(Progress)>,
    /// The GPU that the occupancy is computed for, and whose shared memory a block has to fit in. `None`: [`Device::for_target`]
    /// of the module's target.
    pub device: Option<Device>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            checks: Checks::NONE,
            seed: 0,
            async_completion: Completion::Earliest,
            metrics: false,
            threads: 0,
            // About a minute on one core, or ten seconds where nothing is stored.
            instruction_limit: 1 << 29,
            // Hours on one core: more than any launch that is meant to end takes.
            launch_limit: 1 << 36,
            registers: 0,
            progress: None,
            device: None,
        }
    }
}

/// A simulated device: its memory, and the variables of the modules that ran on it.
pub struct Gpu {
    pub(crate) memory: Memory,
    /// Capacity of the `malloc` heap in bytes.
    heap_bytes: u64,
    /// By module: the addresses of its variables.
    pub(crate) globals: HashMap<u64, Vec<u64>>,
    /// The workspace of cooperative launches, which holds the barrier of the grid.
    workspace: Option<u64>,
    /// The launches that a programmatic launch may overlap with, unless the host has waited since.
    ahead: Option<Ahead>,
    waited: AtomicBool,
}

impl Default for Gpu {
    fn default() -> Self {
        Self::with_heap(HEAP_BYTES)
    }
}

impl Gpu {
    /// A device without allocations.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device without allocations, whose threads may have at most this many bytes from `malloc` at once.
    pub fn with_heap(bytes: u64) -> Self {
        let (memory, globals) = (Memory::default(), HashMap::new());
        Gpu { memory, heap_bytes: bytes, globals, workspace: None, ahead: None, waited: AtomicBool::new(false) }
    }

    /// Chunks that launches so far have allocated by `malloc` and not freed. The heap persists from launch to launch, so call
    /// this after the last launch.
    pub fn leaks(&self) -> Vec<Finding> {
        self.memory.heap().map_or(vec![], Heap::leaks)
    }

    /// Allocates device memory; the name appears in findings. The bytes count as never written.
    ///
    /// # Panics
    /// If this machine does not have enough memory: see [`Gpu::try_alloc`].
    pub fn alloc(&mut self, bytes: usize, name: &str) -> u64 {
        self.try_alloc(bytes, name).unwrap_or_else(|error| panic!("`{name}`: {error}"))
    }

    /// Allocates device memory, or returns an error if this machine does not have it. Bytes that are never written take no host
    /// memory.
    pub fn try_alloc(&mut self, bytes: usize, name: &str) -> Result<u64, OutOfMemory> {
        self.memory.alloc(bytes as u64, name)
    }

    /// Allocates device memory and writes to it; panics as [`Gpu::alloc`] does.
    pub fn alloc_with(&mut self, data: &[u8], name: &str) -> u64 {
        let a = self.alloc(data.len(), name);
        let _ = self.memory.write(a, data);
        a
    }

    /// Frees an allocation; its address is never used again.
    pub fn free(&mut self, addr: u64) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.free(addr)
    }

    /// Copies from the device to the host.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.read(addr, out)
    }

    /// Copies from the device into a new vector.
    pub fn read_vec(&self, addr: u64, bytes: usize) -> Result<Vec<u8>, AccessError> {
        let mut v = vec![0; bytes];
        self.read(addr, &mut v)?;
        Ok(v)
    }

    /// Copies from the host to the device.
    pub fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.write(addr, data)
    }

    /// Copies between two ranges of device memory that do not overlap.
    pub fn copy(&mut self, dst: u64, src: u64, bytes: usize) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.copy(dst, src, bytes as u64)
    }

    /// Writes a pattern `count` times in a row.
    pub fn fill(&mut self, addr: u64, pattern: &[u8], count: usize) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.fill(addr, pattern, count as u64)
    }

    /// Renames an allocation.
    pub fn rename(&mut self, addr: u64, name: &str) -> Result<(), AccessError> {
        self.memory.rename(addr, name)
    }

    /// Marks bytes as never written, from here on; they keep their values.
    pub fn forget(&mut self, addr: u64, bytes: usize) -> Result<(), AccessError> {
        self.memory.forget(addr, bytes as u64)
    }

    /// Runs a kernel to its end. A defect of the simulator is reported as a fault of [`Kind::Internal`], not as a panic.
    pub fn launch(&mut self, kernel: &Kernel, launch: &Launch<'_>, options: &Options) -> Result<Report, Fault> {
        catch_unwind(AssertUnwindSafe(|| self.launch_inner(kernel, launch, options)))
            .unwrap_or_else(|panic| Err(grid::broken(&kernel.prog, &*panic)))
    }

    fn launch_inner(&mut self, kernel: &Kernel, launch: &Launch<'_>, options: &Options) -> Result<Report, Fault> {
        let fault = |kind, message| Fault::of_launch(&kernel.prog.kernel, kind, message);
        let globals = self.load(kernel.module, &kernel.ast, &kernel.prog.kernel)?;
        let mut launched =
            grid::prepare(&kernel.prog, launch, options, globals).map_err(|m| fault(Kind::InvalidLaunch, m))?;
        let waited = std::mem::take(self.waited.get_mut());
        if let (Some(ahead), true, false) = (self.ahead.take(), launch.programmatic, waited) {
            launched.ahead = ahead;
        }
        affordable(launch, options).map_err(|m| fault(Kind::InstructionLimit, m))?;
        if kernel.prog.heap {
            let made = self.memory.start_heap(self.heap_bytes);
            made.map_err(|error| Fault::of_memory(&kernel.prog.kernel, error, "for the heap of the device"))?;
        }
        if launch.cooperative {
            launched.grid_barrier = Some(GridBarrier::new(self.workspace(&kernel.prog.kernel)?));
        }
        let (report, ahead) = grid::run(&kernel.prog, &self.memory, launched, options)?;
        self.ahead = ahead;
        Ok(report)
    }

    /// The workspace of a cooperative launch, with its barrier in the initial state.
    fn workspace(&mut self, kernel: &str) -> Result<u64, Fault> {
        let at = match self.workspace {
            Some(at) => at,
            None => {
                let new = self.try_alloc(WORKSPACE, "the workspace of cooperative launches");
                new.map_err(|error| Fault::of_memory(kernel, error, "for the barrier of the grid"))?
            }
        };
        self.workspace = Some(at);
        let _ = self.memory.write(at, &[0; WORKSPACE]);
        Ok(at)
    }
}

/// Whether each warp of the grid can execute one instruction.
fn affordable(launch: &Launch<'_>, options: &Options) -> Result<(), String> {
    let product = |v: [u32; 3]| v.iter().map(|x| u64::from(*x)).product::<u64>();
    let warps = product(launch.grid).saturating_mul(product(launch.block).div_ceil(32));
    if warps <= options.launch_limit {
        return Ok(());
    }
    let ([x, y, z], limit) = (launch.grid, options.launch_limit);
    Err(format!("a grid of {x}x{y}x{z} blocks has {warps} warps: the limit is {limit} warp instructions a launch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  ret;\n}\n";
        Module::parse(text).unwrap().kernel("k").unwrap()
    }

    #[test]
    fn a_worker_that_panics_is_a_fault() {
        let mut damaged = kernel();
        Arc::get_mut(&mut damaged.prog).unwrap().funcs.clear();
        for threads in [1, 2] {
            let options = Options { threads, ..Options::default() };
            let launch = Launch { grid: [8, 1, 1], ..Launch::default() };
            let fault = Gpu::new().launch(&damaged, &launch, &options).unwrap_err();
            assert_eq!(fault.finding.kind, Kind::Internal);
            assert!(fault.finding.message.contains("index out of bounds"), "{fault}");
        }
    }

    #[test]
    fn a_panic_outside_the_workers_is_a_fault() {
        let mut damaged = kernel();
        Arc::get_mut(&mut damaged.prog).unwrap().params.push((8, 8, "x".into()));
        let launch = Launch { args: &[&[0; 8]], ..Launch::default() };
        let fault = Gpu::new().launch(&damaged, &launch, &Options::default()).unwrap_err();
        assert_eq!(fault.finding.kind, Kind::Internal);
    }
}
