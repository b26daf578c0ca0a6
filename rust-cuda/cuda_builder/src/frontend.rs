//! From the crate to its kernels, apart: rustc, `llvm-dis` and the cut.

use std::{collections::BTreeSet, hash::Hasher as _, path::Path};

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::{
    Arch, Error, archive, cache, cargo,
    compile::{Compiler, Done, Job},
    disassemble,
    error::{KernelError, Problem},
    ir,
    marker::Marker,
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

/// The kernels of the crate.
#[derive(Default)]
pub(crate) struct Kernels {
    /// Those that wait to be compiled.
    pub(crate) jobs: Vec<Job>,
    /// Those that an earlier build compiled.
    pub(crate) done: Vec<Done>,
    /// Whether rustc's output was new, and had to be cut.
    pub(crate) cut: bool,
    pub(crate) errors: Vec<KernelError>,
    pub(crate) warnings: Vec<String>,
}

/// What a kernel is cut to, without the text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub(crate) symbol: String,
    /// What it is compiled for.
    pub(crate) arch: Arch,
    pub(crate) marker: Marker,
    /// Of the IR.
    pub(crate) hash: String,
}

impl Frontend<'_> {
    pub(crate) fn kernels(&self, arches: &[Arch]) -> Result<Kernels, Error> {
        let Compiler { toolchain, options, .. } = self.compiler;
        let compiled = cargo::compile(toolchain, self.folder, self.target, options.lines, self.only)?;
        let mut kernels = Kernels { warnings: compiled.warnings, ..Kernels::default() };
        let mut bitcode = Vec::new();
        for archive in &compiled.archives {
            bitcode.extend(archive::bitcode(archive)?);
        }
        let list = self.compiler.cache.join(format!("{}.cuts.json", self.stamp(&bitcode, arches)));
        if let Some(done) = self.known(&list) {
            kernels.done = done;
            return Ok(kernels);
        }
        kernels.cut = true;
        let texts = disassemble::all(toolchain, &self.target.join("modules").join(&compiled.kind), &bitcode)?;
        let modules = texts.iter().map(String::as_str).chain([PRELUDE]).map(ir::Module::parse).collect();
        let program = ir::Program::new(modules).map_err(|symbol| Error::Link(symbol.to_owned()))?;
        let mut cutter = ir::Cutter::new(&program);
        let mut all = Vec::new();
        for (place, kernel) in program.kernels() {
            let symbol = kernel.name.to_owned();
            if self.only.is_some_and(|only| !only.contains(&symbol)) {
                continue;
            }
            let problem = match ir::marker(kernel) {
                Some(Ok(marker)) => {
                    for job in cuts(&symbol, &marker, arches, |arch| cutter.cut(place, &marker, arch)) {
                        all.push(job.cut.clone());
                        // After an edit of one kernel most are known: their texts would be hundreds of megabytes that nobody reads.
                        match self.compiler.cached(&job.cut) {
                            Some(done) => kernels.done.push(done),
                            None => kernels.jobs.push(job),
                        }
                    }
                    continue;
                }
                Some(Err(message)) => Problem::Marker(message),
                None => Problem::NoMarker,
            };
            kernels.errors.push(KernelError {
                kernel: symbol,
                module: String::new(),
                arches: arches.to_vec(),
                problem,
            });
        }
        if kernels.errors.is_empty() {
            // A cache that cannot be written costs time and nothing else.
            let _ = cache::write(&list, &all);
        }
        Ok(kernels)
    }

    /// The kernels that `list` names, if the cache has every one.
    fn known(&self, list: &Path) -> Option<Vec<Done>> {
        let cuts: Vec<Cut> = cache::read(list)?;
        cuts.iter().map(|cut| self.compiler.cached(cut)).collect()
    }

    /// Tells one output of rustc from another.
    fn stamp(&self, bitcode: &[Vec<u8>], arches: &[Arch]) -> String {
        hash(|hasher| {
            hasher.write(self.compiler.tools().as_bytes());
            hasher.write(PRELUDE.as_bytes());
            hasher.write(format!("{:?} {arches:?}", self.only).as_bytes());
            bitcode.iter().for_each(|module| hasher.write(module));
        })
    }
}

/// The cuts of a kernel for those of `arches`, oldest first, that it is for. PTX for the oldest runs on the others too, and
/// theirs would have the same instructions, unless the kernel asks which it is for or has clusters, which the older ones lack.
fn cuts(symbol: &str, marker: &Marker, arches: &[Arch], mut cut: impl FnMut(Arch) -> String) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for &arch in arches.iter().filter(|&&arch| marker.arch.is_none_or(|only| only == arch)) {
        let differs = |job: &Job| ir::asks_arch(&job.ir) || marker.cluster != [1; 3];
        if !jobs.last().is_none_or(differs) {
            break;
        }
        let ir = cut(arch);
        let hash = hash(|hasher| hasher.write(ir.as_bytes()));
        let cut = Cut { symbol: symbol.to_owned(), arch, marker: marker.clone(), hash };
        jobs.push(Job { cut, ir });
    }
    jobs
}

/// 128 bits as hexadecimal digits.
pub(crate) fn hash(write: impl FnOnce(&mut SipHasher13)) -> String {
    let mut hasher = SipHasher13::new();
    write(&mut hasher);
    format!("{:032x}", hasher.finish128().as_u128())
}
