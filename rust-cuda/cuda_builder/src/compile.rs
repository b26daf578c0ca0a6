//! Compiles one kernel, from its part of the crate to checked PTX.

use std::{
    hash::Hasher as _,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ptx_archive::{Kernel, Param};
use serde::{Deserialize, Serialize};

use crate::{
    Arch, Options,
    cache::{self, hash},
    error::Problem,
    ir,
    marker::Marker,
    ptx,
    ptxas::{Ptxas, PtxasError, Resources},
    toolchain::Toolchain,
};

/// The version of the cache's format: to be increased when the builder itself treats kernels differently.
pub(crate) const FORMAT: u32 = 12;

/// Passes that replace MIR's jump threading, which ignores convergence, for loops over arrays: iterator positions
/// become values, so that the trip counts are known when LLVM unrolls the loops.
const BEFORE: &str = "cgscc(inline),function(sroa,loop-mssa(licm))";

/// The first passes for kernels with `wgmma` accumulators: functions over arrays of hundreds of registers, which LLVM would
/// copy into their callers, level by level, with every access to memory. This saves two fifths of the time, and the kernels
/// differ in a few instructions only. It changes other kernels more, and some for the worse.
const BEFORE_WGMMA: &str = "function(sroa),always-inline,";

/// The text that indicates such accumulators.
const WGMMA: &str = "wgmma.mma_async";

/// The description of a kernel's cut, without the text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub(crate) symbol: String,
    /// The architecture that it is compiled for.
    pub(crate) arch: Arch,
    pub(crate) marker: Marker,
    /// The hash of its inputs.
    pub(crate) hash: String,
}

/// A kernel waiting to be compiled.
pub(crate) struct Job {
    pub(crate) cut: Cut,
    /// Unoptimised IR of the kernel and what it reaches.
    pub(crate) ir: String,
}

/// Groups of jobs that run together, in order: for one architecture and level of optimisation, and few or small, because ptxas takes as long to start as
/// to assemble a small kernel.
pub(crate) fn groups(jobs: &[Job], threads: usize) -> Vec<Vec<&Job>> {
    const MOST: usize = 8;
    const BYTES: usize = 4 << 20;
    // Each thread gets several groups, so that all threads finish at about the same time.
    let most = (jobs.len() / (4 * threads)).clamp(1, MOST);
    let bytes = |group: &[&Job]| group.iter().map(|job| job.ir.len()).sum::<usize>();
    let mut groups: Vec<Vec<&Job>> = Vec::new();
    let alike = |job: &Job| (job.cut.arch, job.cut.marker.opt_level);
    for job in jobs {
        let last = groups.iter_mut().rev().find(|group| alike(group[0]) == alike(job));
        match last.filter(|group| group.len() < most && bytes(group) + job.ir.len() <= BYTES) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups
}

/// The result of a [`Job`].
pub(crate) struct Done {
    pub(crate) entry: Kernel,
    pub(crate) ptx: String,
    /// Optimised IR, if requested.
    pub(crate) ir: Option<String>,
    pub(crate) cached: bool,
}

/// Compiles kernels, with a cache of earlier results.
pub(crate) struct Compiler<'a> {
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) ptxas: Option<&'a Ptxas>,
    pub(crate) options: &'a Options,
    pub(crate) cache: PathBuf,
    /// The crate whose lines the line information refers to.
    pub(crate) folder: &'a Path,
}

/// A cached kernel, which passed the checks.
#[derive(Serialize, Deserialize)]
struct Cached {
    ptx: String,
    params: Vec<Param>,
    resources: Option<Resources>,
    ir: Option<String>,
}

