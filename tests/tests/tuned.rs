//! Choices of `warpsmith tune`, as launches follow them.

use std::path::Path;

use warpsmith::ops::{self, Epilogue};
use warpsmith::tuned::{Product, Tuned};
use warpsmith::{DType, Device, Error, Stream, Tensor, bf16, sim};
use warpsmith_tests::warpsmith;

fn device() -> Device {
    sim::unshared().unwrap()
}

/// C = A·Bᵀ of n × n matrices of ones whose rows lie `padding` further apart, its value and the kernel that computed it.
fn product(stream: &Stream, n: usize, padding: usize) -> (f32, String) {
    let ones = Tensor::filled(stream, [n, n + padding], bf16::ONE).unwrap();
    let ones = ones.view().strided(0, [n, n], &[n + padding, 1]).unwrap();
    launched(stream, || ops::gemm_bf16(stream, ones, ones).unwrap())
}

fn launched(stream: &Stream, launch: impl FnOnce() -> Tensor<bf16>) -> (f32, String) {
    let (c, profiles) = stream.device().simulator().unwrap().profile(launch);
    let values = c.to_vec(stream).unwrap();
    assert!(values.iter().all(|value| *value == values[0]));
    (values[0].to_f32(), profiles.iter().map(|profile| profile.kernel.to_string()).collect::<Vec<_>>().join(" "))
}

fn of(n: u32) -> Product {
    Product { dtypes: [DType::BF16; 3], sizes: [1, n, n, n], layouts: ['k'; 2] }
}

fn choose(device: &Device, folder: &Path, choices: &[(&str, Product, &str)]) {
    let mut tuned = Tuned::default();
    choices.iter().for_each(|(op, product, variant)| tuned.set(op, *product, Some(variant)));
    let file = folder.join("tuned.txt");
    tuned.write(&file, &device.info().name).unwrap();
    device.use_tuned(Some(&file)).unwrap();
    assert_eq!(device.tuned().unwrap(), tuned);
}

#[test]
fn a_choice_is_followed_for_its_product_alone() {
    let folder = tempfile::tempdir().unwrap();
    let device = device();
    let stream = device.stream().unwrap();
    let [planned, other] = [(136, 0), (144, 0)].map(|(n, padding)| product(&stream, n, padding));
    assert!(!planned.1.contains("mma") && planned.0 == 136.0, "{planned:?}");

    choose(&device, folder.path(), &[("gemm_bf16", of(136), "mma")]);
    let (value, kernel) = product(&stream, 136, 0);
    assert!(kernel.contains("mma") && value == 136.0, "{kernel}: {value}");
    assert_eq!(product(&stream, 144, 0), other);
    // Rows between packs are another product.
    let between = product(&stream, 136, 1);
    device.use_tuned(None).unwrap();
    assert_eq!(product(&stream, 136, 0), planned);
    assert_eq!(product(&stream, 136, 1), between);
}

#[test]
fn a_choice_of_tiles_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let device = device();
    let stream = device.stream().unwrap();
    let linear = |n: usize| {
        let x = Tensor::filled(&stream, [n, n], bf16::ONE).unwrap();
        launched(&stream, || ops::linear(&stream, &x, &x, Epilogue::new()).unwrap()).1
    };
    let mut seen = Vec::new();
    for variant in ["hopper", "hopper_192", "hopper_128", "hopper_64", "swapped_128", "swapped_64", "mma"] {
        choose(&device, folder.path(), &[("linear", of(136), variant), ("gemm_bf16", of(136), variant)]);
        seen.push((linear(136), product(&stream, 136, 0).1));
    }
    for (i, of) in seen.iter().enumerate() {
        assert!(seen[..i].iter().all(|other| other.0 != of.0 && other.1 != of.1), "{seen:?}");
    }
}

#[test]
fn what_a_product_cannot_take_is_left_to_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let device = device();
    let stream = device.stream().unwrap();
    let planned = [(136, 0), (136, 1)].map(|(n, padding)| product(&stream, n, padding));
    let between = Product { layouts: ['K'; 2], ..of(136) };
    for variant in ["skinny", "padded", "no-such-variant"] {
        choose(&device, folder.path(), &[("gemm_bf16", of(136), variant)]);
        assert_eq!(product(&stream, 136, 0), planned[0], "{variant}");
    }
    for variant in ["skinny", "hopper", "hopper_64", "swapped_64"] {
        choose(&device, folder.path(), &[("gemm_bf16", between, variant)]);
        assert_eq!(product(&stream, 136, 1), planned[1], "{variant}");
    }
}

