//! `cargo xtask new-op`: the places of a new operator, filled with one that works.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::tidy::{DEVICE, HOST, REGISTRY, Tree};

/// What to write.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Its name, in snake case
    name: String,
    /// Its family
    #[arg(long, value_parser = FAMILIES)]
    family: String,
}

/// Every family.
const FAMILIES: [&str; 13] = [
    "activation",
    "attention",
    "elementwise",
    "gemm",
    "gemv",
    "layout",
    "loss",
    "norm",
    "optim",
    "quant",
    "random",
    "reduce",
    "softmax",
];

/// A device file, a host file, what the host file makes public, and its entries in the registry.
struct Template {
    device: &'static str,
    host: &'static str,
    functions: &'static [&'static str],
    entries: &'static [&'static str],
}

const ACTIVATION: Template = Template {
    device: include_str!("../templates/activation/device.rs"),
    host: include_str!("../templates/activation/host.rs"),
    functions: &["NAME", "NAME_backward", "NAME_backward_into", "NAME_into"],
    entries: &["CONST", "CONST_BACKWARD"],
};

const ELEMENTWISE: Template = Template {
    device: include_str!("../templates/elementwise/device.rs"),
    host: include_str!("../templates/elementwise/host.rs"),
    functions: &["NAME", "NAME_into"],
    entries: &["CONST"],
};

const ROWS: Template = Template {
    device: include_str!("../templates/norm/device.rs"),
    host: include_str!("../templates/norm/host.rs"),
    functions: &["NAME", "NAME_into"],
    entries: &["TYPE"],
};

/// What an operator of that family starts from.
fn template(family: &str) -> &'static Template {
    match family {
        "activation" => &ACTIVATION,
        "norm" | "softmax" | "reduce" | "loss" => &ROWS,
        _ => &ELEMENTWISE,
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { name, family } = options;
    for path in write(cargo::root(), name, family)? {
        println!("wrote {path}");
    }
    // Lines between others, in the order that it wants.
    cargo::run("formatting", &mut cargo::command(["fmt", "--all"]))?;
    println!("It works as it is: try `cargo xtask verify {name}`. CONTRIBUTING.md says how to go on.");
    Ok(())
}

/// Writes an operator of each template into a copy of the workspace, where it has to compile without a warning.
pub(crate) fn check_templates() -> Result<()> {
    let target = cuda_builder::target_folder(cargo::root());
    let copy = target.join("new-op");
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("cannot replace {}", copy.display()))?;
    }
    for (path, text) in Tree::read()?.iter() {
        put(&copy, path, text)?;
    }
    for family in ["activation", "elementwise", "norm"] {
        write(&copy, &format!("new_{family}"), family)?;
    }
    let clippy = ["clippy", "--package", "warpsmith", "--features", "check,no-kernels", "--", "-D", "warnings"];
    cargo::run("new operators", cargo::command(clippy).current_dir(&copy).env("CARGO_TARGET_DIR", target))
}

/// The files to write, by path; those that are there already are read first.
struct Files<'a> {
    root: &'a Path,
    texts: BTreeMap<String, String>,
}

impl Files<'_> {
    fn read(&self, path: &str) -> Result<String> {
        match self.texts.get(path) {
            Some(text) => Ok(text.clone()),
            None => fs::read_to_string(self.root.join(path)).with_context(|| format!("reading {path}")),
        }
    }

    fn put(&mut self, path: &str, text: String) {
        self.texts.insert(path.to_owned(), text);
    }

    fn has(&self, path: &str) -> bool {
        self.texts.contains_key(path) || self.root.join(path).exists()
    }

    /// Adds a line to those of a file that start with `prefix`, which are sorted.
    fn insert(&mut self, path: &str, prefix: &str, line: &str) -> Result<()> {
        let text = insert(&self.read(path)?, prefix, line);
        self.put(path, text);
        Ok(())
    }
}

