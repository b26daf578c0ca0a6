//! Every operator, and every kernel of the lessons, on every case but the production shapes, which `warpsmith verify` runs: a test a case.
//! Then, in the simulator, [`mutants`] of their kernels: a test an operator.
//!
//! Without a device the kernels are not executed; their code and the references are checked. When all cases have run, every kernel that
//! an operator lists has to have been launched by one of them.

mod mutants;

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};
use warpsmith::check::registry;
use warpsmith::check::verify::{self, Filter, Row, Status, offline};
use warpsmith::kernels;
use warpsmith::ops::model::CaseClass;
use warpsmith_tests::{device, own_device};

/// What the cases that have run on the device were given.
static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let without_device = device().is_none();
    let filter = Filter {
        classes: CaseClass::ALL.into_iter().filter(|c| *c != CaseClass::Production).collect(),
        ..Filter::default()
    };
    let all: Vec<_> = registry::everything().collect();
    let jobs = verify::plan("verify", &all, &filter).expect("the registry has cases");
    let mut trials = Vec::new();
    for op in all {
        trials.push(Trial::test(format!("kernels {}", op.info().name), move || agree(op)));
    }
    let mut repeated = HashSet::new();
    for job in jobs.into_iter().filter(|job| !job.case.huge) {
        // Whether a second run gives the same bits is a matter of the kernel, not of the shape: asked of one case of each kind.
        let repeat = repeated.insert((job.op.info().name, job.case.dtype, job.case.class));
        if without_device {
            trials.push(Trial::test(format!("reference {job}"), move || judge(&[offline::reference(&job, 0)])));
            continue;
        }
        let (name, filter) = (format!("device {job}"), Filter { repeat, ..filter.clone() });
        let run = move || own_device().map_or(Ok(()), |device| judge(&verify::on_device(&device, &job, &filter)));
        trials.push(Trial::test(name, run));
    }
    // Last, so that the cases have told what they launch.
    trials.extend(mutants::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    let complete = !arguments.list && !without_device && conclusion.num_filtered_out == 0 && !conclusion.has_failed();
    if complete && let Err(missing) = all_launched().and_then(|()| mutants::enough()) {
        eprintln!("{missing}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Whether every kernel that an operator lists, and that the device has code for, was launched.
fn all_launched() -> Result<(), String> {
    let Some(device) = device() else { return Ok(()) };
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    let launched: HashSet<_> = rows.iter().flat_map(|row| &row.kernels).collect();
    for op in registry::everything() {
        for kernel in op.info().instances() {
            let images = kernels::images_of(kernel).map_err(|error| error.to_string())?;
            let runs_here = images.iter().any(|image| device.archs().contains(&image.arch));
            if runs_here && !launched.contains(&kernel.symbol) {
                return Err(format!("{}: no case launches {}", op.info().name, kernel.symbol));
            }
        }
    }
    Ok(())
}

fn judge(rows: &[Row]) -> Result<(), Failed> {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(rows);
    match rows.iter().find(|row| row.status == Status::Fail) {
        Some(row) => Err(format!("variant {}: {}", row.variant, row.detail.as_deref().unwrap_or_default()).into()),
        None => Ok(()),
    }
}

fn agree(op: &dyn warpsmith::ops::model::Operator) -> Result<(), Failed> {
    let rows = offline::kernels(op.info(), None)?;
    match rows.iter().find(|row| row.status == Status::Fail) {
        Some(row) => Err(format!("{} {}: {}", row.symbol, row.arch, row.detail.as_deref().unwrap_or_default()).into()),
        None => Ok(()),
    }
}
