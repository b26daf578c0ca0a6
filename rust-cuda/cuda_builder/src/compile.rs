//! One kernel, from its cut of the crate to PTX that has been checked.

use std::{
    fs,
    hash::Hasher as _,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::{
    Arch, Options,
    error::{KernelError, Problem},
    ir,
    manifest::{KernelEntry, Param},
    marker::Marker,
    ptx,
    ptxas::{Ptxas, PtxasError, Resources},
    toolchain::Toolchain,
};

/// The number of the cache's format: to be raised when the builder itself treats kernels differently.
const FORMAT: u32 = 1;

/// What MIR's jump threading, which knows no convergence, would have done for loops over arrays: the positions of
/// iterators become values, so that the loops have counts when LLVM comes to unroll them.
const BEFORE: &str = "cgscc(inline),function(sroa,loop-mssa(licm))";

/// A kernel that waits for its turn.
pub(crate) struct Job {
    pub(crate) symbol: String,
    pub(crate) arch: Arch,
    pub(crate) marker: Marker,
    /// Unoptimised IR of the kernel and what it reaches.
    pub(crate) ir: String,
}

/// What came of a [`Job`].
pub(crate) struct Done {
    pub(crate) entry: KernelEntry,
    pub(crate) ptx: String,
    /// Optimised IR, when it was asked for.
    pub(crate) ir: Option<String>,
    pub(crate) cached: bool,
}

/// What compiles kernels, and what it compiled before.
pub(crate) struct Compiler<'a> {
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) ptxas: Option<&'a Ptxas>,
    pub(crate) options: &'a Options,
    pub(crate) cache: PathBuf,
}

/// A cached kernel, which had nothing wrong with it.
#[derive(Serialize, Deserialize)]
struct Cached {
    ptx: String,
    params: Vec<Param>,
    resources: Option<Resources>,
    ir: Option<String>,
}

impl Compiler<'_> {
    /// Compiles and checks one kernel, or takes it from the cache.
    pub(crate) fn run(&self, job: &Job) -> Result<Done, KernelError> {
        let file = self.cache.join(format!("{}.json", self.key(job)));
        if let Some(kernel) = read(&file) {
            // The time of the last use is what the cache is cleaned by.
            let _ = fs::File::open(&file).and_then(|file| file.set_modified(SystemTime::now()));
            return Ok(done(job, kernel, true));
        }
        let kernel = self.compile(job).map_err(|problem| KernelError {
            kernel: job.symbol.clone(),
            module: job.marker.module.clone(),
            arch: job.arch,
            problem,
        })?;
        // A cache that cannot be written costs time and nothing else.
        let _ = write(&self.cache, &file, &kernel);
        Ok(done(job, kernel, false))
    }

    /// Everything that decides what a kernel becomes, as one number.
    fn key(&self, job: &Job) -> String {
        let mut hasher = SipHasher13::new();
        let ptxas = self.ptxas_for(job.arch).map(Ptxas::version);
        let tools = (&self.toolchain.rustc_version, self.toolchain.llvm_major, self.opt(job), self.llc(job.arch));
        let how = format!("{FORMAT} {:?} {tools:?} {ptxas:?} {}", job.marker, self.options.emit_llvm_ir);
        hasher.write(how.as_bytes());
        hasher.write(&[0]);
        hasher.write(job.ir.as_bytes());
        format!("{:032x}", hasher.finish128().as_u128())
    }

    fn ptxas_for(&self, arch: Arch) -> Option<&Ptxas> {
        self.ptxas.filter(|ptxas| ptxas.supports(arch))
    }

    fn compile(&self, job: &Job) -> Result<Cached, Problem> {
        let optimised = self.run_tool("opt", &self.opt(job), &job.ir)?;
        let module = ir::Module::parse(&optimised);
        let panics = ir::panics(&module);
        if !panics.is_empty() {
            return Err(Problem::Panics(panics));
        }
        let unresolved = ir::unresolved(&module);
        if !unresolved.is_empty() {
            return Err(Problem::Unresolved(unresolved));
        }
        let ptx = self.run_tool("llc", &self.llc(job.arch), &optimised)?;
        let (ptx, params) = ptx::finish_entry(&ptx, &job.symbol, &job.marker.tensormaps)
            .map_err(|message| Problem::Tool { tool: "cuda_builder", message })?;
        let resources = match self.ptxas_for(job.arch) {
            Some(ptxas) => Some(ptxas.assemble(&ptx, job.arch).map_err(refused)?),
            None => None,
        };
        if let Some(resources) = resources.as_ref().filter(|r| job.marker.no_spills && !r.is_clean()) {
            return Err(Problem::Spills(resources.clone()));
        }
        let ir = self.options.emit_llvm_ir.then_some(optimised);
        Ok(Cached { ptx, params, resources, ir })
    }

    fn run_tool(&self, tool: &'static str, arguments: &[String], input: &str) -> Result<String, Problem> {
        let mut command = self.toolchain.llvm_tool(tool);
        command.args(arguments).args(["-o", "-", "-"]);
        pipe(tool, command, input)
    }

    fn opt(&self, job: &Job) -> Vec<String> {
        let level = if self.options.release { "O3" } else { "O1" };
        let mut arguments = target(job.arch);
        arguments.extend([
            "-S".to_owned(),
            // A loop over a register array has to unroll whole, or the array ends up in local memory: LLVM's own limit
            // (300) suits a CPU.
            "-unroll-threshold=4000".to_owned(),
            format!("-passes=internalize,globaldce,{BEFORE},default<{level}>"),
            format!("-internalize-public-api-list={}", job.symbol),
        ]);
        arguments
    }

    fn llc(&self, arch: Arch) -> Vec<String> {
        let options = self.options;
        let contraction = if options.fma_contraction { "fast" } else { "off" };
        let mut arguments = target(arch);
        arguments.extend(["-O3".to_owned(), format!("-fp-contract={contraction}")]);
        for (chosen, argument) in [
            (options.ftz, "-denormal-fp-math-f32=preserve-sign"),
            (options.fast_div, "-nvptx-prec-divf32=1"),
            (options.fast_sqrt, "-nvptx-prec-sqrtf32=0"),
        ] {
            if chosen {
                arguments.push(argument.to_owned());
            }
        }
        arguments
    }
}

