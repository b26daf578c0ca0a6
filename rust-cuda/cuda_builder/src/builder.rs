//! The builder: options, and the steps of a build.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    sync::{Mutex, mpsc},
    thread,
};

use crate::{
    Arch, Error, Manifest, cache, cargo,
    compile::{self, Compiler, Done, Job},
    frontend::Frontend,
    output::{self, create},
    ptxas,
    sources::Sources,
    toolchain,
    watch::Watch,
};

/// How to compile: everything that changes the PTX.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) fma_contraction: bool,
    pub(crate) ftz: bool,
    pub(crate) fast_div: bool,
    pub(crate) fast_sqrt: bool,
    pub(crate) release: bool,
    pub(crate) emit_llvm_ir: bool,
    pub(crate) lines: bool,
}

/// Compiles a crate of kernels to PTX.
#[derive(Debug, Clone)]
pub struct CudaBuilder {
    crate_folder: PathBuf,
    arches: Vec<Arch>,
    options: Options,
    only: Option<BTreeSet<String>>,
    archive: Option<PathBuf>,
    copy_to: Option<PathBuf>,
    target_folder: Option<PathBuf>,
}

/// What a build produced.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BuildOutput {
    /// The file with the PTX of all kernels: see [`ptx_archive::Archive`].
    pub archive: PathBuf,
    /// The kernels.
    pub manifest: Manifest,
    /// rustc's warnings about the device crate and the crates beside it.
    pub warnings: Vec<String>,
    /// How many of the kernels had been compiled before.
    pub cached: usize,
    /// For how many architectures the crate had to be linked and cut again, because rustc had compiled it again.
    pub linked: usize,
}

impl CudaBuilder {
    /// A builder for the crate in `crate_folder`, relative to the current folder; in a build script, to the package.
    pub fn new(crate_folder: impl Into<PathBuf>) -> CudaBuilder {
        CudaBuilder {
            crate_folder: crate_folder.into(),
            arches: Vec::new(),
            options: Options {
                fma_contraction: true,
                ftz: false,
                fast_div: false,
                fast_sqrt: false,
                release: true,
                emit_llvm_ir: false,
                lines: false,
            },
            only: None,
            archive: None,
            copy_to: None,
            target_folder: None,
        }
    }

    /// Adds an architecture to compile for. Without any, it is [`Arch::Sm80`].
    #[must_use]
    pub fn arch(mut self, arch: Arch) -> Self {
        if !self.arches.contains(&arch) {
            self.arches.push(arch);
        }
        self
    }

    /// Whether a multiplication and an addition may become one fused operation, as in nvcc. Default: yes.
    #[must_use]
    pub fn fma_contraction(mut self, yes: bool) -> Self {
        self.options.fma_contraction = yes;
        self
    }

    /// Whether `f32` arithmetic flushes denormals to zero. Default: no.
    #[must_use]
    pub fn ftz(mut self, yes: bool) -> Self {
        self.options.ftz = yes;
        self
    }

    /// Whether `f32` division may be off by 2 ulp (`div.full`). Default: no.
    #[must_use]
    pub fn fast_div(mut self, yes: bool) -> Self {
        self.options.fast_div = yes;
        self
    }

    /// Whether `f32` square roots may be approximate (`sqrt.approx`). Default: no.
    #[must_use]
    pub fn fast_sqrt(mut self, yes: bool) -> Self {
        self.options.fast_sqrt = yes;
        self
    }

    /// Whether to optimise fully rather than quickly. Default: yes.
    #[must_use]
    pub fn release(mut self, yes: bool) -> Self {
        self.options.release = yes;
        self
    }

    /// Whether to write the optimised LLVM IR beside the PTX, as `.ll`. Default: no.
    #[must_use]
    pub fn emit_llvm_ir(mut self, yes: bool) -> Self {
        self.options.emit_llvm_ir = yes;
        self
    }

    /// Whether the PTX says which line of Rust each instruction comes from, as `.loc`. The instructions are the same, and on the
    /// same lines of the text. It takes rustc about three times as long. Default: no.
    #[must_use]
    pub fn lines(mut self, yes: bool) -> Self {
        self.options.lines = yes;
        self
    }

    /// Compiles these kernels only, by their symbols; of the others rustc sees no entry. Default: all of the crate's.
    #[must_use]
    pub fn only(mut self, symbols: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.only = Some(symbols.into_iter().map(Into::into).collect());
        self
    }

    /// The archive to write. Default: `kernels.ptxa` in a build script's `OUT_DIR`, or in the builder's own folder in
    /// cargo's output.
    #[must_use]
    pub fn archive(mut self, file: impl Into<PathBuf>) -> Self {
        self.archive = Some(file.into());
        self
    }

    /// A folder that gets the PTX as well, a file a kernel, with a manifest. The builder owns the folders it makes there,
    /// one an architecture. Default: none does.
    #[must_use]
    pub fn copy_to(mut self, folder: impl Into<PathBuf>) -> Self {
        self.copy_to = Some(folder.into());
        self
    }

