//! An operator is a device file, the `mod` line beside it, a host file with its `mod` line, and its lines in the registry: in the
//! folder of its family on both sides.

use std::collections::BTreeSet;

use super::{Tree, Violation};

pub(crate) const DEVICE: &str = "gpu-kernels/src/ops";
pub(crate) const HOST: &str = "host/src/ops";
pub(crate) const REGISTRY: &str = "host/src/ops/registry.rs";

/// Parts of `host/src/ops` that are no family.
const NO_FAMILY: [&str; 2] = ["model", "registry"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let (device, host) = (families(tree, DEVICE), families(tree, HOST));
    let registered = registered(tree);
    let of_registry = registered.iter().map(|(family, _)| family.as_str());
    let all: BTreeSet<_> =
        device.iter().map(String::as_str).chain(host.iter().map(String::as_str)).chain(of_registry).collect();
    let mut violations = Vec::new();
    for family in all {
        for (folder, families) in [(DEVICE, &device), (HOST, &host)] {
            if !families.contains(family) {
                let what = format!("family `{family}` has no `pub mod` line");
                violations.push(Violation::file(&format!("{folder}/mod.rs"), what));
            }
        }
        violations.extend(check_family(tree, family, &registered));
    }
    let lines: Vec<_> = registry_lines(tree).collect();
    if !lines.is_sorted() {
        violations.push(Violation::file(REGISTRY, "its lines are not sorted by family and file"));
    }
    violations
}

fn check_family(tree: &Tree, family: &str, registered: &BTreeSet<(String, String)>) -> Vec<Violation> {
    let folder = format!("{DEVICE}/{family}");
    let (device_mods, host_mods) = (format!("{folder}/mod.rs"), format!("{HOST}/{family}/mod.rs"));
    let of_family = registered.iter().filter(|(f, _)| f == family).map(|(_, operator)| operator.clone());
    let places = [
        (format!("no file in {folder}"), folder.as_str(), operators(tree, family)),
        ("no `pub mod` line".to_owned(), &device_mods, public_modules(tree, &device_mods)),
        ("no `pub mod` line".to_owned(), &host_mods, public_modules(tree, &host_mods)),
        ("no line in `OPERATORS`".to_owned(), REGISTRY, of_family.collect::<BTreeSet<_>>()),
    ];
    let operators: BTreeSet<_> = places.iter().flat_map(|(_, _, names)| names).collect();
    let mut violations = Vec::new();
    for operator in operators {
        for (lacks, path, names) in &places {
            if !names.contains(operator.as_str()) {
                violations.push(Violation::file(path, format!("operator `{operator}` has {lacks}")));
            }
        }
    }
    violations
}

/// The operators of a family's device files: all but those that its `mod.rs` keeps to itself, which are what operators share.
pub(crate) fn operators(tree: &Tree, family: &str) -> BTreeSet<String> {
    let folder = format!("{DEVICE}/{family}");
    let private = |line: &&str| {
        let declared = tree.get(&format!("{folder}/mod.rs")).unwrap_or_default();
        declared.lines().any(|l| l.trim() == format!("mod {line};"))
    };
    tree.modules(&folder).into_iter().filter(|module| !private(module)).map(str::to_owned).collect()
}

/// The families that the `mod.rs` of a folder declares.
pub(crate) fn families(tree: &Tree, folder: &str) -> BTreeSet<String> {
    let mut modules = public_modules(tree, &format!("{folder}/mod.rs"));
    modules.retain(|module| !NO_FAMILY.contains(&module.as_str()));
    modules
}

/// The names declared by `pub mod NAME;` lines.
fn public_modules(tree: &Tree, path: &str) -> BTreeSet<String> {
    let lines = tree.get(path).unwrap_or_default().lines();
    lines.filter_map(|l| Some(l.trim().strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned())).collect()
}

fn registry_lines(tree: &Tree) -> impl Iterator<Item = &str> {
    let lines = tree.get(REGISTRY).unwrap_or_default().lines();
    lines.filter_map(|line| line.trim().strip_prefix('&')).filter(|line| line.ends_with(','))
}

/// Family and file of the `&family::file::ITEM,` lines.
fn registered(tree: &Tree) -> BTreeSet<(String, String)> {
    let parts = |line: &str| {
        let (family, rest) = line.split_once("::")?;
        Some((family.to_owned(), rest.split_once("::")?.0.to_owned()))
    };
    registry_lines(tree).filter_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 9] = [
        ("gpu-kernels/src/ops/mod.rs", "pub mod activation;\npub mod gemm;\n"),
        ("gpu-kernels/src/ops/activation/mod.rs", "pub mod gelu;\n"),
        ("gpu-kernels/src/ops/activation/gelu.rs", ""),
        ("gpu-kernels/src/ops/gemm/mod.rs", "pub mod gemm;\n"),
        ("gpu-kernels/src/ops/gemm/gemm/mod.rs", ""),
        ("host/src/ops/mod.rs", "pub mod activation;\npub mod gemm;\npub mod model;\npub use gemm::*;\n"),
        ("host/src/ops/activation/mod.rs", "mod shared;\npub mod gelu;\npub use gelu::gelu;\n"),
        ("host/src/ops/gemm/mod.rs", "pub mod gemm;\n"),
        (
            "host/src/ops/registry.rs",
            "static O: &[&dyn Operator] = &[\n    &activation::gelu::GELU,\n    &gemm::gemm::Gemm,\n];\n",
        ),
    ];

    #[test]
    fn agreeing_places_pass() {
        assert_eq!(check(&Tree::of(&FILES)), []);
    }

    #[test]
    fn each_place_that_is_missing_is_found() {
        let plant = |file: usize, text: &'static str| {
            let mut files = FILES;
            files[file].1 = text;
            check(&Tree::of(&files)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let no_mod = "gpu-kernels/src/ops/activation/mod.rs: operator `gelu` has no `pub mod` line";
        assert_eq!(plant(1, ""), [no_mod]);
        let no_mod = "host/src/ops/gemm/mod.rs: operator `gemm` has no `pub mod` line";
        assert_eq!(plant(7, ""), [no_mod]);
        let no_line = "host/src/ops/registry.rs: operator `gelu` has no line in `OPERATORS`";
        assert_eq!(plant(8, "    &gemm::gemm::Gemm,"), [no_line]);
        let no_family = "host/src/ops/mod.rs: family `gemm` has no `pub mod` line";
        assert_eq!(plant(5, "pub mod activation;"), [no_family]);
        let unsorted = "host/src/ops/registry.rs: its lines are not sorted by family and file";
        assert_eq!(plant(8, "    &gemm::gemm::Gemm,\n    &activation::gelu::GELU,"), [unsorted]);
        let without: Vec<_> = FILES.into_iter().filter(|(path, _)| !path.ends_with("activation/gelu.rs")).collect();
        let found: Vec<_> = check(&Tree::of(&without)).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["gpu-kernels/src/ops/activation: operator `gelu` has no file in gpu-kernels/src/ops/activation"]
        );
    }
}