fn target(arch: Arch) -> Vec<String> {
    vec![format!("-mcpu={arch}"), format!("-mattr={}", arch.llvm_feature())]
}

fn refused(error: PtxasError) -> Problem {
    let message = match error {
        PtxasError::Refused { stderr, .. } => stderr,
        other => other.to_string(),
    };
    Problem::Tool { tool: "ptxas", message }
}

/// Runs `command` on `input` and returns its output.
fn pipe(tool: &'static str, mut command: Command, input: &str) -> Result<String, Problem> {
    let failed = |message: String| Problem::Tool { tool, message };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let stdin = child.stdin.take();
    // Writing on a thread: the tool may fill its output before it has read everything.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut stdin| io::Write::write_all(&mut stdin, input.as_bytes())));
        child.wait_with_output()
    })
    .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

fn done(job: &Job, kernel: Cached, cached: bool) -> Done {
    let marker = &job.marker;
    let entry = KernelEntry {
        symbol: job.symbol.clone(),
        arch: job.arch,
        file: Path::new(job.arch.as_str()).join(format!("{}.ptx", job.symbol)),
        module: marker.module.clone(),
        block: marker.block,
        min_blocks: marker.min_blocks,
        cluster: marker.cluster,
        shared_bytes: marker.shared,
        no_spills: marker.no_spills,
        params: kernel.params,
        resources: kernel.resources,
    };
    Done { entry, ptx: kernel.ptx, ir: kernel.ir, cached }
}

fn read(file: &Path) -> Option<Cached> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Writes whole or not at all: another build may be reading.
fn write(folder: &Path, file: &Path, kernel: &Cached) -> io::Result<()> {
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut temporary, kernel)?;
    temporary.persist(file)?;
    Ok(())
}

/// Forgets kernels that no build has used for two weeks.
pub(crate) fn clean_cache(folder: &Path) {
    let old = Duration::from_secs(14 * 24 * 3600);
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|data| data.modified());
        if modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > old)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
