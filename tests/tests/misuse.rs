//! Calls that are wrong at run time: each is an error that says what was wrong, and harms nothing.

use std::error::Error as _;

use warpsmith::check::Job;
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::{self, Filter, Status};
use warpsmith::ops::model::{self, Arguments, CaseClass, InputSpec, Operator, Params, Role, TensorMeta};
use warpsmith::{AnyTensor, DType, Device, Error, Stream, Tensor, f16, ops};
use warpsmith_tests::device;

fn tiny(op: &'static dyn Operator) -> Job {
    let case = op.cases().into_iter().find(|c| c.class == CaseClass::Tiny).expect("every operator has a tiny case");
    Job { op, case }
}

fn metas(job: &Job) -> Vec<TensorMeta> {
    job.op.inputs(&job.case).unwrap().iter().map(InputSpec::meta).collect()
}

#[test]
fn a_wrong_number_of_inputs_is_named() {
    for job in OPERATORS.iter().map(|op| tiny(*op)) {
        let params = Params::new(job.op.info());
        let all = metas(&job);
        let more = [all.clone(), all.clone()].concat();
        for inputs in [&all[1..], &more[..], &[]] {
            let error = model::outputs(job.op, inputs, &params).unwrap_err().to_string();
            let name = job.op.info().name;
            assert!(error.starts_with(name) && error.contains("input"), "{error}");
        }
    }
}

#[test]
fn a_dtype_that_is_not_offered_is_named() {
    for job in OPERATORS.iter().map(|op| tiny(*op)) {
        let info = job.op.info();
        for dtype in DType::ALL.iter().filter(|d| !info.dtypes.contains(d) && info.args[0].dtypes.is_empty()) {
            let mut inputs = metas(&job);
            inputs[0].dtype = *dtype;
            let error = model::outputs(job.op, &inputs, &Params::new(info)).unwrap_err();
            assert!(matches!(error, Error::DType { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(info.name) && text.contains(dtype.name()), "{text}");
        }
    }
}

/// Launches the operator's tiny case with its outputs changed, but for those that it also reads.
fn launch(stream: &Stream, job: &Job, change: impl Fn(&mut TensorMeta)) -> warpsmith::Result<()> {
    let zeros = |m: &TensorMeta| AnyTensor::zeros(stream, m.dtype, &m.shape);
    let read = metas(job);
    let mut written = model::outputs(job.op, &read, &job.case.params)?;
    written.iter_mut().filter(|output| read.iter().all(|input| input.name != output.name)).for_each(change);
    let inputs: Vec<_> = read.iter().map(zeros).collect::<Result<_, _>>()?;
    let mut outputs: Vec<_> = written.iter().map(zeros).collect::<Result<_, _>>()?;
    let mut args = Arguments::new(job.op.info());
    // What is read and written is among the outputs.
    let only_read = |(meta, _): &(&TensorMeta, &AnyTensor)| written.iter().all(|output| output.name != meta.name);
    let mut only_read = read.iter().zip(&inputs).filter(only_read);
    only_read.try_for_each(|(meta, tensor)| args.read(&meta.name, tensor.view()))?;
    written.iter().zip(&mut outputs).try_for_each(|(meta, tensor)| args.write(&meta.name, tensor.view_mut()))?;
    model::launch(job.op, stream, &mut args, &job.case.params)?;
    stream.synchronize()
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    for job in OPERATORS.iter().map(|op| tiny(*op)) {
        launch(&stream, &job, |_| {}).unwrap();
        if job.op.info().outputs().all(|arg| arg.role == Role::InOut) {
            continue;
        }
        let changes: [fn(&mut TensorMeta); 4] = [
            |m| *m.shape.last_mut().unwrap() += 1,
            |m| m.shape.iter_mut().for_each(|d| *d = 0),
            |m| m.shape.insert(0, 2),
            |m| m.dtype = if m.dtype == DType::U8 { DType::I64 } else { DType::U8 },
        ];
        for change in changes {
            let error = launch(&stream, &job, change).expect_err(job.op.info().name);
            assert!(matches!(error, Error::Shape { .. } | Error::DType { .. }), "{error}");
            // A formula of a user's own goes by its name, as do its kernels.
            let formulas = job.op.info().instances().filter_map(|kernel| Some(kernel.symbol.split_once("_f32")?.0));
            let mut names = formulas.chain([job.op.info().name]);
            assert!(names.any(|name| error.to_string().starts_with(name)), "{error}");
        }
    }
    works(&device);
}

#[test]
fn zero_points_that_do_not_fit_are_named() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    // Three rows of 130 integers, so two groups each.
    let bytes = |shape: [usize; 2]| Tensor::<u8>::zeros(&stream, shape).unwrap();
    let (q, scales) = (bytes([3, 65]), Tensor::<f32>::zeros(&stream, [3, 2]).unwrap());
    let x = Tensor::<f16>::zeros(&stream, [3, 130]).unwrap();
    let (few, wide) = (bytes([3, 1]), bytes([2, 3]));
    let said = |result: warpsmith::Result<()>| result.unwrap_err().to_string();
    let gemm = |zeros| said(ops::gemm_w4a16(&stream, &x, &q, &scales, Some(zeros)).map(drop));
    assert_eq!(gemm(few.view()), "gemm_w4a16: `zeros` has shape [3, 1], expected [3, 2]");
    assert_eq!(
        gemm(wide.view().t()),
        "gemm_w4a16: `zeros` has strides [1, 3] for shape [3, 2]: it has to be contiguous"
    );
    let widen = |zeros, d| said(ops::dequantize_int4::<f16>(&stream, &q, &scales, Some(zeros), d).map(drop));
    assert_eq!(widen(few.view(), 130), "dequantize_int4: `zeros` has shape [3, 1], expected [3, 2]");
    assert_eq!(widen(few.view(), 131), "dequantize_int4: `q` has shape [3, 65], expected [3, 66]");
    let (mut q, mut scales, mut few) = (bytes([3, 65]), Tensor::zeros(&stream, [3, 2]).unwrap(), few);
    let error = said(ops::quantize_int4_into(&stream, &x, &mut q, &mut scales, Some(few.view_mut())));
    assert_eq!(error, "quantize_int4: `zeros` has shape [3, 1], expected [3, 2]");
    works(&device);
}

#[test]
fn more_memory_than_there_is_is_refused_and_the_device_goes_on() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let total = device.memory().unwrap().1;
    let error = Tensor::<u8>::zeros(&stream, [2 * total as usize]).unwrap_err();
    match &error {
        Error::OutOfMemory { requested, total: seen, .. } => assert_eq!((*requested, *seen), (2 * total, total)),
        other => panic!("{other}"),
    }
    assert!(error.source().is_none());
    assert!(Tensor::<u8>::zeros(&stream, [usize::MAX]).is_err());
    assert!(Tensor::<i64>::zeros(&stream, [1 << 62]).is_err());
    works(&device);
}

/// The first operator still computes what it should.
fn works(device: &Device) {
    let rows = verify::on_device(device, &tiny(OPERATORS[0]), &Filter::default());
    assert!(rows.iter().all(|row| row.status == Status::Pass), "{rows:?}");
}

#[test]
fn errors_cross_threads_and_boxes() {
    fn check<T: std::error::Error + Send + Sync + Clone + 'static>() {}
    check::<Error>();
}
