//! Lets `-lcuda`, which cust_raw asks for, find the empty archive that comes with this crate.

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rustc-link-search=native={root}/link/lib64");
    println!("cargo::rerun-if-changed=build.rs");
}
