//! `cargo xtask new-op`: the places of a new operator, filled with one that copies.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::tidy::{DEVICE, HOST, REGISTRY};

const DEVICE_TEMPLATE: &str = include_str!("../templates/device.rs");
const HOST_TEMPLATE: &str = include_str!("../templates/host.rs");

pub(crate) fn run(name: &str) -> Result<()> {
    for path in write(cargo::root(), name)? {
        println!("wrote {path}");
    }
    println!(
        "The operator copies for now, and passes: try `cargo xtask verify {name}`. CONTRIBUTING.md says how to go on."
    );
    Ok(())
}

/// Writes everything or, if anything is in the way, nothing. Returns the paths.
fn write(root: &Path, name: &str) -> Result<Vec<String>> {
    check(name)?;
    let type_name = camel(name);
    let fill = |template: &str| template.replace("NAME", name).replace("TYPE", &type_name);
    let (device, host) = (format!("{DEVICE}/{name}.rs"), format!("{HOST}/{name}.rs"));
    for path in [&device, &host] {
        let folder = path.trim_end_matches(".rs");
        if root.join(path).exists() || root.join(folder).exists() {
            bail!("`{name}` is taken: {path} or a folder of that name is there already");
        }
    }
    let (device_mod, host_mod) = (format!("{DEVICE}/mod.rs"), format!("{HOST}/mod.rs"));
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"));
    let module = format!("pub mod {name};");
    let device_text = insert(&read(&device_mod)?, "pub mod ", &module).context(device_mod.clone())?;
    let host_text = insert(&read(&host_mod)?, "pub mod ", &module).context(host_mod.clone())?;
    let host_text = insert(&host_text, "pub use ", &format!("pub use {name}::{name};")).context(host_mod.clone())?;
    let line = format!("    &ops::{name}::{type_name},");
    let registry_text = insert(&read(REGISTRY)?, "    &ops::", &line).context(REGISTRY)?;
    let files = [
        (device, fill(DEVICE_TEMPLATE)),
        (device_mod, device_text),
        (host, fill(HOST_TEMPLATE)),
        (host_mod, host_text),
        (REGISTRY.to_owned(), registry_text),
    ];
    let write = |(path, text): (String, String)| {
        fs::write(root.join(&path), text).with_context(|| format!("writing {path}"))?;
        Ok(path)
    };
    files.into_iter().map(write).collect()
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

/// Adds a line to those that start with `prefix`, which are sorted.
fn insert(text: &str, prefix: &str, line: &str) -> Result<String> {
    let mut lines: Vec<_> = text.lines().collect();
    let first =
        lines.iter().position(|l| l.starts_with(prefix)).with_context(|| format!("no line starts with `{prefix}`"))?;
    let count = lines[first..].iter().take_while(|l| l.starts_with(prefix)).count();
    let at = lines[first..first + count].partition_point(|l| *l < line);
    lines.insert(first + at, line);
    Ok(lines.join("\n") + "\n")
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
        put("gpu-kernels/src/ops/mod.rs", "//! Ops.\n\npub mod gelu;\npub mod sgemm;\n");
        put("host/src/ops/mod.rs", "mod elementwise;\n\npub mod gelu;\npub mod sgemm;\n\npub use gelu::gelu;\n");
        put("host/src/check/registry.rs", "static O: &[&dyn Operator] = &[\n    &ops::gelu::Gelu,\n];\n");
        assert_eq!(write(root, "rms_norm").unwrap().len(), 5);
        assert_eq!(get("gpu-kernels/src/ops/mod.rs"), "//! Ops.\n\npub mod gelu;\npub mod rms_norm;\npub mod sgemm;\n");
        assert!(get("host/src/ops/mod.rs").ends_with("pub use gelu::gelu;\npub use rms_norm::rms_norm;\n"));
        assert!(get("host/src/check/registry.rs").contains("    &ops::gelu::Gelu,\n    &ops::rms_norm::RmsNorm,\n]"));
        assert!(get("gpu-kernels/src/ops/rms_norm.rs").contains("pub unsafe fn rms_norm<T: Element>"));
        assert!(get("host/src/ops/rms_norm.rs").contains("stream.launch::<gk::RmsNorm<T>>"));
        assert!(write(root, "rms_norm").unwrap_err().to_string().contains("already"));
    }

    #[test]
    fn names_that_would_not_compile_are_refused() {
        for name in ["", "Gelu", "2d", "a-b", "a__b", "a_", "mod", "for", "../x", "größe"] {
            assert!(check(name).is_err(), "{name}");
        }
        assert_eq!(camel("bias_mask_2d"), "BiasMask2d");
    }

    #[test]
    fn the_new_device_file_is_tidy() {
        assert!(crate::tidy::header_is_whole(DEVICE_TEMPLATE));
    }
}
