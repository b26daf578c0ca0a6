//! Compiles a Rust crate of GPU kernels to PTX, in one [archive](ptx_archive), with rustc's own NVPTX backend.
//!
//! ```no_run
//! use cuda_builder::{Arch, CudaBuilder};
//!
//! let out = CudaBuilder::new("../gpu-kernels")
//!     .arch(Arch::Sm80)
//!     .arch(Arch::Sm90a)
//!     .build()?;
//! for kernel in &out.manifest.kernels {
//!     println!("{} {}", kernel.arch, kernel.symbol);
//! }
//! # Ok::<(), cuda_builder::Error>(())
//! ```
//!
//! # How it works
//!
//! 1. A [device toolchain](toolchain) is found.
//! 2. Cargo compiles the crate and `core` to *unoptimised* bitcode, once for all architectures.
//! 3. `llvm-dis` makes text of the modules that are new. They are the crate, its dependencies, and a prelude that gives Rust the
//!    shared address space. An index of each, made with it, says what its items are and use.
//! 4. What each kernel reaches is known from those: the cache may have it. If not, a module is cut out of the texts. Inline assembly with side effects becomes `convergent` there,
//!    and the launch bounds that `#[kernel]` leaves in a marker are attached. A kernel that asks for its architecture
//!    (`cuda_std::arch`) is cut once for each; the others once, for the oldest.
//! 5. `opt` optimises each, and `llc` turns it into PTX, in parallel.
//! 6. Each is checked: no panic, no unresolved function, and, when [`ptxas`] is there, that it assembles and keeps its
//!    promise of no spills. Small kernels are assembled several in one run.
//! 7. All go into one archive, `kernels.ptxa`, which the host reads.
//!
//! # Environment
//!
//! - `WARPSMITH_DEVICE_TOOLCHAIN`: the folder of a device toolchain, which is then used and no other.
//! - `PTXAS`: the assembler to check with, or `off`.

mod archive;
mod builder;
mod cache;
mod cargo;
mod compile;
mod disassemble;
pub mod error;
mod frontend;
mod ir;
pub mod manifest;
mod marker;
mod output;
mod parallel;
mod progress;
mod ptx;
pub mod ptxas;
mod scratch;
mod sources;
pub mod toolchain;
mod watch;

pub(crate) use builder::Options;
pub use builder::{BuildOutput, CudaBuilder};
pub use cargo::target_folder;
pub use error::Error;
pub use manifest::Manifest;
pub use progress::progress;
pub use ptx_archive::{self, Arch, Kernel, Param, ParamKind};
