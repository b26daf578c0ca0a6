//! The command: good and bad input, its exit codes and its JSON.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::Comparison;
use warpsmith::check::{io, random};

use warpsmith::ops::model::{self, Case, CaseClass, Operator, Tensors};
use warpsmith::{DType, HostTensor, kernels};
use warpsmith_tests::{Output, device, warpsmith, warpsmith_on};

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const ENVIRONMENT: u8 = 3;

fn first() -> &'static dyn Operator {
    OPERATORS[0]
}

/// A file with inputs for the operator's first case of some class; returns the tensors.
fn write_inputs(op: &dyn Operator, class: CaseClass, path: &Path) -> Vec<(&'static str, HostTensor)> {
    let case = op.cases().into_iter().find(|c| c.class == class).expect("a case of each class");
    write_inputs_of(op, &case, path)
}

fn write_inputs_of(op: &dyn Operator, case: &Case, path: &Path) -> Vec<(&'static str, HostTensor)> {
    let tensors = random::inputs(op, case, 7).unwrap();
    io::write(path, &tensors).unwrap();
    tensors
}

/// Runs the first operator on `input`; expects a usage error, and returns it.
fn refused(input: &Path, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.safetensors");
    let files = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
    let run = warpsmith(&[&["run", first().info().name], &files[..], more].concat());
    assert_eq!(run.code, USAGE, "{}{}", run.out, run.err);
    assert!(run.err.starts_with("error: "), "{}", run.err);
    assert!(!output.exists());
    run.err
}

#[test]
fn list_names_every_operator_in_every_format() {
    let (text, json, markdown) =
        (warpsmith(&["list"]), warpsmith(&["list", "--json"]), warpsmith(&["list", "--markdown"]));
    let names: Vec<_> = OPERATORS.iter().map(|op| op.info().name).collect();
    for name in &names {
        assert!(text.out.contains(name) && markdown.out.contains(&format!("| `{name}` |")), "{name}");
        assert_eq!(warpsmith(&["list", name]).code, 0);
    }
    let json = json.json();
    let listed: Vec<_> = json["operators"].as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert_eq!(listed, names);
}

#[test]
fn wrong_words_are_usage_errors_that_help() {
    let folder = tempfile::tempdir().unwrap();
    let prose = folder.path().join("prose.json").display().to_string();
    fs::write(&prose, "It was a dark and stormy night.").unwrap();
    let name = first().info().name;
    let misspelt = &name[..name.len() - 1];
    for (args, says) in [
        (vec!["list", misspelt], format!("did you mean {name}")),
        (vec!["verify", misspelt], format!("did you mean {name}")),
        (vec!["verify", name, "--case", "no such case"], "no case is called".to_owned()),
        (vec!["verify", "--dtype", "float13"], "bfloat16".to_owned()),
        (vec!["verify", "--class", "weird"], "production".to_owned()),
        (vec!["verify", "--backend", "tpu"], "cuda or sim".to_owned()),
        (vec!["verify", "--peer", "mkl"], "[possible values: cublas]".to_owned()),
        (vec!["inspect", misspelt], format!("did you mean {name}")),
        (vec!["bench", misspelt], format!("did you mean {name}")),
        (vec!["bench", "--out", "/no/such/folder/x.json"], "/no/such/folder/x.json".to_owned()),
        (vec!["bench", "--out", "/"], "it is a folder".to_owned()),
        (vec!["bench", "--sizes"], "<OPS>".to_owned()),
        (vec!["tune", misspelt], format!("did you mean {name}")),
        (vec!["tune", "gemm", "--size", "m=0,n=8"], "as in m=4096,n=4096,k=4096".to_owned()),
        (vec!["tune", "--out", "/no/such/folder/x.txt"], "/no/such/folder/x.txt".to_owned()),
        (vec!["verify", "--variant", "warp9"], "`variant` = warp9: expected one of auto, ".to_owned()),
        (vec!["verify", "gelu", "--dtype", "int8"], "`filter` = --dtype int8".to_owned()),
        (vec!["verify", "--dtype", "int8", "--case", "n="], "--dtype int8 --case n=".to_owned()),
        (
            vec!["sanitize", "gemm", "--variant", "zz"],
            "sanitize: parameter `variant` = zz: expected one of auto, ".to_owned(),
        ),
        (vec!["sanitize", "gelu", "--dtype", "int8"], "sanitize: parameter `filter` = --dtype int8".to_owned()),
        (vec!["sanitize", "--orders", "0"], "'--orders <N>'".to_owned()),
        (vec!["analyze", name, "--device", "h1000"], "'--device <GPU>'\n  [possible values: h200, h100, ".to_owned()),
        (vec!["run", name], "--input".to_owned()),
        (vec!["report", "x.html"], "<RESULTS>".to_owned()),
        (vec!["report", "x.html", "/no/such/run.json"], "/no/such/run.json: cannot be read".to_owned()),
        (vec!["report", "x.html", &prose], "prose.json: is not JSON".to_owned()),
        (vec!["report", "/", "x.json"], "/: cannot be written: it is a folder".to_owned()),
        (vec!["profile", "--trace", "/no/such/folder/x.json", "true"], "/no/such/folder/x.json".to_owned()),
        (vec!["profile", "/no/such/program"], "/no/such/program: cannot be run".to_owned()),
        (vec!["profile", "true"], "true: recorded nothing".to_owned()),
        (vec!["lesson", "--ncu"], "<NAME>".to_owned()),
        (vec!["paint"], "unrecognized subcommand".to_owned()),
    ] {
        let run = warpsmith(&args);
        assert_eq!(run.code, USAGE, "{args:?}: {}", run.err);
        assert!(run.err.contains(&says), "{args:?}: {}", run.err);
    }
    assert_eq!(warpsmith(&["--help"]).code, 0);
    assert_eq!(warpsmith(&["--version"]).code, 0);
}

