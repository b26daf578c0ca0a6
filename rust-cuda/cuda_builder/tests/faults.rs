//! Every check of the builder against a crate with that fault, by the text the user gets.

mod support;

use cuda_builder::{CudaBuilder, Error, error::Problem, ptxas};
use support::{builder, crate_with, have_toolchain, kernel};

/// Builds a crate of one kernel that must fail, and returns the error.
fn failure(name: &str, source: &str) -> Error {
    builder(&crate_with(name, source)).build().expect_err("the fault is found")
}

#[test]
fn a_panic_is_an_error_with_its_place() {
    if !have_toolchain() {
        return;
    }
    let body = r#"
        asm!("//#kernel module=m::ops block=32,1,1");
        let t = _thread_idx_x() as usize;
        let table = [1u32, 2, 3, 5];
        *x = table[*x as usize];
        *x.add(1) = 10 / *x.add(t);
        if *x == 7 { None::<u32>.unwrap(); }
    "#;
    let text = failure("panics", &kernel("indexes", "x: *mut u32", body)).to_string();
    assert!(text.starts_with("kernel `indexes` in m::ops (sm_80) can panic"), "{text}");
    assert!(text.contains("index out of bounds at src/lib.rs:"), "{text}");
    assert!(text.contains("division by zero at src/lib.rs:"), "{text}");
    assert_eq!(text.matches(" at src/lib.rs:").count(), 3, "{text}");
}

#[test]
fn a_panic_in_a_helper_is_found_too() {
    if !have_toolchain() {
        return;
    }
    let source = kernel(
        "calls",
        "x: *mut u32",
        r#"
        asm!("//#kernel module=m block=32,1,1");
        *x = pick(&[*x, 1, 2], *x as usize) + pick(&[*x, 3, 4], 9);
        "#,
    ) + "#[inline(never)] fn pick(from: &[u32; 3], at: usize) -> u32 { from[at] }\n";
    let text = failure("helper_panics", &source).to_string();
    assert!(text.contains("index out of bounds at src/lib.rs:"), "{text}");
}

#[test]
fn a_function_that_is_nowhere_is_an_error() {
    if !have_toolchain() {
        return;
    }
    let source = kernel(
        "calls_out",
        "x: *mut f32",
        r#"
        asm!("//#kernel module=m block=32,1,1");
        *x = my_sine(*x);
        "#,
    ) + "unsafe extern \"C\" { fn my_sine(x: f32) -> f32; }\n";
    let text = failure("unresolved", &source).to_string();
    assert!(text.contains("kernel `calls_out` in m (sm_80) calls what is defined nowhere"), "{text}");
    assert!(text.contains("`my_sine`, called by `calls_out`"), "{text}");
}

#[test]
fn the_driver_s_own_functions_are_no_error() {
    if !have_toolchain() {
        return;
    }
    let source = kernel(
        "prints",
        "x: *mut u8",
        r#"
        asm!("//#kernel module=m block=32,1,1");
        vprintf(x, x);
        "#,
    ) + "unsafe extern \"C\" { fn vprintf(format: *const u8, values: *mut u8) -> i32; }\n";
    builder(&crate_with("prints", &source)).build().unwrap();
}

#[test]
fn a_broken_promise_of_no_spills_is_an_error() {
    if !have_toolchain() || ptxas::find().is_none() {
        return;
    }
    let body = |promise: u8| {
        format!(
            r#"
        asm!("//#kernel module=m block=32,1,1 no_spills={promise}");
        let mut local = [0u32; 64];
        let mut i = 0;
        while i < 64 {{ local[(*x.add(i) % 64) as usize] = i as u32; i += 1; }}
        *x = local[(*x % 64) as usize];
        "#
        )
    };
    builder(&crate_with("spills_allowed", &kernel("local", "x: *mut u32", &body(0)))).build().unwrap();
    let text = failure("spills", &kernel("local", "x: *mut u32", &body(1))).to_string();
    assert!(text.contains("kernel `local` in m (sm_80"), "{text}");
    assert!(text.contains("declares no_spills") && text.contains("bytes stack"), "{text}");
}

