//! From the crate to its kernels, apart: rustc, `llvm-link` and the cut.

use std::{collections::BTreeSet, fs, hash::Hasher as _, path::Path};

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::{
    Arch, Error, archive, cache, cargo,
    compile::{Compiler, Done, Job},
    error::{KernelError, Problem},
    ir,
    marker::Marker,
    output::write_file,
    scratch,
};

const PRELUDE: &str = include_str!("prelude.ll");

/// Everything before the kernels are apart.
pub(crate) struct Frontend<'a> {
    pub(crate) compiler: &'a Compiler<'a>,
    pub(crate) folder: &'a Path,
    pub(crate) target: &'a Path,
    /// The kernels that are wanted, if not all are.
    pub(crate) only: Option<&'a BTreeSet<String>>,
}

/// The kernels of one architecture.
#[derive(Default)]
pub(crate) struct Kernels {
    /// Those that wait to be compiled.
    pub(crate) jobs: Vec<Job>,
    /// All of them, when rustc's output is that of an earlier build, and so are they.
    pub(crate) done: Vec<Done>,
    /// Whether rustc's output was new, and had to be linked and cut.
    pub(crate) linked: bool,
    pub(crate) errors: Vec<KernelError>,
    pub(crate) warnings: Vec<String>,
}

/// What a kernel is cut to, without the text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub(crate) symbol: String,
    pub(crate) marker: Marker,
    /// Of the IR.
    pub(crate) hash: String,
}

impl Frontend<'_> {
    pub(crate) fn kernels(&self, arch: Arch) -> Result<Kernels, Error> {
        let Compiler { toolchain, options, .. } = self.compiler;
        let compiled = cargo::compile(toolchain, self.folder, self.target, arch, options.lines, self.only)?;
        let mut kernels = Kernels { warnings: compiled.warnings, ..Kernels::default() };
        let mut bitcode = Vec::new();
        for archive in &compiled.archives {
            bitcode.extend(archive::bitcode(archive)?);
        }
        let list = self.compiler.cache.join(format!("{}.cuts.json", self.stamp(&bitcode)));
        if let Some(done) = self.known(&list, arch) {
            kernels.done = done;
            return Ok(kernels);
        }
        kernels.linked = true;
        let ir = self.link(&bitcode)?;
        let module = ir::Module::parse(&ir);
        let wanted = |kernel: &&ir::Item<'_>| self.only.is_none_or(|only| only.contains(kernel.name));
        for kernel in module.kernels().filter(wanted) {
            let symbol = kernel.name.to_owned();
            let problem = match ir::marker(kernel) {
                Some(Ok(marker)) => {
                    let ir = ir::extract(&module, kernel, &marker);
                    let cut = Cut { symbol, marker, hash: hash(|hasher| hasher.write(ir.as_bytes())) };
                    kernels.jobs.push(Job { cut, arch, ir });
                    continue;
                }
                Some(Err(message)) => Problem::Marker(message),
                None => Problem::NoMarker,
            };
            kernels.errors.push(KernelError { kernel: symbol, module: String::new(), arch, problem });
        }
        if kernels.errors.is_empty() {
            let cuts: Vec<&Cut> = kernels.jobs.iter().map(|job| &job.cut).collect();
            // A cache that cannot be written costs time and nothing else.
            let _ = cache::write(&list, &cuts);
        }
        Ok(kernels)
    }

    /// The kernels that `list` names, if the cache has every one.
    fn known(&self, list: &Path, arch: Arch) -> Option<Vec<Done>> {
        let cuts: Vec<Cut> = cache::read(list)?;
        cuts.iter().map(|cut| self.compiler.cached(cut, arch)).collect()
    }

    /// Tells one output of rustc from another.
    fn stamp(&self, bitcode: &[Vec<u8>]) -> String {
        hash(|hasher| {
            hasher.write(self.compiler.tools().as_bytes());
            hasher.write(PRELUDE.as_bytes());
            hasher.write(format!("{:?}", self.only).as_bytes());
            bitcode.iter().for_each(|module| hasher.write(module));
        })
    }

    /// Joins the crate, its dependencies, `core` and the prelude; returns the IR as text. Everything is joined, which
    /// costs a fifth of a second and asks for no order: the kernels are cut out of it next.
    fn link(&self, bitcode: &[Vec<u8>]) -> Result<String, Error> {
        let scratch = scratch::Folder::new_in(self.target)
            .map_err(|source| Error::File { path: self.target.to_owned(), source })?;
        let prelude = scratch.path().join("prelude.ll");
        write_file(&prelude, PRELUDE)?;
        let mut command = self.compiler.toolchain.llvm_tool("llvm-link");
        command.args(["-S", "-o", "-"]).arg(&prelude);
        for (index, bitcode) in bitcode.iter().enumerate() {
            let file = scratch.path().join(format!("{index}.bc"));
            fs::write(&file, bitcode).map_err(|source| Error::File { path: file.clone(), source })?;
            command.arg(file);
        }
        let output = command.output().map_err(|source| Error::Run { program: "llvm-link".to_owned(), source })?;
        if !output.status.success() {
            return Err(Error::Link(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()));
        }
        String::from_utf8(output.stdout).map_err(|error| Error::Output(error.to_string()))
    }
}

/// 128 bits as hexadecimal digits.
pub(crate) fn hash(write: impl FnOnce(&mut SipHasher13)) -> String {
    let mut hasher = SipHasher13::new();
    write(&mut hasher);
    format!("{:032x}", hasher.finish128().as_u128())
}
