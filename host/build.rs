//! Compiles the kernels and writes the table that embeds their PTX.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use cuda_builder::{Arch, BuildOutput, CudaBuilder, Error, KernelEntry};

const KERNELS: &str = "../gpu-kernels";

fn main() -> ExitCode {
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        return fail("cargo did not set OUT_DIR");
    };
    let built = CudaBuilder::new(KERNELS).arch(Arch::Sm80).arch(Arch::Sm90a).copy_to(out.join("ptx")).build();
    let table = match built {
        Ok(output) => {
            output.warnings.iter().for_each(|warning| report("warning", warning));
            match table(&output) {
                Ok(table) => table,
                Err(reason) => return fail(&reason),
            }
        }
        // Without kernels everything still compiles, so that documentation and editors work everywhere; using one says why not.
        Err(Error::Toolchain(why)) => {
            report("warning", &format!("building without GPU kernels\n{why}"));
            no_kernels(&why.to_string())
        }
        Err(error) => return fail(&error.to_string()),
    };
    match fs::write(out.join("kernels.rs"), table) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{}: {error}", out.join("kernels.rs").display())),
    }
}

/// Cargo shows one line a directive.
fn report(level: &str, text: &str) {
    for line in text.lines() {
        println!("cargo::{level}={line}");
    }
}

fn fail(text: &str) -> ExitCode {
    report("error", text);
    ExitCode::FAILURE
}

fn no_kernels(why: &str) -> String {
    format!(
        "pub(super) static IMAGES: &[super::KernelImage] = &[];\n\
         pub(super) static NOT_BUILT: Option<&str> = Some({why:?});\n"
    )
}

fn table(output: &BuildOutput) -> Result<String, String> {
    let mut kernels: Vec<&KernelEntry> = output.manifest.kernels.iter().collect();
    // The order that look-up by symbol relies on.
    kernels.sort_by(|a, b| (&a.symbol, a.arch).cmp(&(&b.symbol, b.arch)));
    let mut table = String::from("pub(super) static IMAGES: &[super::KernelImage] = &[\n");
    for kernel in kernels {
        image(&mut table, &output.folder, kernel)?;
    }
    table.push_str("];\npub(super) static NOT_BUILT: Option<&str> = None;\n");
    Ok(table)
}

fn image(table: &mut String, folder: &Path, kernel: &KernelEntry) -> Result<(), String> {
    let arch = match kernel.arch {
        Arch::Sm80 => "Sm80",
        Arch::Sm90a => "Sm90a",
        other => return Err(format!("{}: no use for {other}", kernel.symbol)),
    };
    let sizes: Vec<u32> = kernel.params.iter().map(|param| param.bytes).collect();
    let file = folder.join(&kernel.file);
    let written = writeln!(
        table,
        "    super::KernelImage {{ symbol: {:?}, module: {:?}, arch: super::Arch::{arch}, ptx: include_str!({:?}), \
         block: {:?}, cluster: {:?}, shared_bytes: {}, param_sizes: &{sizes:?} }},",
        kernel.symbol, kernel.module, file, kernel.block, kernel.cluster, kernel.shared_bytes,
    );
    written.map_err(|error| error.to_string())
}
