//! Every operator on every case but the production shapes, which `warpsmith verify` runs: a test a case.
//!
//! Without a device the kernels are not executed, and those tests show as ignored; their code and the references are checked.

use libtest_mimic::{Arguments, Failed, Trial};
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter, Row, Status, offline};
use warpsmith::ops::model::CaseClass;
use warpsmith_tests::{device, own_device};

fn main() {
    let arguments = Arguments::from_args();
    let without_device = device().is_none();
    let filter = Filter {
        classes: CaseClass::ALL.into_iter().filter(|c| *c != CaseClass::Production).collect(),
        repeat: true,
        ..Filter::default()
    };
    let jobs = verify::plan(OPERATORS, &filter).expect("the registry has cases");
    let mut trials = Vec::new();
    for op in OPERATORS {
        trials.push(Trial::test(format!("kernels {}", op.info().name), || kernels(*op)));
    }
    for job in jobs.into_iter().filter(|job| !job.case.huge) {
        let reference = job.clone();
        trials.push(Trial::test(format!("reference {job}"), move || judge(&[offline::reference(&reference, 0)])));
        let (name, filter) = (format!("device {job}"), filter.clone());
        let run = move || own_device().map_or(Ok(()), |device| judge(&verify::on_device(&device, &job, &filter)));
        trials.push(Trial::test(name, run).with_ignored_flag(without_device));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn judge(rows: &[Row]) -> Result<(), Failed> {
    match rows.iter().find(|row| row.status == Status::Fail) {
        Some(row) => Err(format!("variant {}: {}", row.variant, row.detail.as_deref().unwrap_or_default()).into()),
        None => Ok(()),
    }
}

fn kernels(op: &dyn warpsmith::ops::model::Operator) -> Result<(), Failed> {
    let rows = offline::kernels(op.info(), None)?;
    match rows.iter().find(|row| row.status == Status::Fail) {
        Some(row) => Err(format!("{} {}: {}", row.symbol, row.arch, row.detail.as_deref().unwrap_or_default()).into()),
        None => Ok(()),
    }
}
