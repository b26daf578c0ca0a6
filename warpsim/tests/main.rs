//! The tests, in one program: it links the simulator once, and compilers that some of them wait for run beside the others.

#[macro_use]
mod common;

mod calls;
mod cli;
mod cli_runs;
mod completion;
mod cuda_advanced;
mod cuda_basic;
mod cuda_coop;
mod cuda_cub;
mod cuda_grid;
mod cuda_hopper;
mod cuda_misc;
mod cuda_planted;
mod foreign;
mod forms;
mod fuzz;
mod guards;
mod hopper;
mod im2col;
mod instructions;
mod limits;
mod mbarrier;
mod mma;
mod mma_rare;
mod offsets;
mod programmatic;
mod rare;
mod sources;
mod spaces;
mod sparse;
mod sparse_wgmma;
mod st_async;
mod syntax;
mod triton;
mod triton_matmul;
mod types;
mod video;
mod zoo;
mod zoo_async;
mod zoo_bounds;
mod zoo_converge;
mod zoo_grid;
mod zoo_heap;
mod zoo_hopper;
mod zoo_libraries;
mod zoo_locks;
mod zoo_matrix;
mod zoo_order;
mod zoo_registers;
mod zoo_scope;
mod zoo_sparse;
mod zoo_turns;
mod zoo_undefined;

/// A file that is not named above is not compiled, and its tests pass by not being there.
#[test]
fn every_file_is_part_of_the_suite() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let named = |stem: &str| stem == "main" || include_str!("main.rs").contains(&format!("\nmod {stem};\n"));
    let left_out: Vec<_> = files.filter(|f| f.strip_suffix(".rs").is_some_and(|stem| !named(stem))).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}
