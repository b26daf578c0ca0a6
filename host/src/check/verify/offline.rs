//! The checks of an operator that need no device: of its kernels' code, and of its reference.

use cuda_builder::ptxas::Ptxas;
use serde::Serialize;

use cuda_std::launch::Instance;

use super::{Expected, Job, Row, Status, has_ordinary_input, is_large};
use crate::check::random;
use crate::ops::model::{self, OpInfo, TensorMeta};
use crate::runtime::error::Result;
use crate::runtime::kernels::{self, KernelImage};

/// One kernel in one architecture's code.
#[derive(Clone, Debug, Serialize)]
pub struct KernelRow {
    /// Operator.
    pub op: &'static str,
    /// Entry.
    pub symbol: &'static str,
    /// Architecture; empty if there is no code at all.
    pub arch: &'static str,
    /// Whether code and host agree, and the code assembles.
    pub status: Status,
    /// Registers per thread, reported by ptxas, as are the following.
    pub registers: Option<u32>,
    /// Shared memory per block, in bytes.
    pub shared_bytes: usize,
    /// Stack frame per thread, in bytes.
    pub stack: Option<u32>,
    /// Bytes spilled, stores and loads.
    pub spills: Option<u32>,
    /// The error.
    pub detail: Option<String>,
}

/// Compares the code of an operator's kernels with the launches of the host, and assembles it if that was not done yet and
/// `ptxas` is present.
pub fn kernels(info: &OpInfo, ptxas: Option<&Ptxas>) -> Result<Vec<KernelRow>> {
    let mut rows = Vec::new();
    for kernel in info.instances() {
        let images = kernels::images_of(kernel)?;
        if images.is_empty() {
            let detail = Some("there is no code for it".to_owned());
            rows.push(KernelRow { status: Status::Fail, detail, ..row(info, kernel, "") });
        }
        for image in images {
            rows.push(check(info, kernel, image, ptxas)?);
        }
    }
    Ok(rows)
}

fn row(info: &OpInfo, kernel: &Instance, arch: &'static str) -> KernelRow {
    KernelRow {
        op: info.name,
        symbol: kernel.symbol,
        arch,
        status: Status::Pass,
        registers: None,
        shared_bytes: kernel.shared_bytes,
        stack: None,
        spills: None,
        detail: None,
    }
}

fn check(info: &OpInfo, kernel: &Instance, image: &'static KernelImage, ptxas: Option<&Ptxas>) -> Result<KernelRow> {
    let mut row = row(info, kernel, image.arch.as_str());
    let ptx = image.ptx()?;
    let mut problems = mismatches(kernel, image, &ptx);
    // The build that compiled the kernel has assembled it, if that was possible there.
    let assembled = match (image.resources(), ptxas.filter(|ptxas| ptxas.supports(image.arch))) {
        (Some(used), _) => Some(Ok(used.clone())),
        (None, Some(ptxas)) => Some(ptxas.assemble(&ptx, image.arch, image.opt_level)),
        (None, None) => None,
    };
    match assembled {
        Some(Ok(used)) => {
            row.registers = Some(used.registers);
            row.stack = Some(used.stack_bytes);
            row.spills = Some(used.spill_stores + used.spill_loads);
        }
        Some(Err(error)) => problems.push(format!("ptxas: {error}")),
        None => {}
    }
    if !problems.is_empty() {
        row.status = Status::Fail;
        row.detail = Some(problems.join("; "));
    }
    Ok(row)
}

/// The differences between the code and the host's types.
fn mismatches(kernel: &Instance, image: &KernelImage, ptx: &str) -> Vec<String> {
    let mut problems: Vec<_> = kernels::check(kernel, image).err().iter().map(ToString::to_string).collect();
    if !ptx.contains(&format!(".entry {}(", image.symbol)) {
        problems.push("the code has no entry of that name".to_owned());
    }
    let block = kernel.block;
    let bound = format!(".maxntid {}, {}, {}", block.x, block.y, block.z);
    if !ptx.contains(&bound) {
        problems.push(format!("the code does not say `{bound}`"));
    }
    problems
}

/// Evaluates the reference of a case and checks its size and, for finite input, that it is finite. Large cases are left
/// out: their input alone takes too long without a device to pay for it.
pub fn reference(job: &Job, seed: u64) -> Row {
    let mut row = Row::new(job, None);
    if is_large(job) || job.case.huge {
        row.skip("a large case, run on a device only");
        return row;
    }
    if let Err(error) = try_reference(job, seed, &mut row) {
        row.fail(&error);
    }
    row
}

fn try_reference(job: &Job, seed: u64, row: &mut Row) -> Result<()> {
    let inputs = random::inputs(job.op, &job.case, seed)?;
    let metas: Vec<_> = inputs.iter().map(|(name, t)| TensorMeta::of(name, t)).collect();
    let outputs = model::outputs(job.op, &metas, &job.case.params)?;
    let finite = has_ordinary_input(job)?;
    for expected in Expected::all(job, &inputs, outputs, seed)? {
        row.abs = Some(expected.tolerance.abs);
        row.rel = Some(expected.tolerance.rel);
        row.elements += expected.meta.elements().unwrap_or(0);
        row.checked += expected.values.len();
        if let Some(problem) = expected.impossible().filter(|_| finite) {
            row.problem(problem);
        }
    }
    Ok(())
}
