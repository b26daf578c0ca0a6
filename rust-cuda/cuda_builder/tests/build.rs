//! Builds device crates, good ones and ones with a planted fault, and reads what comes out.
//!
//! Without a device toolchain the tests say so and pass; `cargo xtask test` fetches one first.

mod support;

use cuda_builder::{Arch, BuildOutput, CudaBuilder, Manifest, Param, ParamKind, ptx_archive::Archive, ptxas};
use support::{alone, builder, fixture, have_toolchain, kernel};

#[test]
fn a_crate_becomes_one_ptx_file_a_kernel() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let out = tempfile::tempdir().unwrap();
    let stale = out.path().join("sm_80/stale.ptx");
    std::fs::create_dir_all(stale.parent().unwrap()).unwrap();
    std::fs::write(&stale, "").unwrap();

    let built = builder(&fixture("basic")).copy_to(out.path()).emit_llvm_ir(true).build().unwrap();
    let listed = built.manifest.kernels.iter().map(|k| (k.arch, k.symbol.as_str()));
    assert_eq!(
        listed.collect::<Vec<_>>(),
        [
            (Arch::Sm80, "descriptor"),
            (Arch::Sm80, "neighbours"),
            (Arch::Sm80, "saxpy"),
            (Arch::Sm90a, "hopper"),
            (Arch::Sm90a, "neighbours"),
        ]
    );
    assert_eq!(built.warnings, [""; 0]);
    assert!(!stale.exists(), "what an earlier build left is removed");

    let written = std::fs::read(out.path().join("manifest.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Manifest>(&written).unwrap(), built.manifest);
    for entry in &built.manifest.kernels {
        let ptx = std::fs::read_to_string(out.path().join(entry.file())).unwrap();
        assert!(ptx.contains(&format!(".target {}", entry.arch)));
        assert!(ptx.contains(&format!(".entry {}(", entry.symbol)));
        assert_eq!(ptx.matches(".entry").count(), 1, "{}", entry.symbol);
        assert!(!ptx.contains("#kernel") && !ptx.contains(".loc"), "{}", entry.symbol);
        assert!(out.path().join(entry.file()).with_extension("ll").is_file());
    }

    let archive = Archive::open(&built.archive).unwrap();
    assert_eq!(archive.kernels().len(), built.manifest.kernels.len());
    for (index, kernel) in archive.kernels().iter().enumerate() {
        assert_eq!(built.manifest.get(kernel.arch, &kernel.symbol), Some(kernel));
        assert!(built.manifest.get(Arch::Sm90a, &kernel.symbol).is_some());
        let ptx = std::fs::read_to_string(out.path().join(kernel.file())).unwrap();
        assert_eq!(archive.ptx(index).unwrap(), ptx);
    }
    assert_eq!(archive.sources(), builder(&fixture("basic")).emit_llvm_ir(true).sources().unwrap());
    assert_ne!(archive.sources(), builder(&fixture("basic")).ftz(true).sources().unwrap());

    let saxpy = built.manifest.get(Arch::Sm80, "saxpy").unwrap();
    assert_eq!((saxpy.block, saxpy.min_blocks, saxpy.no_spills), ([256, 1, 1], 4, true));
    assert_eq!(saxpy.module, "basic");
    let early = [Arch::Sm80, Arch::Sm90a].map(|arch| built.manifest.get(arch, "neighbours").unwrap().programmatic);
    assert_eq!((early, saxpy.programmatic), ([false, true], false), "sm_80 has nothing to wait with");
    let scalar = |bytes, kind| Param { bytes, align: bytes, kind };
    let (float, pointer, integer) = (ParamKind::Float, ParamKind::Pointer, ParamKind::Integer);
    assert_eq!(saxpy.params, [scalar(4, float), scalar(8, pointer), scalar(8, pointer), scalar(8, integer)]);
    let descriptor = built.manifest.get(Arch::Sm90a, "descriptor").unwrap();
    assert_eq!(descriptor.arch, Arch::Sm80, "there is no other, and that one runs");
    assert!(built.manifest.get(Arch::Sm80, "hopper").is_none());
    assert_eq!(descriptor.params[1], Param { bytes: 128, align: 64, kind: ParamKind::TensorMap });
    if ptxas::find().is_some() {
        assert!(saxpy.resources.as_ref().unwrap().registers > 0);
    }

    // Again: no kernel is compiled. rustc may come back once to a crate that it compiled for the first time.
    let again = || builder(&fixture("basic")).copy_to(out.path()).emit_llvm_ir(true).build().unwrap();
    assert_eq!(again().cached, built.manifest.kernels.len());
    // From then on nothing is linked either, and nothing is different.
    let again = again();
    assert_eq!((again.cut, again.cached), (false, again.manifest.kernels.len()));
    assert_eq!(again.manifest, built.manifest);
}

#[test]
fn a_kernel_that_is_left_out_is_told() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let scratch = tempfile::tempdir().unwrap();
    // The second time from the cache.
    for _ in 0..2 {
        let built = CudaBuilder::new(fixture("basic"))
            .arch(Arch::Sm80)
            .target_folder(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("device"))
            .archive(scratch.path().join("kernels.ptxa"))
            .build()
            .unwrap();
        assert!(built.manifest.get(Arch::Sm90a, "hopper").is_none());
        assert_eq!(
            built.warnings,
            [
                "kernel `hopper` left out: `#[kernel(arch = \"sm_90a\")]` is for sm_90a alone, and the build is for sm_80; \
              `CudaBuilder::arch(Arch::Sm90a)` adds it"
            ]
        );
    }
}

