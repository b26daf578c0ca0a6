//! The command.

use crate::common::nvcc;
use std::fs::File;
use std::process::{Command, Output, Stdio};

fn warpsim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpsim")).args(args).output().unwrap()
}

fn ptx() -> Option<String> {
    nvcc::file("basic").map(|path| path.display().to_string())
}

#[test]
fn lists_kernels() {
    let Some(ptx) = ptx() else { return };
    let o = warpsim(&[&ptx]);
    let text = String::from_utf8(o.stdout).unwrap();
    assert!(o.status.success() && text.contains("sgemm  parameters [8, 8, 8, 4, 4, 4]  static shared 16384"), "{text}");
}

#[test]
fn output_that_goes_nowhere_ends_it() {
    let Some(ptx) = ptx() else { return };
    let listed = |out: Stdio| Command::new(env!("CARGO_BIN_EXE_warpsim")).arg(&ptx).stdout(out).output().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let unread = listed(writer.into());
    assert_eq!((unread.status.code(), unread.stderr), (Some(0), Vec::new()));
    if let Ok(full) = File::options().write(true).open("/dev/full") {
        let full = listed(full.into());
        let says = String::from_utf8(full.stderr).unwrap();
        assert!(full.status.code() == Some(2) && says.starts_with("warpsim: cannot write: "), "{says}");
    }
}

/// Runs 64 threads of the kernel that adds up `x` into `y`.
fn scan(ptx: &str, x: &str, y: &str, more: &[&str]) -> (Option<i32>, String) {
    let launch = ["--kernel", "scan", "--block", "64", "--shared", "256", "--arg", x, "--arg", y, "--arg", "64"];
    let o = warpsim(&[&[ptx], &launch[..], more].concat());
    (o.status.code(), String::from_utf8(o.stdout).unwrap())
}

#[test]
fn runs_and_measures() {
    let Some(ptx) = ptx() else { return };
    let (code, text) = scan(&ptx, "x:i32[64]=ones", "y:i32[64]=none", &["--print", "y:5", "--metrics"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("y: 1 2 3 4 5\n"), "{text}");
    assert!(text.contains("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"), "{text}");
}

#[test]
fn occupancy_is_that_of_the_device() {
    let Some(ptx) = ptx() else { return };
    for (device, says) in [
        (&["--device", "H100-PCIe"][..], "occupancy on H100 PCIe (114 multiprocessors): 32 blocks, 64 of 64 warps"),
        (&["--device", "l4"], "occupancy on L4 (58 multiprocessors): 24 blocks, 48 of 48 warps"),
        (
            &["--device", "rtx3090", "--registers", "255"],
            "4 blocks, 8 of 48 warps a multiprocessor, limited by registers",
        ),
        // What the module's .target suggests.
        (&[], "occupancy on A100 (108 multiprocessors): 32 blocks, 64 of 64 warps"),
    ] {
        let (code, text) = scan(&ptx, "i32[64]", "i32[64]", &[&["--metrics"], device].concat());
        assert!(code == Some(0) && text.contains(says), "{text}");
    }
}

#[test]
fn findings_fail() {
    let Some(ptx) = ptx() else { return };
    // The kernel reads 64 elements of a buffer of 32.
    let (code, text) = scan(&ptx, "x:i32[32]", "i32[64]", &[]);
    assert_eq!(code, Some(1));
    for says in ["out-of-bounds", "0 bytes past the end of `x` (128 bytes)", "basic.cu:"] {
        assert!(text.contains(says), "{text}");
    }
    let (code, text) = scan(&ptx, "i32[64]", "i32[64]", &["--limit", "1"]);
    assert!(code == Some(1) && text.contains("has 2 warps: the limit is 1 warp instructions a launch"), "{text}");
}

#[test]
fn bad_arguments_are_explained() {
    let Some(ptx) = ptx() else { return };
    for (args, want) in [
        (vec!["--kernel", "nope"], "no kernel `nope`; the module has: "),
        (vec!["--kernel", "hello"], "`hello` takes 1 arguments of [4] bytes; 0 given"),
        (vec!["--kernel", "hello", "--arg", "x:f32[4]"], "8 bytes for a parameter of 4"),
        (vec!["--device", "h1000"], "[possible values: h200, h100, h100-pcie, a100, l40s, l4, rtx4090, a10, rtx3090]"),
    ] {
        let o = warpsim(&[&[ptx.as_str()], args.as_slice()].concat());
        let text = String::from_utf8(o.stderr).unwrap();
        assert!(o.status.code() == Some(2) && text.contains(want), "{text}");
    }
}