#[test]
fn a_file_that_is_no_good_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let device = device();
    choose(&device, folder.path(), &[("gemm_bf16", of(136), "mma")]);
    let (good, bad) = (folder.path().join("tuned.txt"), folder.path().join("bad.txt"));
    let text = std::fs::read_to_string(&good).unwrap();
    for broken in [String::new(), text.replace("mma", ""), text.replace("gpu ", "gpu other "), "\0".repeat(9)] {
        std::fs::write(&bad, broken).unwrap();
        let error = device.use_tuned(Some(&bad)).unwrap_err();
        assert!(matches!(error, Error::File { .. }) && error.to_string().contains("bad.txt"), "{error}");
    }
    assert!(device.use_tuned(Some(&folder.path().join("none.txt"))).is_err());
    assert_eq!(device.tuned().unwrap().len(), 1, "what was in use stays");
}

/// Whether this process is one with these variables, in which that test alone runs. Another starts it.
fn with_environment(test: &str, variables: &[(&str, &Path)]) -> bool {
    const CHILD: &str = "WARPSMITH_TUNED_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--test-threads=1"]).env_remove("WARPSMITH_TUNED").env(CHILD, "1");
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    false
}

#[test]
fn a_name_of_no_choices_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("garbage.txt");
    std::fs::write(&file, "garbage").unwrap();
    if !with_environment("a_name_of_no_choices_is_an_error", &[("WARPSMITH_TUNED", &file)]) {
        return;
    }
    let stream = device().stream().unwrap();
    let ones = Tensor::filled(&stream, [136, 136], bf16::ONE).unwrap();
    let linear = ops::linear(&stream, &ones, &ones, Epilogue::new()).map(drop);
    for result in [ops::gemm_bf16(&stream, &ones, &ones).map(drop), linear] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("garbage.txt") && error.contains("WARPSMITH_TUNED names it"), "{error}");
    }
    // What asks for no choice goes on, and so does a program with choices of its own.
    assert!(ops::relu(&stream, &ones).is_ok());
    stream.device().use_tuned(None).unwrap();
    assert!(ops::gemm_bf16(&stream, &ones, &ones).is_ok());
    let doctor = warpsmith(&["doctor", "--backend", "sim"]);
    assert!(doctor.code == 3 && doctor.out.contains("WARPSMITH_TUNED names it"), "{}", doctor.out);
    let list = warpsmith(&["tune", "--list", "--backend", "sim"]);
    assert!(list.code == 2 && list.err.contains("garbage.txt: no choices of `warpsmith tune`"), "{}", list.err);
}

#[test]
fn choices_are_listed_without_a_gpu() {
    let cache = tempfile::tempdir().unwrap();
    if !with_environment("choices_are_listed_without_a_gpu", &[("XDG_CACHE_HOME", cache.path())]) {
        return;
    }
    let list = |args: &[&str]| {
        let run = warpsmith(&[&["tune", "--list", "--backend", "sim"], args].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run
    };
    assert!(list(&[]).out.contains("0 choices in 0 files"));

    let folder = Path::new(&std::env::var_os("XDG_CACHE_HOME").unwrap()).join("warpsmith/tuned");
    let mut tuned = Tuned::default();
    tuned.set("gemm_bf16", of(136), Some("mma"));
    tuned.write(&folder.join("one.txt"), "GPU one").unwrap();
    tuned.write(&folder.join("two.txt"), "GPU two").unwrap();
    std::fs::write(folder.join("bad.txt"), "garbage").unwrap();
    let run = list(&[]);
    for gpu in ["GPU one", "GPU two"] {
        let line = run.out.lines().find(|line| line.starts_with(gpu)).unwrap_or_else(|| panic!("{}", run.out));
        assert!(
            line.contains("gemm_bf16") && line.contains("1x136x136x136") && line.trim_end().ends_with("mma"),
            "{line}"
        );
    }
    assert!(run.out.contains("2 choices in 2 files") && run.err.contains("bad.txt: no choices"), "{}", run.err);
    let json = list(&["--json"]).json();
    assert_eq!((json["files"].as_array().unwrap().len(), &json["files"][1]["gpu"]), (2, &"GPU two".into()));
}
