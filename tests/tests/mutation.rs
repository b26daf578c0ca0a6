//! The checks against the kernels themselves: every instruction that synchronises is taken out in turn, and the simulator has
//! to notice. A test an operator.

use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use warpsmith::check::mutation::{Mutation, synchronising};
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter};
use warpsmith::ops::model::Operator;
use warpsmith::{kernels, sim};

static MUTANTS: AtomicUsize = AtomicUsize::new(0);

fn main() {
    let trial = |op: &&'static dyn Operator| {
        let op = *op;
        Trial::test(op.info().name, move || no_synchronisation_goes_missing_unnoticed(op))
    };
    let mut trials: Vec<_> = OPERATORS.iter().map(trial).collect();
    trials.push(Trial::test("guarded instructions count", guarded_instructions_count));
    let result = libtest_mimic::run(&Arguments::from_args(), trials);
    let all = kernels::not_built().is_none() && result.num_filtered_out == 0 && result.num_passed > 1;
    assert!(!all || MUTANTS.load(Ordering::Relaxed) > 50, "too few mutants: {MUTANTS:?}");
    result.exit();
}

fn no_synchronisation_goes_missing_unnoticed(op: &'static dyn Operator) -> Result<(), Failed> {
    let device = sim::unshared()?;
    let filter = Filter::default();
    let jobs: Vec<_> = verify::plan(&[op], &filter)?.into_iter().filter(|job| job.case.is_simulated()).collect();
    let mutation = Mutation::new(&device, &jobs, &filter)?;
    MUTANTS.fetch_add(mutation.count(), Ordering::Relaxed);
    let mutants = mutation.run(2, |_| {})?;
    let missed: Vec<_> = mutants.iter().filter(|mutant| mutant.caught.is_none()).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("{missed:#?}").into()) }
}

fn guarded_instructions_count() -> Result<(), Failed> {
    let ptx =
        "bar.sync 0;\n\t@%p1 fence.acq_rel.gpu;\n@!%p1 bra L;\nmov.u32 %r1, 0; // fence\n wgmma.fence.sync.aligned;";
    let found: Vec<_> = synchronising(ptx).map(|(line, _)| line).collect();
    if found == [1, 2, 5] { Ok(()) } else { Err(format!("{found:?}").into()) }
}
