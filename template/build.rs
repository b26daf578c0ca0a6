//! Compiles the kernels to PTX.

use cuda_builder::{Arch, CudaBuilder};

fn main() {
    // Cargo shows one line a directive; a build script that prints an error fails.
    match CudaBuilder::new("kernels").arch(Arch::Sm80).build() {
        Ok(built) => built.warnings.iter().flat_map(|text| text.lines()).for_each(|line| println!("cargo::warning={line}")),
        Err(error) => error.to_string().lines().for_each(|line| println!("cargo::error={line}")),
    }
}