#[test]
fn errors_are_json_when_that_is_asked_for() {
    let run = warpsmith(&["list", "zzz", "--json"]);
    assert_eq!(run.code, USAGE);
    assert!(run.json()["error"].as_str().unwrap().contains("zzz"));
}

#[test]
fn verify_says_that_it_simulates() {
    let args = ["verify", first().info().name, "--class", "tiny", "--backend", "sim"];
    if kernels::not_built().is_some() {
        assert_eq!(warpsmith(&args).code, ENVIRONMENT);
        return;
    }
    let run = warpsmith(&args);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert!(run.out.starts_with("Simulated, without a GPU"), "{}", run.out);
    let json = warpsmith(&[&args[..], &["--json"]].concat()).json();
    assert_eq!((&json["executed"], &json["backend"]), (&Value::Bool(true), &Value::from("sim")));
}

#[test]
fn a_simulation_is_not_timed() {
    let run = warpsmith(&["bench", "--backend", "sim"]);
    assert_eq!(run.code, ENVIRONMENT, "{}", run.err);
    assert!(run.err.contains("needs a GPU"), "{}", run.err);
    for args in [&["gemm"][..], &["--clear"]] {
        let run = warpsmith(&[&["tune", "--backend", "sim"], args].concat());
        assert!(run.code == ENVIRONMENT && run.err.contains("`tune` needs a GPU"), "{}", run.err);
    }
    let run = warpsmith(&["verify", "gemm", "--class", "tiny", "--backend", "sim", "--peer", "cublas"]);
    assert_eq!(run.code, ENVIRONMENT, "{}", run.err);
    assert!(run.err.contains("`cublas` is not available: it needs a GPU"), "{}", run.err);
    for args in [["mlp", "--sizes"], ["relu", "--sizes"]] {
        let run = warpsmith(&[&["bench", "--backend", "sim", "--svg", "/no/such/folder"], &args[..]].concat());
        assert!(run.code == ENVIRONMENT && run.err.contains("needs a GPU"), "{}", run.err);
    }
}

