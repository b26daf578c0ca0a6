use super::*;

const fn image(module: &'static str, symbol: &'static str, arch: Arch) -> KernelImage {
    KernelImage {
        symbol,
        module,
        arch,
        code: Code::Text(""),
        block: [128, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        programmatic: false,
        cooperative: false,
        opt_level: None,
        param_sizes: &[8, 4],
    }
}

static IMAGES: &[KernelImage] =
    &[image("mine", "both", Arch::Sm80), image("mine", "both", Arch::Sm90a), image("mine", "hopper", Arch::Sm90a)];

fn spec(module: &'static str, symbol: &'static str) -> KernelSpec {
    KernelSpec { module, symbol, block: [128, 1, 1], cluster: [1, 1, 1], shared_bytes: 0, param_sizes: &[8, 4] }
}

#[test]
fn the_best_image_is_selected() {
    let pick = |symbol, cc| spec("mine", symbol).select(&[IMAGES], Arch::of_device(cc));
    assert_eq!(pick("both", (9, 0)).unwrap().arch, Arch::Sm90a);
    assert_eq!(pick("both", (8, 6)).unwrap().arch, Arch::Sm80);
    assert_eq!(pick("both", (12, 0)).unwrap().arch, Arch::Sm80);
    assert_eq!(
        pick("hopper", (8, 0)).unwrap_err().to_string(),
        "there is no kernel mine::hopper for sm_80, only for sm_90a"
    );
}

#[test]
fn a_kernel_is_known_by_its_module_too() {
    static OTHERS: &[KernelImage] = &[image("other", "both", Arch::Sm80)];
    let sets: [&'static [KernelImage]; 2] = [IMAGES, OTHERS];
    let pick = |module| spec(module, "both").select(&sets, &[Arch::Sm80]);
    assert_eq!((pick("mine").unwrap().module, pick("other").unwrap().module), ("mine", "other"));
    if not_built().is_none() {
        assert_eq!(
            pick("third").unwrap_err().to_string(),
            "there is no kernel third::both for sm_80: no kernels of `third` were added, as `Device::add_kernels` does"
        );
    }
    // Without kernels of this crate as well.
    let error = spec("mine::deep", "new").select(&sets, &[Arch::Sm80]).unwrap_err().to_string();
    assert!(error.contains("mine::deep::new for sm_80: what there is of `mine` has others only"), "{error}");
}

#[test]
fn the_same_kernel_twice_is_refused() {
    static AGAIN: &[KernelImage] = &[image("other", "x", Arch::Sm80), image("mine", "both", Arch::Sm90a)];
    static TWICE: &[KernelImage] = &[image("new", "x", Arch::Sm80), image("new", "x", Arch::Sm80)];
    static ELSEWHERE: &[KernelImage] = &[image("other", "both", Arch::Sm90a), image("mine", "hopper", Arch::Sm90)];
    let mut sets = Vec::new();
    add(&mut sets, IMAGES).unwrap();
    add(&mut sets, IMAGES).unwrap();
    for wrong in [AGAIN, TWICE] {
        let error = add(&mut sets, wrong).unwrap_err().to_string();
        assert!(error.contains("was added before"), "{error}");
    }
    add(&mut sets, ELSEWHERE).unwrap();
    assert_eq!(sets.len(), 2);
    if let Some(own) = images().unwrap_or_default().first() {
        let copy: &'static [KernelImage] = vec![*own].leak();
        assert!(add(&mut sets, copy).is_err());
    }
}

#[test]
fn an_archive_that_a_program_carries_twice_is_one() {
    let kernel = |symbol: &str| ptx_archive::Kernel {
        symbol: symbol.to_owned(),
        arch: Arch::Sm80,
        module: "twice".to_owned(),
        block: [32, 1, 1],
        min_blocks: 0,
        cluster: [1, 1, 1],
        shared_bytes: 0,
        no_spills: false,
        programmatic: false,
        cooperative: false,
        opt_level: None,
        params: Vec::new(),
        resources: None,
    };
    let copy = |sources: &str| {
        let bytes = ptx_archive::write(sources, &[(kernel("a"), "// PTX"), (kernel("b"), "// PTX")], None);
        list(Archive::from_bytes(bytes).unwrap())
    };
    let mut sets = Vec::new();
    add(&mut sets, copy("today's")).unwrap();
    add(&mut sets, copy("today's")).unwrap();
    assert_eq!(sets.len(), 1);
    assert!(
        add(&mut sets, copy("yesterday's")).unwrap_err().to_string().contains("twice::a for sm_80 was added before")
    );
}

#[test]
fn images_that_differ_from_their_declaration_are_refused() {
    let other = KernelSpec { param_sizes: &[8, 8], ..spec("mine", "both") };
    let image = other.select(&[IMAGES], &[Arch::Sm80]).unwrap();
    assert_eq!(
        other.check(image).unwrap_err().to_string(),
        "kernel both: the PTX does not match its declaration: parameters of [8, 4] bytes, declared [8, 8]"
    );
}

#[test]
fn an_archive_that_is_none_is_an_error() {
    static KERNELS: Kernels = Kernels::embedded(b"no archive");
    let error = KERNELS.images().unwrap_err().to_string();
    assert_eq!(error, "the kernels cannot be loaded: not an archive of PTX");
}

#[cfg(warpsmith_kernels = "file")]
#[test]
fn an_archive_above_counts_in_a_distribution_only() {
    let distributed = |program: &str| super::archive::distributed(program.as_ref()).map(std::path::Path::to_owned);
    assert_eq!(distributed("dist/warpsmith"), Some("dist".into()));
    assert_eq!(distributed("dist/tests/unit"), Some("dist".into()));
    assert_eq!(distributed("dist/benches/operators"), Some("dist".into()));
    assert_eq!(distributed("scratch/doctest/program"), Some("scratch/doctest".into()));
    assert_eq!(distributed(""), None);
}