#[test]
fn what_is_copied_as_it_is_moves_16_bytes_at_a_time() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let body = r#"
        asm!("//#kernel module=copies block=32,1,1");
        #[repr(C, align(16))]
        #[derive(Clone, Copy)]
        struct Words([u32; 4]);
        let i = _thread_idx_x() as usize;
        *y.cast::<Words>().add(i) = *x.cast::<Words>().add(i);
        // By way of a local variable.
        let mut four = core::mem::MaybeUninit::<[u16; 32]>::uninit();
        let words = four.as_mut_ptr().cast::<[u32; 4]>();
        for k in 0..4 { words.add(k).write_unaligned(x.cast::<Words>().add(64 + 4 * i + k).read().0); }
        let four = four.assume_init();
        let words = (&raw const four).cast::<[u32; 4]>();
        for k in 0..4 { y.cast::<Words>().add(64 + 4 * i + k).write(Words(words.add(k).read_unaligned())); }
    "#;
    let source = kernel("copies", "x: *const u32, y: *mut u32", body);
    let out = tempfile::tempdir().unwrap();
    let built = builder(&support::crate_with("copies", &source)).copy_to(out.path()).build().unwrap();
    let ptx = std::fs::read_to_string(out.path().join(built.manifest.kernels[0].file())).unwrap();
    let count = |instruction| ptx.matches(instruction).count();
    assert_eq!((count("ld.global.v4.b32"), count("st.global.v4.b32")), (5, 5), "{ptx}");
    assert!(!ptx.contains(".local"), "{ptx}");
}

#[test]
fn features_have_kernels_of_their_own() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let marker = "asm!(\"//#kernel module=featured block=32,1,1\"); *y = 1;";
    let source = kernel("always", "y: *mut u32", marker)
        + "#[cfg(feature = \"more\")]\n#[unsafe(no_mangle)]\npub unsafe extern \"ptx-kernel\" fn sometimes(y: *mut u32) { unsafe { "
        + marker
        + " } }\n";
    let folder = support::crate_with("featured", &source);
    let manifest = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap() + "\n[features]\nmore = []\n";
    std::fs::write(manifest, text).unwrap();
    let symbols = |builder: CudaBuilder| -> Vec<String> {
        let built = builder.build().unwrap();
        built.manifest.kernels.into_iter().map(|kernel| kernel.symbol).collect()
    };
    assert_eq!(symbols(builder(&folder)), ["always"]);
    assert_eq!(symbols(builder(&folder).features(["more"])), ["always", "sometimes"]);
    assert_ne!(builder(&folder).features(["more"]).sources().unwrap(), builder(&folder).sources().unwrap());
    let error = builder(&folder).features(["less"]).build().unwrap_err().to_string();
    assert!(error.contains("less"), "{error}");
}

