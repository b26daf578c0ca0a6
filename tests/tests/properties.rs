//! Operators on shapes that nobody chose.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter, Status, offline};
use warpsmith::check::{Job, finite_differences};
use warpsmith::ops::model::{self, Arrangement, Case, CaseClass, Dims, InputSpec, Operator, Params, TensorMeta};
use warpsmith::{DType, Error};
use warpsmith_tests::device;

const CASES: u32 = 48;

fn runner() -> TestRunner {
    TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() })
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

#[test]
fn any_size_is_computed_right() {
    let device = device();
    for op in OPERATORS.iter().copied() {
        let check = |case| {
            // Sizes that have to do with each other may not fit: a number of heads that divides another.
            let specs = op.inputs(&case).map(|specs| specs.iter().map(InputSpec::meta).collect::<Vec<_>>());
            if matches!(specs.and_then(|specs| model::outputs(op, &specs, &case.params)), Err(Error::Shape { .. })) {
                return Ok(());
            }
            let job = Job { op, case };
            let rows = match &device {
                Some(device) => verify::on_device(device, &job, &Filter::default()),
                None => vec![offline::reference(&job, 0)],
            };
            match rows.iter().find(|row| row.status == Status::Fail) {
                Some(row) => Err(TestCaseError::fail(format!("{job}: {}", row.detail.as_deref().unwrap_or_default()))),
                None => Ok(()),
            }
        };
        runner().run(&cases(op), check).unwrap();
    }
}

#[test]
fn any_input_gives_outputs_or_an_error_that_names_the_operator() {
    let size = prop_oneof![0..5usize, Just(usize::MAX), Just(1 << 40), 0..5000usize];
    let shape = prop::collection::vec(size, 0..6);
    let meta = (shape, 0..DType::ALL.len()).prop_map(|(shape, dtype)| TensorMeta {
        name: "x".to_owned(),
        dtype: DType::ALL[dtype],
        shape,
    });
    for op in OPERATORS {
        let info = op.info();
        // Mostly the right names, so that shapes and types have their turn.
        let names: Vec<_> = info.inputs().map(|arg| arg.name).chain(["unknown"]).collect();
        let inputs = prop::collection::vec((meta.clone(), 0..8 * names.len()), 0..names.len() + 1);
        let check = |inputs: Vec<(TensorMeta, usize)>| {
            let named = inputs.into_iter().enumerate().map(|(i, (meta, pick))| {
                let name = names.get(pick).unwrap_or(&names[i.min(names.len() - 1)]);
                TensorMeta { name: (*name).to_owned(), ..meta }
            });
            let inputs: Vec<_> = named.collect();
            match model::outputs(*op, &inputs, &Params::new(info)) {
                Ok(outputs) => prop_assert_eq!(outputs.len(), info.outputs().count()),
                Err(error) => prop_assert!(error.to_string().starts_with(info.name), "{error}"),
            }
            Ok(())
        };
        runner().run(&inputs, check).unwrap();
    }
}

#[test]
fn any_parameter_text_is_a_value_or_an_error() {
    let text = prop_oneof![".{0,20}", "[a-z]{1,8}=.{0,10}", "(eps|scale|alpha|variant)=[-+.e0-9a-z]{0,8}"];
    for op in OPERATORS {
        let check = |text: String| {
            if let Err(error) = Params::new(op.info()).with_text(&text) {
                prop_assert!(matches!(error, Error::InvalidParam { .. }), "{error}");
            }
            Ok(())
        };
        runner().run(&text, check).unwrap();
    }
}

#[test]
fn gradients_are_what_finite_differences_say() {
    let mut backward = 0;
    for op in OPERATORS.iter().copied() {
        let compared = finite_differences::check(op).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(compared > 0, op.gradient().is_some(), "{}", op.info().name);
        backward += usize::from(compared > 0);
    }
    assert!(backward > 0);
}
