//! Files that the command is given: such as have no end, and the same one to read and to write.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::{io, random};
use warpsmith::ops::model::{CaseClass, Operator};
use warpsmith_tests::{device, warpsmith};

const USAGE: u8 = 2;

fn first() -> &'static dyn Operator {
    OPERATORS[0]
}

/// A file with inputs of the first operator's tiny case.
fn write_inputs(path: &Path) {
    let case = first().cases().into_iter().find(|c| c.class == CaseClass::Tiny).unwrap();
    io::write(path, &random::inputs(first(), &case, 7).unwrap()).unwrap();
}

#[test]
fn what_has_no_end_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("page.html").display().to_string();
    for args in
        [vec!["report", &out, "/dev/zero"], vec!["run", first().info().name, "--input", "/dev/zero", "--output", &out]]
    {
        let run = warpsmith(&args);
        assert_eq!(run.code, USAGE, "{args:?}: {}", run.err);
        assert!(run.err.starts_with("error: /dev/zero: "), "{args:?}: {}", run.err);
    }
}

#[test]
fn outputs_may_take_the_place_of_inputs() {
    let Some(_device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |input: &str, output: &str, more: &[&str]| {
        let (input, output) = (at(input).display().to_string(), at(output).display().to_string());
        let args = ["run", first().info().name, "--input", &input, "--output", &output];
        warpsmith(&[&args[..], more].concat())
    };
    write_inputs(&at("inputs"));
    let inputs = fs::read(at("inputs")).unwrap();
    assert_eq!(run("inputs", "outputs", &[]).code, 0);
    let outputs = fs::read(at("outputs")).unwrap();
    assert_ne!(inputs, outputs);
    fs::hard_link(at("inputs"), at("hard")).unwrap();
    symlink("inputs", at("link")).unwrap();
    for name in ["link", "inputs"] {
        // Nothing is lost where the operator fails.
        assert_eq!(run(name, name, &["--set", "variant=warp9"]).code, USAGE);
        assert_eq!(run("outputs", name, &["--backend", "none"]).code, USAGE);
        assert_eq!(fs::read(at("inputs")).unwrap(), inputs);
        assert_eq!(run(name, name, &[]).code, 0);
        assert_eq!(fs::read(at("inputs")).unwrap(), outputs);
        assert!(at("link").is_symlink());
        fs::write(at("inputs"), &inputs).unwrap();
    }
    assert_eq!(fs::read(at("hard")).unwrap(), inputs, "under its other name the file is the old one");
}

#[test]
fn a_page_does_not_take_the_place_of_results() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let row = json!({ "op": "ew.relu", "case": "n=4", "variant": "auto", "status": "pass", "max_err": 0.5 });
    let results = json!({ "executed": true, "backend": "sim", "rows": [row] }).to_string();
    for name in ["first.json", "second.json"] {
        fs::write(at(name), &results).unwrap();
    }
    let run = warpsmith(&["report", &at("first.json"), &at("second.json")]);
    assert_eq!(run.code, USAGE, "{}", run.out);
    let said = "first.json: cannot be written: it holds results, and the page's name comes first\n";
    assert!(run.err.ends_with(said), "{}", run.err);
    assert_eq!(fs::read_to_string(at("first.json")).unwrap(), results);
    // A page may be written again.
    for _ in 0..2 {
        let run = warpsmith(&["report", &at("page.html"), &at("second.json")]);
        assert_eq!(run.code, 0, "{}", run.err);
    }
}