#[test]
fn lines_change_nothing_else() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let out = tempfile::tempdir().unwrap();
    let build = |lines: bool| {
        let folder = out.path().join(lines.to_string());
        let built = builder(&fixture("basic")).copy_to(&folder).lines(lines).only(["saxpy", "hopper"]).build().unwrap();
        let symbols: Vec<_> =
            built.manifest.kernels.iter().map(|kernel| (kernel.arch, kernel.symbol.as_str())).collect();
        assert_eq!(symbols, [(Arch::Sm80, "saxpy"), (Arch::Sm90a, "hopper")]);
        built
            .manifest
            .kernels
            .iter()
            .map(|kernel| std::fs::read_to_string(folder.join(kernel.file())).unwrap())
            .collect()
    };
    let (with, without): (Vec<String>, Vec<String>) = (build(true), build(false));
    for (with, without) in with.iter().zip(&without) {
        // `.loc FILE LINE COLUMN` in front of what else is on the line, and the files after the last one.
        let bare = |line: &str| match line.split_once("\t.loc\t") {
            Some((before, rest)) => {
                let numbers = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
                format!("{before}{numbers}")
            }
            None => line.to_owned(),
        };
        let (text, files) = with.split_at(with.rfind('\n').unwrap() + 1);
        assert_eq!(text.lines().map(bare).collect::<Vec<_>>(), without.lines().collect::<Vec<_>>());
        assert!(text.contains("\t.loc\t") && files.contains("fixtures/basic/src/lib.rs\""), "{with}");
    }
}

#[test]
fn a_change_compiles_the_kernels_that_it_reaches() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    // Lookup tables and panic locations: constants that rustc names after the whole crate.
    let body = |factor: u32| {
        format!(
            r#"
        asm!("//#kernel module=m block=32,1,1");
        let table = [1u32, 2, 3, 5];
        *x = table[(*x % 4) as usize] * {factor};
        "#
        )
    };
    let first = kernel("first", "x: *mut u32", &body(3));
    let second = |factor| {
        let source = kernel("second", "x: *mut u32", &body(factor));
        source[source.find("#[unsafe(no_mangle)]").unwrap()..].to_owned()
    };
    let build = |source: &str| builder(&support::crate_with("grows", source)).build().unwrap();
    let count = |built: &BuildOutput| built.manifest.kernels.len();
    // Never seen by a cache.
    let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    build(&first);
    let grown = build(&(first.clone() + &second(unique)));
    assert_eq!((grown.cached, count(&grown)), (1, 2), "{grown:?}");
    let edited = build(&(first.clone() + &second(unique + 1)));
    assert_eq!((edited.cached, count(&edited)), (1, 2), "{edited:?}");
    assert!(edited.cut);
}

#[test]
fn bounds_clusters_and_shared_memory_reach_the_ptx() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let out = tempfile::tempdir().unwrap();
    builder(&fixture("basic")).copy_to(out.path()).build().unwrap();
    let read = |file: &str| std::fs::read_to_string(out.path().join(file)).unwrap();

    let saxpy = read("sm_80/saxpy.ptx");
    assert!(saxpy.contains(".maxntid 256") && saxpy.contains(".minnctapersm 4"), "{saxpy}");
    assert!(saxpy.contains("fma.rn.f32") && saxpy.contains("ld.global"), "{saxpy}");
    assert!(!saxpy.contains(".reqnctapercluster"), "{saxpy}");

    let neighbours = read("sm_90a/neighbours.ptx");
    assert!(neighbours.contains(".maxntid 32, 4, 1") && neighbours.contains(".reqnctapercluster 2"), "{neighbours}");
    assert!(neighbours.contains(".explicitcluster"), "{neighbours}");
    // True shared accesses, not generic ones through a pointer.
    assert!(neighbours.contains("st.shared") && neighbours.contains("ld.shared"), "{neighbours}");
    assert!(neighbours.contains(".extern .shared .align 1024"), "{neighbours}");

    assert!(read("sm_80/descriptor.ptx").contains(".param .align 64 .b8 descriptor_param_1[128]"));
}

