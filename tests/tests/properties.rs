//! Operators on shapes that nobody chose.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter, Job, Status, offline};
use warpsmith::ops::model::params::Params;
use warpsmith::ops::model::{Case, CaseClass, Dims, Operator, TensorMeta};
use warpsmith::{DType, Error};
use warpsmith_tests::device;

const CASES: u32 = 48;

fn runner() -> TestRunner {
    TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() })
}

/// Cases of `op` with sizes up to 300, misaligned and padded where it has such cases itself.
fn cases(op: &'static dyn Operator) -> impl Strategy<Value = Case> {
    let known = op.cases();
    let names: Vec<&'static str> = known[0].dims.iter().map(|(name, _)| name).collect();
    let offsets = if known.iter().any(|c| c.layout.offset > 0) { 9usize } else { 1 };
    let pads = if known.iter().any(|c| c.layout.row_pad > 0) { 9usize } else { 1 };
    let sizes = prop::collection::vec(prop_oneof![0..20usize, 0..300usize], names.len());
    (sizes, 0..op.info().dtypes.len(), 0..offsets, 0..pads).prop_map(move |(sizes, dtype, offset, pad)| {
        let mut dims = Dims::default();
        names.iter().zip(sizes).for_each(|(name, size)| dims.push(name, size));
        Case::new(op.info(), CaseClass::Odd, op.info().dtypes[dtype], dims).offset(offset).row_pad(pad)
    })
}

#[test]
fn any_size_is_computed_right() {
    let device = device();
    for op in OPERATORS.iter().copied() {
        let check = |case| {
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
        let inputs = prop::collection::vec(meta.clone(), 0..info.inputs.len() + 2);
        let check = |inputs: Vec<TensorMeta>| {
            match op.outputs(&inputs, &Params::new(info)) {
                Ok(outputs) => prop_assert_eq!(outputs.len(), info.outputs.len()),
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
