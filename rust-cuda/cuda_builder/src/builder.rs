//! The builder: options, and the steps of a build.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::{
    Arch, Error, Manifest, cache, cargo,
    compile::{self, Compiler, Done},
    error::KernelError,
    frontend::{Frontend, Kernels},
    output::{self, create},
    parallel,
    progress::Progress,
    ptxas,
    sources::Sources,
    toolchain,
    watch::Watch,
};

/// Compilation options: everything that changes the PTX.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) fma_contraction: bool,
    pub(crate) ftz: bool,
    pub(crate) fast_div: bool,
    pub(crate) fast_sqrt: bool,
    pub(crate) release: bool,
    pub(crate) emit_llvm_ir: bool,
    pub(crate) lines: bool,
    pub(crate) features: Vec<String>,
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
    /// rustc's warnings about the device crate and its path dependencies, and a list of the kernels that are skipped because
    /// the build does not target their `arch`.
    pub warnings: Vec<String>,
    /// How many of the kernels came from the cache.
    pub cached: usize,
    /// Whether the crate had to be split again, because rustc had recompiled it.
    pub cut: bool,
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
                features: Vec::new(),
            },
            only: None,
            archive: None,
            copy_to: None,
            target_folder: None,
        }
    }

    /// Adds an architecture to compile for. The default is [`Arch::Sm80`]. A kernel that does not query its architecture
    /// (`cuda_std::arch`) and has no clusters is compiled for the oldest only, because that PTX runs on the later ones as
    /// well.
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

    /// Whether `f32` division may have an error of 2 ulp (`div.full`). Default: no.
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

    /// Whether the PTX maps each instruction to a line of Rust, as `.loc`: the simulator's findings, and profilers, then name
    /// that line. The instructions are the same, and on the same lines of the text. rustc takes about three times as long.
    /// Default: no.
    #[must_use]
    pub fn lines(mut self, yes: bool) -> Self {
        self.options.lines = yes;
        self
    }

    /// Enables features of the crate, beside its default ones. They should match the features of the host's dependency on it:
    /// otherwise a kernel behind a feature is known to the host but not compiled.
    #[must_use]
    pub fn features(mut self, features: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.features.extend(features.into_iter().map(Into::into));
        self
    }

    /// Compiles only these kernels, by their symbols; rustc sees no entry of the others. Default: all of the crate's.
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

    /// A folder to which the PTX is also written, one file per kernel, with a manifest. The builder owns the folders that
    /// it creates there, one per architecture. Default: none.
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

    /// Compiles every kernel, for every architecture for which its code differs.
    ///
    /// In a build script it also tells cargo what to watch, so that the script runs again only when something changed.
    pub fn build(self) -> Result<BuildOutput, Error> {
        let folder = self.folder()?;
        let watch = Watch::new(&folder);
        let sources = Sources::of(&folder, &self.options.features)?;
        sources.local.values().for_each(|folder| watch.package(folder));
        let toolchain = toolchain::find_from(&folder).inspect_err(|_| watch.for_a_toolchain())?;
        watch.path(&toolchain.rustc);
        let ptxas = ptxas::find_from(&folder);
        if let Some(ptxas) = &ptxas {
            watch.path(ptxas.path());
        }

        let target = self.target_folder.clone().unwrap_or_else(|| cargo::target_folder(&folder).join("cuda-builder"));
        // Cargo runs in the crate's folder, the builder in another.
        let target = std::path::absolute(&target).map_err(|source| Error::File { path: target.clone(), source })?;
        let cache = target.join("cache");
        create(&cache)?;
        cache::clean(&cache);
        let compiler =
            Compiler { toolchain: &toolchain, ptxas: ptxas.as_ref(), options: &self.options, cache, folder: &folder };
        let frontend = Frontend { compiler: &compiler, folder: &folder, target: &target, only: self.only.as_ref() };
        // Computed before rustc reads the files: a file that is edited meanwhile then makes the archive look outdated, not current.
        let hash = sources.hash(&self.how())?;
        let (mut kernels, warnings, cut) = run(&frontend, &self.arches())?;
        kernels.sort_by(|a, b| (a.entry.arch, &a.entry.symbol).cmp(&(b.entry.arch, &b.entry.symbol)));
        let archive = self.archive_file(&target);
        output::archive(&archive, &hash, &kernels)?;
        let cached = kernels.iter().filter(|kernel| kernel.cached).count();
        let manifest = Manifest { kernels: kernels.iter().map(|kernel| kernel.entry.clone()).collect() };
        if let Some(folder) = &self.copy_to {
            output::files(folder, &manifest, &kernels)?;
        }
        Ok(BuildOutput { archive, manifest, warnings, cached, cut })
    }

    /// The hash that an archive of these kernels would have if built now: of the crate, its path dependencies, the
    /// versions of other dependencies, and the options. Computing it needs no device toolchain.
    pub fn sources(&self) -> Result<String, Error> {
        Sources::of(&self.folder()?, &self.options.features)?.hash(&self.how())
    }

    fn folder(&self) -> Result<PathBuf, Error> {
        let no_crate = |reason: String| {
            let from = env::current_dir().unwrap_or_else(|_| PathBuf::from("the current folder"));
            Error::NoCrate { folder: self.crate_folder.clone(), reason, from }
        };
        let folder = match std::path::absolute(&self.crate_folder).and_then(fs::canonicalize) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(no_crate("it does not exist".to_owned())),
            Err(error) => return Err(no_crate(error.to_string())),
        };
        match folder.join("Cargo.toml").is_file() {
            true if is_of_this_script(&folder) => {
                Err(no_crate("it is the package of this build script, and kernels are a crate of their own".to_owned()))
            }
            true => Ok(folder),
            false if folder.is_dir() => Err(no_crate("it has no Cargo.toml".to_owned())),
            false => Err(no_crate("it is a file".to_owned())),
        }
    }

    fn arches(&self) -> Vec<Arch> {
        let mut arches = self.arches.clone();
        arches.sort();
        if arches.is_empty() { vec![Arch::Sm80] } else { arches }
    }

    /// The inputs of the PTX besides the sources.
    fn how(&self) -> String {
        format!("{} {:?} {:?} {:?}", compile::FORMAT, self.options, self.only, self.arches())
    }

    fn archive_file(&self, target: &Path) -> PathBuf {
        self.archive.clone().unwrap_or_else(|| match env::var_os("OUT_DIR") {
            Some(out) => Path::new(&out).join(ptx_archive::FILE_NAME),
            None => target.join(ptx_archive::FILE_NAME),
        })
    }
}

