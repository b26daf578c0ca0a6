use super::*;

const GPU: &str = "NVIDIA H100";

fn product(n: u32) -> Product {
    Product { dtypes: [DType::BF16, DType::BF16, DType::F32], sizes: [1, n, n, n], layouts: ['k', 'N'] }
}

fn refused(text: &str) -> String {
    Tuned::parse(text, GPU).unwrap_err().reason
}

#[test]
fn what_is_written_is_read() {
    let mut tuned = Tuned::default();
    tuned.set("gemm_to_f32", product(1024), Some("hopper_128"));
    tuned.set("gemm_to_f32", product(512), Some("mma"));
    tuned.set("gemm_to_f32", product(256), Some("mma"));
    tuned.set("gemm_to_f32", product(256), None);
    let text = tuned.text(GPU).unwrap();
    assert!(text.ends_with("\ngemm_to_f32 bfloat16,bfloat16,float32 1x1024x1024x1024 kN hopper_128\n"), "{text}");
    let again = Tuned::parse(&text, GPU).unwrap();
    assert_eq!((again.len(), &again), (2, &tuned));
    assert_eq!(again.get("gemm_to_f32", &product(1024)), Some("hopper_128"));
    let turned = Product { layouts: ['k', 'n'], ..product(1024) };
    assert_eq!([again.get("gemm_to_f32", &turned), again.get("gemm", &product(1024))], [None; 2]);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a/b/tuned.txt");
    tuned.write(&file, GPU).unwrap();
    tuned.set("gemm", product(1), Some("mma"));
    tuned.write(&file, GPU).unwrap();
    assert_eq!(Tuned::read(&file, GPU).unwrap(), tuned);
    assert_eq!(std::fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn what_holds_for_something_else_is_refused() {
    let text = Tuned::default().text(GPU).unwrap();
    assert!(refused("").contains("there is no line `version"));
    assert!(refused("\u{1b}[2J\n").contains("there is no line `version"));
    let error = Tuned::parse(&text, "NVIDIA H200").unwrap_err();
    assert_eq!(error.reason, "tuned for gpu NVIDIA H100, not for NVIDIA H200: run `warpsmith tune` again");
    let version = format!("version {}", env!("CARGO_PKG_VERSION"));
    assert!(refused(&text.replace(&version, "version 0.0.0")).starts_with("tuned for version 0.0.0, not for"));
    let kernels = format!("kernels {}", kernels::sources().unwrap());
    assert!(refused(&text.replace(&kernels, "kernels 0\u{1b}1")).starts_with("tuned for kernels 0\\u{1b}1, not for"));
}

#[test]
fn lines_that_are_no_choices_are_named() {
    let head = Tuned::default().text(GPU).unwrap();
    let bf16 = "bfloat16,bfloat16,bfloat16";
    for line in [
        "gemm".to_owned(),
        format!("gemm {bf16} 1x2x3x4 kk"),
        format!("gemm {bf16} 1x2x3x4 kk mma mma"),
        format!("gemm {bf16} 1x2x3 kk mma"),
        format!("gemm {bf16} 1x2x3x-4 kk mma"),
        format!("gemm {bf16} 1x2x3x4294967296 kk mma"),
        format!("gemm {bf16} 1x2x3x4 kx mma"),
        "gemm bfloat16,bfloat16 1x2x3x4 kk mma".to_owned(),
        "gemm bfloat16,bfloat16,bfloat17 1x2x3x4 kk mma".to_owned(),
    ] {
        let error = refused(&format!("{head}\n# a comment\n{line}\n"));
        assert_eq!(error, format!("line 7 is no choice of `warpsmith tune`: {line}"));
    }
}

#[test]
fn the_environment_says_where_they_are() {
    let place = |pairs: &[(&str, &str)]| {
        Place::by("NVIDIA H100 80GB/HBM3", |name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
        })
    };
    let cache = |folder: &str| Place::Cache(Path::new(folder).join("warpsmith/tuned/NVIDIA-H100-80GB-HBM3.txt"));
    assert_eq!(place(&[("HOME", "/me")]), cache("/me/.cache"));
    assert_eq!(place(&[("HOME", "/me"), ("XDG_CACHE_HOME", "/cache")]), cache("/cache"));
    assert_eq!(place(&[("HOME", "/me"), ("XDG_CACHE_HOME", "not/absolute")]), cache("/me/.cache"));
    assert_eq!(place(&[("HOME", "/me"), ("WARPSMITH_TUNED", "x.txt")]), Place::Named("x.txt".into()));
    assert_eq!(place(&[("HOME", "/me"), ("WARPSMITH_TUNED", "off")]), Place::Off);
    assert_eq!(place(&[]), Place::Off);
    // An empty cache has no choices; a file that was named has to be there.
    let missing = PathBuf::from("/no/such/file");
    assert!(Place::Cache(missing.clone()).read(GPU).for_launches().unwrap().unwrap().is_empty());
    let error = Place::Named(missing).read(GPU).for_launches().unwrap_err().to_string();
    assert!(error.contains("/no/such/file") && error.contains("WARPSMITH_TUNED names it"), "{error}");
}

#[test]
fn launches_go_on_without_a_cache_but_not_with_a_name_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tuned.txt");
    let [cache, named] = [Place::Cache(file.clone()), Place::Named(file.clone())];
    let follows =
        |place: &Place| place.read(GPU).for_launches().map(|tuned| tuned.is_some()).map_err(|e| e.to_string());

    Tuned::default().write(&file, GPU).unwrap();
    assert_eq!([follows(&cache), follows(&named)], [Ok(true), Ok(true)]);
    // Measured before an update, or elsewhere.
    Tuned::default().write(&file, "another").unwrap();
    assert_eq!([follows(&cache), follows(&named)], [Ok(false), Ok(false)]);
    assert!(named.read(GPU).all().unwrap_err().to_string().contains("tuned for gpu another"));
    let text = Tuned::default().text(GPU).unwrap();
    for broken in ["", "hello", "\0\0", &format!("{text}gemm mma\n")] {
        std::fs::write(&file, broken).unwrap();
        assert_eq!(follows(&cache), Ok(false), "{broken}");
        assert!(follows(&named).unwrap_err().contains("WARPSMITH_TUNED names it: "), "{broken}");
    }
    std::fs::write(&file, [0xff]).unwrap();
    assert!(follows(&named).is_err());
    #[cfg(unix)]
    {
        let endless = PathBuf::from("/dev/zero");
        assert_eq!(follows(&Place::Cache(endless.clone())), Ok(false));
        let error = follows(&Place::Named(endless)).unwrap_err();
        assert_eq!(error, "/dev/zero: WARPSMITH_TUNED names it: it is no text");
    }
}

#[cfg(unix)]
#[test]
fn links_and_devices_are_not_replaced() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let [file, link, device] = ["tuned.txt", "link", "device"].map(|name| folder.path().join(name));
    std::fs::write(&file, "").unwrap();
    symlink(&file, &link).unwrap();
    symlink("/dev/null", &device).unwrap();
    Tuned::default().write(&link, GPU).unwrap();
    assert!(link.is_symlink() && Tuned::read(&file, GPU).unwrap().is_empty());
    let error = Tuned::default().write(&device, GPU).unwrap_err().to_string();
    assert!(error.ends_with("device: cannot be written to the end: it is no file"), "{error}");
    assert!(device.is_symlink());
}
