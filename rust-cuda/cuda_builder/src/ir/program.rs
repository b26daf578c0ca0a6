//! The texts that kernels are cut out of.

use std::collections::BTreeMap;

use super::{Graph, Item, Module, Place};

/// Modules that are joined in a graph, with their texts: those that what is cut reaches.
pub(crate) struct Program<'a> {
    graph: &'a Graph,
    modules: BTreeMap<usize, Module<'a>>,
}

impl<'a> Program<'a> {
    /// The texts by the modules' places in the graph.
    pub(crate) fn new(graph: &'a Graph, texts: impl IntoIterator<Item = (usize, &'a str)>) -> Program<'a> {
        Program { graph, modules: texts.into_iter().map(|(place, text)| (place, Module::parse(text))).collect() }
    }

    pub(super) fn module(&self, module: usize) -> &Module<'a> {
        &self.modules[&module]
    }

    pub(super) fn item(&self, place: Place) -> &Item<'a> {
        &self.module(place.module).items[place.item]
    }

    /// What `name` means in a module.
    pub(super) fn resolve(&self, module: usize, name: &str) -> Option<Place> {
        let &item = self.module(module).index.get(name)?;
        self.graph.meaning(Place { module, item })
    }
}