/// Writes everything or, if anything is in the way, nothing. Returns the paths.
fn write(root: &Path, name: &str, family: &str) -> Result<Vec<String>> {
    check(name)?;
    let template = template(family);
    let fill = |text: &str| {
        let constant = name.to_uppercase();
        text.replace("NAME", name).replace("TYPE", &camel(name)).replace("CONST", &constant).replace("FAMILY", family)
    };
    let mut files = Files { root, texts: BTreeMap::new() };
    let (device, host) = (format!("{DEVICE}/{family}"), format!("{HOST}/{family}"));
    for folder in [&device, &host] {
        if files.has(&format!("{folder}/{name}.rs")) || files.has(&format!("{folder}/{name}")) {
            bail!("`{name}` is taken: {folder} has it already");
        }
        let family_mod = format!("{folder}/mod.rs");
        if !files.has(&family_mod) {
            let ops = folder.trim_end_matches(family).to_owned() + "mod.rs";
            files.insert(&ops, "pub mod ", &format!("pub mod {family};"))?;
            if folder == &host {
                files.insert(&ops, "pub use ", &format!("pub use {family}::*;"))?;
            }
            files.put(&family_mod, format!("//! Operators of the family {family}.\n"));
        }
        files.insert(&family_mod, "pub mod ", &format!("pub mod {name};"))?;
    }
    let functions: Vec<_> = template.functions.iter().map(|function| fill(function)).collect();
    for family in FAMILIES {
        // All are in one module, whatever their family.
        let path = format!("{HOST}/{family}/mod.rs");
        let text = if files.has(&path) { files.read(&path)? } else { String::new() };
        let public = text.split_once("pub use ").map_or("", |(_, rest)| rest);
        let mut there = public.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if let Some(taken) = there.find(|word| functions.iter().any(|function| function == word)) {
            bail!("`{name}` is taken: {path} has `{taken}` already");
        }
    }
    let functions = functions.join(", ");
    files.insert(&format!("{host}/mod.rs"), "pub use ", &format!("pub use {name}::{{{functions}}};"))?;
    for entry in template.entries {
        files.insert(REGISTRY, "    &", &format!("    &{family}::{name}::{},", fill(entry)))?;
    }
    let registry = families_of(&files.read(REGISTRY)?);
    files.put(REGISTRY, registry);
    files.put(&format!("{device}/{name}.rs"), fill(template.device));
    files.put(&format!("{host}/{name}.rs"), fill(template.host));
    files.texts.into_iter().map(|(path, text)| put(root, &path, &text).map(|()| path)).collect()
}

fn put(root: &Path, path: &str, text: &str) -> Result<()> {
    let to = root.join(path);
    fs::create_dir_all(to.parent().unwrap_or(root))?;
    fs::write(to, text).with_context(|| format!("writing {path}"))
}

/// The registry with a `use` line that names the families of its entries.
fn families_of(registry: &str) -> String {
    let entries = registry.lines().filter_map(|line| line.trim().strip_prefix('&')?.split_once("::"));
    let mut families: Vec<_> = entries.map(|(family, _)| family).collect();
    families.dedup();
    let used = format!("use super::{{{}}};", families.join(", "));
    // Over several lines once there are many.
    let old = registry.split_once("use super::{").and_then(|(before, rest)| Some((before, rest.split_once("};")?.1)));
    old.map_or_else(|| registry.to_owned(), |(before, after)| format!("{before}{used}{after}"))
}

fn check(name: &str) -> Result<()> {
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    let rest = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !starts || !rest || name.ends_with('_') || name.contains("__") {
        bail!("`{name}` is no name for an operator: use snake case, such as rms_norm");
    }
    if KEYWORDS.split_whitespace().any(|word| word == name) {
        bail!("`{name}` is no name for an operator: it is a word of Rust's");
    }
    Ok(())
}

const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen \
     if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true try type \
     typeof unsafe unsized use virtual where while yield";

