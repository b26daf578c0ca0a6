//! What the embedded code has to look like.

use cuda_builder::ptxas;
use warpsmith::check::registry::OPERATORS;
use warpsmith::kernels::{self, Arch, KernelImage};
use warpsmith::ops::model::Bound;

/// The embedded kernels; none, with a line that says so, in a build without a device toolchain.
fn images() -> &'static [KernelImage] {
    if let Some(why) = kernels::not_built() {
        eprintln!("skipped without kernels: {why}");
    }
    kernels::images()
}

fn at(image: &KernelImage) -> String {
    format!("{} {}", image.symbol, image.arch)
}

#[test]
fn every_kernel_has_an_entry_with_its_bounds_and_for_its_architecture() {
    for image in images() {
        let [x, y, z] = image.block;
        let count = |text: &str| image.ptx.matches(text).count();
        assert_eq!(count(".entry "), 1, "{}", at(image));
        assert_eq!(count(&format!(".entry {}(", image.symbol)), 1, "{}", at(image));
        assert_eq!(count(&format!(".maxntid {x}, {y}, {z}")), 1, "{}", at(image));
        assert_eq!(count(&format!(".target {}", image.arch)), 1, "{}", at(image));
    }
}

#[test]
fn nothing_is_left_to_local_memory_or_to_calls() {
    for image in images() {
        for text in ["ld.local", "st.local", ".local ", "call.uni", "__cuda_std_panic"] {
            let lines = image.ptx.lines().filter(|line| line.contains(text) && !line.contains("vprintf"));
            assert_eq!(lines.count(), 0, "{} has `{text}`", at(image));
        }
    }
}

#[test]
fn shared_memory_is_accessed_as_such() {
    for image in images().iter().filter(|image| image.shared_bytes > 0) {
        let named = ["ld.shared", "st.shared", ".shared::", "ldmatrix", "cp.async", "wgmma"];
        assert!(named.iter().any(|text| image.ptx.contains(text)), "{} uses no shared memory", at(image));
    }
}

#[test]
fn memory_is_accessed_by_its_address_space() {
    let generic = |line: &str| {
        let line = line.trim_start();
        ["ld.", "st."].iter().any(|access| {
            line.strip_prefix(access).is_some_and(|rest| {
                !["param", "global", "shared", "const", "async"].iter().any(|space| {
                    rest.split_whitespace().next().is_some_and(|op| op.split('.').any(|part| part.starts_with(space)))
                })
            })
        })
    };
    for image in images() {
        let found: Vec<_> = image.ptx.lines().filter(|line| generic(line)).collect();
        assert!(found.is_empty(), "{}: {found:?}", at(image));
    }
}

#[test]
fn what_memory_bounds_moves_sixteen_bytes_at_a_time() {
    for op in OPERATORS {
        let bound_by_memory = op.cases().iter().all(|case| op.cost(case).is_ok_and(|c| c.bound == Bound::Memory));
        let images: Vec<_> = op.info().kernels.iter().flat_map(|k| k.images()).collect();
        if images.is_empty() || !bound_by_memory {
            continue;
        }
        // Not every kernel: an operator may have one for rows that start anywhere.
        let wide = |image: &KernelImage, access: &str| {
            let parts = |line: &str| line.contains(access) && (line.contains(".v4.") || line.contains(".v2.b64"));
            image.ptx.lines().any(parts)
        };
        let count = images.iter().filter(|image| wide(image, "ld.global") && wide(image, "st.global")).count();
        assert!(count >= Arch::ALL.len(), "{}: {count} of {} kernels", op.info().name, images.len());
    }
}

#[test]
fn hopper_instructions_are_where_they_should_be_and_nowhere_else() {
    let hopper = ["wgmma.mma_async", "cp.async.bulk", "setmaxnreg", "mbarrier.try_wait"];
    for image in images().iter().filter(|image| image.arch != Arch::Sm90a) {
        for text in hopper {
            assert!(!image.ptx.contains(text), "{} has `{text}`", at(image));
        }
    }
    for op in OPERATORS.iter().filter(|op| op.info().variants.iter().any(|v| v.name == "hopper")) {
        let images: Vec<_> = op.info().kernels.iter().flat_map(|k| k.images()).collect();
        let has = |text: &str| images.iter().any(|image| image.ptx.contains(text));
        assert!(images.is_empty() || hopper[..2].iter().all(|text| has(text)), "{}", op.info().name);
    }
}

#[test]
fn the_assembler_takes_everything_and_nothing_spills() {
    let Some(ptxas) = ptxas::find() else {
        eprintln!("skipped without ptxas");
        return;
    };
    for image in images() {
        let Some(arch) = cuda_builder::Arch::from_name(image.arch.as_str()).filter(|arch| ptxas.supports(*arch)) else {
            continue;
        };
        let used = ptxas.assemble(image.ptx, arch).unwrap_or_else(|error| panic!("{}: {error}", at(image)));
        assert!(used.is_clean(), "{}: {used}", at(image));
    }
}
