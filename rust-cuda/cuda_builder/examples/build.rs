//! Compiles the crate in a folder for both architectures and lists its kernels:
//! `cargo run -p warpsmith-cuda-builder --example build -- gpu-kernels out`.

use std::{env, path::PathBuf, process::ExitCode};

use cuda_builder::{Arch, CudaBuilder};

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(folder), Some(out)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: build CRATE OUT");
        return ExitCode::from(2);
    };
    let out = PathBuf::from(out);
    let built = CudaBuilder::new(folder).arch(Arch::Sm80).arch(Arch::Sm90a).copy_to(&out).emit_llvm_ir(true).build();
    match built {
        Ok(built) => {
            for warning in &built.warnings {
                eprintln!("{warning}");
            }
            for kernel in &built.manifest.kernels {
                let registers = kernel.resources.as_ref().map_or(0, |r| r.registers);
                println!("{} {} ({registers} registers)", kernel.arch, out.join(kernel.file()).display());
            }
            println!("{} kernels, {} from the cache", built.manifest.kernels.len(), built.cached);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