#[test]
fn a_report_is_one_file_with_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let row = |op: &str, ms: f64| json!({ "op": op, "case": "n=4", "variant": "auto", "ms": ms, "min_ms": ms, "bytes": 8, "flops": 0, "gbps": 8e-6 / ms, "pct_of_ceiling": 50.0 });
    let report = json!({ "device": "GPU", "driver": "13.0", "backend": "cuda", "command": "bench", "rows": [row("ceiling.copy", 1.0), row("ew.relu", 2.0)] });
    fs::write(at("run.json"), report.to_string()).unwrap();
    let run = warpsmith(&["report", &at("page.html"), folder.path().to_str().unwrap(), "--svg", &at("pictures")]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("pictures: 2, files of results: 1"), "{}", run.out);
    assert_eq!(fs::read_to_string(at("page.html")).unwrap().matches("<svg ").count(), 2);
    assert_eq!(fs::read_dir(at("pictures")).unwrap().count(), 3, "two pictures and their data");
    let run = warpsmith(&["report", &at("no/page.html"), &at("run.json"), "--json"]);
    assert_eq!(run.code, USAGE);
    assert!(run.json()["error"].as_str().unwrap().contains("page.html: cannot be written"));
}

#[test]
fn verify_says_whether_anything_was_executed() {
    let run = warpsmith(&["verify", "--class", "tiny", "--class", "empty", "--json"]);
    // A backend that was asked for by name and is not there is an error too.
    if kernels::not_built().is_some() || device().is_none() {
        assert_eq!(run.code, ENVIRONMENT);
        return;
    }
    let json = run.json();
    assert_eq!((run.code, &json["passed"]), (0, &Value::Bool(true)), "{}", run.out);
    assert_eq!(json["executed"], Value::Bool(device().is_some()));
    for key in ["op", "case", "variant", "status", "max_err", "checked"] {
        assert!(json["rows"][0].get(key).is_some(), "{key}");
    }
    assert!(json["kernels"].as_array().is_some_and(|k| !k.is_empty()));
}

#[test]
fn doctor_agrees_with_the_device() {
    let run = warpsmith(&["doctor", "--json"]);
    let ready = device().is_some() && kernels::not_built().is_none();
    assert_eq!(run.code, if ready { 0 } else { ENVIRONMENT });
    assert_eq!(run.json()["ready"], Value::Bool(ready));
    for finding in run.json()["findings"].as_array().unwrap() {
        assert!(finding["found"] == "ok" || finding["fix"].is_string(), "{finding}");
    }
}

#[test]
fn inspect_shows_the_code() {
    let name = first().info().name;
    let run = warpsmith(&["inspect", name, "--json", "--ptx", "--arch", "sm_80"]);
    if kernels::not_built().is_some() {
        assert_eq!(run.code, ENVIRONMENT);
        return;
    }
    let json = run.json();
    assert!(json["kernels"][0]["ptx"].as_str().unwrap().contains(".target sm_80"));
    // It does not ask what it is for, so that later GPUs run the same.
    let later = warpsmith(&["inspect", name, "--json", "--ptx", "--arch", "sm_90a"]).json();
    assert_eq!(later["kernels"], json["kernels"]);
    let known = json["kernels"].as_array().unwrap().iter().all(|kernel| kernel["registers"].is_u64());
    assert_eq!(known, !warpsmith(&["inspect", name, "--arch", "sm_80"]).err.contains("not known"));
    assert_eq!(warpsmith(&["inspect", name, "--arch", "sm_10"]).code, USAGE);
}

#[test]
fn run_refuses_what_it_cannot_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.safetensors");
    assert!(refused(&path, &[]).contains("in.safetensors: cannot be read"));

    let inputs = write_inputs(first(), CaseClass::Tiny, &path);
    assert!(refused(&path, &["--set", "no_such=1"]).contains("`no_such` = 1: expected "));
    assert!(refused(&path, &["--set", "novalue"]).contains("name=value"));
    assert!(refused(&path, &["--set", "variant=warp9"]).contains("warp9"));
    let run = warpsmith(&["run", first().info().name, "--input", "/none", "--output", "/no/such/folder/x"]);
    assert_eq!(
        (run.code, run.err.as_str()),
        (USAGE, "error: /no/such/folder/x: cannot be written: its folder does not exist\n")
    );

    let whole = fs::read(&path).unwrap();
    for length in [0, 4, 8, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(refused(&path, &[]).contains("safetensors"), "cut to {length} bytes");
    }

    io::write(&path, &inputs[1..]).unwrap();
    assert!(refused(&path, &[]).contains(&format!("has no tensor `{}`", inputs[0].0)));

    let wrong = DType::ALL.iter().find(|d| !first().info().dtypes.contains(d)).expect("no operator takes every dtype");
    let strange = |t: &HostTensor| HostTensor::from_f64(*wrong, t.shape(), &vec![0.0; t.len()]).unwrap();
    let named: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, strange(tensor))).collect();
    io::write(&path, &named).unwrap();
    let error = refused(&path, &[]);
    assert!(error.contains(first().info().name) && error.contains(wrong.name()), "{error}");
}

