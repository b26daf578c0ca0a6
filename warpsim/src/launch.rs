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
    /// Parses PTX text. What a kernel's instructions mean is looked at by [`Module::kernel`].
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Module { ast: Arc::new(ptx::parse(text)?), id: NEXT.fetch_add(1, Relaxed) })
    }

    /// Names of the module's kernels.
    pub fn kernels(&self) -> Vec<&str> {
        self.ast.funcs.iter().filter(|f| f.entry && f.body.is_some()).map(|f| f.name.as_ref()).collect()
    }

    /// Prepares a kernel and all that it calls; an error names the line that is not supported.
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
    /// Bytes of each parameter.
    pub fn parameters(&self) -> Vec<u32> {
        self.prog.params.iter().map(|p| p.1).collect()
    }
    /// The type of each parameter as it is declared, without its dot: `u64`, `f32`, `b8` for a structure.
    pub fn parameter_types(&self) -> Vec<&str> {
        let entry = self.ast.funcs.iter().find(|f| f.entry && *f.name == *self.prog.kernel && f.body.is_some());
        entry.map_or(vec![], |f| f.params.iter().map(|p| p.ty.as_ref()).collect())
    }
    /// Bytes of shared memory that the kernel declares itself.
    pub fn static_shared(&self) -> u32 {
        self.prog.static_shared
    }
    /// Most 32-bit registers that are live at once in the PTX: an estimate of what ptxas will need.
    pub fn register_pressure(&self) -> u32 {
        self.prog.funcs.iter().map(|f| f.pressure).max().unwrap_or(0)
    }
}

/// Shape and arguments of a launch.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; `.reqnctapercluster` in the PTX fills it in.
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// The blocks may wait for each other (`grid.sync()`): refused when the device does not hold all of them at once.
    pub cooperative: bool,
    /// It may start before the launch ahead of it has ended (`cudaLaunchAttributeProgrammaticStreamSerialization`): with [`Checks::race`] here and
    /// there, what it does before its `griddepcontrol.wait` is compared with what that one did. What the host does between orders them.
    pub programmatic: bool,
    /// Each parameter's bytes.
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

/// Which checkers run. Out-of-bounds and misaligned accesses always end a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks {
    /// Reads of registers, shared and global memory that nobody wrote.
    pub init: bool,
    /// Unordered accesses to shared and global memory.
    pub race: bool,
    /// Divergent barriers, wrong counts, misuse of mbarriers.
    pub sync: bool,
    /// Addresses computed in 32 bits that do not hold them.
    pub offsets: bool,
}

impl Checks {
    /// Every checker.
    pub const ALL: Checks = Checks { init: true, race: true, sync: true, offsets: true };
    /// Faults only.
    pub const NONE: Checks = Checks { init: false, race: false, sync: false, offsets: false };
}

/// When asynchronous work happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// As soon as it is issued.
    #[default]
    Earliest,
    /// Only when a wait demands it, so that a missing wait shows as stale data. A thread that asks whether an mbarrier's phase is over,
    /// which lacks nothing but copies, first hears that it is not.
    Latest,
}

/// How far a launch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Blocks that have ended.
    pub ended: u64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Warp instructions executed.
    pub instructions: u64,
}

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Checkers to run.
    pub checks: Checks,
    /// 0 runs blocks one after another and warps in order; with anything else warps run in an order drawn from it, and blocks come upon what others have
    /// half done.
    pub seed: u64,
    /// When asynchronous work happens.
    pub async_completion: Completion,
    /// Count what happens.
    pub metrics: bool,
    /// Host threads; 0: one for each core.
    pub threads: usize,
    /// Warp instructions that one block (or cluster) may execute.
    pub instruction_limit: u64,
    /// Warp instructions that all blocks together may execute, give or take a turn. A grid with more warps does not start.
    pub launch_limit: u64,
    /// Registers a thread as ptxas reports them, for the occupancy and for `setmaxnreg`; 0: unknown, though the kernel's launch
    /// bounds tell of one that uses `setmaxnreg`. A block that needs more than there are is refused.
    pub registers: u32,
    /// Called now and then, a few times a second at most, while a launch runs.
    pub progress: Option<fn(Progress)>,
    /// The GPU that the occupancy is computed for, and whose shared memory a block has to fit in; `None`: [`Device::for_target`] of the module's.
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
            // A minute or so on one core, ten seconds where nothing is stored.
            instruction_limit: 1 << 29,
            // Hours on one core: more than any launch that is meant to end.
            launch_limit: 1 << 36,
            registers: 0,
            progress: None,
            device: None,
        }
    }
}

/// A simulated device: memory, and the variables of the modules that ran.
pub struct Gpu {
    pub(crate) memory: Memory,
    /// Bytes that `malloc` gives at most.
    heap_bytes: u64,
    /// By module: where its variables are.
    pub(crate) globals: HashMap<u64, Vec<u64>>,
    /// Where cooperative launches keep the barrier of their grid.
    workspace: Option<u64>,
    /// What a programmatic launch may run beside now, unless the host has waited since.
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

    /// The same, with a heap from which threads may have so many bytes by `malloc` at once.
    pub fn with_heap(bytes: u64) -> Self {
        let (memory, globals) = (Memory::default(), HashMap::new());
        Gpu { memory, heap_bytes: bytes, globals, workspace: None, ahead: None, waited: AtomicBool::new(false) }
    }

    /// What launches so far have allocated by `malloc` and not freed. The heap lives on from launch to launch: this is
    /// asked when no other will come.
    pub fn leaks(&self) -> Vec<Finding> {
        self.memory.heap().map_or(vec![], Heap::leaks)
    }

    /// Allocates; the name appears in findings. The bytes count as never written.
    ///
    /// # Panics
    /// When this machine does not have as much memory: see [`Gpu::try_alloc`].
    pub fn alloc(&mut self, bytes: usize, name: &str) -> u64 {
        self.try_alloc(bytes, name).unwrap_or_else(|error| panic!("`{name}`: {error}"))
    }

    /// Allocates, as far as this machine has the memory. What nobody has written takes none of it.
    pub fn try_alloc(&mut self, bytes: usize, name: &str) -> Result<u64, OutOfMemory> {
        self.memory.alloc(bytes as u64, name)
    }

    /// Allocates and writes; panics as [`Gpu::alloc`] does.
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

    /// Copies from the device.
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

    /// Copies to the device.
    pub fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.write(addr, data)
    }

    /// Copies from one place on the device to another that does not overlap it.
    pub fn copy(&mut self, dst: u64, src: u64, bytes: usize) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.copy(dst, src, bytes as u64)
    }

    /// Writes a pattern `count` times in a row.
    pub fn fill(&mut self, addr: u64, pattern: &[u8], count: usize) -> Result<(), AccessError> {
        self.waited.store(true, Relaxed);
        self.memory.fill(addr, pattern, count as u64)
    }

    /// Gives an allocation another name.
    pub fn rename(&mut self, addr: u64, name: &str) -> Result<(), AccessError> {
        self.memory.rename(addr, name)
    }

    /// Counts bytes as never written from here on; they keep their values.
    pub fn forget(&mut self, addr: u64, bytes: usize) -> Result<(), AccessError> {
        self.memory.forget(addr, bytes as u64)
    }

    /// Runs a kernel to its end. A mistake in the simulator itself is a fault of [`Kind::Internal`], not a panic.
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

    /// The workspace of a cooperative launch, its barrier at rest.
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