    /// The folder for intermediate files. Default: `cuda-builder` in cargo's output folder, shared by all builds of
    /// the workspace so that `core` is compiled once.
    #[must_use]
    pub fn target_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.target_folder = Some(folder.into());
        self
    }

    /// Compiles every kernel for every architecture.
    ///
    /// In a build script it also tells cargo what to watch, so that the script runs again only when something changed.
    pub fn build(self) -> Result<BuildOutput, Error> {
        let folder = self.folder()?;
        let watch = Watch::new(&folder);
        let sources = Sources::of(&folder)?;
        sources.local.values().for_each(|folder| watch.package(folder));
        let toolchain = toolchain::find_from(&folder).inspect_err(|_| watch.for_a_toolchain())?;
        watch.path(&toolchain.rustc);
        let ptxas = ptxas::find_from(&folder);
        if let Some(ptxas) = &ptxas {
            watch.path(ptxas.path());
        }

        let target = self.target_folder.clone().unwrap_or_else(|| cargo::target_folder(&folder).join("cuda-builder"));
        // Cargo runs in the crate's folder, this in another.
        let target = std::path::absolute(&target).map_err(|source| Error::File { path: target.clone(), source })?;
        let cache = target.join("cache");
        create(&cache)?;
        cache::clean(&cache);
        let compiler =
            Compiler { toolchain: &toolchain, ptxas: ptxas.as_ref(), options: &self.options, cache, folder: &folder };
        let frontend = Frontend { compiler: &compiler, folder: &folder, target: &target, only: self.only.as_ref() };
        // Taken before rustc reads them: a file that is edited meanwhile makes the archive look old, not new.
        let hash = sources.hash(&self.how())?;
        let (mut kernels, warnings, linked) = run(&frontend, &self.arches())?;
        kernels.sort_by(|a, b| (a.entry.arch, &a.entry.symbol).cmp(&(b.entry.arch, &b.entry.symbol)));
        let archive = self.archive_file(&target);
        output::archive(&archive, &hash, &kernels)?;
        let cached = kernels.iter().filter(|kernel| kernel.cached).count();
        let manifest = Manifest { kernels: kernels.iter().map(|kernel| kernel.entry.clone()).collect() };
        if let Some(folder) = &self.copy_to {
            output::files(folder, &manifest, &kernels)?;
        }
        Ok(BuildOutput { archive, manifest, warnings, cached, linked })
    }

    /// The hash that an archive of these kernels has, built now: of the crate, the crates beside it, the versions of the
    /// others, and the options. It takes no device toolchain to know it.
    pub fn sources(&self) -> Result<String, Error> {
        Sources::of(&self.folder()?)?.hash(&self.how())
    }

    fn folder(&self) -> Result<PathBuf, Error> {
        let folder = std::path::absolute(&self.crate_folder)
            .and_then(fs::canonicalize)
            .map_err(|source| Error::File { path: self.crate_folder.clone(), source })?;
        if folder.join("Cargo.toml").is_file() { Ok(folder) } else { Err(Error::NoCrate(folder)) }
    }

    fn arches(&self) -> Vec<Arch> {
        if self.arches.is_empty() { vec![Arch::Sm80] } else { self.arches.clone() }
    }

    /// What decides the PTX besides the sources.
    fn how(&self) -> String {
        let mut arches = self.arches();
        arches.sort();
        format!("{} {:?} {:?} {arches:?}", compile::FORMAT, self.options, self.only)
    }

    fn archive_file(&self, target: &Path) -> PathBuf {
        self.archive.clone().unwrap_or_else(|| match env::var_os("OUT_DIR") {
            Some(out) => Path::new(&out).join(ptx_archive::FILE_NAME),
            None => target.join(ptx_archive::FILE_NAME),
        })
    }
}

/// Cargo and the linker, one architecture after the other, feed the kernels to as many workers as there are cores.
fn run(frontend: &Frontend<'_>, arches: &[Arch]) -> Result<(Vec<Done>, Vec<String>, usize), Error> {
    let (send, jobs) = mpsc::channel::<Job>();
    let jobs = Mutex::new(jobs);
    let done = Mutex::new(Vec::new());
    let errors = Mutex::new(Vec::new());
    let mut warnings = Vec::new();
    let mut linked = 0;
    let failed = thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    // A statement of its own, so that the queue is not locked while the kernel compiles.
                    let job = lock(&jobs).recv();
                    match job.map(|job| frontend.compiler.run(&job)) {
                        Ok(Ok(kernel)) => lock(&done).push(kernel),
                        Ok(Err(error)) => lock(&errors).push(error),
                        Err(mpsc::RecvError) => break,
                    }
                }
            });
        }
        for &arch in arches {
            match frontend.kernels(arch) {
                Ok(output) => {
                    warnings.extend(output.warnings);
                    lock(&errors).extend(output.errors);
                    linked += usize::from(output.linked);
                    lock(&done).extend(output.done);
                    // The largest first, so that none is left over when the others are done.
                    let mut jobs = output.jobs;
                    jobs.sort_by_key(|job| std::cmp::Reverse(job.ir.len()));
                    for job in jobs {
                        let _ = send.send(job);
                    }
                }
                Err(error) => {
                    drop(send);
                    return Some(error);
                }
            }
        }
        drop(send);
        None
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let mut errors = errors.into_inner().unwrap_or_default();
    if !errors.is_empty() {
        errors.sort_by(|a, b| (&a.kernel, a.arch).cmp(&(&b.kernel, b.arch)));
        return Err(Error::Kernels(errors));
    }
    warnings.sort();
    warnings.dedup();
    Ok((done.into_inner().unwrap_or_default(), warnings, linked))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
