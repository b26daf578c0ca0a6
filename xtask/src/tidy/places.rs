//! An operator is a device file, the `mod` line beside it, a host file with its `mod` line, and a line in the registry.

use std::collections::BTreeSet;

use super::{Tree, Violation};

pub(crate) const DEVICE: &str = "gpu-kernels/src/ops";
pub(crate) const HOST: &str = "host/src/ops";
pub(crate) const REGISTRY: &str = "host/src/check/registry.rs";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let (device_mods, host_mods) = (format!("{DEVICE}/mod.rs"), format!("{HOST}/mod.rs"));
    let all = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    let places = [
        (format!("no file in {DEVICE}"), DEVICE, all(&tree.modules(DEVICE))),
        ("no `pub mod` line".to_owned(), &device_mods, public_modules(tree, &device_mods)),
        ("no `pub mod` line".to_owned(), &host_mods, public_modules(tree, &host_mods)),
        ("no line in `OPERATORS`".to_owned(), REGISTRY, registered(tree)),
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

/// The names declared by `pub mod NAME;` lines.
fn public_modules(tree: &Tree, path: &str) -> BTreeSet<String> {
    let lines = tree.get(path).unwrap_or_default().lines();
    lines.filter_map(|l| Some(l.trim().strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned())).collect()
}

/// The modules of the `&ops::NAME::Type,` lines.
fn registered(tree: &Tree) -> BTreeSet<String> {
    let lines = tree.get(REGISTRY).unwrap_or_default().lines();
    lines.filter_map(|l| Some(l.trim().strip_prefix("&ops::")?.split_once("::")?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 7] = [
        ("gpu-kernels/src/ops/mod.rs", "pub mod gelu;\npub mod gemm;\n"),
        ("gpu-kernels/src/ops/gelu.rs", ""),
        ("gpu-kernels/src/ops/gemm/mod.rs", ""),
        ("gpu-kernels/src/ops/gemm/mma.rs", ""),
        ("host/src/ops/mod.rs", "mod shared;\npub mod gelu;\npub mod gemm;\npub use gelu::gelu;\n"),
        ("host/src/ops/gelu.rs", ""),
        (
            "host/src/check/registry.rs",
            "static O: &[&dyn Operator] = &[\n    &ops::gelu::Gelu,\n    &ops::gemm::Gemm,\n];\n",
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
        let no_mod = "gpu-kernels/src/ops/mod.rs: operator `gelu` has no `pub mod` line";
        assert_eq!(plant(0, "pub mod gemm;"), [no_mod]);
        let no_mod = "host/src/ops/mod.rs: operator `gemm` has no `pub mod` line";
        assert_eq!(plant(4, "pub mod gelu;"), [no_mod]);
        let no_line = "host/src/check/registry.rs: operator `gelu` has no line in `OPERATORS`";
        assert_eq!(plant(6, "    &ops::gemm::Gemm,"), [no_line]);
        let without_file: Vec<_> = FILES.into_iter().filter(|(path, _)| !path.ends_with("src/ops/gelu.rs")).collect();
        let found: Vec<_> = check(&Tree::of(&without_file)).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["gpu-kernels/src/ops: operator `gelu` has no file in gpu-kernels/src/ops"]);
    }
}
