//! What the search for a device toolchain accepts, and what it says about what it does not.
#![cfg(unix)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cuda_builder::toolchain::{self, NotFound, Origin};

/// One test at a time: a program cannot be started while a child of another test still has it open for writing.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes an executable that prints `output`.
fn program(path: &Path, output: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\ncat <<'END'\n{output}\nEND\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Writes a compiler that says it is 1.95 with LLVM 22, and whose sysroot is `root/usr`.
fn compiler(root: &Path) {
    let sysroot = root.join("usr");
    let rustc = sysroot.join("bin/rustc");
    program(&rustc, "");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --print ]; then echo {}; else\n\
         printf 'release: 1.95.0\\nhost: x86_64-unknown-linux-gnu\\nLLVM version: 22.1.2\\n'; fi\n",
        sysroot.display()
    );
    fs::write(rustc, text).unwrap();
}

fn sources(root: &Path) {
    let core = root.join("usr/lib/rustlib/src/rust/library/core/src");
    fs::create_dir_all(&core).unwrap();
    fs::write(core.join("lib.rs"), "").unwrap();
}

fn tools(folder: &Path, version: &str, targets: &str) {
    for tool in ["llvm-dis", "opt", "llc"] {
        program(&folder.join(tool), &format!("LLVM version {version}\n  Registered Targets:\n    {targets}"));
    }
}

fn why_not(root: &Path) -> String {
    toolchain::at(Origin::Env, root).unwrap_err()
}

#[test]
fn each_missing_part_is_named() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    assert!(why_not(root).contains("no bin/rustc"));

    compiler(root);
    assert!(why_not(root).contains("Rust's sources are not there"));

    sources(root);
    // A newer LLVM of the system may stand in for tools that are missing.
    let tools_folder = root.join("usr/lib/llvm-22/bin");
    tools(&tools_folder, "22.1.8", "x86 - 32-bit X86");
    if toolchain::at(Origin::Env, root).is_err() {
        assert!(why_not(root).contains("cannot write PTX"), "{}", why_not(root));
    }

    tools(&tools_folder, "22.1.8", "nvptx64 - NVIDIA PTX 64-bit");
    let found = toolchain::at(Origin::Env, root).unwrap();
    assert_eq!((found.rustc_version.as_str(), found.llvm_major), ("1.95.0", 22));
    assert_eq!(found.llvm, tools_folder);
}

#[test]
fn tools_older_than_the_compiler_are_refused() {
    let _alone = alone();
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    compiler(root);
    sources(root);
    tools(&root.join("usr/bin"), "19.1.0", "nvptx64");
    if let Err(why) = toolchain::at(Origin::Env, root) {
        assert!(why.contains("are of version 19 and rustc needs 22"), "{why}");
    }
    // Those of the right version are taken, and newer ones are when there are no others.
    tools(&root.join("usr/lib/llvm-24/bin"), "24.0.0", "nvptx64");
    tools(&root.join("usr/lib/llvm-23/bin"), "23.0.0", "nvptx64");
    assert_eq!(toolchain::at(Origin::Env, root).unwrap().llvm_major, 23);
}

#[test]
fn not_finding_one_says_what_was_tried_and_what_to_do() {
    let error = NotFound { tried: vec![("a place".to_owned(), "a reason".to_owned())] };
    let text = error.to_string();
    assert!(
        text.contains("  - a place: a reason")
            && text.contains("\nTo get one, run: rustup component add rust-src llvm-tools\n"),
        "{text}"
    );
}

#[test]
fn a_chosen_toolchain_is_used_or_nothing_is() {
    let _alone = alone();
    // The variable is read in another process: setting it here would race with the other tests.
    let empty = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "look_for_one"])
        .env(toolchain::ENV, empty.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("from $WARPSMITH_DEVICE_TOOLCHAIN"), "{text}");
    assert!(text.contains("no bin/rustc") && !text.contains("the system"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn look_for_one() {
    if let Err(error) = toolchain::find() {
        println!("{error}");
    }
}
