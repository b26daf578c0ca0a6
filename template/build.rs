//! Compiles the kernels to PTX.

use cuda_builder::{Arch, CudaBuilder};

fn main() {
    if let Err(error) = CudaBuilder::new("kernels").arch(Arch::Sm80).build() {
        // A build script that prints this fails; cargo shows one line a directive.
        error.to_string().lines().for_each(|line| println!("cargo::error={line}"));
    }
}
