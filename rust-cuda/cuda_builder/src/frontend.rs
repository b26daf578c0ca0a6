//! From the crate to its kernels, apart: rustc, `llvm-dis` and the cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher as _,
    path::Path,
};

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::{
    Arch, Error, archive, cache, cargo,
    compile::{Compiler, Done, Job},
    disassemble::Modules,
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
    /// Of what it is cut from.
    pub(crate) hash: String,
}

impl Frontend<'_> {
    pub(crate) fn kernels(&self, arches: &[Arch]) -> Result<Kernels, Error> {
        let Compiler { toolchain, options, .. } = self.compiler;
        let compiled = cargo::compile(toolchain, self.folder, self.target, options, self.only)?;
        let mut kernels = Kernels { warnings: compiled.warnings, ..Kernels::default() };
        let mut bitcode = Vec::new();
        for archive in &compiled.archives {
            bitcode.extend(archive::bitcode(archive)?);
        }
        let list = self.compiler.cache.join(format!("{}.cuts.json", self.stamp(&bitcode, arches)));
        if let Some((done, left_out)) = self.known(&list) {
            kernels.done = done;
            kernels.warnings.extend(warnings(&left_out, arches));
            return Ok(kernels);
        }
        kernels.cut = true;
        let folder = self.target.join("modules").join(&compiled.kind);
        let (modules, mut indexes) = Modules::new(toolchain, &folder, &bitcode)?;
        indexes.push(ir::Index::of(&ir::Module::parse(PRELUDE)));
        let graph = ir::Graph::new(indexes).map_err(Error::Link)?;
        let mut all = Vec::new();
        let mut left_out: LeftOut = BTreeMap::new();
        let mut new = Vec::new();
        let mut texts = BTreeMap::new();
        for (place, symbol, marker) in graph.kernels() {
            if self.only.is_some_and(|only| !only.contains(symbol)) {
                continue;
            }
            let problem = match marker.map(Marker::parse) {
                Some(Ok(marker)) => {
                    if let Some(arch) = marker.arch.filter(|arch| !arches.contains(arch)) {
                        left_out.entry(arch).or_default().insert(symbol.to_owned());
                    }
                    let reach = graph.reach(place);
                    for cut in cuts(symbol, &marker, arches, &reach) {
                        all.push(cut.clone());
                        match self.compiler.cached(&cut) {
                            Some(done) => kernels.done.push(done),
                            None => {
                                texts.extend(reach.modules.iter().map(|&module| (module, String::new())));
                                new.push((place, cut));
                            }
                        }
                    }
                    continue;
                }
                Some(Err(message)) => Problem::Marker(message),
                None => Problem::NoMarker,
            };
            kernels.errors.push(KernelError {
                kernel: symbol.to_owned(),
                module: String::new(),
                arches: arches.to_vec(),
                problem,
            });
        }
        // After an edit of one kernel most are known, and the modules of the others hundreds of megabytes that nobody reads.
        for (&module, text) in &mut texts {
            *text = if module < bitcode.len() { modules.text(module)? } else { PRELUDE.to_owned() };
        }
        let program = ir::Program::new(&graph, texts.iter().map(|(&module, text)| (module, text.as_str())));
        let mut cutter = ir::Cutter::new(&program);
        let job = |(place, cut): (ir::Place, Cut)| Job { ir: cutter.cut(place, &cut.marker, cut.arch), cut };
        kernels.jobs = new.into_iter().map(job).collect();
        if kernels.errors.is_empty() {
            // A cache that cannot be written costs time and nothing else.
            let _ = cache::write(&list, &(all, &left_out));
        }
        kernels.warnings.extend(warnings(&left_out, arches));
        Ok(kernels)
    }

    /// The kernels that `list` names, if the cache has every one, and those that it left out.
    fn known(&self, list: &Path) -> Option<(Vec<Done>, LeftOut)> {
        let (cuts, left_out): (Vec<Cut>, LeftOut) = cache::read(list)?;
        Some((cuts.iter().map(|cut| self.compiler.cached(cut)).collect::<Option<_>>()?, left_out))
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

/// The kernels that are for an architecture alone which the build is not for.
type LeftOut = BTreeMap<Arch, BTreeSet<String>>;

/// What to say of them: whoever launches one would be told that there is none, and not why.
fn warnings(left_out: &LeftOut, arches: &[Arch]) -> impl Iterator<Item = String> {
    let given = arches.iter().map(|arch| arch.as_str()).collect::<Vec<_>>().join(", ");
    left_out.iter().map(move |(arch, symbols)| {
        let names = symbols.iter().map(|symbol| format!("`{symbol}`")).collect::<Vec<_>>().join(", ");
        let kernels = if symbols.len() == 1 { "kernel" } else { "kernels" };
        format!(
            "{kernels} {names} left out: `#[kernel(arch = \"{arch}\")]` is for {arch} alone, and the build is for {given}; \
             `CudaBuilder::arch(Arch::{arch:?})` adds it"
        )
    })
}

/// The cuts of a kernel for those of `arches`, oldest first, that it is for. PTX for the oldest runs on the others too, and
/// theirs would have the same instructions, unless the kernel asks which it is for or has clusters, which the older ones lack.
fn cuts<'a>(
    symbol: &'a str,
    marker: &'a Marker,
    arches: &'a [Arch],
    reach: &'a ir::Reach,
) -> impl Iterator<Item = Cut> + 'a {
    let differ = reach.asks_arch || marker.cluster != [1; 3];
    let own = arches.iter().filter(|&&arch| marker.arch.is_none_or(|only| only == arch));
    own.take(if differ { arches.len() } else { 1 }).map(|&arch| Cut {
        symbol: symbol.to_owned(),
        arch,
        marker: marker.clone(),
        hash: reach.hash.clone(),
    })
}

/// 128 bits as hexadecimal digits.
pub(crate) fn hash(write: impl FnOnce(&mut SipHasher13)) -> String {
    let mut hasher = SipHasher13::new();
    write(&mut hasher);
    format!("{:032x}", hasher.finish128().as_u128())
}
