//! The modules that rustc made of a crate and its dependencies, joined by the names of their items.

use rustc_hash::FxHashMap;

use super::{Item, Kind, Module};

/// Modules whose items may refer to one another's.
///
/// It takes the place of a linker, which would read and write the whole program for an edit of one kernel.
pub(crate) struct Program<'a> {
    pub(super) modules: Vec<Module<'a>>,
    /// Where what every module may refer to is defined; if it is nowhere, the first declaration of it.
    exported: FxHashMap<&'a str, Place>,
}

/// An item of one of a program's modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(super) module: usize,
    item: usize,
}

impl<'a> Program<'a> {
    /// Joins modules, or names a symbol that two of them define.
    pub(crate) fn new(modules: Vec<Module<'a>>) -> Result<Program<'a>, &'a str> {
        let mut exported: FxHashMap<&str, Place> = FxHashMap::default();
        for (module, content) in modules.iter().enumerate() {
            for (item, definition) in content.items.iter().enumerate() {
                let linkage = linkage(definition);
                let before = exported.get(definition.name);
                let before = before.map(|&Place { module, item }| self::linkage(&modules[module].items[item]));
                if linkage == Linkage::Strong && before == Some(Linkage::Strong) {
                    return Err(definition.name);
                }
                // What is private to a module is no one else's, and of several that may stand for one another the first does.
                if linkage != Linkage::Own && before.is_none_or(|before| linkage > before) {
                    exported.insert(definition.name, Place { module, item });
                }
            }
        }
        Ok(Program { modules, exported })
    }

    /// The kernels, in the order of their names.
    pub(crate) fn kernels(&self) -> Vec<(Place, &Item<'a>)> {
        let places = self.modules.iter().enumerate().flat_map(|(module, content)| {
            content.items.iter().enumerate().map(move |(item, kernel)| (Place { module, item }, kernel))
        });
        let mut kernels: Vec<_> = places.filter(|(_, item)| item.kind == Kind::Kernel).collect();
        kernels.sort_by_key(|(_, kernel)| kernel.name);
        kernels
    }

    pub(super) fn item(&self, place: Place) -> &Item<'a> {
        &self.modules[place.module].items[place.item]
    }

    /// What `name` means in a module: what is its own alone, or what all share.
    pub(super) fn resolve(&self, module: usize, name: &str) -> Option<Place> {
        let own = self.modules[module].index.get(name).map(|&item| Place { module, item });
        own.filter(|&place| linkage(self.item(place)) == Linkage::Own).or_else(|| self.exported.get(name).copied())
    }
}

/// Who sees an item, from what yields to what others yield to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Linkage {
    /// Its module alone.
    Own,
    /// Nobody: it is elsewhere.
    Declared,
    /// All modules, of which several may define the same.
    Weak,
    Strong,
}

fn linkage(item: &Item<'_>) -> Linkage {
    let words = match item.kind {
        Kind::Declaration => return Linkage::Declared,
        // `@name = private unnamed_addr constant …`
        Kind::Global => item.text.split_once(" = ").map_or("", |(_, words)| words),
        // `define internal void @name(…`
        Kind::Function | Kind::Kernel => item.text.strip_prefix("define ").unwrap_or(item.text),
    };
    match words.split(' ').next() {
        Some("internal" | "private") => Linkage::Own,
        Some("external" | "extern_weak" | "available_externally") => Linkage::Declared,
        Some("weak" | "weak_odr" | "linkonce" | "linkonce_odr" | "common") => Linkage::Weak,
        _ => Linkage::Strong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "define void @k() {\n}\ndeclare void @f()\ndefine internal void @own() {\n}\n@t = linkonce_odr constant i8 1\ndeclare void @llvm.f()\n";
    const B: &str = "define hidden void @f() {\n}\ndefine internal void @own() {\n}\n@t = linkonce_odr constant i8 1\n@s = external global i8\ndeclare void @llvm.f()\n";

    fn program<'a>(sources: [&'a str; 2]) -> Result<Program<'a>, &'a str> {
        Program::new(sources.map(Module::parse).into())
    }

    #[test]
    fn names_find_their_definitions() {
        let program = program([A, B]).unwrap_or_else(|name| panic!("{name} is defined twice"));
        let module = |from, name| program.resolve(from, name).map(|place| place.module);
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
        assert_eq!(program([A, twice]).err(), Some("k"));
        assert_eq!(program([B, "@f = constant i8 0\n"]).err(), Some("f"));
    }
}