#[test]
fn assembly_that_is_not_ptx_is_an_error() {
    if !have_toolchain() || ptxas::find().is_none() {
        return;
    }
    let body = r#"
        asm!("//#kernel module=m block=32,1,1");
        asm!("frobnicate.b32 {0};", in(reg32) n);
    "#;
    let text = failure("not_ptx", &kernel("odd", "n: u32", body)).to_string();
    assert!(text.contains("kernel `odd` in m (sm_80) fails in ptxas"), "{text}");
    assert!(text.contains("frobnicate"), "{text}");
}

#[test]
fn an_entry_without_a_marker_is_an_error() {
    if !have_toolchain() {
        return;
    }
    let text = failure("no_marker", &kernel("bare", "n: u32", "let _ = n;")).to_string();
    assert!(text.contains("kernel `bare` (sm_80, sm_90a) is an `extern \"ptx-kernel\"` function"), "{text}");
}

#[test]
fn a_marker_that_is_wrong_is_an_error() {
    if !have_toolchain() {
        return;
    }
    let body = r#"asm!("//#kernel module=m block=4096,1,1");"#;
    let text = failure("bad_marker", &kernel("wide", "", body)).to_string();
    assert!(text.contains("a block of 4096 x 1 x 1 threads"), "{text}");
}

#[test]
fn all_broken_kernels_are_told_at_once() {
    if !have_toolchain() {
        return;
    }
    let source = kernel("first", "n: u32", "let _ = n;")
        + "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn second() {}\n";
    let Error::Kernels(errors) = failure("several", &source) else {
        panic!("not the expected error");
    };
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| error.arches.len() == 2 && matches!(error.problem, Problem::NoMarker)));
}

#[test]
fn rust_errors_are_shown_as_rustc_prints_them() {
    if !have_toolchain() {
        return;
    }
    let body = r#"asm!("//#kernel module=m block=32,1,1"); *x = "text";"#;
    let text = failure("type_error", &kernel("typed", "x: *mut u32", body)).to_string();
    assert!(text.starts_with("the kernels do not compile:\nerror[E0308]: mismatched types"), "{text}");
    assert!(text.contains("--> src/lib.rs:"), "{text}");
}

#[test]
fn the_package_of_the_build_script_itself_is_an_error() {
    const SCRIPT: &str = "THIS_IS_A_BUILD_SCRIPT";
    let package = support::fixture("basic");
    if std::env::var_os(SCRIPT).is_some() {
        let error = CudaBuilder::new(package).build().unwrap_err().to_string();
        assert!(error.contains("it is the package of this build script"), "{error}");
        return;
    }
    // Again, in the environment of one.
    let mut script = std::process::Command::new(std::env::current_exe().unwrap());
    script.args(["--exact", "the_package_of_the_build_script_itself_is_an_error"]);
    script.env(SCRIPT, "").env("OUT_DIR", env!("CARGO_TARGET_TMPDIR")).env("CARGO_MANIFEST_DIR", package);
    let output = script.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_folder_that_is_no_crate_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("lib.rs");
    std::fs::write(&file, "").unwrap();
    let here = std::env::current_dir().unwrap();
    for (folder, reason) in [
        (empty.path(), "it has no Cargo.toml"),
        (&empty.path().join("nowhere"), "it does not exist"),
        ("../no_such_kernels".as_ref(), "it does not exist"),
        (&file, "it is a file"),
    ] {
        let builder = CudaBuilder::new(folder);
        let text = format!(
            "there is no crate of kernels in {} (seen from {}): {reason}; the builder takes the folder that a crate's Cargo.toml is in",
            folder.display(),
            here.display()
        );
        assert_eq!(builder.sources().unwrap_err().to_string(), text);
        assert_eq!(builder.build().unwrap_err().to_string(), text);
    }
}
