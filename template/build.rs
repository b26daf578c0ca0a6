//! Compiles the kernels to PTX.

use cuda_builder::{Arch, CudaBuilder};

fn main() {
    // For GPUs from Ampere on, and what Hopper alone has: `row!` makes kernels with clusters for its long rows.
    let builder = CudaBuilder::new("kernels").arch(Arch::Sm80).arch(Arch::Sm90a);
    // Cargo shows one line a directive; a build script that prints an error fails.
    match builder.build() {
        Ok(built) => built.warnings.iter().flat_map(|text| text.lines()).for_each(|line| println!("cargo::warning={line}")),
        Err(error) => error.to_string().lines().for_each(|line| println!("cargo::error={line}")),
    }
}
