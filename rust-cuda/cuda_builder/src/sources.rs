//! The sources of a crate of kernels: its own files, those of its path dependencies, and the versions of all others.

use std::{
    collections::BTreeMap,
    fs,
    hash::Hasher as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{Error, cache::hash, cargo};

/// The packages that the device crate is compiled from.
pub(crate) struct Sources {
    /// The names and folders of the crate and of its path dependencies.
    pub(crate) local: BTreeMap<String, PathBuf>,
    /// The names and versions of registry dependencies.
    others: Vec<String>,
}

/// The parts of a package that are compiled.
pub(crate) const PARTS: [&str; 3] = ["Cargo.toml", "build.rs", "src"];

impl Sources {
    /// Asks cargo what the crate in `folder` depends on. This takes no device toolchain.
    pub(crate) fn of(folder: &Path, features: &[String]) -> Result<Sources, Error> {
        let output = cargo::plain()
            .args(["metadata", "--format-version", "1", "--filter-platform", cargo::TARGET])
            .args(cargo::features(features))
            .current_dir(folder)
            .output()
            .map_err(|source| Error::Run { program: "cargo".to_owned(), source })?;
        if !output.status.success() {
            return Err(Error::Metadata(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()));
        }
        let metadata: Metadata =
            serde_json::from_slice(&output.stdout).map_err(|error| Error::Output(error.to_string()))?;
        Ok(metadata.reached_from(&folder.join("Cargo.toml")))
    }

    /// A hash of all of it and of `how` it is compiled. It does not depend on the location of the files.
    pub(crate) fn hash(&self, how: &str) -> Result<String, Error> {
        let mut files = Vec::new();
        for (name, folder) in &self.local {
            for part in PARTS {
                collect(&folder.join(part), &format!("{name}/{part}"), &mut files)?;
            }
        }
        files.sort();
        let mut contents = Vec::new();
        for (_, path) in &files {
            contents.push(fs::read(path).map_err(|source| Error::File { path: path.clone(), source })?);
        }
        Ok(hash(|hasher| {
            for text in self.others.iter().map(String::as_str).chain([how]) {
                hasher.write(text.as_bytes());
                hasher.write(&[0]);
            }
            for ((name, _), content) in files.iter().zip(&contents) {
                hasher.write(name.as_bytes());
                hasher.write(&(content.len() as u64).to_le_bytes());
                hasher.write(content);
            }
        }))
    }
}

/// The files in `path`, or `path` itself if it is a file; each with a name that does not depend on the machine.
fn collect(path: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) -> Result<(), Error> {
    if path.is_dir() {
        let error = |source| Error::File { path: path.to_owned(), source };
        for entry in path.read_dir().map_err(error)? {
            let entry = entry.map_err(error)?;
            collect(&entry.path(), &format!("{name}/{}", entry.file_name().to_string_lossy()), files)?;
        }
    } else if path.is_file() {
        files.push((name.to_owned(), path.to_owned()));
    }
    Ok(())
}

/// The relevant part of the output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Metadata {
    /// The package at `manifest` and what it depends on; its tests' dependencies do not count.
    fn reached_from(self, manifest: &Path) -> Sources {
        let packages: BTreeMap<&str, &Package> = self.packages.iter().map(|p| (p.id.as_str(), p)).collect();
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
        let root = self.packages.iter().find(|package| package.manifest_path == manifest);
        let mut reached: Vec<&str> = root.map(|package| package.id.as_str()).into_iter().collect();
        let mut done = 0;
        while let Some(id) = reached.get(done) {
            done += 1;
            let compiled = |d: &&Dependency| d.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
            for dependency in nodes.get(id).iter().flat_map(|node| &node.deps).filter(compiled) {
                if !reached.contains(&dependency.pkg.as_str()) {
                    reached.push(&dependency.pkg);
                }
            }
        }
        let mut sources = Sources { local: BTreeMap::new(), others: Vec::new() };
        for package in reached.iter().filter_map(|id| packages.get(id)) {
            match (&package.source, package.manifest_path.parent()) {
                (None, Some(folder)) => {
                    sources.local.insert(package.name.clone(), folder.to_owned());
                }
                _ => sources.others.push(format!("{} {}", package.name, package.version)),
            }
        }
        sources.others.sort();
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_knows_the_sources_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("k/src/ops/gelu.rs", "fn gelu() {}");
        write("k/Cargo.toml", "[package]");
        let sources = |at: &Path| Sources {
            local: [("k".to_owned(), at.join("k"))].into(),
            others: vec!["half 2.7.0".to_owned()],
        };
        let hash = || sources(folder.path()).hash("sm_80").unwrap();
        let first = hash();
        write("k/target/rubbish", "");
        assert_eq!(hash(), first);
        assert_ne!(sources(folder.path()).hash("sm_90a").unwrap(), first);
        let newer = Sources { others: vec!["half 2.8.0".to_owned()], ..sources(folder.path()) };
        assert_ne!(newer.hash("sm_80").unwrap(), first);
        write("k/src/ops/gelu.rs", "fn gelu() { }");
        assert_ne!(hash(), first);
        write("k/src/ops/gelu.rs", "fn gelu() {}");
        assert_eq!(hash(), first);
        fs::rename(folder.path().join("k/src/ops/gelu.rs"), folder.path().join("k/src/ops/silu.rs")).unwrap();
        assert_ne!(hash(), first);
    }

    #[test]
    fn this_workspace_s_kernels_are_found_with_what_they_are_made_of() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/basic");
        let sources = Sources::of(&root, &[]).unwrap();
        assert_eq!(sources.local.values().collect::<Vec<_>>(), [&root]);
        assert!(sources.others.is_empty());
    }
}
