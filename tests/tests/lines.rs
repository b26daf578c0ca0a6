//! What the simulator says of a kernel, by the lines of Rust.

use cuda_builder::toolchain;
use warpsmith::check::verify::{self, Filter, Status};
use warpsmith::check::{Job, lines, registry};
use warpsmith::{kernels, sim};

/// A barrier that is taken out of a kernel is missed, and the findings name the accesses in the kernel's source.
#[test]
fn findings_name_lines_of_rust() {
    if kernels::not_built().is_some() || toolchain::find().is_err() {
        eprintln!("skipped: there are no kernels, or nothing to compile them with");
        return;
    }
    let device = sim::unshared().unwrap();
    let op = registry::find("sgemm").unwrap();
    let mutants: Vec<_> = lines::kernels(&device, &[op]).unwrap();
    let mutants: Vec<_> =
        mutants.iter().map(|(symbol, ptx)| (*symbol, ptx.replace("bar.sync", "// bar.sync"))).collect();
    let case = op.cases().into_iter().find(|case| case.is_simulated() && case.dims.get("n") > Some(128)).unwrap();
    let check = || verify::on_device(&device, &Job { op, case }, &Filter::default());
    let rows = device.simulator().unwrap().with_kernels(&mutants, check).unwrap();
    let failed = rows.iter().find(|row| row.status == Status::Fail).expect("no barrier is left");
    let texts: Vec<_> = failed.findings.iter().map(ToString::to_string).collect();
    let lines = |text: &String| text.matches("gpu-kernels/src/ops/gemm/sgemm/mod.rs:").count();
    assert!(texts.iter().all(|text| lines(text) > 0), "{texts:#?}");
    // Of a race, both accesses.
    assert!(texts.iter().any(|text| text.starts_with("shared-race") && lines(text) == 2), "{texts:#?}");
}
