//! Operators on shapes that nobody chose: a test an operator.
//!
//! The shapes are the same in every run, so that it is a change that fails and not the draw; PROPTEST_RNG_SEED draws others.

use std::cell::Cell;

use libtest_mimic::{Arguments, Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use warpsmith::Error;
use warpsmith::check::Job;
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter, Status, offline};
use warpsmith::ops::model::{self, Arrangement, Case, CaseClass, Dims, InputSpec, Operator};
use warpsmith_tests::own_device;

const CASES: u32 = 48;
/// How many shapes may be drawn for nothing, because sizes that have to do with each other do not fit.
const MISFITS: u32 = 64 * CASES;

fn main() {
    let trial = |op: &&'static dyn Operator| {
        let op = *op;
        Trial::test(op.info().name, move || any_size_is_computed_right(op))
    };
    libtest_mimic::run(&Arguments::from_args(), OPERATORS.iter().map(trial).collect()).exit();
}

/// Cases of `op` with sizes up to 300, up to 16 where there are many, misaligned and padded where it has such cases itself.
fn cases(op: &'static dyn Operator) -> impl Strategy<Value = Case> {
    let known = op.cases();
    let names: Vec<&'static str> = known[0].dims.iter().map(|(name, _)| name).collect();
    let args = op.info().args;
    // Each tensor may lie as it lies in a case of the operator's own.
    let offset = |name| known.iter().any(|c| c.arrangement(name).offset > 0);
    let pad = |name| known.iter().any(|c| c.arrangement(name).row_pad > 0);
    let free: Vec<_> = args.iter().map(|arg| (arg.name, offset(arg.name), pad(arg.name))).collect();
    let most: usize = if names.len() > 3 { 16 } else { 300 };
    let sizes = prop::collection::vec(prop_oneof![0..20.min(most), 0..most], names.len());
    let places = prop::collection::vec((0..9usize, 0..9usize), args.len());
    // Optional inputs need not go together: those of the operator's first case do.
    let optional: Vec<_> =
        args.iter().filter(|arg| arg.optional && known[0].has(arg.name)).map(|arg| arg.name).collect();
    (sizes, 0..op.info().dtypes.len(), places).prop_map(move |(sizes, dtype, places)| {
        let mut dims = Dims::default();
        names.iter().zip(sizes).for_each(|(name, size)| dims.push(name, size));
        let case = Case::new(op.info(), CaseClass::Odd, op.info().dtypes[dtype], dims).only(&optional);
        free.iter().zip(places).fold(case, |case, ((name, offset, pad), (by, after))| {
            let by = if *offset { by } else { 0 };
            let after = if *pad { after } else { 0 };
            case.arrange(name, Arrangement::DENSE.offset(by).row_pad(after))
        })
    })
}

fn any_size_is_computed_right(op: &'static dyn Operator) -> Result<(), Failed> {
    let device = own_device();
    let computed = Cell::new(0);
    let check = |case| {
        // Sizes that have to do with each other may not fit: a number of heads that divides another.
        let specs = op.inputs(&case).map(|specs| specs.iter().map(InputSpec::meta).collect::<Vec<_>>());
        if matches!(specs.and_then(|specs| model::outputs(op, &specs, &case.params)), Err(Error::Shape { .. })) {
            return Err(TestCaseError::reject("sizes do not fit"));
        }
        let job = Job { op, case };
        let rows = match &device {
            Some(device) => verify::on_device(device, &job, &Filter::default()),
            None => vec![offline::reference(&job, 0)],
        };
        if let Some(row) = rows.iter().find(|row| row.status == Status::Fail) {
            return Err(TestCaseError::fail(row.detail.clone().unwrap_or_default()));
        }
        computed.set(computed.get() + u32::from(rows.iter().any(|row| row.status == Status::Pass)));
        Ok(())
    };
    let mut config =
        Config { cases: CASES, max_global_rejects: MISFITS, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0);
    }
    TestRunner::new(config).run(&cases(op), check).map_err(|error| match error {
        TestError::Fail(reason, case) => format!("{}: {reason}", case.name).into(),
        TestError::Abort(reason) => Failed::from(reason.to_string()),
    })?;
    match computed.get() {
        CASES => Ok(()),
        computed => Err(format!("of {CASES} cases {computed} were computed").into()),
    }
}