/// Whether this is a build script of the package in `folder`: the device build would run that script again, and need its
/// dependencies.
fn is_of_this_script(folder: &Path) -> bool {
    let package = env::var_os("OUT_DIR").and_then(|_| env::var_os("CARGO_MANIFEST_DIR"));
    package.is_some_and(|package| fs::canonicalize(package).is_ok_and(|package| package == folder))
}

/// Compiles the crate, and its kernels on as many threads as there are cores.
fn run(frontend: &Frontend<'_>, arches: &[Arch]) -> Result<(Vec<Done>, Vec<String>, bool), Error> {
    let Kernels { mut jobs, mut done, cut, mut errors, mut warnings } = frontend.kernels(arches)?;
    // The largest first, so that none is left over at the end.
    jobs.sort_by_key(|job| Reverse(job.ir.len()));
    let groups = compile::groups(&jobs, parallel::threads());
    let progress = Progress::new(frontend.target, jobs.len());
    let images = parallel::map(&groups, |group| {
        let images = frontend.compiler.run(group);
        progress.add(group.len());
        images
    });
    drop(progress);
    for (compile::Job { cut, .. }, image) in groups.into_iter().flatten().zip(images.into_iter().flatten()) {
        match image {
            Ok(image) => done.push(image),
            Err(problem) => errors.push(KernelError {
                kernel: cut.symbol.clone(),
                module: cut.marker.module.clone(),
                arches: vec![cut.arch],
                problem,
            }),
        }
    }
    if !errors.is_empty() {
        errors.sort_by(|a, b| (&a.kernel, &a.arches).cmp(&(&b.kernel, &b.arches)));
        return Err(Error::Kernels(errors));
    }
    warnings.sort();
    warnings.dedup();
    Ok((done, warnings, cut))
}