#[test]
fn assembly_that_lanes_share_is_not_copied() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    // Left to itself LLVM unrolls this loop, branch and all, with a second loop for the rest: five shuffles for one.
    let source = kernel(
        "exchange",
        "x: *const f32, y: *mut f32, n: u32",
        r#"
        asm!("//#kernel module=m block=32,1,1");
        let t = _thread_idx_x() as usize;
        let up = *x.add(t) > 0.0;
        let mut sum = 0.0;
        let mut i = 0;
        while i < n {
            let mut a = *x.add(t + 32 * i as usize);
            if up { *y.add(t + 64) = a; a *= 3.0; }
            asm!("shfl.sync.bfly.b32 {0}, {0}, 1, 31, -1;", inout(reg32) a);
            sum += a;
            i += 1;
        }
        *y.add(t) = sum;
        "#,
    );
    let out = tempfile::tempdir().unwrap();
    builder(&support::crate_with("convergent", &source)).copy_to(out.path()).emit_llvm_ir(true).build().unwrap();
    let ptx = std::fs::read_to_string(out.path().join("sm_80/exchange.ptx")).unwrap();
    assert_eq!(ptx.matches("shfl.sync").count(), 1, "{ptx}");
    let ir = std::fs::read_to_string(out.path().join("sm_80/exchange.ll")).unwrap();
    assert!(ir.contains("convergent"), "{ir}");

    // A load concerns its own lane only, and loops of loads are worth unrolling.
    let source = source
        .replace("shfl.sync.bfly.b32 {0}, {0}, 1, 31, -1;", "ld.global.cs.f32 {0}, [{1}];")
        .replace("inout(reg32) a", "out(reg32) a, in(reg64) x");
    builder(&support::crate_with("lane_local", &source)).copy_to(out.path()).build().unwrap();
    let ptx = std::fs::read_to_string(out.path().join("sm_80/exchange.ptx")).unwrap();
    assert!(ptx.matches("ld.global.cs").count() > 1, "{ptx}");
}

#[test]
fn options_reach_the_ptx() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let source = kernel(
        "arithmetic",
        "x: *mut f32",
        r#"
        asm!("//#kernel module=m block=32,1,1");
        *x = *x / *x.add(1) + *x.add(2);
        *x.add(3) = core::intrinsics::sqrtf32(*x.add(4));
        *x.add(5) = *x.add(6) * *x.add(7) + *x.add(8);
        "#,
    )
    .replace("asm_experimental_arch", "asm_experimental_arch, core_intrinsics")
    .replace("#![no_std]", "#![no_std]\n#![allow(internal_features)]");
    let folder = support::crate_with("options", &source);
    let ptx = |builder: cuda_builder::CudaBuilder| {
        let out = tempfile::tempdir().unwrap();
        builder.copy_to(out.path()).build().unwrap();
        std::fs::read_to_string(out.path().join("sm_80/arithmetic.ptx")).unwrap()
    };
    let precise = ptx(builder(&folder));
    for text in ["div.rn.f32", "sqrt.rn.f32", "fma.rn.f32"] {
        assert!(precise.contains(text), "{precise}");
    }
    let fast = ptx(builder(&folder).ftz(true).fast_div(true).fast_sqrt(true).fma_contraction(false));
    for text in ["div.full.ftz.f32", "sqrt.approx.ftz.f32", "mul.rn.ftz.f32"] {
        assert!(fast.contains(text), "{fast}");
    }
    assert!(!fast.contains("fma."), "{fast}");
}

#[test]
fn helpers_of_other_crates_are_linked() {
    if !have_toolchain() {
        return;
    }
    let _alone = alone();
    let source = kernel(
        "far",
        "x: *mut u32",
        r#"
        asm!("//#kernel module=m block=32,1,1");
        *x = helper::far(*x);
        "#,
    );
    let helper = "#![no_std]\n#[inline(never)] pub fn far(x: u32) -> u32 { x.rotate_left(7) ^ 0x5bd1 }\n";
    let folder = support::crate_with_helper("linked", &source, helper);
    builder(&folder).build().unwrap();
}
