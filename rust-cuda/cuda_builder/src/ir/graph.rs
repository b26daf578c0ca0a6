//! The modules that rustc made from a crate and its dependencies, linked by the names of their items, without the texts.

use std::{collections::BTreeSet, hash::Hasher as _};

use rustc_hash::FxHashMap;

use super::{
    Index, Kind,
    index::{Entry, Linkage},
    split,
};
use crate::cache::hash;

/// Modules whose items may refer to each other's.
///
/// This replaces a linker, which would read and write the whole program for an edit of one kernel.
pub(crate) struct Graph {
    modules: Vec<Index>,
    /// The item that each symbol of each module refers to, if any.
    meanings: Vec<Vec<Option<Place>>>,
}

/// An item of one of a program's modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(super) module: usize,
    pub(super) item: usize,
}

/// The items that a kernel consists of.
pub(crate) struct Reach {
    /// The hash of everything that decides its cut, except its marker and the architecture.
    pub(crate) hash: String,
    pub(crate) modules: BTreeSet<usize>,
    /// Whether the cut depends on the architecture.
    pub(crate) asks_arch: bool,
}

impl Graph {
    /// Links modules, or returns a symbol that two of them define.
    pub(crate) fn new(modules: Vec<Index>) -> Result<Graph, String> {
        // The definition of each exported symbol; if it has none, its first declaration.
        let mut exported: FxHashMap<&str, (Linkage, Place)> = FxHashMap::default();
        let places = modules.iter().enumerate().flat_map(|(module, index)| {
            index.items.iter().enumerate().map(move |(item, entry)| (index, entry, Place { module, item }))
        });
        for (index, &Entry { name, linkage, .. }, place) in places {
            let name = index.symbols[name].as_str();
            let before = exported.get(name).map(|&(linkage, _)| linkage);
            if linkage == Linkage::Strong && before == Some(Linkage::Strong) {
                return Err(name.to_owned());
            }
            // Private items of a module are visible to it only; of several interchangeable definitions the first is used.
            if linkage != Linkage::Own && before.is_none_or(|before| linkage > before) {
                exported.insert(name, (linkage, place));
            }
        }
        let meanings = modules.iter().enumerate().map(|(module, index)| {
            let shared = |name: &String| exported.get(name.as_str()).map(|&(_, place)| place);
            let mut meanings: Vec<_> = index.symbols.iter().map(shared).collect();
            for (item, entry) in index.items.iter().enumerate().filter(|(_, entry)| entry.linkage == Linkage::Own) {
                meanings[entry.name] = Some(Place { module, item });
            }
            meanings
        });
        let meanings = meanings.collect();
        Ok(Graph { modules, meanings })
    }

    /// The kernels and their markers, sorted by name. A kernel without a marker was not declared with `#[kernel]`.
    pub(crate) fn kernels(&self) -> Vec<(Place, &str, Option<&str>)> {
        let mut kernels: Vec<_> = (self.modules.iter().enumerate())
            .flat_map(|(module, index)| {
                let kernels = index.items.iter().enumerate().filter(|(_, entry)| entry.kind == Kind::Kernel);
                kernels.map(move |(item, entry)| {
                    (Place { module, item }, index.symbols[entry.name].as_str(), entry.marker.as_deref())
                })
            })
            .collect();
        kernels.sort_by_key(|&(_, name, _)| name);
        kernels
    }

    /// Everything that `kernel` reaches. Two kernels with the same hash have the same cut.
    pub(crate) fn reach(&self, kernel: Place) -> Reach {
        let mut reached = vec![kernel];
        let mut numbers = FxHashMap::from_iter([(kernel, 0)]);
        let mut modules = BTreeSet::new();
        let mut asks_arch = false;
        let hash = hash(|hasher| {
            hasher.write(self.modules[kernel.module].header.as_bytes());
            let mut done = 0;
            while let Some(&place) = reached.get(done) {
                done += 1;
                let index = &self.modules[place.module];
                let entry = &index.items[place.item];
                modules.insert(place.module);
                hasher.write(entry.hash.as_bytes());
                if split::is_arch(entry.kind, &index.symbols[entry.name]) {
                    asks_arch = true;
                    continue;
                }
                for &symbol in &entry.uses {
                    match self.meanings[place.module][symbol] {
                        Some(used) => hasher.write_usize(*numbers.entry(used).or_insert_with(|| {
                            reached.push(used);
                            reached.len() - 1
                        })),
                        None => hasher.write(index.symbols[symbol].as_bytes()),
                    }
                }
            }
            for units in modules.iter().filter_map(|&module| self.modules[module].units.as_ref()) {
                hasher.write(units.as_bytes());
            }
        });
        Reach { hash, modules, asks_arch }
    }

    /// The item that a name refers to in a module: its own, or the shared one.
    pub(super) fn meaning(&self, place: Place) -> Option<Place> {
        let symbol = self.modules[place.module].items.get(place.item)?.name;
        self.meanings[place.module][symbol]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Module;

    const A: &str = "define void @k() {\n}\ndeclare void @f()\ndefine internal void @own() {\n}\n@t = linkonce_odr constant i8 1\ndeclare void @llvm.f()\n";
    const B: &str = "define hidden void @f() {\n}\ndefine internal void @own() {\n}\n@t = linkonce_odr constant i8 1\n@s = external global i8\ndeclare void @llvm.f()\n";

    fn graph(sources: [&str; 2]) -> Result<Graph, String> {
        Graph::new(sources.map(|source| Index::of(&Module::parse(source))).into())
    }

    #[test]
    fn names_find_their_definitions() {
        let graph = graph([A, B]).unwrap_or_else(|name| panic!("{name} is defined twice"));
        let module = |from: usize, name: &str| {
            let symbol = graph.modules[from].symbols.iter().position(|symbol| symbol == name)?;
            graph.meanings[from][symbol].map(|place| place.module)
        };
        assert_eq!((module(0, "f"), module(1, "f")), (Some(1), Some(1)), "what is declared is defined elsewhere");
        assert_eq!((module(0, "own"), module(1, "own")), (Some(0), Some(1)), "internal functions are their module's");
        assert_eq!(
            (module(0, "t"), module(1, "t")),
            (Some(0), Some(0)),
            "of several that are the same it is the first"
        );
        assert_eq!((module(0, "llvm.f"), module(1, "llvm.f")), (Some(0), Some(0)), "of declarations too");
        assert_eq!((module(1, "s"), module(0, "none")), (Some(1), None));
    }

    #[test]
    fn a_symbol_is_defined_once() {
        let twice = "define ptx_kernel void @k() {\n}\n";
        assert_eq!(graph([A, twice]).err().as_deref(), Some("k"));
        assert_eq!(graph([B, "@f = constant i8 0\n"]).err().as_deref(), Some("f"));
    }
}
