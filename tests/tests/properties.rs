//! Operators on arguments that nobody chose.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use warpsmith::check::finite_differences;
use warpsmith::check::registry::OPERATORS;
use warpsmith::ops::model::{self, Arguments, Case, CaseClass, Dims, InputSpec, Params, TensorMeta};
use warpsmith::{AnyTensor, DType, Error, Stream, Tensor, bf16, ops};
use warpsmith_tests::own_device;

const CASES: u32 = 48;

fn runner() -> TestRunner {
    TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() })
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
                Ok(outputs) => {
                    let names: Vec<_> = outputs.iter().map(|output| output.name.as_str()).collect();
                    let wanted = info.outputs().filter(|arg| !arg.optional || names.contains(&arg.name));
                    prop_assert_eq!(&names, &wanted.map(|arg| arg.name).collect::<Vec<_>>());
                }
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
fn sizes_beside_a_zero_are_no_problem_or_named() {
    let Some(device) = own_device() else { return };
    let stream = device.stream().unwrap();
    let size = || prop::sample::select(vec![0, 0, 1, 4, 1 << 17]);
    // Tensors that are not empty have to be small.
    let few = |meta: &TensorMeta| meta.elements().is_some_and(|n| n < 1000);
    for op in OPERATORS.iter().copied() {
        let known = op.cases().remove(0);
        let names: Vec<_> = known.dims.iter().map(|(name, _)| name).collect();
        let optional: Vec<_> = op.info().args.iter().map(|arg| arg.name).filter(|name| known.has(name)).collect();
        let check = |sizes: Vec<usize>| {
            let mut dims = Dims::default();
            names.iter().zip(sizes).for_each(|(name, size)| dims.push(name, size));
            let case = Case::new(op.info(), CaseClass::Empty, known.dtype, dims).only(&optional);
            let Ok(specs) = op.inputs(&case) else { return Ok(()) };
            let read: Vec<_> = specs.iter().map(InputSpec::meta).collect();
            let Ok(written) = model::outputs(op, &read, &case.params) else { return Ok(()) };
            if !read.iter().chain(&written).all(few) {
                return Ok(());
            }
            // Strides of some are past 2⁶³ all the same.
            let (Ok(inputs), Ok(mut outputs)) = (zeros(&stream, &read), zeros(&stream, &written)) else {
                return Ok(());
            };
            let mut args = Arguments::new(op.info());
            let is_written = |name: &str| written.iter().any(|output| output.name == name);
            for (meta, tensor) in read.iter().zip(&inputs).filter(|(meta, _)| !is_written(&meta.name)) {
                args.read(&meta.name, tensor.view()).unwrap();
            }
            for (meta, tensor) in written.iter().zip(&mut outputs) {
                args.write(&meta.name, tensor.view_mut()).unwrap();
            }
            if let Err(error) = model::launch(op, &stream, &mut args, &case.params) {
                prop_assert!(error.to_string().starts_with(op.info().name), "{error}");
            }
            Ok(())
        };
        let config = Config { cases: CASES, rng_seed: RngSeed::Fixed(0), ..runner().config().clone() };
        let found = TestRunner::new(config).run(&prop::collection::vec(size(), names.len()), check);
        found.unwrap_or_else(|error| panic!("{}: {error}", op.info().name));
    }
}

fn zeros(stream: &Stream, metas: &[TensorMeta]) -> Result<Vec<AnyTensor>, Error> {
    metas.iter().map(|meta| AnyTensor::zeros(stream, meta.dtype, &meta.shape)).collect()
}

#[test]
fn no_products_are_none_however_large() {
    let Some(device) = own_device() else { return };
    let stream = device.stream().unwrap();
    let [a, b] = [[0, 1 << 23, 0], [0, 0, 1 << 23]].map(|shape| Tensor::<bf16>::zeros(&stream, shape).unwrap());
    assert_eq!(ops::gemm(&stream, &a, &b).unwrap().shape()[..], [0, 1 << 23, 1 << 23]);
}

/// `d` and the name of the tensor: see CONTRIBUTING.md.
#[test]
fn gradients_have_the_names_of_their_tensors() {
    for gradient in OPERATORS.iter().filter_map(|op| op.gradient()) {
        for pairs in [gradient.of_outputs, gradient.of_inputs] {
            let named = |name: &str| {
                let mut tensors = pairs.iter().filter(|(gradient, _)| *gradient == name).map(|(_, tensor)| *tensor);
                tensors.any(|tensor| name == format!("d{tensor}") || (name, tensor) == ("d_o", "o"))
            };
            // A derivative of the output itself has none, and that by the scores of a loss is the only one.
            let exempt = |name: &str| name.is_empty() || (name == "gradient" && pairs.len() == 1);
            let wrong: Vec<_> = pairs.iter().filter(|(name, _)| !named(name) && !exempt(name)).collect();
            assert!(wrong.is_empty(), "{}: {wrong:?}", gradient.forward.info().name);
        }
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
