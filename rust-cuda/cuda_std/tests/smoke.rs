//! Compiles kernels that use every function of the crate, for each architecture, and has them assembled.
//!
//! Without a device toolchain the test says so and passes; `cargo xtask test` fetches one first.

mod fixture;

use std::{fs, path::Path, sync::OnceLock};

use cuda_builder::{Arch, BuildOutput, ptxas};

/// Tests run side by side; the first of them builds, the others find the result.
fn build() -> Option<&'static BuildOutput> {
    static BUILT: OnceLock<Option<BuildOutput>> = OnceLock::new();
    let archs = [Arch::Sm80, Arch::Sm89, Arch::Sm90a];
    BUILT.get_or_init(|| fixture::build("smoke", &archs, &fixture::scratch("smoke"))).as_ref()
}

#[test]
fn every_function_compiles_and_assembles() {
    let Some(built) = build() else { return };
    assert!(built.warnings.is_empty(), "{:#?}", built.warnings);

    let runs = |arch, symbol| built.manifest.get(arch, symbol).is_some();
    for symbol in ["scale_bf16_v8", "convert_f32_bf16_square1", "products_f16", "row_sum"] {
        assert!(runs(Arch::Sm80, symbol) && runs(Arch::Sm90a, symbol), "{symbol}");
    }
    assert!(runs(Arch::Sm90a, "gemm_bf16"));
    assert!(!runs(Arch::Sm80, "gemm_bf16"), "restricted to sm_90a");

    if ptxas::find().is_none() {
        eprintln!("ptxas not found: kernels were compiled, not assembled");
        return;
    }
    for kernel in &built.manifest.kernels {
        let name = format!("{} for {}", kernel.symbol, kernel.arch);
        let resources = kernel.resources.as_ref().unwrap_or_else(|| panic!("{name} was not assembled"));
        assert_eq!(resources.spill_stores + resources.spill_loads, 0, "{name} spills");
        assert!(resources.notes.is_empty(), "{name}: {:#?}", resources.notes);
        // Printing passes its arguments in memory, and libm's sine has arrays; nothing else may need any.
        assert!(
            resources.stack_bytes == 0 || ["print", "libm_math"].contains(&&*kernel.symbol),
            "{name} has a stack frame"
        );
    }
}

#[test]
fn attributes_reach_the_entry() {
    let Some(built) = build() else { return };
    let gemm = built.manifest.get(Arch::Sm90a, "gemm_bf16").expect("gemm_bf16 is built");
    assert_eq!((gemm.block, gemm.min_blocks, gemm.cluster), ([384, 1, 1], 1, [2, 1, 1]));
    assert_eq!(gemm.module, "smoke::gemm");
    assert!(gemm.no_spills);
    assert_eq!(gemm.shared_bytes, 4 * (128 + 256) * 64 * 2 + 1024);
    let convert = built.manifest.get(Arch::Sm80, "convert_f32_f16_square0").expect("convert is built");
    assert_eq!((convert.block, convert.shared_bytes), ([32, 4, 1], 128));
}

#[test]
fn accesses_keep_their_width_and_state_space() {
    let Some(built) = build() else { return };
    let ptx = |symbol| fixture::ptx(&built.manifest, Arch::Sm80, symbol, &fixture::scratch("smoke"));
    let scale = ptx("scale_bf16_v8");
    assert!(scale.contains("ld.global.v4.b32") && scale.contains("st.global.v4.b32"), "{scale}");
    assert_eq!(scale.matches("cvt.rn.bf16x2.f32").count(), 4);
    let hints = ptx("hints_v8");
    for instruction in [
        "ld.global.nc.v4.b32",
        "ld.global.nc.L1::no_allocate.v4.b32",
        "ld.global.v4.b32",
        "st.global.v4.b32",
        "st.global.cs.v4.b32",
    ] {
        assert!(hints.contains(instruction), "{instruction}: {hints}");
    }
    let sum = ptx("row_sum");
    assert!(sum.contains("ld.shared") && sum.contains("st.shared"), "{sum}");
}

/// The fixture names every public device function, so that one left out of it is noticed.
#[test]
fn the_fixture_is_complete() {
    let mut used = String::new();
    read(&fixture::folder("smoke").join("src"), &mut used);
    let mut source = String::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut source);
    let mut missing = Vec::new();
    for line in source.lines().map(str::trim_start) {
        let Some(rest) = line.strip_prefix("pub ") else { continue };
        let rest = rest.trim_start_matches("const ").trim_start_matches("unsafe ");
        let Some(rest) = rest.strip_prefix("fn ") else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let called = used.match_indices(&name).any(|(at, _)| {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            !used[..at].ends_with(word) && !used[at + name.len()..].starts_with(word)
        });
        // Not device functions: the host's `launch`, and what macros expand to.
        let exempt = ["null", "from_raw", "byte_add", "count", "print", "project"];
        if !name.is_empty() && !called && !exempt.contains(&name.as_str()) {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "not in the fixture: {missing:?}");
}

fn read(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            read(&path, text);
        } else {
            text.push_str(&fs::read_to_string(&path).expect("the source is readable"));
        }
    }
}
