//! From the crate to its separate kernels: rustc, `llvm-dis` and the split.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher as _,
    path::Path,
};

use crate::{
    Arch, Error,
    cache::{self, hash},
    cargo,
    compile::{Compiler, Cut, Done, Job},
    disassemble::Modules,
    error::{KernelError, Problem},
    ir,
    marker::Marker,
};

const PRELUDE: &str = include_str!("prelude.ll");

/// The stages before the kernels are separate.
pub(crate) struct Frontend<'a> {
    pub(crate) compiler: &'a Compiler<'a>,
    pub(crate) folder: &'a Path,
    pub(crate) target: &'a Path,
    /// The requested kernels, unless all are requested.
    pub(crate) only: Option<&'a BTreeSet<String>>,
}

/// The kernels of the crate.
#[derive(Default)]
pub(crate) struct Kernels {
    /// The kernels that still have to be compiled.
    pub(crate) jobs: Vec<Job>,
    /// The kernels from the cache.
    pub(crate) done: Vec<Done>,
    /// Whether rustc's output was new and had to be split.
    pub(crate) cut: bool,
    pub(crate) errors: Vec<KernelError>,
    pub(crate) warnings: Vec<String>,
}

impl Frontend<'_> {
    pub(crate) fn kernels(&self, arches: &[Arch]) -> Result<Kernels, Error> {
        let Compiler { toolchain, options, .. } = self.compiler;
        let compiled = cargo::compile(toolchain, self.folder, self.target, options, self.only)?;
        let mut kernels = Kernels { warnings: compiled.warnings, ..Kernels::default() };
        let bitcode = compiled.bitcode;
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
        // After an edit of one kernel most are cached, and the modules of the others are hundreds of megabytes that are not needed.
        for (&module, text) in &mut texts {
            *text = if module < bitcode.len() { modules.text(module)? } else { PRELUDE.to_owned() };
        }
        let program = ir::Program::new(&graph, texts.iter().map(|(&module, text)| (module, text.as_str())));
        let mut cutter = ir::Cutter::new(&program);
        let job = |(place, cut): (ir::Place, Cut)| Job { ir: cutter.cut(place, &cut.marker, cut.arch), cut };
        kernels.jobs = new.into_iter().map(job).collect();
        if kernels.errors.is_empty() {
            // A cache that cannot be written only costs time.
            let _ = cache::write(&list, &(all, &left_out));
        }
        kernels.warnings.extend(warnings(&left_out, arches));
        Ok(kernels)
    }

    /// The kernels in `list`, if all are cached, and those that were skipped.
    fn known(&self, list: &Path) -> Option<(Vec<Done>, LeftOut)> {
        let (cuts, left_out): (Vec<Cut>, LeftOut) = cache::read(list)?;
        Some((cuts.iter().map(|cut| self.compiler.cached(cut)).collect::<Option<_>>()?, left_out))
    }

    /// A hash that identifies rustc's output.
    fn stamp(&self, bitcode: &[Vec<u8>], arches: &[Arch]) -> String {
        hash(|hasher| {
            hasher.write(self.compiler.tools().as_bytes());
            hasher.write(PRELUDE.as_bytes());
            hasher.write(format!("{:?} {arches:?}", self.only).as_bytes());
            bitcode.iter().for_each(|module| hasher.write(module));
        })
    }
}

/// The kernels that were skipped because they are for an architecture that the build does not target.
type LeftOut = BTreeMap<Arch, BTreeSet<String>>;

/// Warnings about the skipped kernels: launching one would only report a missing kernel, without the reason.
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

/// The cuts of a kernel for its architectures among `arches`, oldest first. PTX for the oldest runs on the others too, and PTX
/// for the others would have the same instructions, unless the kernel queries its architecture or has clusters, which the
/// older ones lack.
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
