//! Device crates for the tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use cuda_builder::{Arch, CudaBuilder, toolchain};

/// Whether kernels can be compiled here. Says why when they cannot.
pub(crate) fn have_toolchain() -> bool {
    match toolchain::find() {
        Ok(_) => true,
        Err(why) => {
            eprintln!("skipped: {why}");
            false
        }
    }
}

/// Keeps the tests of a program from building at once: they share intermediate files, and one could find those of another.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A builder for both architectures that shares its intermediate files, `core` above all, with the other tests. Not with
/// the workspace's own build: a crate outside of the workspace sees the toolchain under another path and would compile
/// `core` again, and the workspace again after it.
pub(crate) fn builder(folder: &Path) -> CudaBuilder {
    let name = folder.file_name().unwrap_or_default();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    CudaBuilder::new(folder)
        .arch(Arch::Sm80)
        .arch(Arch::Sm90a)
        .target_folder(scratch.join("device"))
        .archive(scratch.join("ptx").join(name).join("kernels.ptxa"))
        .copy_to(scratch.join("ptx").join(name))
}

/// A crate that lies beside the tests.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The source of a crate with one kernel.
pub(crate) fn kernel(name: &str, parameters: &str, body: &str) -> String {
    format!(
        r#"#![no_std]
#![feature(abi_ptx, asm_experimental_arch, stdarch_nvptx)]
#![allow(unused_imports)]
use core::arch::{{asm, nvptx::*}};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {{ unsafe {{ trap() }} }}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn {name}({parameters}) {{ unsafe {{
    {body}
}} }}
"#
    )
}

/// Writes a crate with this source.
pub(crate) fn crate_with(name: &str, source: &str) -> PathBuf {
    write_crate(name, source, "")
}

/// Writes a crate with this source, and another that it depends on as `helper`.
pub(crate) fn crate_with_helper(name: &str, source: &str, helper: &str) -> PathBuf {
    let helper = write_crate(&format!("{name}-helper"), helper, "");
    let dependency =
        format!("[dependencies]\nhelper = {{ package = \"{name}-helper\", path = {:?} }}\n", helper.display());
    write_crate(name, source, &dependency)
}

fn write_crate(name: &str, source: &str, dependencies: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crates").join(name);
    fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n{dependencies}"
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/lib.rs"), source).unwrap();
    folder
}