#[test]
fn run_computes_what_the_reference_does() {
    let Some(_device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    for op in OPERATORS {
        let info = op.info();
        let case = op.cases().into_iter().find(|c| c.class == CaseClass::Odd && c.params.is_default());
        let case = case.unwrap_or_else(|| panic!("{}: no odd case has parameters by default", info.name));
        let inputs = write_inputs_of(*op, &case, &from);
        let files = ["--input", from.to_str().unwrap(), "--output", to.to_str().unwrap()];
        let run = warpsmith(&[&["run", info.name, "--json"], &files[..]].concat());
        assert_eq!(run.code, 0, "{}: {}", info.name, run.err);
        let named = Tensors::new(info, inputs.iter().map(|(name, tensor)| (*name, tensor)));
        for (i, (name, output)) in io::read(&to, info.outputs()).unwrap().iter().enumerate() {
            assert_eq!(run.json()["outputs"][i]["dtype"], output.dtype().name());
            let tolerance = op.tolerance(&case, name).unwrap();
            let rows: Vec<_> = (0..model::row_count(*op, name, output.shape())).collect();
            let want = op.reference(&named, &case.params, name, &rows).unwrap();
            let mut found = Comparison::default();
            for (index, (got, want)) in output.to_f64().into_iter().zip(want).enumerate() {
                found.push(index, got, want, &tolerance, output.dtype());
            }
            assert!(found.passed() && found.elements == output.len(), "{}: {found:?}", info.name);
        }
    }
}

#[test]
fn run_names_tensors_that_it_does_not_read() {
    let Some(_device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    let mut inputs = write_inputs(first(), CaseClass::Tiny, &from);
    let args = ["run", first().info().name, "--input", from.to_str().unwrap(), "--output", to.to_str().unwrap()];
    assert!(!warpsmith(&args).out.contains("not read"));
    inputs.push(("b\n", inputs[0].1.clone()));
    io::write(&from, &inputs).unwrap();
    let said = format!("not read, because {} has no such input: b\\n\n", first().info().name);
    assert!(warpsmith(&args).out.contains(&said));
    assert_eq!(warpsmith(&[&args[..], &["--json"]].concat()).json()["ignored"], json!(["b\n"]));
}

#[test]
fn run_reads_and_writes_streams() {
    let Some(_device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    write_inputs(first(), CaseClass::Tiny, &from);
    let name = first().info().name;
    let run = |input: &str, output: &str| -> Output {
        let bytes = if input == "-" { fs::read(&from).unwrap() } else { Vec::new() };
        warpsmith_on(bytes, &["run", name, "--input", input, "--output", output])
    };
    let (input, output) = (from.to_str().unwrap(), to.to_str().unwrap());
    assert_eq!(run(input, output).code, 0);
    let expected = fs::read(&to).unwrap();
    let piped = run("-", "-");
    assert_eq!((piped.code, &piped.bytes), (0, &expected), "{}", piped.err);
    assert!(piped.err.contains(&format!("{name} took ")), "{}", piped.err);
    let cut = warpsmith_on(expected[..9].to_vec(), &["run", name, "--input", "-", "--output", output]);
    assert_eq!(cut.code, USAGE);
    assert!(cut.err.starts_with("error: standard input: is not a whole safetensors file"), "{}", cut.err);
    if Path::new("/dev/full").exists() {
        let full = run(input, "/dev/full");
        assert_eq!(full.code, FAILED, "{}", full.err);
        assert!(full.err.contains("/dev/full: cannot be written to the end"), "{}", full.err);
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    struct Broken(std::io::ErrorKind);
    impl std::io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let list = |kind| warpsmith::cli::run(["warpsmith", "list"], std::io::empty(), Broken(kind), std::io::sink());
    assert_eq!(list(std::io::ErrorKind::StorageFull), FAILED);
    assert_eq!(list(std::io::ErrorKind::BrokenPipe), 0, "a reader that has seen enough");
}

#[test]
fn what_was_typed_is_printed_without_its_control_characters() {
    let hostile = "x\u{1b}[2J\ny\u{202e}z";
    for args in [
        vec!["list", hostile],
        vec!["verify", first().info().name, "--case", hostile],
        vec!["run", first().info().name, "--input", hostile, "--output", "y"],
        vec!["run", first().info().name, "--input", "x", "--output", "y", "--set", hostile],
        vec![hostile],
    ] {
        let run = warpsmith(&args);
        assert_eq!(run.code, USAGE, "{args:?}");
        assert!(!run.err.contains(['\u{1b}', '\u{202e}']), "{args:?}: {:?}", run.err);
        // clap takes colours out of what was typed, everything else is escaped.
        assert!(run.err.contains(r"\u{202e}z"), "{args:?}: {:?}", run.err);
    }
}

#[test]
fn verify_prints_a_line_an_operator_and_dtype_or_a_line_a_case() {
    if kernels::not_built().is_some() || device().is_none() {
        return;
    }
    let info = first().info();
    let args = ["verify", info.name, "--class", "tiny"];
    let lines = |run: &Output| run.out.lines().filter(|line| line.starts_with(info.name)).count();
    let (short, long) = (warpsmith(&args), warpsmith(&[&args[..], &["-v"]].concat()));
    let dtypes: std::collections::BTreeSet<_> =
        first().cases().iter().filter(|c| c.class == CaseClass::Tiny).map(|c| c.dtype.name()).collect();
    assert_eq!(lines(&short), dtypes.len(), "{}", short.out);
    assert!(lines(&long) >= dtypes.len() && long.out.contains("tolerance"), "{}", long.out);
    assert!(short.out.contains("worst share"), "{}", short.out);
}

#[test]
fn sanitize_finds_nothing_in_what_ships() {
    let name = first().info().name;
    assert_eq!(warpsmith(&["sanitize", name, "--class", "production"]).code, USAGE);
    if kernels::not_built().is_some() {
        return;
    }
    let run = warpsmith(&["sanitize", name, "--class", "tiny", "--orders", "3", "--json"]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    let json = run.json();
    assert_eq!(json["failed"].as_array().map(Vec::len), Some(0));
    assert!(json["runs"].as_u64() >= json["cases"].as_u64().map(|n| 3 * n), "{json}");
}

#[test]
fn analyze_counts_what_an_operator_does() {
    if kernels::not_built().is_some() {
        return;
    }
    for op in OPERATORS {
        let name = op.info().name;
        let text = warpsmith(&["analyze", name]);
        assert_eq!(text.code, 0, "{name}: {}", text.err);
        assert!(text.out.contains("smsp__inst_executed.sum") && text.out.contains("Occupancy"), "{}", text.out);
        let json = warpsmith(&["analyze", name, "--json"]).json();
        let launch = &json["launches"][0];
        assert!(op.info().instances().any(|k| launch["kernel"] == k.symbol), "{launch}");
        assert!(launch["occupancy"]["blocks"].as_u64() > Some(0), "{launch}");
        assert_eq!((&json["device"]["name"], &launch["occupancy"]["device"]), (&"H100".into(), &"H100".into()));
    }
}

#[test]
fn analyze_is_about_the_device_that_is_asked_for() {
    if kernels::not_built().is_some() {
        return;
    }
    let args = ["analyze", first().info().name, "--device", "L4"];
    let text = warpsmith(&args);
    assert!(text.out.contains("simulated for the L4 (58 multiprocessors, compute capability 8.9)"), "{}", text.out);
    assert!(text.out.contains("Occupancy of the L4: ") && text.out.contains(" of 48 warps"), "{}", text.out);
    let json = warpsmith(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(json["device"], json!({ "name": "L4", "multiprocessors": 58, "compute_capability": [8, 9] }));
    assert_eq!(json["launches"][0]["occupancy"]["of"], 48);

    let run = warpsmith(&["analyze", "gemm_bf16", "--variant", "hopper", "--device", "a100"]);
    assert_eq!(run.code, USAGE);
    assert!(
        run.err.contains("`variant` = hopper: expected one that can run") && run.err.contains("A100"),
        "{}",
        run.err
    );
}