fn camel(name: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    name.split('_').map(capital).collect()
}

/// Adds a line to the items that start with `prefix`, of a line or several, which are sorted; to the end if there are none.
fn insert(text: &str, prefix: &str, line: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    match lines.iter().position(|l| l.starts_with(prefix)) {
        Some(first) => {
            let mut at = first;
            while lines.get(at).is_some_and(|l| l.starts_with(prefix) && *l < line) {
                let ends = |l: &&str| l.chars().last() == line.chars().last();
                at += lines[at..].iter().position(ends).map_or(1, |more| more + 1);
            }
            lines.insert(at, line);
        }
        None => lines.extend(["", line]),
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        let get = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        put("gpu-kernels/src/ops/mod.rs", "//! Ops.\n\npub mod activation;\n");
        put("gpu-kernels/src/ops/activation/mod.rs", "//! Activations.\n\npub mod gelu;\npub mod tanh;\n");
        put("host/src/ops/mod.rs", "pub mod activation;\npub mod model;\n\npub use activation::*;\n");
        put("host/src/ops/activation/mod.rs", "pub mod gelu;\n\npub use gelu::{\n    gelu,\n    gelu_into,\n};\n");
        let registry =
            "use super::{\n    activation,\n};\n\nstatic O: &[&dyn Operator] = &[\n    &activation::gelu::GELU,\n];\n";
        put("host/src/ops/registry.rs", registry);
        assert_eq!(write(root, "relu", "activation").unwrap().len(), 5);
        assert!(
            get("gpu-kernels/src/ops/activation/mod.rs").ends_with("pub mod gelu;\npub mod relu;\npub mod tanh;\n")
        );
        assert!(
            get("gpu-kernels/src/ops/activation/relu.rs").contains("activation!(relu: LIGHT, relu_backward: LIGHT);")
        );
        let host = get("host/src/ops/activation/mod.rs");
        assert!(host.ends_with("};\npub use relu::{relu, relu_backward, relu_backward_into, relu_into};\n"), "{host}");
        let registry = get("host/src/ops/registry.rs");
        assert!(
            registry.contains("    &activation::relu::RELU,\n    &activation::relu::RELU_BACKWARD,\n"),
            "{registry}"
        );
        assert!(write(root, "relu", "activation").unwrap_err().to_string().contains("already"));
        // A name is one operator's, in whatever family and file.
        for taken in ["relu", "relu_backward", "gelu"] {
            let error = write(root, taken, "norm").unwrap_err().to_string();
            assert!(error.contains("activation/mod.rs has") && error.contains("already"), "{error}");
        }
        assert!(!root.join("host/src/ops/norm").exists());

        // The first of its family.
        assert_eq!(write(root, "layer_norm", "norm").unwrap().len(), 7);
        assert!(get("gpu-kernels/src/ops/mod.rs").ends_with("pub mod activation;\npub mod norm;\n"));
        assert!(get("host/src/ops/mod.rs").ends_with("pub use activation::*;\npub use norm::*;\n"));
        assert!(get("host/src/ops/registry.rs").starts_with("use super::{activation, norm};\n"));
        assert!(get("host/src/ops/norm/layer_norm.rs").contains("launch_rows!(stream, plan, gk::LayerNorm, T, args)"));
        assert!(get("host/src/ops/norm/layer_norm.rs").contains("gpu_kernels::ops::norm::layer_norm as gk"));
    }

    #[test]
    fn names_that_would_not_compile_are_refused() {
        for name in ["", "Gelu", "2d", "a-b", "a__b", "a_", "mod", "for", "../x", "größe"] {
            assert!(check(name).is_err(), "{name}");
        }
        assert_eq!(camel("bias_mask_2d"), "BiasMask2d");
    }

    #[test]
    fn the_new_device_files_are_tidy() {
        for family in FAMILIES {
            assert!(crate::tidy::header_is_whole(template(family).device), "{family}");
        }
    }
}