impl Compiler<'_> {
    /// Compiles kernels of one group one after the other, has ptxas check them together, and caches them.
    pub(crate) fn run(&self, jobs: &[&Job]) -> Vec<Result<Done, Problem>> {
        let compiled: Vec<_> = jobs.iter().map(|job| self.compile(&job.cut, &job.ir)).collect();
        let sound = jobs.iter().zip(&compiled).filter_map(|(job, kernel)| Some((&job.cut, kernel.as_ref().ok()?)));
        let mut answers = self.assemble(&sound.collect::<Vec<_>>()).into_iter();
        let mut checked = |cut: &Cut, kernel: Result<Cached, Problem>| {
            let mut kernel = kernel?;
            kernel.resources = answers.next().transpose().map_err(refused)?.flatten();
            if let Some(resources) = kernel.resources.as_ref().filter(|r| cut.marker.no_spills && !r.is_clean()) {
                return Err(Problem::Spills(resources.clone()));
            }
            // A cache that cannot be written only costs time.
            let _ = cache::write(&self.file(cut), &kernel);
            Ok(done(cut, kernel, false))
        };
        jobs.iter().zip(compiled).map(|(job, kernel)| checked(&job.cut, kernel)).collect()
    }

    /// ptxas's results for each kernel, if ptxas is present.
    fn assemble(&self, kernels: &[(&Cut, &Cached)]) -> Vec<Result<Option<Resources>, PtxasError>> {
        let Some((cut, ptxas)) = kernels.first().and_then(|(cut, _)| Some((cut, self.ptxas_for(cut.arch)?))) else {
            return kernels.iter().map(|_| Ok(None)).collect();
        };
        let texts: Vec<_> = kernels.iter().map(|(cut, kernel)| (cut.symbol.as_str(), kernel.ptx.as_str())).collect();
        ptxas.assemble_all(&texts, cut.arch, cut.marker.opt_level).into_iter().map(|answer| answer.map(Some)).collect()
    }

    /// A kernel from the cache.
    pub(crate) fn cached(&self, cut: &Cut) -> Option<Done> {
        cache::read(&self.file(cut)).map(|kernel| done(cut, kernel, true))
    }

    /// The cache file of a kernel, named by a hash of all its inputs.
    fn file(&self, cut: &Cut) -> PathBuf {
        let ptxas = self.ptxas_for(cut.arch).map(Ptxas::version);
        let Cut { marker, hash: ir, .. } = cut;
        let how = format!(
            "{} {:?} {:?} {ptxas:?} {} {} {marker:?} {ir}",
            self.tools(),
            // The cut decides which of the two pipelines it gets.
            self.opt(cut, true),
            self.llc(cut.arch),
            self.options.emit_llvm_ir,
            self.options.lines
        );
        self.cache.join(format!("{}.json", hash(|hasher| hasher.write(how.as_bytes()))))
    }

    /// The versions of the builder and the toolchain.
    pub(crate) fn tools(&self) -> String {
        format!("{FORMAT} {} {}", self.toolchain.rustc_version, self.toolchain.llvm_major)
    }

    fn ptxas_for(&self, arch: Arch) -> Option<&Ptxas> {
        self.ptxas.filter(|ptxas| ptxas.supports(arch))
    }

    /// PTX of a cut, which ptxas has not seen yet.
    fn compile(&self, cut: &Cut, ir: &str) -> Result<Cached, Problem> {
        let marker = &cut.marker;
        let optimised = self.optimise(cut, ir)?;
        let ptx = self.run_tool("llc", &self.llc(cut.arch), &optimised)?;
        let ptx = if self.options.lines { ptx::fold_lines(&ptx) } else { ptx };
        let (ptx, params) = ptx::finish_entry(&ptx, &cut.symbol, &marker.tensormaps)
            .map_err(|message| Problem::Tool { tool: "cuda_builder", message })?;
        let ir = self.options.emit_llvm_ir.then_some(optimised);
        Ok(Cached { ptx, params, resources: None, ir })
    }

    /// LLVM's passes over a cut, which take most of the time.
    fn optimise(&self, cut: &Cut, ir: &str) -> Result<String, Problem> {
        let optimised = self.run_tool("opt", &self.opt(cut, ir.contains(WGMMA)), ir)?;
        let optimised = ir::phi::settled(&self.widened(cut, optimised)?);
        let module = ir::Module::parse(&optimised);
        let panics = ir::panics(&module);
        if !panics.is_empty() {
            return Err(Problem::Panics(panics));
        }
        let unresolved = ir::unresolved(&module);
        if !unresolved.is_empty() {
            return Err(Problem::Unresolved(unresolved));
        }
        Ok(if self.options.lines { ir::lines::of_crate(&optimised, self.folder) } else { optimised })
    }

    /// Optimised IR, with memory copies widened as far as possible.
    fn widened(&self, cut: &Cut, optimised: String) -> Result<String, Problem> {
        match ir::copies::widened(&optimised) {
            None => Ok(optimised),
            Some(ir::copies::Widened { ir, has_locals: false }) => Ok(ir),
            Some(ir::copies::Widened { ir, has_locals: true }) => {
                let promote = ["-S", "-passes=sroa"].map(str::to_owned);
                self.run_tool("opt", &[target(cut.arch), promote.to_vec()].concat(), &ir)
            }
        }
    }

    fn run_tool(&self, tool: &'static str, arguments: &[String], input: &str) -> Result<String, Problem> {
        let mut command = self.toolchain.llvm_tool(tool);
        command.args(arguments).args(["-o", "-", "-"]);
        pipe(tool, command, input.as_bytes())
    }

    fn opt(&self, cut: &Cut, wgmma: bool) -> Vec<String> {
        let level = if self.options.release { "O3" } else { "O1" };
        let first = if wgmma { BEFORE_WGMMA } else { "" };
        let mut arguments = target(cut.arch);
        arguments.extend([
            "-S".to_owned(),
            // The alias scopes of inlined no-alias arguments take a quarter to half of the time, and change next to nothing
            // in these kernels.
            "-enable-noalias-to-md-conversion=false".to_owned(),
            // A loop over a register array must be unrolled completely, or the array ends up in local memory: LLVM's
            // own limit (300) is meant for a CPU.
            "-unroll-threshold=4000".to_owned(),
            format!("-passes=internalize,globaldce,{first}{BEFORE},default<{level}>"),
            format!("-internalize-public-api-list={}", cut.symbol),
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
    let (major, minor) = arch.ptx_version();
    vec![format!("-mcpu={arch}"), format!("-mattr=+ptx{major}{minor}")]
}

fn refused(error: PtxasError) -> Problem {
    let message = match error {
        PtxasError::Refused { stderr, .. } => stderr,
        other => other.to_string(),
    };
    Problem::Tool { tool: "ptxas", message }
}

/// Runs `command` on `input` and returns its output.
pub(crate) fn pipe(tool: &'static str, mut command: Command, input: &[u8]) -> Result<String, Problem> {
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
        scope.spawn(move || stdin.map(|mut stdin| io::Write::write_all(&mut stdin, input)));
        child.wait_with_output()
    })
    .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

fn done(cut: &Cut, kernel: Cached, cached: bool) -> Done {
    let Cut { symbol, marker, arch, .. } = cut;
    let entry = Kernel {
        symbol: symbol.clone(),
        arch: *arch,
        module: marker.module.clone(),
        block: marker.block,
        min_blocks: marker.min_blocks,
        cluster: marker.cluster,
        shared_bytes: marker.shared,
        no_spills: marker.no_spills,
        // Older architectures have no instruction to wait for the previous kernel: a launch waits for it to end.
        programmatic: marker.programmatic && *arch >= Arch::Sm90,
        cooperative: marker.cooperative,
        opt_level: marker.opt_level,
        params: kernel.params,
        resources: kernel.resources,
    };
    Done { entry, ptx: kernel.ptx, ir: kernel.ir, cached }
}
